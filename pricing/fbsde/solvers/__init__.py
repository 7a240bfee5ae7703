"""Solvers of backward equations, the sets of functions that regressions combine, and their networks."""
