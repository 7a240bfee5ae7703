"""Mutants of a module: one operator, comparison, constant, condition or result changed, by its tree."""

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass

_SWAPPED: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
}


@dataclass(frozen=True)
class Mutant:
    """A module with one change.

    line: of the change; was, now: the code there; source: the whole module.
    """

    line: int
    was: str
    now: str
    source: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.was}  ->  {self.now}"


def mutants_of(source: str) -> list[Mutant]:
    """Every mutant of a module."""
    count = len(list(_changes(ast.parse(source))))
    return [_mutant(source, index) for index in range(count)]


def sample_of(source: str, count: int, seed: int) -> list[Mutant]:
    """So many of them, chosen by a seed, in the order of their lines."""
    found = mutants_of(source)
    chosen = random.Random(seed).sample(range(len(found)), min(count, len(found)))
    return [found[index] for index in sorted(chosen)]


def _mutant(source: str, index: int) -> Mutant:
    tree = ast.parse(source)
    statement, node, change = list(_changes(tree))[index]
    was = ast.unparse(statement)
    change()
    now = ast.unparse(statement)
    lines = was.splitlines(), now.splitlines()
    first = next((pair for pair in zip(*lines, strict=False) if pair[0] != pair[1]), (was, now))
    return Mutant(node.lineno, first[0].strip(), first[1].strip(), ast.unparse(tree))


def _changes(tree: ast.Module) -> Iterator[tuple]:
    """Each change: the statement that it is in, its node, and what makes it."""
    for statement in ast.walk(tree):
        if isinstance(statement, ast.stmt) and not _is_words(statement):
            for node in _own(statement):
                for change in _of(node):
                    yield statement, node, change


def _is_words(statement: ast.stmt) -> bool:
    """Whether it is a docstring, an import, an assertion or an error with its message."""
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_text or isinstance(statement, ast.Import | ast.ImportFrom | ast.Raise | ast.Assert)


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    """The statement, and its expressions without the statements and the annotations below it."""
    yield statement
    for name, value in ast.iter_fields(statement):
        if name in ("annotation", "returns", "decorator_list", "args", "bases", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.expr):
                yield from (node for node in ast.walk(child) if not isinstance(node, ast.JoinedStr))


def _of(node: ast.AST) -> Iterator:
    """What can be changed of a node."""

    def swapped(holder, name: str, old):
        return lambda: setattr(holder, name, _SWAPPED[type(old)]())

    match node:
        case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.AugAssign(op=op) if type(op) in _SWAPPED:
            yield swapped(node, "op", op)
        case ast.Compare(ops=[op]) if type(op) in _SWAPPED:
            yield lambda: node.ops.__setitem__(0, _SWAPPED[type(op)]())
        case ast.Constant(value=bool() as value):
            yield lambda: setattr(node, "value", not value)
        case ast.Constant(value=int() | float() as value):
            yield lambda: setattr(node, "value", value + 1)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield lambda: _replace(node, operand)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), test))
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield lambda: setattr(node, "value", ast.Constant(None))


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _replace(node: ast.AST, by: ast.expr) -> None:
    """Make a node another one, in its place."""
    vars(node).clear()
    node.__class__ = type(by)
    vars(node).update(vars(by))
