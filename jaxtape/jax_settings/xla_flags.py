"""Flags of XLA for this process and its children, to be set before JAX starts its backends.

Since jaxlib 0.10.1, XLA passes sums of products on CPUs to YNNPACK, in fusions with a race condition: results
differ from run to run, or the process hangs or dies (jax-ml/jax issues 39257 and 40412). An empty flag turns
them off. `JAXTAPE_XLA_FLAGS=0` leaves XLA_FLAGS as it is.
"""

import json
import os
import warnings
from collections.abc import Iterable
from pathlib import Path

import jax

from ..jax_private import JAXLIB_VERSION, backends_are_initialized

Version = tuple[int, ...]

WITHOUT_FUSION_EMITTERS = ("--xla_cpu_use_fusion_emitters", "false", ((0, 10, 0), (0, 11)))
"""Arguments of `add_flag`: programs for CPUs compile in three quarters of the time."""

WITHOUT_OPTIMIZATION = ("--xla_backend_optimization_level", "0", ((0, 10, 0), (0, 13)))
"""As above, for one program: it compiles in a third of the time, and runs two to three times as long."""

KINDS = {"quick_to_compile": WITHOUT_FUSION_EMITTERS, "runs_briefly": WITHOUT_OPTIMIZATION}
"""The arguments of `stored_jit` that say how a program for CPUs is compiled, and their flags."""

WITHOUT_COSTLY_PASSES = (
    "--xla_backend_extra_options",
    "-vectorize-slp=0,-disable-lsr,-enable-misched=0,-disable-post-ra",
    ((0, 10, 0), (0, 11)),
)
"""Arguments of `add_flag`: a first run takes a tenth fewer CPU seconds, and its programs give the same bits."""

WITHOUT_YNN_FUSIONS = ("--xla_cpu_experimental_ynn_fusion_type", "", ((0, 10, 1), (0, 13)))
"""Arguments of `add_flag`: turn off fusions on CPUs that give wrong numbers.

The crash of the second issue is fixed in jaxlib 0.11.2. The fusions remain, and nothing shows that the race is
fixed.
"""

_SWITCH, _ON = "JAXTAPE_XLA_FLAGS", {"": True, "1": True, "0": False}


def add_flag(name: str, value: str, known: tuple[Version, Version]) -> bool:
    """Add `name=value` to XLA_FLAGS if it `is_missing` and XLA_FLAGS does not name a file.

    Returns:
        Whether it was added.
    """
    given = os.environ.get("XLA_FLAGS", "")
    if not is_missing(name, known) or _file_of(given):
        return False
    os.environ["XLA_FLAGS"] = f"{given} {name}={value}".strip()
    return True


def compiler_options(kinds: Iterable[str]) -> dict[str, bool | int]:
    """Return the compiler options of a program of some of the KINDS, less those that XLA_FLAGS already has.

    There are none if the backend is not a CPU.
    """
    if jax.default_backend() != "cpu":
        return {}
    flags = [KINDS[kind] for kind in kinds]
    return {
        name.removeprefix("--"): json.loads(value)
        for name, value, known in flags
        if is_missing(name, known)
    }


def is_missing(name: str, known: tuple[Version, Version]) -> bool:
    """Return True if a flag should be added.

    It should not if XLA_FLAGS already has it, if jaxlib is outside of known[0] <= version < known[1], the
    versions that know the flag (others would refuse to start), or if the user turned flags off.

    Raises:
        ValueError: If JAXTAPE_XLA_FLAGS is neither 0 nor 1.
    """
    switch, (first, end) = os.environ.get(_SWITCH, ""), known
    if switch not in _ON:
        raise ValueError(f"{_SWITCH}={switch!r}: give 0 to leave XLA_FLAGS as it is, or 1")
    return _ON[switch] and first <= JAXLIB_VERSION < end and name not in _given()


def without_ynn_fusions() -> None:
    """Set the flag that turns the fusions off, unless the user has; warn if it would have no effect."""
    name, value, known = WITHOUT_YNN_FUSIONS
    if not is_missing(name, known):
        return
    if file := _file_of(os.environ.get("XLA_FLAGS", "")):
        cause, remedy = f"XLA_FLAGS names the file {file}", f"add {name}={value} to it"
    elif add_flag(name, value, known) and backends_are_initialized():
        cause = "JAX was in use before jaxtape was imported"
        remedy = f"import jaxtape first, or set XLA_FLAGS={name}={value}"
    else:
        return
    warnings.warn(
        f"{cause}, so that XLA for CPUs may use fusions that give wrong numbers: {remedy} "
        f"({_SWITCH}=0 if you want it as it is)",
        stacklevel=3,
    )


def _given() -> set[str]:
    """Return the names of the flags in XLA_FLAGS, or in the file that it names."""
    text = os.environ.get("XLA_FLAGS", "")
    if file := _file_of(text):
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
    return {flag.partition("=")[0] for flag in text.split()}


def _file_of(flags: str) -> Path | None:
    """Return the file of flags that XLA would read: any text that does not begin with a dash is a file name."""
    return Path(flags) if flags and not flags.lstrip().startswith("-") else None
