"""Solvers of backward equations, basis functions for regressions, and networks."""
