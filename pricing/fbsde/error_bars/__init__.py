"""Error bars of a solution: certificates on fresh paths, bounds of early exercise, and relative errors."""
