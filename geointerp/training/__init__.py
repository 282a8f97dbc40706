"""Training: the loop, presets, and run folders."""
