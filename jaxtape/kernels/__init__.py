"""Run chains of independent paths as kernels: one path per thread, one kernel per sweep."""
