"""Store a traced and lowered function of pytrees as bytes: `export` writes it, `load` reads it.

The bytes are a magic number, a digest of the rest, the length of a header, the header, which describes the
input and output trees in JSON, and the program that `jax.export` serialized. Nothing is pickled.
"""

import hashlib
import json
import os
import stat
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..jax_private import uncommitted, without_names
from ..jax_settings.platform import current_platform, traced_for
from ..jax_settings.xla_flags import KINDS, compiler_options
from .loaded import LOADED
from .pytree_json import PytreeSpec, from_json
from .rewritten import rewritten_for

_MARK, _DIGEST, _LENGTH = b"jaxtape\x01", 32, 4
_MAX_BYTES = 2**30  # a larger file is not a program of this library


class Program:
    """A function of pytrees read by `load`; it is compiled for the devices of its first arguments.

    It can be called within `jax.jit`, for one of the platforms that it was exported for. It cannot be
    differentiated.

    Examples:
        >>> import jax.numpy as jnp
        >>> import jaxtape as jt
        >>> program = jt.load(jt.export(lambda curve: {"total": curve["rates"].sum()}, {"rates": jnp.ones(3)}))
        >>> f"{program({'rates': jnp.ones(3)})['total']:.1f}"
        '3.0'
    """

    def __init__(self, content: bytes):
        """Read what `export` wrote; ValueError if it is something else, or needs another version of JAX."""
        self._read(content)
        self.check_results()

    @classmethod
    def before_imports(cls, content: bytes) -> "Program":
        """Return a program that may be compiled before the classes of its results are imported.

        Call `check_results` before it is run.
        """
        program = cls.__new__(cls)
        program._read(content)
        return program

    def _read(self, content: bytes) -> None:
        try:
            self._header, program = _unpacked(content)
            self._exported = jax.export.deserialize(bytearray(program))
        except Exception as error:  # damaged bytes can break any reader
            raise ValueError(f"not a program that jaxtape.export wrote: {error}") from error
        self._compiled: dict[Any, Callable] = {}

    def check_results(self) -> None:
        """Build the results once, with numbers in place of arrays.

        Raises:
            ValueError: If they cannot be built, or are not those of the program.
        """
        places = [np.asarray(i) for i in range(len(self._exported.out_avals))]
        try:
            built = from_json(self._header["outputs"], iter(places))
        except LookupError as error:
            raise ValueError(f"the program's results need a class: {error.args[0]}") from error
        except Exception as error:
            raise ValueError(f"not a program that jaxtape.export wrote: {error}") from error
        if arrays_of(built) != places:
            raise ValueError(
                f"not a program that jaxtape.export wrote: it has {len(places)} results"
            )

    @property
    def name(self) -> str:
        """The digest of the program's inputs, if the program is in a store."""
        return self._header["name"]

    @property
    def takes(self) -> str:
        """A description of the arguments that it was exported for."""
        return self._header["signature"]

    @property
    def shapes(self) -> list[jax.ShapeDtypeStruct]:
        """The shapes and types of the arrays of its arguments."""
        return [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in self._exported.in_avals]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the function's results.

        Raises:
            TypeError: If the arguments do not have the structure, shapes and types that it was exported for.
        """
        if PytreeSpec((args, kwargs), shape_of).json != self._header["inputs"]:
            raise TypeError(
                f"the program takes {self.takes}, got {_signature(args, kwargs)}: give trees of one structure, "
                "with arrays of the same shapes and types, and equal numbers and words elsewhere"
            )
        return self.run(arrays_of((args, kwargs)))

    def run(self, arrays: Sequence[Any]) -> Any:
        """Return the results for the arrays of arguments already checked."""
        if any(isinstance(array, Tracer) for array in arrays):
            results = self._exported.call(*arrays)
        else:
            results = self.compiled(arrays)(*arrays)
            if not any(map(place_of, arrays)):
                results = map(_movable, results)
        return from_json(self._header["outputs"], iter(results))

    def compiled(self, arrays: Sequence[Any]) -> Callable:
        """Return the function of arrays, compiled for the devices where these are."""
        places = tuple(map(place_of, arrays))
        LOADED.used(self)
        found = self._compiled.get(places)
        if found is None:
            kinds = [
                kind for kind in KINDS if self._header.get(kind)
            ]  # older files lack some entries
            options = compiler_options(kinds) if kinds else None
            lowered = without_names(jax.jit(self._exported.call).lower(*arrays))
            found = self._compiled[places] = lowered.compile(compiler_options=options)
            LOADED.make_room()
        return found

    def unload(self) -> None:
        """Release the compiled program, which takes memory; the next call compiles it again."""
        self._compiled.clear()


def export(function: Callable, *args: Any, platforms: Sequence[str] | None = None) -> bytes:
    """Export a function of pytrees for arguments like these, as `jax.export` does for arrays.

    `load` needs neither the function nor its source. Values that the function closes over are part of the
    program. Only the packages that define the classes of the results must be imported.

    Args:
        function: A function that `equinox.filter_jit` can compile. Its program must have no callbacks to
            Python.
        *args: Arguments; only the shapes and types of their arrays matter.
        platforms: The platforms that the program may run on, such as ("cpu", "cuda"); the default is the
            current one. What a TPU lacks in double precision is rewritten for all of them.

    Returns:
        The program, to be written to a file. TypeError is raised if an argument or a result means nothing to
        another process, such as an open file.


    Examples:
        >>> import jax.numpy as jnp
        >>> import jaxtape as jt
        >>> content = jt.export(lambda x: x + 1, jnp.arange(3, dtype=jnp.int32))
        >>> jt.load(content).takes
        '(i32[3],)'
    """
    return exported(function, args, {}, platforms)


def exported(
    function: Callable,
    args: tuple,
    kwargs: dict[str, Any],
    platforms: Sequence[str] | None = None,
    name: str = "",
    kinds: Collection[str] = (),
) -> bytes:
    """Return the program of a function for arguments like these.

    kinds: The argument of `compiler_options`.

    Raises:
        TypeError: If the results hold an object that cannot be rebuilt from its description, such as a
            function.
    """
    flat, leaves, parts = flattened(function, args, kwargs, eqx.is_array)
    current = current_platform()
    if platforms is None and current != jax.default_backend():
        platforms = [current]
    targets = platforms or [current]
    with traced_for(targets):
        for target in targets:
            flat = rewritten_for(target, flat)
        program = jax.export.export(jax.jit(flat), platforms=platforms)(*leaves)
    places, rest = [np.asarray(i) for i in range(len(program.out_avals))], parts.pop()
    results = eqx.combine(jax.tree.unflatten(parts.pop(), places), rest)
    header = {
        "name": name,
        **{kind: kind in kinds for kind in KINDS},
        "signature": _signature(args, kwargs),
        "inputs": PytreeSpec((args, kwargs), shape_of).json,
        "outputs": PytreeSpec(results).json,
    }
    built = from_json(header["outputs"], iter(places))
    if jax.tree.structure(built) != jax.tree.structure(results) or arrays_of(built) != places:
        raise TypeError(
            f"the results cannot be rebuilt from a description: {eqx.tree_pformat(results)}"
        )
    return _packed(header, bytes(program.serialize()))


def flattened(
    function: Callable, args: tuple, kwargs: dict[str, Any], is_array: Callable[[Any], bool]
) -> tuple[Callable, list[Any], list[Any]]:
    """Return a function of arrays only, the arrays among the leaves of its arguments, and a list.

    After tracing, the list holds the structure of the arrays in the results, and the rest of the results.
    """
    arrays, static = eqx.partition((args, kwargs), is_array)
    leaves, structure = jax.tree.flatten(arrays)
    parts: list[Any] = []

    def flat(*leaves):
        args, kwargs = eqx.combine(jax.tree.unflatten(structure, leaves), static)
        arrays, rest = eqx.partition(function(*args, **kwargs), eqx.is_array)
        leaves, parts[:] = jax.tree.leaves(arrays), (jax.tree.structure(arrays), rest)
        return leaves

    flat.__name__ = getattr(function, "__name__", type(function).__name__)
    return flat, leaves, parts


def load(program: bytes | str | os.PathLike) -> Program:
    """Read a program that `export` wrote.

    Args:
        program: The file, or its content.

    Returns:
        The program, called like the exported function. ValueError is raised if the content is not a program, is
        damaged, or needs a class of a package that is not imported.

    Examples:
        >>> import jax.numpy as jnp
        >>> import jaxtape as jt
        >>> twice = jt.load(jt.export(lambda x: 2 * x, jnp.arange(3)))
        >>> twice(jnp.arange(3)).tolist()
        [0, 2, 4]
    """
    return Program(program if isinstance(program, bytes) else read(Path(program)))


def read(path: Path) -> bytes:
    """Return the content of a file that may be a program.

    Raises:
        ValueError: If it is not a regular file, or is too large.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
        raise ValueError(
            f"{path} is not a program: it is not a file, or has more than {_MAX_BYTES} bytes"
        )
    return path.read_bytes()


def arrays_of(tree: Any) -> list[Any]:
    """Return the arrays of a tree, in JAX's order."""
    return [leaf for leaf in jax.tree.leaves(tree) if eqx.is_array(leaf)]


def place_of(array: Any) -> jax.sharding.Sharding | None:
    """Return the sharding to which an array was committed; None if it may be used on any device."""
    return array.sharding if getattr(array, "committed", False) else None


def _movable(array: Any) -> jax.Array:
    """Return an uncommitted array, as jitted functions return it and programs do not."""
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) or len(array.devices()) > 1:
        return array
    return uncommitted(array)


def shape_of(array: Any) -> list:
    """Return the description of an array of which only shape and type matter."""
    return ["leaf", str(jax.typeof(array))]


def _signature(args: tuple, kwargs: dict[str, Any]) -> str:
    return eqx.tree_pformat((*args, kwargs) if kwargs else args, width=10**6)


def _packed(header: dict[str, Any], program: bytes) -> bytes:
    text = json.dumps(header).encode()
    content = len(text).to_bytes(_LENGTH, "big") + text + program
    return _MARK + hashlib.sha256(content).digest() + content


def _unpacked(file: bytes) -> tuple[dict[str, Any], bytes]:
    start = len(_MARK) + _DIGEST
    mark, digest, content = file[: len(_MARK)], file[len(_MARK) : start], file[start:]
    if mark != _MARK or hashlib.sha256(content).digest() != digest:
        raise ValueError("its magic number or its digest does not match")
    end = _LENGTH + int.from_bytes(content[:_LENGTH], "big")
    return json.loads(content[_LENGTH:end]), content[end:]
