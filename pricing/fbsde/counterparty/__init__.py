"""Adjustments of a netting set for default, funding and collateral."""
