"""Paths of an equation, step densities, values along paths, and the form of a driver."""
