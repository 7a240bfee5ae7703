"""Describe a user's functions and classes: their code, and the values of the globals that they read.

The name of a function and the sources of its package identify it only if nothing that it reads changes at run
time. A constant that a script computes, reads from a file or takes from the command line does change.
"""

import dis
import functools
import inspect
import json
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator
from importlib import util
from typing import Any

from .pytree_json import PytreeSpec, by_value, code_of

_OURS = "jaxtape", "pricing", "calibration"
_INSTALLED = "site-packages", "dist-packages"


def describe_user_code(objects: Iterable[Any]) -> list:
    """Describe the code of a user's functions and classes, and of all that they call, as plain data.

    Code of installed packages and of Python itself is left out: versions and sources identify it.

    Args:
        objects: Functions and classes, such as `PytreeSpec.objects`.

    Returns:
        Lists and strings, as in JSON. TypeError is raised if a global in use is not plain data, an array, a
        module, a function or a class.
    """
    waiting, seen, found = list(objects)[::-1], set(), []
    while waiting:
        item = waiting.pop()
        if id(item) in seen or not _is_users(item):
            continue
        seen.add(id(item))
        if isinstance(item, type):
            waiting += [*_members(item)][::-1] + list(item.__mro__[1:])
            continue
        _require_imports_of_others(item)
        read, below = _globals_of(item)
        found.append([item.__module__, item.__qualname__, code_of(item.__code__), read])
        waiting += below[::-1]
    return found


def _members(kind: type) -> Iterator[types.FunctionType]:
    """The functions that a class defines, without their wrappers."""
    for member in vars(kind).values():
        held = (getattr(member, name, None) for name in ("__func__", "fget", "method", "func"))
        for part in filter(callable, (member, *held)):
            if isinstance(function := inspect.unwrap(part), types.FunctionType):
                yield function


def _globals_of(function: types.FunctionType) -> tuple[list, list]:
    """Describe the globals that a function reads, and return the functions and classes among them."""
    words, objects = [], []
    for name in sorted(
        _operands(function.__code__, "LOAD_GLOBAL", "LOAD_NAME") & set(function.__globals__)
    ):
        value = function.__globals__[name]
        if isinstance(value, types.ModuleType):
            if not _is_users_module(value.__name__):
                continue
            attributes = sorted(_attributes(function.__code__) & set(vars(value)))
            value = {attribute: getattr(value, attribute) for attribute in attributes}
            value = {k: v for k, v in value.items() if not isinstance(v, types.ModuleType)}
        described = PytreeSpec(inspect.unwrap(value) if callable(value) else value, by_value)
        words.append([name, json.dumps(described.json)])
        objects += described.objects
    return words, objects


def _require_imports_of_others(function: types.FunctionType) -> None:
    """Refuse a function that imports a user's module within its body.

    Raises:
        TypeError: If it does: the values it would read cannot be known before it runs.
    """
    for name in _operands(function.__code__, "IMPORT_NAME"):
        package = name.partition(".")[0]
        if package not in sys.stdlib_module_names and package not in _OURS:
            spec = util.find_spec(package) if package else None
            if spec is None or not _is_installed(spec.origin or ""):
                raise TypeError(
                    f"{function.__qualname__} imports {name or 'its package'} within its body"
                )


def _operands(code: types.CodeType, *operations: str) -> set[str]:
    operands = {i.argval for i in dis.get_instructions(code) if i.opname in operations}
    return operands.union(*(_operands(inner, *operations) for inner in _inner(code)))


def _attributes(code: types.CodeType) -> set[str]:
    """The names that a function's code looks up, including attributes."""
    return set(code.co_names).union(*map(_attributes, _inner(code)))


def _inner(code: types.CodeType) -> list[types.CodeType]:
    return [x for x in code.co_consts if isinstance(x, types.CodeType)]


def _is_users(item: Any) -> bool:
    return isinstance(item, (types.FunctionType, type)) and _is_users_module(item.__module__)


@functools.cache
def _is_users_module(name: str) -> bool:
    """Whether a module is a user's: neither Python's, nor installed, nor of this library."""
    package = name.partition(".")[0]
    if package in _OURS or package in sys.stdlib_module_names:
        return package == "__main__"
    path = getattr(sys.modules.get(name), "__file__", None)
    if path is None:
        return name == "__main__"
    return not _is_installed(path)


def _is_installed(path: str) -> bool:
    is_package = any(f"/{folder}/" in path.replace("\\", "/") for folder in _INSTALLED)
    return is_package or path.startswith(sysconfig.get_path("stdlib"))
