"""JAX functions inside PyTorch programs, and comparison of their gradients with PyTorch's. Needs PyTorch."""

try:
    import torch as _torch  # noqa: F401  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "jaxtape.torch needs PyTorch: pip install 'jaxtape[torch]'."
    ) from error

from ..public_names import public_dir as _public_dir
from .case import Case as Case
from .function import to_torch as to_torch
from .gradients import ArrayDifference as ArrayDifference
from .gradients import GradientTable as GradientTable
from .gradients import compare_gradients as compare_gradients
from .modules import module_case as module_case
from .weights import WeightDifference as WeightDifference
from .weights import from_state_dict as from_state_dict
from .weights import weight_differences as weight_differences

__dir__ = _public_dir(globals())
