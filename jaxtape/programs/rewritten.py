"""Programs that are rewritten for a platform, as traced functions, after they were differentiated."""

from collections.abc import Callable

from .pairs_of_reals import rewritten_for_tpus

_PASSES: dict[str, Callable[[Callable], Callable]] = {"tpu": rewritten_for_tpus}


def add_pass(platform: str, rewrite: Callable[[Callable], Callable]) -> None:
    """Rewrite a platform's programs, before its other passes, by a function of functions of arrays."""
    others = _PASSES.get(platform)
    _PASSES[platform] = rewrite if others is None else lambda function: others(rewrite(function))


def rewritten_for(platform: str, function: Callable) -> Callable:
    """Return a function of arrays as it is compiled for a platform."""
    rewrite = _PASSES.get(platform)
    return function if rewrite is None else rewrite(function)
