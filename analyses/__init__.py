"""Studies: each ``python -m analyses.NAME`` -> results."""
