"""The least time that the kernels of a gradient take on a device, and the limit that decides it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..programs.registers import Registers


@dataclass(frozen=True)
class Roofline:
    """The least time of a gradient in kernels: its work, at each limit of a device.

    The work is counted from the operations of a node, as if every function took one operation and the states of
    a block stayed in a cache. So a device needs at least the time of the largest limit, and a measured time
    divided by it is how far a chain is from the device's limit.

    Attributes:
        target: The target's name.
        work: The bytes that both sweeps move, and their operations by kind, for all paths.
        limits: The time in seconds at each limit, by name.
        tile_bytes: The bytes of a TPU's fast memory that a tile of paths takes; 0 on GPUs.
        registers: The registers of a path in each kernel on a GPU, from its compiler; none if it does not say.

    Examples:
        >>> import jaxtape as jt
        >>> roofline = jt.Roofline("gpu:h100", {"bytes": 8}, {"memory": 2e-3, "integer operations": 3e-3})
        >>> roofline.binding, roofline.seconds
        ('integer operations', 0.003)
    """

    target: str
    work: Mapping[str, int]
    limits: Mapping[str, float]
    tile_bytes: int = 0
    registers: Mapping[str, Registers] = field(default_factory=dict)

    @property
    def binding(self) -> str:
        """The name of the limit that takes the most time."""
        return max(self.limits, key=self.limits.__getitem__)

    @property
    def seconds(self) -> float:
        """The least time in seconds."""
        return self.limits[self.binding]

    def __str__(self) -> str:
        by_time = sorted(self.limits.items(), key=lambda each: -each[1])
        times = ", ".join(f"{name} {1e3 * each:.3g}" for name, each in by_time if each)
        counts = ", ".join(f"{count:,} {kind}" for kind, count in self.work.items())
        held = "".join(
            f"\n  {name}: {each.used} registers a thread, {each.spilled_bytes:,} bytes spilled"
            for name, each in self.registers.items()
        )
        fast = f"\n  {self.tile_bytes:,} bytes of VMEM a tile" if self.tile_bytes else ""
        return (
            f"  at least {1e3 * self.seconds:.3g} ms on {self.target}, by its {self.binding}\n"
            f"  ms at each limit: {times}\n  {counts}{held}{fast}"
        )
