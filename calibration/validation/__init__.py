"""Published fits, and what this library finds for them: a group of `jaxtape validate`."""
