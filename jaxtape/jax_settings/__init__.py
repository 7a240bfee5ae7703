"""Settings of JAX and XLA made by the library."""
