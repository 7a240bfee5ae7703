"""Closed forms: Black's formula, barriers, swaps, averages, American options."""
