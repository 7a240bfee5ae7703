"""A book in tiles: groups of like trades, and the derivatives of one tile."""
