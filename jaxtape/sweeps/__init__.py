"""The executor: a chain is run, its states are kept, and it is reversed as a table says."""
