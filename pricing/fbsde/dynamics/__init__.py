"""Paths of an equation, the density of a step, values at the nodes of paths, and the form of a driver."""
