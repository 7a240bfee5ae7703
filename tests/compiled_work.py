"""What a compiled program computes and sends, read from XLA's text of it: operations, and collectives by loop.

`compiled.cost_analysis()` counts the body of a loop once; here it counts as often as it runs, where XLA knows
that number, and once where it does not (the loop over a solver's stages).
"""

import math
import re
from collections import Counter
from functools import cached_property

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*?\{\n(.*?)^\}", re.S | re.M)
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (.*)$", re.M)
_OPERATION = re.compile(r"^(\(.*?\)|\S+) ([\w\-]+)\((.*)$")
_SHAPE = re.compile(r"\b(?:pred|[a-z]+\d+)\[([\d,]*)\]")
_COLLECTIVE = re.compile(
    r"(all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(-start)?$"
)
_FREE = frozenset(
    [
        *("parameter", "constant", "copy", "reshape", "broadcast", "transpose", "iota", "slice"),
        *("dynamic-slice", "dynamic-update-slice", "gather", "scatter", "concatenate", "tuple"),
        *("get-tuple-element", "bitcast", "bitcast-convert", "pad", "reverse", "partition-id"),
        *("after-all", "fusion", "call", "while", "conditional", "custom-call", "sort", "map"),
        *("copy-start", "copy-done", "optimization-barrier"),
    ]
)  # of arithmetic; computations that they call are counted on their own


class CompiledWork:
    """Operations and collectives of one device's program, by its text."""

    def __init__(self, text: str):
        self._bodies = dict(_COMPUTATION.findall(text))
        (self._entry,) = re.findall(r"^ENTRY %?([\w.\-]+) ", text, re.M)
        self._seen: dict[str, tuple[float, Counter]] = {}

    @cached_property
    def operations(self) -> float:
        """Arithmetic operations."""
        return self._of(self._entry)[0]

    @cached_property
    def collectives(self) -> Counter:
        """The number of collectives by kind and by the turns of the innermost loop around them; 0 for none."""
        return self._of(self._entry)[1]

    def _of(self, name: str) -> tuple[float, Counter]:
        if name not in self._seen:
            self._seen[name] = 0.0, Counter()  # of no computation that calls itself
            self._seen[name] = self._counted(self._bodies[name])
        return self._seen[name]

    def _counted(self, body: str) -> tuple[float, Counter]:
        shapes, total, collectives = {}, 0.0, Counter()
        for result, rest in _INSTRUCTION.findall(body):
            found = _OPERATION.match(rest)
            assert found is not None, rest
            shape, operation, others = found.groups()
            sizes = [[int(n) for n in dims.split(",") if n] for dims in _SHAPE.findall(shape)]
            shapes[result] = sizes[0] if sizes else []
            if collective := _COLLECTIVE.match(operation):
                collectives[collective[1], 0] += 1
            times = 1.0
            if operation == "while":
                trip = re.search(r'known_trip_count":\{"n":"(\d+)"', others)
                times = float(trip[1]) if trip else 1.0
            elif operation not in _FREE:
                total += self._arithmetic(operation, others, shapes, shapes[result])
            called = re.findall(r"(?:calls|to_apply|body|condition)=%?([\w.\-]+)", others)
            if operation in ("reduce", "reduce-window", "scatter", "sort", "map") or collective:
                called = []  # a few operations for each element
            for branches in re.findall(r"branch_computations=\{(.*?)\}", others):
                works = [self._of(name.strip().lstrip("%")) for name in branches.split(",")]
                total += max(work for work, _ in works)
                for _, sent in works:
                    collectives |= sent
            turns = int(times) if operation == "while" else 0
            for name in called:
                work, sent = self._of(name)
                total += times * work
                for (kind, inner), count in sent.items():
                    collectives[kind, inner or turns] += count
        return total, collectives

    def _arithmetic(self, operation: str, others: str, shapes: dict, size: list[int]) -> float:
        first = re.search(r"%([\w.\-]+)", others)
        read = shapes.get(first[1], []) if first else []
        if operation == "dot":
            dims = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", others)
            contracted = [read[int(n)] for n in dims[1].split(",")] if dims else []
            return 2.0 * math.prod(size) * math.prod(contracted)
        if operation in ("reduce", "reduce-window"):
            return float(math.prod(read))
        return float(math.prod(size))
