"""Detection of discontinuous functions of a problem, from their programs and sample points.

A jump needs a decision that depends on the state. A comparison of states is a decision if it selects, branches,
ends a loop or becomes a number; a maximum written as a selection (`where(a > b, a, b)`) does not count.
Rounding, signs and indices are decisions. If the program leaves it open, sample points reveal jumps: an
interval in which a function changes is halved until only a jump can remain. A slope so steep that hardly any
path lies on it (a digital written as a tight call spread) is as bad as a jump, and is found by the same
bisection.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxtape import stored_jit
from jaxtape.jax_private import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from ..dynamics.forward_paths import simulate
from ..problem import Problem

_STEPS = {"sign", "floor", "ceil", "round", "rem", "argmax", "argmin", "top_k", "nextafter"}
_UNSEEN = {"pure_callback", "io_callback", "ffi_call", "custom_call"}
_ORDER = {"lt", "le", "gt", "ge"}
_GENTLE = {"add", "sub", "mul", "neg", "exp", "log", "sqrt", "square", "integer_pow", "pow"}
_GENTLE |= {"dot_general", "reduce_sum", "cumsum", "broadcast_in_dim", "reshape", "squeeze"}
_GENTLE |= {"convert_element_type", "transpose", "slice", "dynamic_slice", "gather", "concatenate"}
_INTERVALS = 32  # intervals of a segment between two points
_HALVINGS = {"float32": 14, "float64": 36}
_LEFT = 16.0  # a jump exceeds this multiple of what bisection leaves of a slope
_NARROW = 5  # halvings after which a slope covers at most one path in a thousand
_STEEP = 1 / 16  # rise, in standard deviations of the function, that counts as steep there
_SELDOM = 1 / 256  # fraction of segments
_SEGMENTS, _FEWEST = 512, 16
_NUMBERS = 2**22  # numbers at the ends of segments in memory at once


class _Term(NamedTuple):
    """The term of a variable: the operation that produced it, and whether it depends on the state.

    number: equal for equal operations on equal terms; of: the numbers of these terms, and the operation's
    parameters.
    """

    number: int
    made_by: str
    of: tuple[Any, ...]
    moves: bool


class _Terms:
    """All terms of a program, by number."""

    def __init__(self):
        self.numbers: dict[tuple, int] = {}
        self.all: list[_Term] = []

    def __call__(self, made_by: str, of: tuple[Any, ...], moves: bool) -> _Term:
        """Return the term of an operation."""
        key = made_by, of, moves
        number = self.numbers.setdefault(key, len(self.all))
        if number == len(self.all):
            self.all.append(_Term(number, *key))
        return self.all[number]


def may_jump(function: Callable, *args: Any, of: Sequence[int]) -> bool:
    """Return True if the program of a function makes decisions that depend on the arguments at positions `of`.

    If not, it is continuous in them except at poles. args: the arguments of a call, or their shapes.
    """
    closed, terms, given = jax.make_jaxpr(function)(*args), _Terms(), []
    for place, arg in enumerate(args):
        given += [terms("input", (place, k), place in of) for k in range(len(jax.tree.leaves(arg)))]
    return _through(terms, closed.jaxpr, given)[1]


def may_be_steep(function: Callable, *args: Any) -> bool:
    """Return True if a function has operations beyond sums, products, powers, exponentials and logarithms.

    With these only, it changes over its whole range, not on a small part of it.
    """
    return not _is_gentle(jax.make_jaxpr(function)(*args).jaxpr)


def _is_gentle(jaxpr: Jaxpr) -> bool:
    for equation in jaxpr.eqns:
        inner = [p for v in equation.params.values() for p in _programs(v)]
        if equation.primitive.name not in _GENTLE and not inner:
            return False
        if not all(map(_is_gentle, inner)):
            return False
    return True


def _through(terms: _Terms, jaxpr: Jaxpr, given: Sequence[_Term]) -> tuple[list[_Term], bool]:
    """Return the terms of a program's outputs, given those of its inputs, and whether any may jump."""
    own = dict(zip(jaxpr.invars, given, strict=True))
    own |= {v: terms("constant", (id(v),), False) for v in jaxpr.constvars}
    jumps = False

    def term(v: Any) -> _Term:
        return terms("number", (str(v.val),), False) if isinstance(v, Literal) else own[v]

    for equation in jaxpr.eqns:
        outs, here = _of_equation(terms, equation, [term(v) for v in equation.invars])
        jumps = jumps or here
        own.update(zip(equation.outvars, outs, strict=True))
    return [term(v) for v in jaxpr.outvars], jumps


def _of_equation(terms: _Terms, equation: JaxprEqn, ins: list[_Term]) -> tuple[list[_Term], bool]:
    """Return the outputs of one operation, and whether they may jump."""
    name, params = equation.primitive.name, equation.params
    moves = any(term.moves for term in ins)
    programs = [p for v in params.values() for p in _programs(v)]
    kind = str(params) if not programs else str(id(equation))
    of = tuple(term.number for term in ins)
    outs = [terms(name, (of, k, kind), moves) for k in range(len(equation.outvars))]
    if name in _ORDER or name in {"or", "ne"}:
        return [terms(name, of, moves)], False
    if name in {"convert_element_type", "broadcast_in_dim", "reshape", "squeeze"}:
        before, after = (_shaped(v) for v in (equation.invars[0], equation.outvars[0]))
        is_same = before.dtype == after.dtype and before.ndim in (0, after.ndim)
        if is_same and (name == "convert_element_type" or before.size == 1):
            return ins[:1], False  # the same value, or an array of the same values
    if not moves:
        return outs, False
    if name in _STEPS or name in _UNSEEN:
        return outs, True
    if name == "sort":
        return outs, len(ins) > 1
    if name == "select_n":
        which, *cases = ins
        return outs, which.moves and not _is_extreme(terms, which, [one.number for one in cases])
    if name == "convert_element_type":
        return outs, not (_is_inexact(equation.invars[0]) and _is_inexact(equation.outvars[0]))
    if name == "while":
        return _loop(terms, params, ins)
    if name == "scan":
        body = params["jaxpr"].jaxpr  # all that it reads may become state-dependent
        ins = [terms("row", (id(body), k), _is_inexact(v)) for k, v in enumerate(body.invars)]
        return outs, _through(terms, body, ins)[1]
    if name == "cond":
        found = [_through(terms, branch.jaxpr, ins[1:]) for branch in params["branches"]]
        return outs, ins[0].moves or any(jumps for _, jumps in found)
    inner = [p for p in programs if len(p.invars) == len(ins)]
    if inner:  # a call; for a custom derivative, the function comes first
        return _through(terms, inner[0], ins)
    return outs, bool(programs)  # programs of other forms are not inspected


def _loop(terms: _Terms, params: dict, ins: list[_Term]) -> tuple[list[_Term], bool]:
    heads, consts = params["cond_nconsts"], params["body_nconsts"]
    of_cond, of_body, carry = ins[:heads], ins[heads : heads + consts], ins[heads + consts :]
    carry, jumps = _fixpoint(terms, params["body_jaxpr"].jaxpr, of_body, carry)
    (decided,), _ = _through(terms, params["cond_jaxpr"].jaxpr, [*of_cond, *carry])
    return carry, jumps or decided.moves


def _fixpoint(terms: _Terms, body: Jaxpr, first, carry) -> tuple[list[_Term], bool]:
    """Return the carry of a loop; a part depends on the state if it does after any number of iterations."""
    moves = [term.moves for term in carry]
    while True:
        carry = [terms("carry", (id(body), k), own) for k, own in enumerate(moves)]
        outs, jumps = _through(terms, body, [*first, *carry])
        grown = [own or new.moves for own, new in zip(moves, outs, strict=True)]
        if grown == moves:
            return carry, jumps
        moves = grown


def _is_inexact(variable: Any) -> bool:
    return jnp.issubdtype(_shaped(variable).dtype, jnp.inexact)


def _shaped(variable: Any) -> Any:
    return variable.aval


def _programs(value: Any) -> list[Jaxpr]:
    if isinstance(value, (tuple, list)):
        return [program for one in value for program in _programs(one)]
    if isinstance(value, ClosedJaxpr):
        return [value.jaxpr]
    return [value] if isinstance(value, Jaxpr) else []


def _is_extreme(terms: _Terms, which: _Term, cases: list[int]) -> bool:
    """Return True if a decision selects the larger of two cases, or tests for NaN."""
    if which.made_by == "or":
        parts = [terms.all[number] for number in which.of]
        is_order = [_is_extreme(terms, part, cases) for part in parts]
        is_nan = [
            part.of == ("False",) or (part.made_by == "ne" and part.of[0] == part.of[1])
            for part in parts
        ]
        return any(is_order) and all(a or b for a, b in zip(is_order, is_nan, strict=True))
    return which.made_by in _ORDER and len(cases) == 2 and set(which.of) == set(cases)


# --- the functions of a problem ------------------------------------------------------------------------


class Jumping(NamedTuple):
    """Whether the functions of a problem jump (or nearly do), in the terminal payment and before."""

    at_end: bool
    before: bool


def jumping(problem: Problem) -> Jumping:
    """Look for jumps in the functions of a problem, which pathwise derivatives would miss.

    For the terminal payment the program decides. Before (in the driver, a step, jumps, the exercise value and,
    with a right to exercise, also the terminal value), sample points decide if the program leaves it open: a
    jump on 1 % of the segments is missed once in 170. Only sample points can reveal slopes as steep as a jump.
    """
    t, x, shape = problem.times[0], problem.x0, problem.contracts
    y, z = jnp.zeros(shape, x.dtype), jnp.zeros((*shape, problem.dim), x.dtype)
    gamma = [jnp.zeros((*z.shape, problem.dim), x.dtype)] * problem.reads_gamma
    calls = {
        "driver": (problem.driver, (t, x, y, z, *gamma), range(1, 5)),
        "step": (lambda x, dw: problem.advance(t, x, dw), (x, x), (0, 1)),
        "terminal": (problem.terminal, (x,), (0,)),
    }
    if problem.jumps is not None:
        calls["size"] = problem.jumps.size, (x, x), (0,)
    if problem.exercise_value is not None:
        calls["exercise"] = problem.exercise_value, (t, x), (1,)
    open_ = {part: may_jump(call, *args, of=of) for part, (call, args, of) in calls.items()}
    at_end, has_right = open_["terminal"], problem.exercise_value is not None
    names = [
        part for part, (call, args, _) in calls.items() if open_[part] or may_be_steep(call, *args)
    ]
    if at_end and not has_right:
        names.remove("terminal")
    found = _found(problem, tuple(names)) if names else {}
    rises = {
        part: bool(is_steep | (jumps & open_[part])) for part, (jumps, is_steep) in found.items()
    }
    of_terminal = rises.pop("terminal", False)
    return Jumping(at_end or of_terminal, any(rises.values()) or (of_terminal and has_right))


@stored_jit
def _found(
    problem: Problem, names: tuple[str, ...]
) -> dict[str, tuple[Bool[Array, ""], Bool[Array, ""]]]:
    """Return two flags for each part: whether it jumps, and whether it is steep.

    Both are found on segments between states of paths, and values there.
    """
    dim, dtype, key, terminal = problem.dim, problem.x0.dtype, jax.random.key(0), problem.terminal
    count = problem.terminal(problem.x0).size
    width = count * dim * (1 + dim * problem.reads_gamma)
    segments = max(_FEWEST, min(_SEGMENTS, _NUMBERS // width))
    states = jnp.swapaxes(simulate(problem, 2 * segments, key=key).states, 0, 1)
    dates = jnp.arange(segments) % problem.num_steps + 1
    x = states.reshape(2, segments, -1, dim)[:, jnp.arange(segments), dates]
    paid = jax.vmap(lambda x: terminal(x).reshape(-1))(states[:, -1])
    more = jax.random.normal(jax.random.fold_in(key, 1), (2, segments, width + dim), dtype)
    noise, slopes = jnp.sqrt(problem.dt) * more[..., :dim], jnp.std(paid) * more[..., dim:]
    values = paid.reshape(2, segments, count)

    def driver(t, v):
        x, y, z, gamma = jnp.split(v, (dim, dim + count, dim + count * (1 + dim)))
        more = [gamma.reshape(count, dim, dim)] if problem.reads_gamma else []
        return problem.flat_driver(t, x, y, z.reshape(count, dim), *more)

    functions = {
        "driver": (driver, (x, values, slopes)),
        "step": (lambda t, v: problem.advance(t, v[:dim], v[dim:]), (x, noise)),
        "size": (
            lambda t, v: _of(problem.jumps).size(v[:dim], v[dim:]),
            (x, noise / jnp.sqrt(problem.dt)),
        ),
        "exercise": (lambda t, x: _of(problem.exercise_value)(t, x).reshape(-1), (x,)),
        "terminal": (lambda t, x: terminal(x).reshape(-1), (x,)),
    }

    def look(part: str) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
        function, parts = functions[part]
        ends = jnp.concatenate(parts, axis=-1)
        segment, narrow, smallest, outputs = jax.lax.map(
            lambda of: _halved(function, *of), (problem.times[dates], ends[0], ends[1])
        )
        width = 0.5 ** _HALVINGS[dtype.name]
        jumps = smallest > _LEFT * width * jnp.max(segment, axis=0, keepdims=True)
        deviation = jnp.std(outputs, axis=(0, 1))[None]
        smooth = _LEFT * 0.5**_NARROW / _INTERVALS * segment
        is_steep = narrow > jnp.maximum(_STEEP * deviation, smooth)
        is_often = jnp.mean(is_steep, axis=0) > _SELDOM  # far out, a kink is steep for a contract
        return jnp.any(jumps), jnp.any(is_often)

    return {part: look(part) for part in names}


def _of(part: Any) -> Any:
    assert part is not None
    return part


def _halved(
    function: Callable, t: Array, start: Array, end: Array
) -> tuple[Array, Array, Array, Float[Array, "ends outputs"]]:
    """Return the largest moves of outputs on a segment, over its narrow and its smallest intervals.

    The outputs at its two ends are returned as well.
    """
    at = jax.vmap(lambda share: function(t, start + share * (end - start)))
    shares = jnp.arange(_INTERVALS + 1, dtype=start.dtype) / _INTERVALS
    outputs = at(shares)
    spread = jnp.ptp(outputs, axis=0)
    unit = jnp.where(spread > 0.0, spread, 1.0)

    def halve(count, state):
        (low, high, first, last), narrow = state
        narrow = jnp.where(count == _NARROW, most(first, last), narrow)
        middle = 0.5 * (low + high)
        between = at(middle)
        moved = lambda a, b: jnp.sum(jnp.abs(b - a) / unit[None], axis=1)
        is_left = moved(first, between) > moved(between, last)
        pick = lambda a, b: jnp.where(is_left.reshape(-1, *(1,) * (a.ndim - 1)), a, b)
        cells = pick(low, middle), pick(middle, high), pick(first, between), pick(between, last)
        return cells, narrow

    most = lambda first, last: jnp.max(jnp.abs(last - first), axis=0)
    cells = shares[:-1], shares[1:], outputs[:-1], outputs[1:]
    start_ = cells, jnp.zeros_like(spread)
    cells, narrow = jax.lax.fori_loop(0, _HALVINGS[start.dtype.name], halve, start_)
    return spread, narrow, most(*cells[2:]), outputs[jnp.array([0, -1])]
