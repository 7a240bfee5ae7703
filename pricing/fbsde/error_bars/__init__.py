"""Error bars of solutions: certificates on fresh paths, early-exercise bounds, and relative errors."""
