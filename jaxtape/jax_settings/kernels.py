"""Whether chains of independent paths run in kernels on GPUs and TPUs."""

_on = False


def set_kernels(on: bool) -> None:
    """Set whether GPUs and TPUs run a chain of independent paths in one kernel a sweep. The default is False.

    A gradient by `jt.scan` or a tape under a schedule has two sweeps. If its step treats each path alone, each
    sweep becomes one Pallas kernel over tiles of the paths, and states stay in registers. Any other chain runs
    the usual way, and `jt.plan` gives the reason. On CPUs nothing changes.

    Set it before programs are traced, and for programs on one device: a compiler that partitions arrays over
    devices does not partition kernels. They have been compared with other sweeps in Pallas' interpreter, and
    compiled by JAX 0.10 and 0.12 for an H100 and a TPU v5e, but have not run on one yet. JAX 0.12 deprecates
    the part of Pallas that compiles them for GPUs.

    Args:
        on: Whether kernels are used from now on.

    Examples:
        >>> import jaxtape as jt
        >>> jt.set_kernels(False)
    """
    global _on
    _on = bool(on)


def kernels_are_on() -> bool:
    """Return True if `set_kernels(True)` was called last."""
    return _on
