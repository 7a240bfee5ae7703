"""Show a package's public names, without the modules that define them, in `dir` and tab completion."""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any


def public_dir(names: Mapping[str, Any], *packages: str) -> Callable[[], list[str]]:
    """Return the `__dir__` of a package: its names without a leading underscore, except modules.

    Args:
        names: The package's `globals()`.
        packages: The names of its public packages, such as "fbsde", which are shown.
    """

    def is_public(name: str) -> bool:
        return name[0] != "_" and (name in packages or not isinstance(names[name], ModuleType))

    return lambda: sorted(filter(is_public, names))
