"""Compile each kind of operation once, instead of the programs that contain it.

A TPU's compiler takes minutes to hours for a program in double precision, and seconds for an operation. The
programs that it refused, or at which it aborted, each contained an operation that it refuses by itself.
"""

import dataclasses
import functools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
from jax import lax
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import chlo, func, sdy, stablehlo

from jaxtape.programs.compile_for import TargetCompiler
from jaxtape.programs.compiled_report import CompiledReport

_TOGETHER = 16  # operations in one program, as long as it compiles
_CALLS = frozenset({"func.call", "func.func", "func.return", "stablehlo.return"})
_THERE_AND_BACK = jax.memory.Space.Host, jax.memory.Space.Device
_WITH_OTHERS: dict[str, Callable] = {
    "stablehlo.while": lambda n, x: lax.fori_loop(0, n, lambda _, x: x + x, x),
    "stablehlo.case": lambda n, x: lax.switch(n, [lambda x: x, lambda x: x + x], x),
    "stablehlo.optimization_barrier": lambda n, x: lax.optimization_barrier(x),
    "annotate_device_placement": lambda n, x: functools.reduce(jax.device_put, _THERE_AND_BACK, x),
}
"""Operations on any number of arrays, and useless ones, as compiled for each type. Bodies are walked, too."""


class Operation(NamedTuple):
    """An operation of a program by itself.

    Attributes:
        kind: Its name, types, ranks and settings, without sizes and positions.
        function: The function of its operands.
        shapes: The shapes of its operands.
    """

    kind: str
    function: Callable
    shapes: Sequence[jax.ShapeDtypeStruct]

    def between_sums(self, *pairs: tuple[Any, Any]) -> list[Any]:
        """Return the doubled results for operands that are sums of two arrays.

        A compiler that represents a type by others may err where one operation passes results to the next.
        """
        results = self.function(*(x + y for x, y in pairs))
        return [x + x for x in jax.tree.leaves(results)]


class ByOperation:
    """A compiler that compiles each kind of operation once, and no programs.

    Attributes:
        target: The target.
        reasons: By kind of operation, the reason why it does not compile, or "".
    """

    def __init__(self, compiler: TargetCompiler):
        """Take the compiler."""
        self.target = compiler.target
        self.reasons: dict[str, str] = {}
        self._compiler = compiler

    def row_of(self, program: bytes) -> dict[str, Any]:
        """Compile the new kinds of operations in a program of `jax.export`, and return its row of the table."""
        start = time.perf_counter()
        kinds, new = operations_in(program, self.reasons)
        self._compile(new)
        refused = [f"{kind}: {self.reasons[kind]}" for kind in kinds if self.reasons[kind]]
        report = CompiledReport(self.target.name, "; ".join(refused)).as_json()
        return {
            **{name: report[name] for name in ("target", "reason", "compiles")},
            "operations": len(kinds),
            "compile_seconds": time.perf_counter() - start,
        }

    def _compile(self, operations: Sequence[Operation]) -> None:
        """Compile operations, together where they compile."""
        if len(operations) <= _TOGETHER:
            program = _together(operations, self.target.platform)
            report = self._compiler.compile_program(program, {})
            if report.compiles or len(operations) == 1:
                self.reasons |= {each.kind: report.reason for each in operations}
                return
        for half in (operations[::2], operations[1::2]):
            self._compile(half)


def _together(operations: Sequence[Operation], platform: str) -> bytes:
    """Return the program of operations that share no arrays."""

    def run(*arrays: Any) -> list[Any]:
        left = iter(arrays)
        take = lambda each: [(next(left), next(left)) for _ in each.shapes]
        return [each.between_sums(*take(each)) for each in operations]

    shapes = [shape for each in operations for shape in each.shapes for _ in range(2)]
    checks = [jax.export.DisabledSafetyCheck.custom_call("ALL")]  # not stored
    export = jax.export.export(jax.jit(run), platforms=[platform], disabled_checks=checks)
    return bytes(export(*shapes).serialize())


def operations_in(program: bytes, known: dict[str, str]) -> tuple[list[str], list[Operation]]:
    """Return the kinds of operations in a program of `jax.export`, and one operation of each unknown kind."""
    exported = jax.export.deserialize(bytearray(program))
    kinds: set[str] = set()
    new: dict[str, Operation] = {}
    context = ir.Context()
    for dialect in (stablehlo, chlo, sdy):
        dialect.register_dialect(context)
    with context:
        written = exported.mlir_module_serialized
        module = stablehlo.deserialize_portable_artifact(context, written)
        for op in _walk(module.operation):
            for kind, alone in _kinds(op):
                kinds.add(kind)
                if kind not in known and kind not in new:
                    new[kind] = Operation(kind, *alone(exported.platforms))
    return sorted(kinds), list(new.values())


def _walk(op: ir.Operation) -> Iterator[ir.Operation]:
    """Yield the operations of functions and of the bodies of loops."""
    for block in _blocks(op):
        for each in block:
            inner = each.operation
            is_call = inner.name in _CALLS or inner.name.startswith("sdy.")
            if not is_call:
                yield inner
            if is_call or inner.name in _WITH_OTHERS:
                yield from _walk(inner)


def _blocks(op: ir.Operation) -> Iterator[ir.Block]:
    return (block for region in op.regions for block in region)


def _kinds(op: ir.Operation) -> Iterator[tuple[str, Callable]]:
    """Yield the kinds of an operation, and functions of platforms that return its function and shapes."""
    called = "call_target_name"
    name = op.attributes[called].value if called in op.attributes else op.name
    if name in _WITH_OTHERS:
        for dtype in {_shape(x).dtype for x in op.results}:
            shapes = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((8,), dtype)
            yield f"{name} of {dtype}", lambda _, shapes=shapes: (_WITH_OTHERS[name], shapes)
    elif op.name != "stablehlo.constant":
        yield _kind(op), lambda platforms: _alone(op, platforms)


def _kind(op: ir.Operation) -> str:
    operands = _types(op.operands)
    if op.name == "stablehlo.concatenate":  # any number
        operands = operands[:1]
    settings = [
        f"{name}={_without_sizes(op.attributes[name])}"
        for name in op.attributes
        if not name.startswith(("mhlo.", "sdy.", "decomposition"))  # a function of any name
    ]
    applied = [
        f"{each.operation.name}({', '.join(_types(each.operation.operands))})"
        for block in _blocks(op)
        for each in block
    ]
    arrow = f"{op.name}({', '.join(operands)}) -> {', '.join(_types(op.results))}"
    return " ".join([arrow, *settings, *applied])


def _types(values: Sequence[ir.Value]) -> list[str]:
    arrays = (ir.RankedTensorType(x.type) for x in values)
    return [f"{array.element_type}[{array.rank}]" for array in arrays]


def _without_sizes(setting: ir.Attribute) -> str:
    """Return the text of a setting without the numbers in its lists."""
    return re.sub(r"(array<|dense<|\[)[^\]>]*", lambda x: re.sub(r"-?\d+", "#", x[0]), str(setting))


_OTHER_NAMES = {"i1": "bool", "complex<f32>": "complex64", "complex<f64>": "complex128"}
_LETTERS = {"f": "float", "i": "int", "ui": "uint"}


def _shape(value: ir.Value) -> jax.ShapeDtypeStruct:
    array = ir.RankedTensorType(value.type)
    name = str(array.element_type)
    spelled = lambda name: re.sub(r"^[a-z]+", lambda x: _LETTERS[x[0]], name)
    return jax.ShapeDtypeStruct(array.shape, _OTHER_NAMES.get(name) or spelled(name))


def _alone(op: ir.Operation, platforms: Sequence[str]) -> tuple[Callable, list]:
    """Return an operation as a function, and its shapes; the start of a reduction stays a constant."""
    values = list(dict.fromkeys(_values_read(op)))
    constants = [x for x in values if len(op.regions) and _is_constant(x)]
    operands = [x for x in values if x not in constants]
    with ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ([x.type for x in operands], [x.type for x in op.results]))
            for each in _named_in(op, {}).values():
                each.clone()
        block = main.add_entry_block()
        replaced = dict(zip(operands, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            replaced |= {x: _copy(x) for x in constants}
            clone = op.clone().operation
            for each in _within(clone):
                for before, after in replaced.items():
                    each.replace_uses_of_with(before, after)
            func.ReturnOp(clone.results)
    version = stablehlo.get_current_version()
    written = stablehlo.serialize_portable_artifact_str(str(module), version)
    shapes, results = list(map(_shape, operands)), list(map(_shape, op.results))
    like = lambda *_: [jnp.zeros(x.shape, x.dtype) for x in results]
    exported = jax.export.export(jax.jit(like, keep_unused=True))(*shapes)
    return dataclasses.replace(
        exported, platforms=platforms, mlir_module_serialized=written
    ).call, shapes


def _within(op: ir.Operation) -> Iterator[ir.Operation]:
    """Yield an operation and all operations in its regions."""
    yield op
    for block in _blocks(op):
        for each in block:
            yield from _within(each.operation)


def _values_read(op: ir.Operation) -> Iterator[ir.Value]:
    """Yield the values that an operation or its regions read from outside."""
    within = list(_within(op))
    own = {x for each in within for block in _blocks(each) for x in block.arguments}
    own |= {x for each in within[1:] for x in each.results}
    return (x for each in within for x in each.operands if x not in own)


def _is_constant(value: ir.Value) -> bool:
    """Return True for a constant, and for a number that is made of one."""
    op = value.owner
    if isinstance(op, ir.Block) or op.name == "stablehlo.constant":
        return not isinstance(op, ir.Block)
    return op.name == "stablehlo.broadcast_in_dim" and _is_constant(op.operands[0])


def _copy(value: ir.Value) -> ir.Value:
    """Insert the operations that make a constant again, and return it."""
    op = value.owner.operation
    copies = [(x, _copy(x)) for x in op.operands]
    copied = op.clone().operation
    for before, after in copies:
        copied.replace_uses_of_with(before, after)
    return copied.results[0]


def _named_in(op: ir.Operation, found: dict[str, ir.Operation]) -> dict[str, ir.Operation]:
    """Return the functions that an operation names, as `stablehlo.composite` does, and those that they call."""
    module = op
    while module.parent is not None:
        module = module.parent.operation
    functions = {x.attributes["sym_name"].value: x for x in next(_blocks(module))}
    for name in set(re.findall(r'@"?([\w.]+)', str(op))) & functions.keys() - found.keys():
        found[name] = functions[name].operation
        _named_in(found[name], found)
    return found
