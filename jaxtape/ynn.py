"""Keeps XLA for CPUs from fusions that give wrong numbers.

Since jaxlib 0.10.2 XLA hands sums of products to YNNPACK, in fusions that race: results differ from run to run,
or the process hangs or dies (jax-ml/jax issues 39257 and 40412). An empty flag turns them off.
"""

import warnings

from jax._src.xla_bridge import backends_are_initialized  # there is no public question

from .xla_flags import add_flag

_FLAG = "--xla_cpu_experimental_ynn_fusion_type"
_KNOWN = ((0, 10, 1), (0, 12))


def without_ynn_fusions() -> None:
    """Set the flag for this process and those it starts, unless XLA_FLAGS has it already."""
    if add_flag(_FLAG, "", _KNOWN) and backends_are_initialized():
        warnings.warn(
            "jax was in use before jaxtape was imported, with fusions for CPUs that can give wrong numbers: "
            f"import jaxtape first, or set XLA_FLAGS={_FLAG}=",
            stacklevel=2,
        )
