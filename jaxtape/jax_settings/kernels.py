"""Whether chains of independent paths run in kernels on GPUs and TPUs."""

_on = False


def set_kernels(on: bool) -> None:
    """Set whether GPUs and TPUs run a chain of independent paths in one kernel a sweep. The default is False.

    A gradient by `jt.scan` or a tape has two sweeps. If its step treats each path separately, each sweep
    becomes one Pallas kernel over tiles of paths, and states stay in registers. A chain that is only run, or
    differentiated in forward mode, becomes one kernel too. In a function under `jt.stored_jit`, both sweeps and
    the payoff become one kernel on a GPU. Any other chain runs the usual way, and `jt.plan` gives the reason.
    Without a schedule, a kernel keeps every state. On CPUs nothing changes.

    Set it before programs are traced, and only for programs on one device: a compiler that partitions arrays
    over devices does not partition kernels. The kernels' tests pass on an H200 with JAX 0.11 and in Pallas'
    interpreter. For TPUs they have been compiled but not run. JAX 0.12 deprecates the part of Pallas that
    compiles them for GPUs.

    Args:
        on: Whether kernels are used from now on.

    Examples:
        >>> import jaxtape as jt
        >>> jt.set_kernels(False)
    """
    global _on
    _on = bool(on)


def kernels_are_on() -> bool:
    """Return True if kernels are on (`set_kernels`)."""
    return _on
