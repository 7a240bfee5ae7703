"""Read the loops, kernels and collectives of a compiled program from its HLO text."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_NO_KERNELS = frozenset(
    (
        *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional"),
        *(
            "call",
            "after-all",
            "opt-barrier",
            "partition-id",
            "replica-id",
            "add-dependency",
            "domain",
        ),
    )
)  # operations of a scheduled program that launch no kernel
_COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "all-to-all",
    "collective-permute",
    "reduce-scatter",
    "ragged-all-to-all",
    "collective-broadcast",
)
_PALLAS = "__gpu$xla.gpu.triton", "tpu_custom_call"  # calls of kernels that Pallas compiles
_COPIES = "copy", "copy-start"
_BITS = {"pred": 8}  # of types whose names do not contain it
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) [^\n]*\{\n(.*?)^\}", re.M | re.S)
_OPERATION = re.compile(
    r"^\s+(?P<root>(?:ROOT )?)%?(?P<name>[\w.\-]+) = (?P<type>.*?) (?P<kind>[a-z][a-z0-9\-]*)\((?P<rest>.*)$",
    re.M,
)
_TYPE = re.compile(r"\b([a-z][a-z0-9]*)\[([\d,]*)\]")


class Loop(NamedTuple):
    """A loop of a compiled program.

    Attributes:
        turns: The number of iterations, if the compiler knows it. For any other loop, a GPU copies the
            condition to the host at every iteration.
        kernels: The number of kernels that an iteration launches, without those of inner loops.
        copies: The number of copies among them.
    """

    turns: int | None
    kernels: int
    copies: int


class Collective(NamedTuple):
    """The collectives of one kind in a compiled program, each counted once however often a loop runs it.

    Attributes:
        count: The number of operations.
        bytes: The bytes of their results on one device.
    """

    count: int
    bytes: int


class ScheduledProgram:
    """The loops, kernels, cycles and collectives of a scheduled program, read from its HLO text.

    Attributes:
        loops: The loops.
        collectives: The collectives by kind.
        kernels: The number of kernels that a run launches; None if unknown.
        copies: The number of copies among them.
        cycles: The number of cycles that they take on a TPU; None if unknown.
        pallas_bytes: The bytes of the arguments and results of the kernels that Pallas compiles, at each
            launch; None if unknown.
    """

    def __init__(self, text: str):
        self._bodies: dict[str, dict[str, dict[str, str]]] = {}
        self.loops: list[Loop] = []
        self.collectives: dict[str, Collective] = {}
        entry = ""
        for is_entry, name, body in _COMPUTATION.findall(text):
            found = (each.groupdict() for each in _OPERATION.finditer(body))
            self._bodies[name] = {each["name"]: each for each in found}
            entry = name if is_entry else entry
        counts = self._counted(entry)
        self.kernels, self.copies, self.cycles, self.pallas_bytes = (
            None if math.isnan(x) else int(x) for x in counts
        )

    def _counted(self, name: str) -> tuple[float, ...]:
        """Return the kernels, copies, cycles and bytes of a computation, NaN if unknown.

        Note its loops and collectives.
        """
        counts = [self._started_by(name, each) for each in self._bodies.get(name, {}).values()]
        return tuple(map(sum, zip((0, 0, 0, 0), *counts, strict=True)))

    def _started_by(self, name: str, operation: Mapping[str, str]) -> tuple[float, ...]:
        kind, rest = operation["kind"], operation["rest"]
        self._note_collective(operation)
        if kind == "while":
            (body,), turns = _called(rest, "body"), self._turns(name, rest)
            kinds = Counter(each["kind"] for each in self._bodies[body].values() if _runs(each))
            self.loops.append(Loop(turns, kinds.total(), sum(kinds[x] for x in _COPIES)))
            times = math.nan if turns is None else turns
            return tuple(times * count for count in self._counted(body))
        if kind == "conditional":
            names = ("branch_computations", "true_computation", "false_computation")
            branches = [self._counted(each) for x in names for each in _called(rest, x)]
            return tuple(map(_largest, zip(*branches, strict=True)))
        if kind == "call":
            return self._counted(_called(rest, "to_apply")[0])
        counts = float(_runs(operation)), float(kind in _COPIES), _cycles(operation)
        return *counts, self._pallas_bytes(name, operation)

    def _pallas_bytes(self, name: str, operation: Mapping[str, str]) -> float:
        """Return the bytes of the arguments and results of a kernel that Pallas compiles; 0 for any other."""
        if not any(f'custom_call_target="{target}"' in operation["rest"] for target in _PALLAS):
            return 0.0
        arrays = [operation, *(self._bodies[name][each] for each in _operands(operation))]
        return float(sum(_bytes(x) for each in arrays for x in _TYPE.findall(each["type"])))

    def _turns(self, name: str, rest: str) -> int | None:
        """Return a loop's number of iterations: the compiler's, or that of a counter with constant bounds."""
        if found := re.search(r"known_trip_count[^0-9]*(\d+)", rest):
            return int(found[1])
        (condition,), (body,) = _called(rest, "condition"), _called(rest, "body")
        ends, turn, before = (self._bodies[each] for each in (condition, body, name))
        last = next(each for each in ends.values() if each["root"])
        if last["kind"] != "compare" or "direction=LT" not in last["rest"]:
            return None
        counter, bound = _operands(last)
        index = _index(ends[counter])
        end = _constant(ends, bound)
        out = _operands(next(each for each in turn.values() if each["root"]))
        given = _operands(before[_operands({"rest": rest})[0]])
        if index is None or index >= min(len(out), len(given)) or turn[out[index]]["kind"] != "add":
            return None
        parts = _operands(turn[out[index]])
        step = next((x for part in parts if (x := _constant(turn, part)) is not None), None)
        is_own = any(_index(turn[part]) == index for part in parts)
        start = _constant(before, given[index])
        if end is None or step is None or start is None or not is_own or step < 1:
            return None
        return max(-(-(end - start) // step), 0)

    def _note_collective(self, operation: Mapping[str, str]) -> None:
        """Count a collective; count an asynchronous one at its end."""
        kind = operation["kind"].removesuffix("-done")
        if kind in _COLLECTIVES:
            count, size = self.collectives.get(kind, (0, 0))
            more = sum(map(_bytes, _TYPE.findall(operation["type"])))
            self.collectives[kind] = Collective(count + 1, size + more)


def _runs(operation: Mapping[str, str]) -> bool:
    """Return True for an operation that launches a kernel."""
    is_buffer = 'custom_call_target="AllocateBuffer"' in operation["rest"]
    is_end = operation["kind"].endswith(("-done", "-update"))
    return operation["kind"] not in _NO_KERNELS and not is_end and not is_buffer


def _cycles(operation: Mapping[str, str]) -> float:
    """Return the cycles that a TPU's compiler estimates; NaN for a kernel without an estimate."""
    if found := re.search(r'"estimated_cycles":"(\d+)"', operation["rest"]):
        return float(found[1])
    return math.nan if operation["kind"] in ("fusion", "custom-call") and _runs(operation) else 0.0


def _largest(counts: Iterable[float]) -> float:
    """Return the largest count; NaN if one is."""
    counts = list(counts)
    return math.nan if any(map(math.isnan, counts)) else max(counts, default=0.0)


def _operands(operation: Mapping[str, str]) -> list[str]:
    """Return the names of an operation's operands."""
    inside = operation["rest"].partition(")")[0]
    return re.findall(r"%?([\w.\-]+)(?:,|$)", re.sub(r"/\*.*?\*/", "", inside))


def _index(operation: Mapping[str, str]) -> int | None:
    found = re.search(r"index=(\d+)", operation["rest"])
    return int(found[1]) if found and operation["kind"] == "get-tuple-element" else None


def _constant(body: Mapping[str, Mapping[str, str]], name: str) -> int | None:
    """Return the integer that an operation of a computation defines or copies."""
    operation = body[name]
    if operation["kind"] == "copy":
        return _constant(body, _operands(operation)[0])
    found = re.match(r"(-?\d+)\)", operation["rest"])
    return int(found[1]) if found and operation["kind"] == "constant" else None


def _called(rest: str, attribute: str) -> list[str]:
    """Return the names of the computations that an attribute of an operation calls."""
    found = re.search(rf"\b{attribute}=(\{{[^}}]*\}}|%?[\w.\-]+)", rest)
    return re.findall(r"[\w.\-]+", found[1]) if found else []


def _bytes(array: tuple[str, str]) -> int:
    kind, sizes = array
    bits = _BITS.get(kind, int(re.sub(r"^[a-z]+|[a-z].*$", "", kind) or 0))
    return -(-math.prod(int(size) for size in sizes.split(",") if size) * bits // 8)
