"""Where a Monte Carlo method's noise comes from, and which of its values are independent."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer, PRNGKeyArray

from .bridge import bridged
from .normal_law import inverse_normal
from .normals import checked_dtype, normals, uniforms
from .sobol import MAX_DIMENSION, sobol_words, uniform_of_sobol


class Noise(NamedTuple):
    """Random numbers of one block of paths: standard normals for `dims` independent Brownian motions at each
    step, and uniforms in (0, 1) that are independent of them; None where there are none of a kind."""

    normals: Float[Array, "steps dims paths"] | None
    uniforms: Float[Array, "steps paths"] | None


class AbstractSampler(eqx.Module):
    """A way to draw noise. Static, hashable and equal by value: it belongs in a method's static fields.

    Paths come in blocks of one size. A block's noise depends on the key, the block's index and its shape, not
    on how many blocks there are, nor on the device.
    """

    @abc.abstractmethod
    def blocks(self, num_paths: int, block: int) -> tuple[int, int]:
        """(number of blocks, paths in each): at least `num_paths` paths in all.

        block: how many paths fit the memory; a sampler that cuts its blocks by number may need more.
        """

    @abc.abstractmethod
    def noise(
        self,
        key: PRNGKeyArray,
        index: int | Integer[Array, ""],
        paths: int,
        steps: int,
        dims: int,
        dtype=None,
        *,
        with_uniforms: bool = False,
    ) -> Noise:
        """The noise of the block of this index. dims may be 0, where uniforms are all that is asked for."""

    @abc.abstractmethod
    def reduce(self, values: Float[Array, "paths ..."]) -> Float[Array, "samples ..."]:
        """The independent samples that the values on a block's paths make. Their mean is the values' mean."""


class PseudoRandom(AbstractSampler):
    """Noise by a counter-based generator (threefry).

    antithetic: the second half of a block mirrors the first, z -> -z and u -> 1 - u, so that a pair's mean is
    one sample. It pays where the value is nearly odd in the noise; of even ones it wastes half of the paths.
    """

    antithetic: bool = eqx.field(static=True, default=False)

    def blocks(self, num_paths: int, block: int) -> tuple[int, int]:
        _at_least_one(num_paths=num_paths, block=block)
        paths = min(num_paths, block)
        if self.antithetic:
            paths += paths % 2
        return -(-num_paths // paths), paths

    def noise(
        self,
        key: PRNGKeyArray,
        index: int | Integer[Array, ""],
        paths: int,
        steps: int,
        dims: int,
        dtype=None,
        *,
        with_uniforms: bool = False,
    ) -> Noise:
        first, second = jax.random.split(jax.random.fold_in(key, index))
        drawn = self._half(paths) if self.antithetic else paths
        z = normals(first, (steps, dims, drawn), dtype) if dims else None
        u = uniforms(second, (steps, drawn), dtype) if with_uniforms else None
        if self.antithetic:
            z = None if z is None else jnp.concatenate([z, -z], axis=-1)
            u = None if u is None else jnp.concatenate([u, 1.0 - u], axis=-1)
        return Noise(z, u)

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
    """Sobol' points in Brownian-bridge order, `replicates` of them, each a block under a scramble of its own.

    A path is a point, so that the mean of a block is one sample, and the error is measured from block to block:
    with few replicates by few. Better than pseudo-random numbers where what matters depends on few coordinates,
    most of all where it is smooth; the first dimensions go to the end points of all motions, the next ones to
    their middles. Uniforms stand beside the coordinates of their step's number, and are not rotated.
    """

    replicates: int = eqx.field(static=True, default=16)

    def __check_init__(self):
        if self.replicates < 2:
            raise ValueError(
                f"replicates must be at least 2, got {self.replicates}; 16 or more make an error"
            )

    def blocks(self, num_paths: int, block: int) -> tuple[int, int]:
        """As many blocks as replicates, of the next power of two: `block` does not change them."""
        _at_least_one(num_paths=num_paths, block=block)
        share = -(-num_paths // self.replicates)
        return self.replicates, 2 ** (share - 1).bit_length()

    def noise(
        self,
        key: PRNGKeyArray,
        index: int | Integer[Array, ""],
        paths: int,
        steps: int,
        dims: int,
        dtype=None,
        *,
        with_uniforms: bool = False,
    ) -> Noise:
        each = dims + with_uniforms
        if steps * each > MAX_DIMENSION:
            raise ValueError(
                f"Sobol() has {MAX_DIMENSION} dimensions, and {steps} steps of {each} random numbers need "
                f"{steps * each}; take fewer steps, or PseudoRandom(), which has no such limit"
            )
        words = sobol_words(jax.random.fold_in(key, index), paths, steps * each)
        words = words.reshape(steps, each, *words.shape[1:])
        dtype = checked_dtype(dtype)
        z = inverse_normal(words[:, each - dims :], dtype) if dims else None
        u = uniform_of_sobol(words[:, 0], dtype) if with_uniforms else None
        return Noise(
            None if z is None else bridged(z.reshape(steps, dims, paths)),
            None if u is None else u.reshape(steps, paths),
        )

    def reduce(self, values: Float[Array, "paths ..."]) -> Float[Array, "samples ..."]:
        return jnp.mean(values, axis=0, keepdims=True)


def _at_least_one(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}")
