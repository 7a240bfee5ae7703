"""Finite differences: uneven grids, alternating directions, local volatility."""
