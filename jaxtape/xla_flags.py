"""Flags of XLA for this process and those it starts, to be set before JAX starts its backends."""

import os

from jaxlib.version import __version_info__ as jaxlib_version

Version = tuple[int, ...]

WITHOUT_FUSION_EMITTERS = ("--xla_cpu_use_fusion_emitters", "false", ((0, 10, 0), (0, 11)))
"""What `add_flag` takes: programs for CPUs compile in three quarters of the time."""


def add_flag(name: str, value: str, known: tuple[Version, Version]) -> bool:
    """Add `name=value` to XLA_FLAGS; whether it was added.

    It is not where XLA_FLAGS has the flag already, nor for a jaxlib outside of known[0] <= version < known[1],
    the versions that know it: others would refuse to start.
    """
    flags, (first, end) = os.environ.get("XLA_FLAGS", ""), known
    if not first <= jaxlib_version < end or name in flags:
        return False
    os.environ["XLA_FLAGS"] = f"{flags} {name}={value}".strip()
    return True
