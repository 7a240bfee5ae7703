"""Custom payoffs of the spots on some dates."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from ..argument_kinds import check_kind
from ..fields import Numeric, dates, real
from .path_claim import PathClaim

FUNCTION = Callable, "a function of the spots, such as lambda spots: spots[-1]"


class PathPayoff(PathClaim):
    """A custom payoff: a function of the spots on some dates, paid on the last one.

    `MonteCarlo` values it. By default the payoff may jump, like that of a digital option, and all Greeks are
    estimated with the score of the spots' density, which is unbiased for every payoff. Set `has_jumps=False`
    for a payoff without jumps (kinks are allowed): first derivatives are then pathwise, with less noise. For a
    payoff that does jump, pathwise derivatives would miss the jumps.

    Attributes:
        function: Spots of one path -> payoff in currency, a scalar, in JAX. Spots are of shape (dates,), or
            (dates, assets) if `multi_asset`. With `numbers`, a function of spots and numbers. Each function
            object compiles its own program: define it once.
        dates: The observation times of the spots, in years, increasing, above 0, of shape (dates,).
        numbers: Parameters of the contract, such as strikes, of shape (numbers,); None for none. A batch of
            contracts has a leading axis.
        has_jumps: Whether the payoff may be discontinuous in the spots.
        multi_asset: Whether the payoff depends on several assets.

    Examples:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from pricing import BlackScholes, MonteCarlo, PathPayoff, price
        >>> lookback = PathPayoff(lambda spots: jnp.max(spots) - spots[-1], [0.5, 1.0], has_jumps=False)
        >>> model, key = BlackScholes(100.0, 0.02, 0.2), jax.random.key(0)
        >>> found = price(lookback, model, MonteCarlo(num_paths=2**14), key=key)
        >>> bool(abs(found.value - 5.1245) < 4.0 * found.std_error)
        True
    """

    function: Any = eqx.field(static=True)
    dates: Numeric[Float[Array, "*batch dates"]] = dates("dates")
    numbers: Numeric[Float[Array, "*batch numbers"] | None] = real(
        "numbers", core=1, optional=True, default=None
    )
    has_jumps: bool = eqx.field(static=True, default=True)
    multi_asset: bool = eqx.field(static=True, default=False, kw_only=True)  # pyright: ignore

    def __check_init__(self):
        check_kind("function", self.function, *FUNCTION)

    @property
    def expiry(self) -> Float[Array, "..."]:
        return self.dates[..., -1]

    def payoff(self, spots: Float[Array, "*dates"]) -> Float[Array, ""]:
        """Return the payoff of one path, for one contract.

        Raises:
            TypeError: The function does not return one real number.
        """
        numbers = _held(self.numbers) if self.has_jumps else self.numbers
        given = (spots,) if self.numbers is None else (spots, numbers)
        paid = self.function(*given)
        if getattr(paid, "shape", None) != () or paid.dtype != spots.dtype:
            shape = getattr(paid, "shape", type(paid).__name__)
            dtype = getattr(paid, "dtype", "no array")
            raise TypeError(
                f"the function of a PathPayoff must return one {spots.dtype} number for spots of shape "
                f"{list(spots.shape)}, got {dtype} of shape {shape}: reduce over dates and assets, and use "
                "jnp.where for conditions"
            )
        return paid


@jax.custom_jvp
def _held(numbers: Any) -> Any:
    return numbers


def _refuse_derivatives(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    if any(not isinstance(leaf, SymbolicZero) for leaf in jax.tree.leaves(tangents)):
        raise TypeError(
            "the derivative to `numbers` of a PathPayoff that may jump would miss the jumps: give "
            "has_jumps=False if it has none"
        )
    return primals[0], tangents[0]


_held.defjvp(_refuse_derivatives, symbolic_zeros=True)
