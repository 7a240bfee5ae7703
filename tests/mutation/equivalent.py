"""Mutants that do what the module does: by module, code and changed code, why no test can tell them."""

EQUIVALENT: dict[tuple[str, str, str], str] = {}
