"""JAX functions inside PyTorch programs, and the gradients of both side by side. Needs PyTorch."""

try:
    import torch as _torch  # noqa: F401  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "jaxtape.torch needs PyTorch: pip install 'jaxtape[torch]'."
    ) from error

from .compare import compare_gradients as compare_gradients
from .function import to_torch as to_torch
