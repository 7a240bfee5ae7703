"""The command `jaxtape compare`, and comparisons by name."""
