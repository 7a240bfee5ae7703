"""The fingerprint of a program's environment: code, versions, settings, flags and the platform."""

import functools
import hashlib
import os
import re
import sys
import time
from collections.abc import Iterable
from importlib import metadata, util
from pathlib import Path

import jax

from ..jax_settings.kernels import kernels_are_on

_STARTED = time.time()
_NUMERICS = ("jax", "jaxlib", "equinox", "numpy", "scipy")
_IMPORTS = re.compile(r"^(?:from|import)[ \t]+([a-zA-Z_]\w*)", re.MULTILINE)


def settings() -> tuple:
    """Return the current JAX settings of this thread, except those of its cache."""
    held = jax.config.values.items()
    return tuple((name, value) for name, value in held if "cache" not in name)


def fingerprint(packages: Iterable[str]) -> dict[str, object]:
    """Return everything that identifies a program besides its function and arguments.

    Args:
        packages: The packages whose code the program uses. The packages that they import at the top of their
            modules count as well, by their sources or, if installed, by their record. TypeError is raised if a
            package's sources are unknown, or newer than this process.
    """
    code, waiting = {}, [*packages]
    while waiting:
        name = waiting.pop()
        if name not in code and name not in sys.stdlib_module_names:
            code[name], imported = _code_of(name)
            waiting += imported
    return {
        "code": code,
        "python": sys.version,
        "versions": _versions(),
        "settings": {name: str(value) for name, value in settings()},
        "kernels": kernels_are_on(),
        "flags": [os.environ.get(name, "") for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")],
        "platform": [jax.default_backend(), jax.devices()[0].device_kind],
    }


@functools.cache
def _versions() -> dict[str, str]:
    """Return the versions of the packages that do the computing."""
    return {name: metadata.version(name) for name in _NUMERICS}


@functools.cache
def _code_of(package: str) -> tuple[str, tuple[str, ...]]:
    """Return a digest of a package's code, and its imports, unless it was installed under its own name.

    Raises:
        TypeError: If there are no sources, or they have changed since this process began.
    """
    spec = None if package == "__main__" else util.find_spec(package)
    if spec is None or spec.origin in ("built-in", "frozen"):
        raise TypeError(f"the sources of {package} are not known")
    if record := _record(package, spec.origin):
        return hashlib.sha256(record.encode()).hexdigest(), ()
    roots = [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = [file for root in roots for file in sorted(root.rglob("*.py"))]
    digest, imported = hashlib.sha256(), set()
    for file in files or [Path(spec.origin or "")]:
        text = file.read_bytes()
        if file.stat().st_mtime > _STARTED:
            raise TypeError(f"{file} is newer than this process, which may run an earlier version")
        digest.update(f"{file.parent.name}/{file.name} {len(text)} ".encode() + text)
        imported |= set(_IMPORTS.findall(text.decode(errors="replace")))
    installed = (name for name in imported if util.find_spec(name))
    return digest.hexdigest(), tuple(sorted(installed))


def _record(package: str, origin: str | None) -> str | None:
    """Return the names and digests of the files that an installed package consists of."""
    try:
        found = metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return None
    is_there = origin is not None and Path(str(found.locate_file(package))) in Path(origin).parents
    return found.read_text("RECORD") if is_there else None
