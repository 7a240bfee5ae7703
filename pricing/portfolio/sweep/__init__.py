"""The sweep over a book: groups of similar trades in tiles, and the derivatives of each tile."""
