"""Bootstrapped curves: zero rates that reprice every instrument, as a function of the quotes."""

import bisect
from collections.abc import Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Num

from jaxtape import stored_jit
from pricing.numerics.elimination import eliminate
from pricing.numerics.safe_math import clipped, nan_where

from ..numbers_shown import repr_with_numbers
from .curve import ZeroCurve
from .instruments import CurveInstruments, CurvesBeside

Vector = Float[Array, " pillars"]
Instruments = tuple[CurveInstruments, ...]
Quoted = tuple[Instruments, CurvesBeside]


class CurveQuotes(eqx.Module):
    """Deposits, FRAs, futures and swaps in the order of their ends, and the curve that reprices them all.

    The pillars of the curve are the instruments' ends. Its zero rates z solve misses(z, quotes) = 0 by Newton's
    method, with the interpolation of the curve itself. They are differentiated by the implicit function
    theorem, dz = -(d misses / dz)^-1 d misses: forward, in reverse, batched, to any order.

    Each use bootstraps again; call `bootstrapped()` once for repeated discounting. `risk` passes a fit the
    market with every curve bootstrapped.

    A forward curve only gives floating rates. Its instruments are discounted on another curve, which
    `bootstrapped` takes as an argument; `Market.curve(name)` passes it. The other leg of its basis swaps may be
    on a third curve.

    Args:
        *instruments: The quoted instruments: `Deposits`, `Futures`, `ParSwaps` or another kind.
        discount_curve: The name of the curve that discounts the instruments of a forward curve; "" if the curve
            discounts them itself.
        basis_curve: The name of the curve of the other leg of basis swaps; "" if it is the discount curve.

    Attributes:
        instruments: The quoted instruments, by kind.
        discount_curve: The name of the curve that discounts them, or "".
        basis_curve: The name of the curve of the other leg of basis swaps, or "".

    Raises:
        ValueError: The ends of the instruments do not increase (two that end at the same time are redundant or
            contradict each other), or a kind of instrument that needs a single curve has a `discount_curve`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from pricing import CurveQuotes
        >>> from pricing.market import Deposits, ParSwaps
        >>> deposits = Deposits([0.0], [1.0], [1.0], [0.03])
        >>> quotes = CurveQuotes(deposits, ParSwaps([0.0], [[1.0, 2.0]], [[1.0, 1.0]], [0.035]))
        >>> first, second = quotes.discount(jnp.array([1.0, 2.0]))
        >>> f"{(1 - second) / (first + second):.4f}"
        '0.0350'
    """

    __repr__ = repr_with_numbers

    instruments: Instruments
    discount_curve: str = eqx.field(static=True, default="")
    basis_curve: str = eqx.field(static=True, default="")

    def __init__(
        self, *instruments: CurveInstruments, discount_curve: str = "", basis_curve: str = ""
    ):
        self.instruments = instruments
        self.discount_curve = discount_curve
        self.basis_curve = basis_curve

    def __check_init__(self):
        if not self.instruments:
            raise ValueError("a curve without instruments: give deposits, futures or swaps")
        for kind in self.instruments:
            if self.discount_curve and kind.needs_one_curve:
                raise ValueError(
                    f"{type(kind).__name__} on a curve that {self.discount_curve} discounts: give "
                    f"FloatingSwaps, which take a separate discount curve"
                )
        times = self.times
        if not isinstance(times, Tracer) and (late := first_overlap(np.asarray(times))):
            raise ValueError(
                f"instrument {late + 1} ends at {times[late]:g} years, not after the one before, which ends at "
                f"{times[late - 1]:g}: order them by their ends, and leave out one of two that overlap"
            )

    @property
    def quotes(self) -> tuple[Any, ...]:
        """The leaves of quotes, one per pillar, by kind; in a gradient, the derivatives to them."""
        return tuple(kind.quotes for kind in self.instruments)

    @property
    def times(self) -> Vector:
        """The pillars: the instruments' ends, in years."""
        return _ends(self.instruments)

    @property
    def zero_rates(self) -> Vector:
        """The zero rate at each pillar, as in `bootstrapped`."""
        return self.bootstrapped().zero_rates

    def bootstrapped(
        self, beside: CurvesBeside | ZeroCurve | None = None, *, throw: bool = True
    ) -> ZeroCurve:
        """Return the curve whose zero rates reprice every instrument.

        Args:
            beside: The curves named as `discount_curve` and `basis_curve`, or the discount curve alone. A
                missing curve, or one that is not named, raises ValueError.
            throw: Whether to raise if there is no such curve. Otherwise, and under a trace, its zero rates are
                NaN.

        Raises:
            RuntimeError: There is no such curve.
        """
        beside = self._checked(beside)
        curve = _curve(self.instruments, beside)
        if throw and (unmet := self._first_unmet(curve, beside)) is not None:
            quote = np.concatenate(self.quotes)[unmet]
            raise RuntimeError(
                f"no zero rate reprices instrument {unmet + 1}, of quote {quote:g}, after those before it: "
                "correct its quote, or one before it"
            )
        return curve

    def first_unmet(self, beside: CurvesBeside | ZeroCurve | None = None) -> int | None:
        """Return the index of the first instrument that no zero rate reprices, given those before it.

        None if all are repriced, or under a trace.

        Args:
            beside: The curves named as `discount_curve` and `basis_curve`.
        """
        beside = self._checked(beside)
        return self._first_unmet(_curve(self.instruments, beside), beside)

    def _checked(self, beside: CurvesBeside | ZeroCurve | None) -> CurvesBeside:
        """Return the other curves, checked against the names in this one.

        Raises:
            ValueError: A named curve is missing, or one is given that is not named.
        """
        if isinstance(beside, ZeroCurve):
            beside = CurvesBeside(beside)
        beside = beside or CurvesBeside()
        for name, curve, word in (
            (self.discount_curve, beside.discount, "discount_curve"),
            (self.basis_curve, beside.basis, "basis_curve"),
        ):
            if name and curve is None:
                raise ValueError(
                    f"a forward curve whose {word} is {name}: give that curve to "
                    "bootstrapped(CurvesBeside(...)), or take Market.curve(NAME)"
                )
            if curve is not None and not name:
                raise ValueError(
                    f"a curve without a {word} is given one: leave it out, or name it as the {word}"
                )
        return beside

    def _first_unmet(self, curve: ZeroCurve, beside: CurvesBeside) -> int | None:
        """Return the first instrument without a zero rate; None if there is none, or under a trace."""
        rates = curve.zero_rates
        if isinstance(rates, Tracer) or not np.any(np.isnan(rates)):
            return None
        counts = range(1, rates.size + 1)
        fails = lambda count: bool(np.any(np.isnan(_curve(self._first(count), beside).zero_rates)))
        return bisect.bisect_left(counts, True, key=fails)

    def _first(self, count: int) -> Instruments:
        """Return the first `count` instruments, by kind."""
        kept = []
        for kind in self.instruments:
            here = min(count, kind.quotes.size)
            count -= here
            if here:
                kept.append(
                    jax.tree.map(lambda leaf, n=here: leaf[:n] if leaf.ndim else leaf, kind)
                )
        return tuple(kept)

    def zero_rate(self, t: Num[ArrayLike, "..."]) -> Float[Array, "..."]:
        """Return the zero rate to time `t`, in years, in the shape of `t`."""
        return self.bootstrapped().zero_rate(t)

    def discount(self, t: Num[ArrayLike, "..."]) -> Float[Array, "..."]:
        """Return the discount factor to time `t`, in years, in the shape of `t`."""
        return self.bootstrapped().discount(t)

    def shifted(self, rate: Num[ArrayLike, ""]) -> ZeroCurve:
        """Return the bootstrapped curve with every zero rate shifted by `rate` (per 1.00)."""
        return self.bootstrapped().shifted(rate)


def curves_beside(
    curve: CurveQuotes, curves: Mapping[str, ZeroCurve | CurveQuotes], *, throw: bool = True
) -> CurvesBeside:
    """Return the other curves that value the instruments of a curve, as zero rates.

    Args:
        curve: The curve.
        curves: Name -> curve.
        throw: See `CurveQuotes.bootstrapped`.
    """
    names = curve.discount_curve, curve.basis_curve
    return CurvesBeside(
        *(zero_curve(name, curves, throw=throw) if name else None for name in names)
    )


def zero_curve(
    name: str, curves: Mapping[str, ZeroCurve | CurveQuotes], *, throw: bool = True
) -> ZeroCurve:
    """Return a curve of a market as zero rates, bootstrapped with the curves that it names.

    Args:
        name: The name of the curve.
        curves: Name -> curve.
        throw: See `CurveQuotes.bootstrapped`.
    """
    curve = curves[name]
    if isinstance(curve, ZeroCurve):
        return curve
    return curve.bootstrapped(curves_beside(curve, curves, throw=throw), throw=throw)


def in_order(
    curves: Mapping[str, ZeroCurve | CurveQuotes], names: Iterable[str] | None = None
) -> list[str]:
    """Return the names of curves and of all that they depend on, each after its dependencies.

    Args:
        curves: Name -> curve.
        names: The names; None for all curves.
    """
    found: dict[str, None] = {}

    def add(name: str) -> None:
        curve = curves[name]
        if isinstance(curve, CurveQuotes):
            for before in filter(None, (curve.discount_curve, curve.basis_curve)):
                add(before)
        found[name] = None

    for name in curves if names is None else names:
        add(name)
    return list(found)


def first_overlap(times: np.ndarray) -> int:
    """Return the first index whose time is not after the one before; 0 if there is none."""
    late = np.diff(times) <= 0.0
    return int(np.argmax(late)) + 1 if late.any() else 0


_MOST_STEPS = 100
_LONGEST_STEP = 0.25  # of a zero rate: longer steps overflow the discount factors of long swaps


@jax.custom_jvp
def _curve(instruments: Instruments, beside: CurvesBeside) -> ZeroCurve:
    """Return the curve that reprices the instruments, with NaN zero rates if there is none."""
    return _found(instruments, beside)


@_curve.defjvp
def _curve_jvp(primals, tangents):
    curve = _curve(*primals)
    return curve, _moved(primals, curve.zero_rates, tangents)


@stored_jit
def _found(instruments: Instruments, beside: CurvesBeside) -> ZeroCurve:
    """Solve from the quoted rates until the square of a step is below rounding."""
    start = jnp.concatenate([kind.rates for kind in instruments])
    enough = float(jnp.finfo(start.dtype).eps) ** 0.75
    quoted = instruments, beside

    def is_on_the_way(state):
        count, _, last = state
        return (count < _MOST_STEPS) & (last > enough)

    def step(state):
        count, rates, _ = state
        newton = _solved(quoted, rates, _misses(quoted, rates))
        by = clipped(newton, -_LONGEST_STEP, _LONGEST_STEP)
        return count + 1, rates - by, jnp.max(jnp.abs(newton))

    first = jnp.zeros((), jnp.int32), start, jnp.full((), jnp.inf, start.dtype)
    _, rates, last = jax.lax.while_loop(is_on_the_way, step, first)
    return ZeroCurve(_ends(instruments), nan_where(~(last <= enough), rates))


@stored_jit
def _moved(quoted: Quoted, rates: Vector, dots: Quoted) -> ZeroCurve:
    """Return the tangent of the curve along a tangent of its instruments and the other curves."""
    _, misses_dot = jax.jvp(lambda *moving: _misses(moving, rates), quoted, dots)
    _, ends_dot = jax.jvp(_ends, quoted[:1], dots[:1])
    return ZeroCurve(ends_dot, -_solved(quoted, rates, misses_dot))


def _solved(quoted: Quoted, rates: Vector, right: Vector) -> Vector:
    """Return (d misses / d rates)^-1 right, which is linear in `right`, so that it can be transposed.

    The matrix is triangular and needs no pivoting: no instrument depends on a discount factor after its pillar.
    """
    slopes = jax.jacfwd(lambda at: _misses(quoted, at))(rates)
    inverse = eliminate(slopes, jnp.eye(rates.size, dtype=rates.dtype))
    return jnp.matmul(inverse, right, precision="highest")


def _misses(quoted: Quoted, rates: Vector) -> Vector:
    instruments, beside = quoted
    curve = ZeroCurve(_ends(instruments), rates)
    return jnp.concatenate([kind.misses(curve, beside) for kind in instruments])


def _ends(instruments: Instruments) -> Vector:
    return jnp.concatenate([kind.ends for kind in instruments])
