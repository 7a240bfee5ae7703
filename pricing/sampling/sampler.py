"""Samplers: sources of noise for Monte Carlo methods, and their independent samples."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer, PRNGKeyArray

from .bridge import bridged
from .gaussian import checked_dtype
from .gaussian import normals as draw_normals
from .gaussian import uniforms as draw_uniforms
from .low_discrepancy import MAX_DIMENSION, sobol_words, uniform_of_sobol
from .transforms import inverse_normal

Shape = tuple[int, ...]


class Noise(NamedTuple):
    """The independent random numbers of one block of paths.

    Attributes:
        normals: Streams of standard normals (steps of Brownian motions), each of shape (steps, *motions,
            paths).
        uniforms: Uniforms in (0, 1), of shape (steps, paths).

    Examples:
        >>> import jax
        >>> from pricing.sampling import PseudoRandom
        >>> noise = PseudoRandom().noise(jax.random.key(0), 0, 8, ((3, 2),), 1)
        >>> noise.normals[0].shape, noise.uniforms.shape
        ((3, 2, 8), (1, 8))
    """

    normals: tuple[Float[Array, "..."], ...]
    uniforms: Float[Array, "steps paths"]


class AbstractSampler(eqx.Module):
    """A source of noise. It is static, hashable and compared by value, for static fields of methods.

    Paths come in blocks of equal size. The noise of a block depends only on the key, its index and its shape,
    not on the number of blocks or the device.
    """

    @abc.abstractmethod
    def blocks(self, num_paths: int, block: int) -> tuple[int, int]:
        """Return the number of blocks and the paths in each: at least `num_paths` paths in all.

        block: the number of paths that fit the memory; a sampler with a fixed number of blocks may need more.
        """

    @abc.abstractmethod
    def noise(
        self,
        key: PRNGKeyArray,
        index: int | Integer[Array, ""],
        paths: int,
        normals: tuple[Shape, ...],
        uniforms: int,
        dtype=None,
    ) -> Noise:
        """Return the noise of the block with this index.

        normals: the shape of each stream, (steps, *motions), possibly 0; uniforms: the number per path.
        """

    @abc.abstractmethod
    def reduce(self, values: Float[Array, "paths ..."]) -> Float[Array, "samples ..."]:
        """Return the independent samples from the values on a block's paths, with the same mean."""


class PseudoRandom(AbstractSampler):
    """Noise by a counter-based generator (threefry).

    Attributes:
        antithetic: Whether the second half of a block mirrors the first, z -> -z and u -> 1 - u, so that the
            mean of a pair is one sample. It helps if the value is nearly odd in the noise; if it is even, half
            of the paths are wasted.

    Examples:
        >>> PseudoRandom().blocks(10_000, 4096)
        (3, 4096)
    """

    antithetic: bool = eqx.field(static=True, default=False)

    def blocks(self, num_paths: int, block: int) -> tuple[int, int]:
        _at_least_one(num_paths=num_paths, block=block)
        paths = min(num_paths, block)
        if self.antithetic:
            paths += paths % 2
        return -(-num_paths // paths), paths

    def noise(self, key, index, paths, normals, uniforms, dtype=None) -> Noise:
        drawn = self._half(paths) if self.antithetic else paths
        of_block = jax.random.fold_in(key, index)
        folded = [jax.random.fold_in(of_block, i) for i in range(len(normals) + 1)]  # as `split`
        *keys, last = jax.lax.optimization_barrier(folded)  # else a GPU draws in two kernels
        pairs = zip(keys, normals, strict=True)
        streams = [draw_normals(stream, (*shape, drawn), dtype) for stream, shape in pairs]
        u = draw_uniforms(last, (uniforms, drawn), dtype)
        if self.antithetic:
            streams = [jnp.concatenate([z, -z], axis=-1) for z in streams]
            u = jnp.concatenate([u, 1.0 - u], axis=-1)
        return Noise(tuple(streams), u)

    def reduce(self, values: Float[Array, "paths ..."]) -> Float[Array, "samples ..."]:
        if not self.antithetic:
            return values
        half = self._half(values.shape[0])
        return 0.5 * (values[:half] + values[half:])

    def _half(self, paths: int) -> int:
        if paths % 2:
            raise ValueError(
                f"antithetic paths come in pairs, got {paths} of them; use {paths + 1}, or the "
                f"size from `blocks`"
            )
        return paths // 2


class Sobol(AbstractSampler):
    """Sobol' points in Brownian-bridge order, in replicates: blocks with independent scrambles.

    A path is a point, so the mean of a block is one sample, and the error is estimated from the replicates:
    with few of them, from few samples. Sobol' points beat pseudo-random numbers if the payoff depends mostly on
    few coordinates, most of all if it is smooth. The first dimensions go to the end points of all motions, the
    next to their midpoints, over all streams. Each uniform comes after the normals of the same step, and is not
    rotated.

    Attributes:
        replicates: The number of blocks, at least 2.

    Raises:
        ValueError: There are fewer than 2 replicates.

    Examples:
        >>> Sobol().blocks(10_000, 4096)
        (16, 1024)
    """

    replicates: int = eqx.field(static=True, default=16)

    def __check_init__(self):
        if self.replicates < 2:
            raise ValueError(
                f"replicates must be at least 2, got {self.replicates}; use 16 or more for an "
                f"error estimate"
            )

    def blocks(self, num_paths: int, block: int) -> tuple[int, int]:
        """Return one block for each replicate, whose size is a power of two; `block` has no effect."""
        _at_least_one(num_paths=num_paths, block=block)
        share = -(-num_paths // self.replicates)
        return self.replicates, 2 ** (share - 1).bit_length()

    def noise(self, key, index, paths, normals, uniforms, dtype=None) -> Noise:
        places = _in_turn((*normals, (uniforms,)))
        dimension = sum(place.size for place in places)
        if dimension > MAX_DIMENSION:
            raise ValueError(
                f"Sobol() has {MAX_DIMENSION} dimensions, and a path of normals {normals} and {uniforms} "
                f"uniforms needs {dimension}; use fewer steps, or PseudoRandom(), which has no "
                f"such limit"
            )
        dtype = checked_dtype(dtype)
        if not dimension:
            empty = tuple(jnp.zeros((*shape, paths), dtype) for shape in normals)
            return Noise(empty, jnp.zeros((0, paths), dtype))
        words = sobol_words(jax.random.fold_in(key, index), paths, dimension)
        *of_normals, of_uniforms = (words[place.ravel()] for place in places)
        pairs = zip(of_normals, normals, strict=True)
        streams = [inverse_normal(found, dtype).reshape(*shape, paths) for found, shape in pairs]
        u = uniform_of_sobol(of_uniforms, dtype).reshape(uniforms, paths)
        return Noise(tuple(bridged(z) if z.size else z for z in streams), u)

    def reduce(self, values: Float[Array, "paths ..."]) -> Float[Array, "samples ..."]:
        return jnp.mean(values, axis=0, keepdims=True)


def _in_turn(shapes: tuple[Shape, ...]) -> list[np.ndarray]:
    """Return the dimensions of each stream: the first step of all streams first, then the second."""
    places = [np.empty(shape, int) for shape in shapes]
    steps = max((shape[0] for shape in shapes), default=0)
    taken = 0
    for step in range(steps):
        for place in places:
            if step < place.shape[0]:
                place[step] = taken + np.arange(place[step].size).reshape(place.shape[1:])
                taken += place[step].size
    return places


def _at_least_one(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}")
