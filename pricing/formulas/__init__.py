"""Closed forms: Black's formula and its inverse, barriers, swaps, averages, American options."""
