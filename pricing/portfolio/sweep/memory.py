"""A cache of the results of this sweep and the last one, by their arguments."""

import hashlib
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

Result = TypeVar("Result")


class Memory:
    """A cache of the results of this sweep and the last; a result that neither used is dropped.

    Threads may share a cache: one of them computes each result, and the others wait for it.
    """

    def __init__(self):
        self._last: dict[Hashable, Future[Any]] = {}
        self._now: dict[Hashable, Future[Any]] = {}
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Begin a sweep."""
        with self._lock:
            self._last, self._now = self._now, {}

    def recall(self, compute: Callable[[], Result], arguments: PyTree) -> Result:
        """Return the result for arguments with these exact bits, from the cache or computed."""
        name = identity(arguments)
        with self._lock:
            known = self._now.get(name) or self._last.get(name)
            found = self._now[name] = known or Future()
        if known is None:
            try:
                found.set_result(compute())
            except BaseException as error:
                with self._lock:
                    self._last.pop(name, None)
                    self._now.pop(name, None)
                found.set_exception(error)
        return found.result()


def identity(tree: PyTree) -> Hashable:
    """Return a key that two trees share if all of their numbers have the same bits."""
    leaves, structure = jax.tree.flatten(tree)
    digest, others = hashlib.sha256(), []
    for leaf in leaves:
        if not isinstance(leaf, jax.Array | np.ndarray):
            others.append(leaf)
            continue
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        digest.update(f"{leaf.dtype} {leaf.shape} ".encode() + np.asarray(leaf).tobytes())
    return structure, tuple(others), digest.digest()
