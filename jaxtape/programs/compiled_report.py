"""The report of a compiled program: bytes, operations, loops, kernels and collectives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .registers import Registers
from .scheduled_program import Collective, Loop, ScheduledProgram
from .targets import Target


@dataclass(frozen=True)
class CompiledReport:
    """A target's compiler's report on a program; bytes are per device.

    Attributes:
        target: The target's name.
        reason: The reason why the program does not compile; "" if it does.
        devices: The number of devices that the program is for.
        device_bytes: The memory of a device.
        argument_bytes: The bytes of the arguments.
        output_bytes: The bytes of the results.
        temporary_bytes: The bytes of temporaries.
        host_bytes: The bytes of temporaries in the host's memory.
        flops: The number of floating-point operations as XLA counts them, with one iteration of each loop; None
            if XLA does not report it.
        seconds: The time on a TPU: the cycles that its compiler estimates for each kernel, times the iterations
            of the loops, divided by the clock rate. It excludes transfers and collectives. None elsewhere, and
            if an estimate or a loop's length is unknown.
        loops: The loops.
        kernels: The number of kernels that a run launches; None if it depends on a loop of unknown length.
        copies: The number of copies among them, such as those of a TPU that bring arguments and constants into
            fast memory.
        collectives: The collectives by kind.
        registers: The registers of the kernels that Pallas compiles for a GPU, by name.
        pallas_bytes: The bytes that the kernels of Pallas read and write, which XLA does not count: the blocks
            of their arguments and results, each once a launch. `jt.plan` counts what a kernel reads again. None
            if it depends on a loop of unknown length.
        compile_seconds: The time the compiler took.

    Examples:
        >>> import jaxtape as jt
        >>> jt.CompiledReport("tpu:v5e:2x2", reason="out of memory").compiles
        False
    """

    target: str
    reason: str = ""
    devices: int = 1
    device_bytes: int = 0
    argument_bytes: int = 0
    output_bytes: int = 0
    temporary_bytes: int = 0
    host_bytes: int = 0
    flops: float | None = None
    seconds: float | None = None
    loops: tuple[Loop, ...] = ()
    kernels: int | None = None
    copies: int | None = None
    collectives: Mapping[str, Collective] = field(default_factory=dict)
    registers: Mapping[str, Registers] = field(default_factory=dict)
    pallas_bytes: int | None = None
    compile_seconds: float = 0.0

    @property
    def compiles(self) -> bool:
        """Whether the program compiles."""
        return not self.reason

    @property
    def total_bytes(self) -> int:
        """The bytes of arguments, results and temporaries."""
        return self.argument_bytes + self.output_bytes + self.temporary_bytes

    @property
    def fits(self) -> bool:
        """Whether the program compiles, and a device's memory holds its bytes."""
        return self.compiles and self.total_bytes <= self.device_bytes

    def __str__(self) -> str:
        if not self.compiles:
            return f"{self.target}: does not compile: {self.reason}"
        known = sum(loop.turns is not None for loop in self.loops)
        bodies = ", ".join(str(loop.kernels) for loop in self.loops)
        loops = f"{len(self.loops)} loops, {known} of known length (kernels a turn: {bodies})"
        moved = "".join(
            f"\n  {each.count} {kind}, {each.bytes:,} bytes"
            for kind, each in self.collectives.items()
        )
        held = "".join(f"\n  {name}: {each}" for name, each in self.registers.items())
        kernels = "an unknown number of kernels a run"
        if self.kernels is not None:
            kernels = f"{self.kernels:,} kernels a run, {self.copies or 0:,} of them copies"
        if self.pallas_bytes:
            moved += f"\n  {self.pallas_bytes:,} bytes read and written by kernels of Pallas"
        return (
            f"{self.target}: compiles in {self.compile_seconds:.1f} s for {self.devices} of its devices\n"
            f"  {self.total_bytes:,} bytes a device{'' if self.fits else ', more than it has'}: "
            f"{self.argument_bytes:,} of arguments, {self.output_bytes:,} of results, "
            f"{self.temporary_bytes:,} of temporaries; {self.host_bytes:,} on the host\n"
            f"  {loops if self.loops else 'no loop'}; {kernels}\n"
            f"  {'unknown' if self.flops is None else format(self.flops, ',.0f')} operations, with one turn "
            f"of each loop"
            f"{'' if self.seconds is None else f', {self.seconds:.3g} s by the cost model'}{moved}{held}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            **self.__dict__,
            "compiles": self.compiles,
            "fits": self.fits,
            "loops": [loop._asdict() for loop in self.loops],
            "collectives": {kind: each._asdict() for kind, each in self.collectives.items()},
            "registers": {name: each._asdict() for name, each in self.registers.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "CompiledReport":
        """Return the report that plain data describes."""
        named = {name: data[name] for name in cls.__dataclass_fields__}
        loops = tuple(Loop(**loop) for loop in data["loops"])
        collectives = {kind: Collective(**each) for kind, each in data["collectives"].items()}
        registers = {name: Registers(**each) for name, each in data["registers"].items()}
        found = {"loops": loops, "collectives": collectives, "registers": registers}
        return cls(**{**named, **found})


def report_of(
    target: Target,
    devices: int,
    compiled: Any,
    registers: Mapping[str, Registers],
    seconds: float,
) -> CompiledReport:
    """Return the report of a program that `jax` has compiled."""
    memory = compiled.memory_analysis()
    cost = compiled.cost_analysis() or {}
    found = ScheduledProgram(compiled.as_text())
    return CompiledReport(
        target.name,
        devices=devices,
        device_bytes=target.device_bytes,
        argument_bytes=memory.argument_size_in_bytes,
        output_bytes=memory.output_size_in_bytes - memory.alias_size_in_bytes,
        temporary_bytes=memory.temp_size_in_bytes,
        host_bytes=memory.host_temp_size_in_bytes,
        flops=float(cost["flops"]) if cost.get("flops", -1.0) >= 0.0 else None,
        seconds=found.cycles / target.clock if target.clock and found.cycles else None,
        loops=tuple(found.loops),
        kernels=found.kernels,
        copies=found.copies,
        collectives=found.collectives,
        registers=registers,
        pallas_bytes=found.pallas_bytes,
        compile_seconds=seconds,
    )
