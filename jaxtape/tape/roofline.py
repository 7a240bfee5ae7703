"""A lower bound on the time of a gradient's kernels on a device, and the binding limit."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..programs.device_limits import BYTES, Limit
from ..programs.registers import Registers
from ..programs.targets import target_of


@dataclass(frozen=True)
class Roofline:
    """A lower bound on the time of a gradient in kernels: its work at each limit of a device.

    The work is counted from the operations of a node, as if every function took one operation and the states of
    a block stayed in a cache. So the device needs at least the time at the binding limit, and a measured time
    divided by it shows how far a chain is from that limit.

    Attributes:
        target: The target's name.
        work: The bytes that both sweeps move, and their operations by kind, for all paths.
        limits: The time in seconds at each limit, by name.
        tile_bytes: The bytes of a TPU's vector memory that a tile of paths takes; 0 on GPUs.
        registers: The registers per path in each kernel on a GPU, from its compiler; empty if not reported.
        repeated_bytes: The bytes that a GPU reads and writes beside those in `work`, within blocks of nodes.
        block_bytes: The bytes of the blocks of all tiles that run at once. If the device's cache holds them,
            repeated reads and writes do not reach its memory.

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
    repeated_bytes: int = 0
    block_bytes: int = 0

    @property
    def asked_bytes(self) -> int:
        """The bytes that both sweeps read and write, in a cache or in memory."""
        return self.work.get(BYTES, 0) + self.repeated_bytes

    @property
    def cached(self) -> bool:
        """Whether the device's cache holds the blocks of all tiles that run at once."""
        return self.block_bytes <= target_of(self.target).cache_bytes

    @property
    def binding(self) -> str:
        """The name of the limit that takes the most time."""
        return max(self.limits, key=self.limits.__getitem__)

    @property
    def seconds(self) -> float:
        """The lower bound in seconds."""
        return self.limits[self.binding]

    def draw(self, seconds: float | None = None, axes: Any = None):
        """Draw the roofline, as a matplotlib figure: operations per second against operations per byte.

        Each kind of operation has a roof, set by the device's memory on the left and its units on the right,
        and a point on it: the rate of that kind if it were the only limit. A measured time adds the rates
        achieved.

        Args:
            seconds: A measured time of the gradient, drawn beside the limits.
            axes: Matplotlib axes; None makes a new figure.

        Raises:
            ValueError: If the chain has no operations or moves no bytes, or `seconds` is not positive.

        Source: S. Williams, A. Waterman and D. Patterson, "Roofline: an insightful visual performance model for
        multicore architectures", Communications of the ACM 52 (2009).
        """
        import matplotlib.pyplot as plt  # takes long to import

        if seconds is not None and not seconds > 0.0:
            raise ValueError(f"seconds is {seconds}: give the measured time of a gradient.")
        memory, *units = target_of(self.target).limits
        moved = self.work.get(BYTES, 0)
        counts = {limit: sum(self.work.get(kind, 0) for kind in limit.kinds) for limit in units}
        counts = {limit: count for limit, count in counts.items() if count}
        if not counts or not moved:
            raise ValueError(
                f"This chain has {sum(counts.values())} counted operations and moves {moved} bytes on "
                f"{self.target}: a roofline has both."
            )
        if axes is None:
            _, axes = plt.subplots(figsize=(7, 5), layout="constrained")
        ridges = [limit.per_second / memory.per_second for limit in counts]
        ends = min(ridges) / 30.0, 30.0 * max(*ridges, *(n / moved for n in counts.values()))
        slope = np.array([ends[0], max(ridges)])
        axes.plot(slope, slope * memory.per_second, color="0.5", label=self._label(memory))
        for number, (limit, count) in enumerate(counts.items()):
            colour, intensity, ridge = f"C{number}", count / moved, ridges[number]
            roof = min(limit.per_second, intensity * memory.per_second)
            axes.plot([ridge, ends[1]], [limit.per_second] * 2, colour, label=self._label(limit))
            axes.plot(intensity, roof, "o", color=colour, mfc="none")
            if seconds is not None:
                axes.plot([intensity] * 2, [count / seconds, roof], ":", color=colour)
                axes.plot(intensity, count / seconds, "o", color=colour)
        title = f"{self.target}: at least {1e3 * self.seconds:.3g} ms, by its {self.binding}"
        if seconds is not None:
            title += f"; measured {1e3 * seconds:.3g} ms"
        axes.set(xscale="log", yscale="log", title=title)
        axes.set(xlabel="operations per byte", ylabel="operations per second")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)
        return axes.figure

    def _label(self, limit: Limit) -> str:
        """Return the label of a limit in a figure."""
        return f"{limit.name}: at least {1e3 * self.limits.get(limit.name, 0.0):.3g} ms"

    def __str__(self) -> str:
        by_time = sorted(self.limits.items(), key=lambda each: -each[1])
        times = ", ".join(f"{name} {1e3 * each:.3g}" for name, each in by_time if each)
        counts = ", ".join(f"{count:,} {kind}" for kind, count in self.work.items())
        held = "".join(f"\n  {name}: {each}" for name, each in self.registers.items())
        if self.repeated_bytes:
            cache = target_of(self.target).cache_bytes
            counts += (
                f"\n  {self.asked_bytes:,} bytes asked for, {self.repeated_bytes:,} of them within blocks: "
                f"{self.block_bytes:,} bytes at once, which the cache of {cache:,} "
                f"{'holds' if self.cached else 'does not hold'}"
            )
        fast = f"\n  {self.tile_bytes:,} bytes of VMEM a tile" if self.tile_bytes else ""
        return (
            f"  at least {1e3 * self.seconds:.3g} ms on {self.target}, by its {self.binding}\n"
            f"  ms at each limit: {times}\n  {counts}{held}{fast}"
        )
