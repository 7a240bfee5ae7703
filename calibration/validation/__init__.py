"""Published fits and this library's results for them: a group of `jaxtape validate`."""
