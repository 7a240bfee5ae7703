"""Run chains in kernels: natively on a GPU or TPU, and elsewhere in Pallas' interpreter."""

from typing import Any

import jax
import pytest

from jaxtape.sweeps import by_platform, kernel_executor
from jaxtape.sweeps.chain import Chain

NATIVE = {"cuda": "gpu", "tpu": "tpu"}


def run_kernels(patch: pytest.MonkeyPatch, kind: str) -> list[Any]:
    """Run chains in the kernels of a kind of accelerator from now on.

    Returns:
        The decisions that follow, of the sweeps of each chain: its kernels, or why it has none.
    """
    decisions, decide = [], kernel_executor.kernels_or_reason

    def seen(*args):
        decisions.append(decide(*args))
        return decisions[-1]

    backend = jax.default_backend()
    if backend == "cpu":
        patch.setattr(by_platform, "CPUS_ARE_OTHERS", True)
        patch.setattr(kernel_executor, "INTERPRETED_FOR", kind)
    elif backend != kind:
        pytest.skip(f"a {backend} runs no kernel of a {kind}")
    native = {} if backend == "cpu" else {k: v for k, v in NATIVE.items() if v == kind}
    patch.setattr(kernel_executor, "_KINDS", native)
    patch.setattr(kernel_executor, "kernels_or_reason", seen)
    patch.setattr("jaxtape.jax_settings.kernels._on", True)
    return decisions


def forget_sweeps() -> None:
    """Have the sweeps of chains traced again."""
    Chain.first_sweep.clear_cache()
    Chain.reverse_sweep.clear_cache()
