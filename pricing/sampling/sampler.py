"""Sources of noise for Monte Carlo methods, and the independent samples among their values."""

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
    """Random numbers of one block of paths, all independent.

    Attributes:
        normals: Streams of standard normals, the steps of Brownian motions, each of shape
            (steps, *motions, paths).
        uniforms: Inside (0, 1), of shape (steps, paths).

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
    """A way to draw noise. Static, hashable and equal by value: it belongs in a method's static fields.

    Paths come in blocks of one size. A block's noise depends on the key, the block's index and its shape, not
    on the number of blocks, nor on the device.
    """

    @abc.abstractmethod
    def blocks(self, num_paths: int, block: int) -> tuple[int, int]:
        """Return the number of blocks and the paths in each: at least `num_paths` paths in all.

        block: the number of paths that fit the memory; a sampler that cuts its blocks by number may need more.
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
        """Return the noise of the block of this index.

        normals: the shape of each stream, (steps, *motions), where either may be 0; uniforms: their number a
            path.
        """

    @abc.abstractmethod
    def reduce(self, values: Float[Array, "paths ..."]) -> Float[Array, "samples ..."]:
        """Return the independent samples that the values on a block's paths make; both have the same mean."""


class PseudoRandom(AbstractSampler):
    """Noise by a counter-based generator (threefry).

    Attributes:
        antithetic: Whether the second half of a block mirrors the first, z -> -z and u -> 1 - u, so that a
            pair's mean is one sample. It pays where the value is nearly odd in the noise; of even ones it
            wastes half of the paths.

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
        *keys, last = jax.random.split(jax.random.fold_in(key, index), len(normals) + 1)
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
                f"antithetic paths come in pairs, got {paths} of them; take {paths + 1}, or what "
                "`blocks` says"
            )
        return paths // 2


class Sobol(AbstractSampler):
    """Sobol' points in Brownian-bridge order: some replicates, each a block under a scramble of its own.

    A path is a point, so that the mean of a block is one sample, and the error is measured from block to block:
    with few replicates, from few samples. Better than pseudo-random numbers if the payoff depends mostly on few
    coordinates, most of all if it is smooth; the first dimensions go to the end points of all motions, the next
    ones to their middles, over all streams. Each uniform comes after the
    normals of the same step, and is not rotated.

    Attributes:
        replicates: The number of blocks, at least 2.

    Raises:
        ValueError: If there are fewer than 2 replicates.

    Examples:
        >>> Sobol().blocks(10_000, 4096)
        (16, 1024)
    """

    replicates: int = eqx.field(static=True, default=16)

    def __check_init__(self):
        if self.replicates < 2:
            raise ValueError(
                f"replicates must be at least 2, got {self.replicates}; 16 or more make an error"
            )

    def blocks(self, num_paths: int, block: int) -> tuple[int, int]:
        """Return one block for each replicate, its size a power of two; `block` has no effect."""
        _at_least_one(num_paths=num_paths, block=block)
        share = -(-num_paths // self.replicates)
        return self.replicates, 2 ** (share - 1).bit_length()

    def noise(self, key, index, paths, normals, uniforms, dtype=None) -> Noise:
        places = _in_turn((*normals, (uniforms,)))
        dimension = sum(place.size for place in places)
        if dimension > MAX_DIMENSION:
            raise ValueError(
                f"Sobol() has {MAX_DIMENSION} dimensions, and a path of normals {normals} and {uniforms} "
                f"uniforms needs {dimension}; take fewer steps, or PseudoRandom(), which has no such limit"
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
    """Return the dimensions that each stream takes: the first step of all of them first, then the second."""
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
