"""Settings of JAX and XLA that the library makes."""
