"""Published values of contracts, and what this library finds for them: groups of `jaxtape validate`."""

from .groups import of_tables as of_tables
