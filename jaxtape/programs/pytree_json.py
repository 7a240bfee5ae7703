"""Describe a pytree without its numbers, as JSON lists and strings that any process understands.

Two trees have the same description if `jax.jit` would run one program for both: classes and functions are
described by their names, a closure by its code and the values it holds, static fields by value. Anything that
another process could not understand raises TypeError. The serialization of `jax.export` does less (up to JAX
0.12): every class must be registered for the whole process, keys of dictionaries must be strings, and strings
and numbers in results must be arrays. `from_json` is the inverse, for trees of plain data, modules and named
tuples; it looks classes up in the modules already imported, and runs no code.
"""

import dataclasses
import enum
import functools
import hashlib
import json
import sys
import types
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

_PLAIN = type(None), bool, int, str, float, complex  # a user's subclass may behave differently


class PytreeSpec:
    """The description of a tree, `json`, and the classes and functions that it names, `objects`.

    `packages` are the top-level packages of these objects. `array` describes an array of the tree; arrays in
    static fields and closures are described by value.
    """

    def __init__(self, tree: Any, array: Callable[[Any], Any] = lambda _: ["leaf"]):
        self.packages: set[str] = set()
        self.objects: list[Any] = []
        self._array = array
        self.json = self._of(tree)

    def _of(self, x: Any) -> Any:
        """Return the description of a node and all below it; TypeError if other processes cannot read it."""
        match x:
            case enum.Enum():
                return ["enum", self._name(type(x)), x.name]
            case jax.Array() | np.ndarray() | np.generic():
                return self._array(x)
            case None | bool() | int() | str() if type(x) in _PLAIN:
                return x
            case float() | complex() if type(x) in _PLAIN:
                return [type(x).__name__, repr(x)]
            case bytes() if type(x) is bytes:
                return ["bytes", x.hex()]
            case date() if type(x) is date:
                return ["date", x.isoformat()]
            case dict() if type(x) is dict:
                return ["dict", [[self._of(key), self._of(value)] for key, value in x.items()]]
            case tuple() if hasattr(x, "_fields"):
                return ["namedtuple", self._name(type(x)), self._of(list(x))]
            case list() | tuple() if type(x) in (list, tuple):
                return [type(x).__name__, [self._of(item) for item in x]]
            case type():
                return ["class", self._name(x)]
        if dataclasses.is_dataclass(x):
            return ["module", self._name(type(x)), self._fields(x)]
        return ["value", self._opaque(x)]

    def _fields(self, x: Any) -> list:
        found = []
        for field in dataclasses.fields(x):
            if hasattr(x, field.name):
                is_tree = isinstance(x, eqx.Module) and not field.metadata.get("static")
                words_of = self._of if is_tree else self._by_value
                found.append([field.name, words_of(getattr(x, field.name))])
        return found

    def _opaque(self, x: Any) -> Any:
        """Return the description of an object by its name or its parts, from which it cannot be rebuilt."""
        x = _without_type_checks(x)
        match x:
            case types.FunctionType() if not has_name(x):
                held = [cell.cell_contents for cell in x.__closure__ or ()]
                parts = x.__defaults__, x.__kwdefaults__, held
                return [self._name(x, "function"), code_of(x.__code__), self._by_value(parts)]
            case functools.partial():
                return ["partial", self._by_value([x.func, x.args, x.keywords])]
            case types.MethodType():
                return ["method", x.__name__, self._by_value(x.__self__)]
            case frozenset() | set():
                return ["set", sorted(map(json.dumps, map(self._by_value, x)))]
            case np.dtype():
                return ["dtype", str(x)]
            case jax.Device():
                return ["device", x.platform, x.device_kind, x.id]
            case jax.sharding.Mesh():
                axes, devices = map(list, x.shape.items()), map(self._opaque, x.devices.flat)
                return ["mesh", list(axes), str(x.axis_types), list(devices)]
            case jax.sharding.NamedSharding():
                return ["sharding", self._opaque(x.mesh), str(x.spec), x.memory_kind]
            case jax.sharding.SingleDeviceSharding():
                return ["sharding", *map(self._opaque, x.device_set), x.memory_kind]
        return ["named", self._name(x)]

    def _by_value(self, x: Any) -> Any:
        inner = PytreeSpec(x, by_value)
        self.packages |= inner.packages
        self.objects += inner.objects
        return inner.json

    def _name(self, x: Any, what: str = "") -> list[str]:
        module, name = _place(x)
        if not what and not has_name(x):
            kind = f"{type(x).__module__}.{type(x).__qualname__}"
            raise TypeError(
                f"{x!r} ({kind}) is not a class or function that {module} has under a name"
            )
        self.packages.add(module.partition(".")[0])
        self.objects.append(x)
        return [module, name]


def from_json(words: Any, leaves: Iterator[Any]) -> Any:
    """Return the tree of a description, with these leaves.

    Raises:
        LookupError: If no imported module has one of its classes, or there are too few leaves.
        TypeError: If it describes something that cannot be rebuilt, such as a function.
    """
    again = functools.partial(from_json, leaves=leaves)
    match words:
        case None | bool() | int() | str():
            return words
        case ["leaf"]:
            if (leaf := next(leaves, None)) is None:
                raise LookupError("the description has more leaves than the tree")
            return leaf
        case ["float" | "complex" as kind, str(text)]:
            return {"float": float, "complex": complex}[kind](text)
        case ["bytes", str(text)]:
            return bytes.fromhex(text)
        case ["date", str(text)]:
            return date.fromisoformat(text)
        case ["dict", list(items)]:
            return {again(key): again(value) for key, value in items}
        case ["list", list(items)]:
            return [again(item) for item in items]
        case ["tuple", list(items)]:
            return tuple(again(item) for item in items)
        case ["namedtuple", name, items]:
            return tuple.__new__(_class(name, tuple), again(items))
        case ["enum", name, str(member)]:
            return _class(name, enum.Enum).__members__[member]
        case ["class", name]:
            return _class(name, eqx.Enumeration)
        case ["value", ["named", [str(module), name]]] if module.partition(".")[0] == "jax":
            return _found(module, name)  # such as the activation of a network
        case ["module", name, list(fields)]:
            return _module(_class(name, eqx.Module), {field: again(x) for field, x in fields})
    raise TypeError(f"{str(words)[:80]} cannot be rebuilt from its description")


def _module(kind: type, values: dict[str, Any]) -> Any:
    """Return a module with these fields, made like JAX does, without its constructor.

    Raises:
        LookupError: If the class has other fields.
    """
    if not {field.name for field in dataclasses.fields(kind)} >= set(values):
        raise LookupError(f"{kind.__name__} has other fields: it is from another version")
    built = object.__new__(kind)
    for field, value in values.items():
        object.__setattr__(built, field, value)
    return built


def _without_type_checks(function: Any) -> Any:
    """Return a function without the wrappers of type checkers, which compute nothing."""
    while isinstance(function, types.FunctionType) and hasattr(function, "__wrapped__"):
        module = str(function.__globals__.get("__name__", ""))
        if module.partition(".")[0] not in ("jaxtyping", "beartype"):
            break
        function = function.__wrapped__
    return function


def by_value(array: Any) -> list:
    """Describe an array in a static field or a closure by value: another value makes another program."""
    is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
    numbers = np.asarray(jax.random.key_data(array) if is_key else array)
    digest = hashlib.sha256(numbers.tobytes()).hexdigest()
    return ["array", str(array.dtype), list(numbers.shape), digest]


def code_of(code: types.CodeType) -> list:
    """Describe a function's code, whatever its position in a file."""
    constants = []
    for x in code.co_consts:
        if isinstance(x, frozenset):  # whose order differs between processes
            x = sorted(map(repr, x))
        constants.append(code_of(x) if isinstance(x, types.CodeType) else repr(x))
    names = code.co_names, code.co_varnames, code.co_freevars
    return [code.co_code.hex(), constants, *map(list, names)]


def _place(x: Any) -> tuple[str, str]:
    return getattr(x, "__module__", None) or "", getattr(x, "__qualname__", None) or ""


def has_name(x: Any) -> bool:
    """Return True if an imported module has this class or function under its name."""
    return _found(*_place(x)) is x


def _found(module: str, name: str) -> Any:
    """Return the object with this name in an imported module, or None. It runs no code of the module."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found


def _class(name: Any, base: type) -> Any:
    module, qualified_name = name
    found = _found(module, qualified_name)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise LookupError(
            f"there is no {base.__name__} {module}.{qualified_name}: import {module} first"
        )
    return found
