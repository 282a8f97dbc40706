"""Report: figures from results, and the offline page that holds them."""
