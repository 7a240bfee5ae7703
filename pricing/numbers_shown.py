"""The `repr` of models, contracts and results, which shows their numbers."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

_MOST_NUMBERS = 16  # size of the largest array shown by its numbers
_WIDTH = 88
CODES = "codes"  # key in a field's metadata: word -> code


def repr_with_numbers(self: Any) -> str:
    """Return the `repr` of a module: its fields by name, short arrays by their numbers, words as words.

    Arrays with more than 16 numbers, traced arrays, and arrays on other hosts are shown by type and shape.
    Fields that are None are omitted.

    Args:
        self: A dataclass whose fields are arrays, words, modules, dictionaries and plain data.

    Returns:
        One line, or one line per field if that is too long.

    Examples:
        >>> from pricing import European
        >>> European(100.0, 1.0)
        European(strike=100, expiry=1, option='call')
    """
    return _bracketed(type(self).__name__ + "(", _fields(self), ")")


def _fields(module: Any) -> Iterable[str]:
    for field in dataclasses.fields(module):
        if field.repr and (value := getattr(module, field.name)) is not None:
            codes = field.metadata.get(CODES)
            yield f"{field.name}={_words(value, codes) if codes else _shown(value)}"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return _bracketed("{", [f"{key!r}: {_shown(x)}" for key, x in value.items()], "}")
    if type(value) in (list, tuple):
        left, right = "[]" if isinstance(value, list) else "()"
        return _bracketed(left, map(_shown, value), right)
    if _is_short(value):
        return _listed(np.asarray(value))
    return eqx.tree_pformat(value) if eqx.is_array_like(value) else repr(value)


def _listed(numbers: Any) -> str:
    """Return numbers with the digits of their dtype, at most eight."""
    if numbers.ndim:
        return f"[{', '.join(map(_listed, numbers))}]"
    if not jnp.issubdtype(numbers.dtype, jnp.floating):
        return repr(numbers.item())
    return f"{numbers.item():.{min(8, jnp.finfo(numbers.dtype).precision + 1)}g}"


def _words(value: Any, codes: dict[str, int]) -> str:
    """Return the words of an array of codes."""
    if not _is_short(value):
        return _shown(value)
    names = {code: word for word, code in codes.items()}
    return repr(np.vectorize(names.get, otypes=[object])(np.asarray(value)).tolist())


def _is_short(value: Any) -> bool:
    if isinstance(value, Tracer) or not eqx.is_array(value):
        return False
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return False
    return value.size <= _MOST_NUMBERS and not jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def _bracketed(left: str, parts: Iterable[str], right: str) -> str:
    parts = list(parts)
    line = f"{left}{', '.join(parts)}{right}"
    if len(line) <= _WIDTH and "\n" not in line:
        return line
    indented = ",\n".join(parts).replace("\n", "\n  ")
    return f"{left}\n  {indented}\n{right}"
