"""Compiled work that outlives the process: exported programs, as files and in a store."""
