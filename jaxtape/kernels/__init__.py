"""Chains of independent paths as kernels: one path, one thread; one kernel a sweep."""
