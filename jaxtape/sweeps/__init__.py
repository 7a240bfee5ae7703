"""Run a chain, keep states, and reverse it; JAX differentiates `run`."""

from collections.abc import Callable

from ..programs.rewritten import add_pass
from .kernel_executor import kernels_here

try:
    from . import checked as checked
    from .rule import run as run
except ImportError:  # VJPHiPrimitive is experimental
    from .reverse_only import run as run


def _fused(function: Callable) -> Callable:
    """Return a function whose sweeps share kernels with what is elementwise around them, if kernels are on."""
    kind = kernels_here()
    if kind is None:
        return function
    from .fused import fused  # programs without kernels import none

    return fused(function, kind)


for _platform in (
    "gpu",
    "cuda",
    "tpu",
):  # JAX's names of a GPU where it runs, and where a program is lowered; of a TPU both are the same
    add_pass(_platform, _fused)
