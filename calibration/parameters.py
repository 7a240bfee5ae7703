"""The free parameters of a model as an unconstrained vector, and starting points of a search."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from jaxtape import stored_jit
from pricing.market import VolCurve, VolSurface
from pricing.models import AbstractModel, AbstractTransform, Calibratable, ForwardVols

Real = Float[Array, "..."]
Vector = Float[Array, " parameters"]


class FreeParameters(eqx.Module):
    """The free fields of a model, and the transform of each: model <-> unconstrained vector.

    The vector concatenates the raveled fields.

    Attributes:
        names: The fields.
        shapes: Their shapes.
        transforms: One for each field.
        held: Mask of the entries of the vector that are held fixed and have no derivative; None if there are
            none.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    transforms: tuple[AbstractTransform, ...]
    held: Bool[Array, " parameters"] | None = None

    @classmethod
    def of(
        cls, model: AbstractModel, transform: Mapping[str, AbstractTransform] | None = None
    ) -> "FreeParameters":
        """Return the fields of `transform` if it is given, or the model's free fields.

        Raises:
            TypeError: If the model has no free fields, and `transform` is not given; or it uses a surface of
                vols, which leaves nothing to calibrate.
            ValueError: If the model has no such field.
        """
        kind = type(model).__name__
        surfaces = [name for name, field in vars(model).items() if isinstance(field, VolSurface)]
        if surfaces and set(transform or surfaces) & {*surfaces}:
            raise TypeError(
                f"{kind} uses its {surfaces[0]}, a VolSurface, and so reproduces every quote: "
                f"there is "
                f"nothing to calibrate; price with {kind}(...) itself, or calibrate "
                f"a model with parameters"
            )
        if transform is None and isinstance(model, Calibratable):
            transform = {name: free.transform for name, free in model.free_parameters.items()}
        if not transform:
            raise TypeError(
                f"{kind} does not say which of its fields are free (it is not Calibratable): "
                "give transform={'field': calibration.Exp(), ...}"
            )
        for name in transform:
            if not hasattr(model, name):
                raise ValueError(f"{kind} has no parameter {name!r} to calibrate")
        shapes = tuple(jnp.shape(_numbers(model, name)) for name in transform)
        maps = tuple(each.of_field(getattr(model, name)) for name, each in transform.items())
        return cls(tuple(transform), shapes, maps)

    def free(self, model: AbstractModel) -> Vector:
        """Return the model's free parameters as an unconstrained vector, in the order of `names`."""
        pairs = zip(self.names, self.transforms, strict=True)
        return _raveled(transform.to_free(_numbers(model, name)) for name, transform in pairs)

    def numbers(self, model: AbstractModel) -> Vector:
        """Return the model's free parameters themselves, in the order of `names`."""
        return _raveled(_numbers(model, name) for name in self.names)

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of each entry of the vector: its field, and its index if the field is an array."""
        return tuple(
            name + "".join(f"[{i}]" for i in place)
            for name, shape in zip(self.names, self.shapes, strict=True)
            for place in np.ndindex(shape)
        )

    def ranges(self, model: AbstractModel) -> tuple[Vector, Vector]:
        """Return the unconstrained range of each parameter, within which random starts lie.

        A parameter without a range in the model gets one of 2, or twice its size, about its start. Forward vols
        have no range: if quotes have a calendar arbitrage, their fit is 0.
        """
        known = model.free_parameters if isinstance(model, Calibratable) else {}

        def ends(end: str, side: float) -> Vector:
            found = []
            for name, shape, transform in zip(
                self.names, self.shapes, self.transforms, strict=True
            ):
                own = transform.to_free(_numbers(model, name))
                size = jnp.where(jnp.isfinite(own), jnp.maximum(jnp.abs(own), 1.0), 1.0)
                free = known.get(name)
                at = (
                    own + side * size
                    if free is None
                    else transform.to_free(jnp.asarray(getattr(free, end), size.dtype))
                )
                if isinstance(transform, ForwardVols):
                    at = jnp.sign(side) * jnp.full_like(own, jnp.inf)
                found.append(jnp.broadcast_to(at, shape))
            return _raveled(found)

        return ends("low", -2.0), ends("high", 2.0)

    def spread(self, numbers: Mapping[str, ArrayLike], missing: float) -> Vector:
        """Return a number for each parameter, from one per field or one per parameter."""
        pairs = zip(self.names, self.shapes, strict=True)
        found = [np.broadcast_to(numbers.get(name, missing), shape) for name, shape in pairs]
        return _raveled(jnp.asarray(number, float) for number in found)

    def to_free(self, values: Vector) -> Vector:
        """Return the point of the free space for parameters in the order of `names`."""
        pairs = zip(self.transforms, self._parts(values), strict=True)
        return _raveled(transform.to_free(part) for transform, part in pairs)

    def values(self, free: Vector) -> Vector:
        """Return the parameters themselves at a point of the free space, in the order of `names`."""
        return _raveled(self._fields(free))

    def model(self, template: AbstractModel, free: Vector) -> AbstractModel:
        """Return `template` with its free parameters replaced."""
        where = lambda model: [_numbers(model, name) for name in self.names]
        return eqx.tree_at(where, template, self._fields(free))

    def _fields(self, free: Vector) -> list[Real]:
        """Return the parameters of each field, in its shape."""
        if self.held is not None:
            free = jnp.where(self.held, jax.lax.stop_gradient(free), free)
        pairs = zip(self.transforms, self._parts(free), strict=True)
        return [transform.to_parameter(part) for transform, part in pairs]

    def _parts(self, vector: Vector) -> list[Real]:
        """Return the numbers of each field, in its shape."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])
        parts = zip(jnp.split(vector, ends[:-1]), self.shapes, strict=True)
        return [part.reshape(shape) for part, shape in parts]


@stored_jit(runs_briefly=True)
def random_starts(
    parameters: FreeParameters, model: AbstractModel, num_starts: int, *, key: PRNGKeyArray
) -> Float[Array, "starts parameters"]:
    """Return points of the free space: the model itself, then points uniform in the model's ranges.

    Raises:
        TypeError: If random starts are asked for, and the model has no range for a free field.
        ValueError: If num_starts is below 1.
    """
    if num_starts < 1:
        raise ValueError(f"num_starts must be at least 1, got {num_starts}")
    own = parameters.free(model)[None]
    if num_starts == 1:
        return own
    known = model.free_parameters if isinstance(model, Calibratable) else {}
    unknown = [name for name in parameters.names if name not in known]
    if unknown:
        kind = type(model).__name__
        raise TypeError(
            f"{kind} has no range for random starts of {', '.join(unknown)}: use num_starts=1, or "
            f"add it to {kind}.free_parameters"
        )

    def ends(end: str) -> Vector:
        pairs = zip(parameters.names, parameters.shapes, strict=True)
        at = [jnp.full(shape, getattr(known[name], end), own.dtype) for name, shape in pairs]
        pairs = zip(parameters.transforms, at, strict=True)
        return _raveled(transform.to_free(x) for transform, x in pairs)

    low, high = ends("low"), ends("high")
    draw = lambda key: jax.random.uniform(key, own.shape[1:], own.dtype, low, high)
    return jnp.concatenate([own, jax.vmap(draw)(jax.random.split(key, num_starts - 1))])


def _numbers(model: AbstractModel, name: str) -> Any:
    """Return the numbers in a field; for a term structure of vols, its vols."""
    field = getattr(model, name)
    return field.vols if isinstance(field, VolCurve) else field


def _raveled(fields: Iterable[Real]) -> Vector:
    return jnp.concatenate([jnp.ravel(field) for field in fields])
