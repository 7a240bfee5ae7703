"""Published values of contracts and the library's figures for them: groups of `jaxtape validate`."""

from .price_tables import of_tables as of_tables
