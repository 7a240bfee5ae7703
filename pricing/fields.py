"""Dataclass fields for models and products: numbers become arrays, words become codes, bad input is refused.

Every number is an array leaf of the working precision, so that a new strike or spot never retraces. Every
option word ("call", "down-and-out") is a small integer leaf, so that contracts of all kinds stack in one batch.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

from .argument_kinds import check_kind
from .numbers_shown import CODES

# the types accepted for a real: a Python number, a NumPy or JAX array
Number = Any

if TYPE_CHECKING:
    _T = TypeVar("_T")

    Reals: TypeAlias = float | Array | np.ndarray | np.generic | Sequence["Reals"] | None

    class Converted(Generic[_T]):
        """A field that accepts a Python number, an array or a word, and holds the converted value."""

        def __get__(self, instance: object, owner: Any) -> _T: ...
        def __set__(self, instance: object, value: Any) -> None: ...

    class Numeric(Generic[_T]):
        """A field that accepts a number, a list or an array, and holds the converted value."""

        def __get__(self, instance: object, owner: Any) -> _T: ...
        def __set__(self, instance: object, value: Reals) -> None: ...

    class Word(Generic[_T]):
        """A field that accepts a word, a list of words or their codes, and holds the codes."""

        def __get__(self, instance: object, owner: Any) -> _T: ...
        def __set__(self, instance: object, value: str | Sequence[str] | Array) -> None: ...

    class FlatOr(Generic[_T]):
        """A field that accepts and holds a number or an object such as a curve."""

        def __get__(self, instance: object, owner: Any) -> Any: ...
        def __set__(self, instance: object, value: Reals | _T) -> None: ...

else:

    class Converted:
        """`Converted[T]` is T, except that type checkers also accept the values converted to it."""

        def __class_getitem__(cls, converted: Any) -> Any:
            return converted

    Numeric = Word = Converted

    class FlatOr:
        """`FlatOr[T]` is any object, except that type checkers accept a number or a T."""

        def __class_getitem__(cls, kind: Any) -> Any:
            return Any


_MOST = float(np.finfo(float).max)


def as_real(value: Number) -> Array:
    """Return `value` as an array of floats: a float array keeps its dtype, others get the default."""
    dtype = getattr(value, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
        dtype = jnp.result_type(float)
    return _array(value, jax.dtypes.canonicalize_dtype(dtype))


def _array(value: Any, dtype: Any) -> Array:
    """Return a copy of `value` as an array; without JAX arrays in it, this compiles no program."""
    if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(value)):
        return jnp.asarray(value, dtype=dtype)
    return jax.device_put(np.array(value, dtype=dtype))  # a copy: JAX may share its memory


def in_working_precision(tree: PyTree) -> PyTree:
    """Return a tree whose floats are at least as wide as JAX's default (no float32 if that is float64).

    Mixed precisions would fail in loops, whose states have a fixed dtype.
    """
    working = jax.dtypes.canonicalize_dtype(float)

    def widened(leaf: Any) -> Any:
        dtype = getattr(leaf, "dtype", working)
        is_narrow = (
            jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < jnp.finfo(working).bits
        )
        return leaf.astype(working) if is_narrow else leaf

    return jax.tree.map(widened, tree)


def is_traced(value: PyTree) -> bool:
    """Return True if a number in `value` is traced, so that it cannot be checked."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value))


def are_known(value: PyTree) -> bool:
    """Return True if all numbers in `value` are concrete: neither traced nor only shapes."""
    leaves = jax.tree.leaves(value)
    return not is_traced(leaves) and all(isinstance(x, jax.Array | np.ndarray) for x in leaves)


def _numbers(name: str, value: Any, wanted: str) -> np.ndarray:
    """Return the numbers of a field.

    Raises:
        TypeError: The value is not numeric.
        ValueError: The value is empty.
    """
    try:
        numbers = np.asarray(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be {wanted}, got {value!r}") from error
    if numbers.size == 0:
        raise ValueError(f"{name} must be {wanted}, got none: give at least one")
    return numbers


def _bounded(
    name: str,
    lower: float,
    upper: float,
    remedy: str,
    strict: bool,
    optional: bool = False,
    missing: bool = False,
):
    def convert(value: Number):
        if value is None and optional:
            return None
        if is_traced(value):
            return as_real(value)
        real = _numbers(name, value, remedy)
        above = real > lower if strict else real >= lower
        if not np.all((above & (real <= upper)) | (missing & np.isnan(real))):
            raise ValueError(f"{name} must be {remedy}, got {value}")
        return as_real(value)

    return convert


def _field(
    convert: Callable[[Any], Any], *, core: int = 0, time: bool = False, **kwargs: Any
) -> Any:
    """Return a field whose `core` trailing axes belong to one contract; `time` marks times from today."""
    return eqx.field(converter=convert, metadata={"core": core, "time": time}, **kwargs)


def real(name: str, *, optional: bool = False, **kwargs: Any) -> Any:
    """Return a field for a finite real, or None if `optional`."""
    return _field(_bounded(name, -_MOST, _MOST, "a finite number", False, optional), **kwargs)


def positive(name: str, *, missing: bool = False, optional: bool = False, **kwargs: Any) -> Any:
    """Return a field for a finite real above zero, or NaN if `missing`, or None if `optional`."""
    convert = _bounded(name, 0.0, _MOST, "a finite number above 0", True, optional, missing)
    return _field(convert, **kwargs)


def above_zero(name: str, *, optional: bool = False, **kwargs: Any) -> Any:
    """Return a field for a real above zero or infinity, or None if `optional`."""
    return _field(_bounded(name, 0.0, np.inf, "a number above 0", True, optional), **kwargs)


def non_negative(name: str, *, missing: bool = False, optional: bool = False, **kwargs: Any) -> Any:
    """Return a field for a finite real >= 0, or NaN if `missing`, or None if `optional`."""
    convert = _bounded(name, 0.0, _MOST, "a finite number, not below 0", False, optional, missing)
    return _field(convert, **kwargs)


def not_below_zero(name: str, value: Number) -> Any:
    """Return a number checked and converted like a field of `non_negative`."""
    return _bounded(name, 0.0, _MOST, "a finite number, not below 0", False)(value)


def between(name: str, lower: float, upper: float, *, optional: bool = False, **kwargs: Any) -> Any:
    """Return a field for a real in [lower, upper], or None if `optional`."""
    remedy = f"a number in [{lower:g}, {upper:g}]"
    return _field(_bounded(name, lower, upper, remedy, False, optional), **kwargs)


def inside(name: str, lower: float, upper: float, **kwargs: Any) -> Any:
    """Return a field for a real in (lower, upper)."""
    first, last = np.nextafter(lower, upper), np.nextafter(upper, lower)
    remedy = f"a number between {lower:g} and {upper:g}, both excluded"
    return _field(_bounded(name, first, last, remedy, False), **kwargs)


def real_vector(name: str, **kwargs: Any) -> Any:
    """Return a field for a vector of finite reals, or a batch of vectors."""
    return real(name, core=1, **kwargs)


def accruals() -> Any:
    """Return a field for the year fractions of periods, a vector or a batch of vectors."""
    wanted = "year fractions from 0 to 60: 91 days are about 0.25"
    return _field(_bounded("accruals", 0.0, 60.0, wanted, False), core=1)


def time(name: str, *, optional: bool = False, **kwargs: Any) -> Any:
    """Return a field for a time from today, above zero (years), or None if `optional`."""
    wanted = "a finite number above 0, in years: what expires today is worth its payoff"
    return _field(_bounded(name, 0.0, _MOST, wanted, True, optional), time=True, **kwargs)


def dates(
    name: str, *, today: bool = False, repeated: bool = False, optional: bool = False, **kwargs: Any
) -> Any:
    """Return a field for increasing times above zero (years), or a batch of such lists.

    today: the first may be zero; repeated: times may repeat; optional: or None.
    """
    grow = "times that do not decrease" if repeated else "increasing times"
    wanted = f"{grow} {'from 0 on' if today else 'above 0'}, in years"
    ordered = _increasing(name, wanted, from_zero=today, repeated=repeated)
    convert = lambda value: None if value is None and optional else ordered(value)
    return _field(convert, core=1, time=True, **kwargs)


def finite_times(name: str) -> Any:
    """Return a field for non-decreasing times in years; past times are negative."""
    finite = _bounded(name, -_MOST, _MOST, "finite numbers", False)

    def convert(value: Any):
        numbers = finite(value)
        if not is_traced(numbers) and np.any(np.diff(np.asarray(numbers), axis=-1) < 0.0):
            raise ValueError(f"{name} must not decrease, got {value}: sort them, with the amounts")
        return numbers

    return _field(convert, core=1, time=True)


def pillars(name: str, unit: str, *, from_zero: bool = False) -> Any:
    """Return a field for increasing numbers above zero, the pillars of a curve or surface.

    unit: for example "in years"; from_zero: the first may be zero.
    """
    wanted = f"increasing numbers {'from 0 on' if from_zero else 'above 0'}, {unit}, each once"
    return _field(_increasing(name, wanted, from_zero=from_zero), core=1)


def _increasing(name: str, wanted: str, *, from_zero: bool = False, repeated: bool = False):
    def convert(value: Any):
        if is_traced(value):
            return as_real(value)
        numbers = _numbers(name, value, wanted)
        known = bool(numbers.ndim and np.all(np.isfinite(numbers)))
        first, steps = (numbers[..., 0], np.diff(numbers, axis=-1)) if known else (0.0, 0.0)
        starts = first >= 0.0 if from_zero else first > 0.0
        grows = steps >= 0.0 if repeated else steps > 0.0
        if not known or not np.all(starts) or not np.all(grows):
            remedy = "sort them, with what belongs to each"
            raise ValueError(f"{name} must be {wanted}, got {value}: {remedy}")
        return as_real(value)

    return convert


def finite_numbers(name: str) -> Callable[[PyTree], PyTree]:
    """Return a converter for market objects, such as curves, which checks that numbers are finite.

    For an object with the property `as_read`, only the numbers that are read are checked. Traced numbers are
    not checked.
    """

    def convert(value: PyTree) -> PyTree:
        for path, leaf in jax.tree.leaves_with_path(getattr(value, "as_read", value)):
            if isinstance(leaf, (jax.Array, np.ndarray)) and not isinstance(leaf, Tracer):
                numbers = np.asarray(leaf)
                if not np.all(np.isfinite(numbers)):
                    place = jax.tree_util.keystr(path)
                    raise ValueError(
                        f"{name} must have finite numbers, got {numbers} in {name}{place}: leave out what is "
                        "missing"
                    )
        return value

    return convert


def correlations(name: str, **kwargs: Any) -> Any:
    """Return a field for None or a correlation matrix: symmetric, unit diagonal, positive definite."""

    def convert(value: Any):
        if value is None:
            return None
        if is_traced(value):
            return as_real(value)
        matrix = _numbers(name, value, "a correlation matrix")
        square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1]
        if not square or not np.allclose(matrix, matrix.T) or not np.allclose(np.diag(matrix), 1.0):
            wanted = "a symmetric matrix with ones on its diagonal"
            raise ValueError(f"{name} must be {wanted}, got {value}")
        if (least := np.linalg.eigvalsh(matrix)[0]) <= 0.0:
            raise ValueError(
                f"{name} must be positive definite, its smallest eigenvalue is {least:g}: correct "
                f"the underlying quotes, or add a small multiple of the identity"
            )
        return as_real(value)

    return _field(convert, core=2, **kwargs)


def core_dims(module: Any) -> list[int]:
    """Return, for each array leaf of a module, the number of trailing axes that belong to one contract."""
    dims: list[int] = []
    for facts, value in _fields(module):
        dims += [facts.get("core", 0)] * len(jax.tree.leaves(value))
    return dims


def rolled(module: Any, years: Float[Array, ""]) -> Any:
    """Return the module after `years` have passed: fields declared as times are reduced by that much."""
    times = _times(module)
    return eqx.tree_at(_times, module, [when - years for when in times]) if times else module


def _times(module: Any) -> list[Any]:
    """Return the fields of a module, and of nested modules, that are times."""
    return [value for facts, value in _fields(module) if facts.get("time") and value is not None]


def _fields(module: Any) -> Iterator[tuple[Mapping[str, Any], Any]]:
    """Yield the declaration and value of each non-static field, including those of nested modules."""
    for field in dataclasses.fields(module):
        value = getattr(module, field.name)
        if isinstance(value, eqx.Module):
            yield from _fields(value)
        elif not field.metadata.get("static", False):
            yield field.metadata, value


def object_of(name: str, kind: type, remedy: str) -> Any:
    """Return a field for an object of a class; `remedy` names the object to give."""

    def convert(value: Any):
        check_kind(name, value, kind, remedy)
        return value

    return eqx.field(converter=convert)


def word(name: str, words: Collection[str], **kwargs: Any) -> Any:
    """Return a static field holding one of `words`; each word compiles its own program."""

    def convert(value: str) -> str:
        if value not in words:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, words))}, got {value!r}")
        return value

    return eqx.field(converter=convert, static=True, **kwargs)


def choice(name: str, codes: Mapping[str, int], **kwargs: Any) -> Any:
    """Return a field for one of the words of `codes` (or a list of words), stored as integer codes."""

    def code(word: Any) -> int:
        if not isinstance(word, str) or word not in codes:
            given = (
                str(word) if isinstance(word, str) else word
            )  # the repr of a NumPy string differs
            raise ValueError(f"{name} must be one of {', '.join(map(repr, codes))}, got {given!r}")
        return codes[word]

    def convert(value: Any):
        if is_traced(value):
            return _array(value, jnp.int8)
        words = np.asarray(value)
        if words.dtype.kind in "iu" and np.isin(words, [*codes.values()]).all():
            return _array(value, jnp.int8)
        return _array(np.array([*map(code, words.flat)]).reshape(words.shape), jnp.int8)

    return eqx.field(converter=convert, metadata={CODES: codes}, **kwargs)
