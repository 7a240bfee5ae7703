"""Operations of programs are compiled by themselves, and those that a compiler refuses are named."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxtape.programs.compile_for import TargetCompiler
from tests.helpers import double

from .operations import ByOperation, operations_in

pytestmark = double
needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs the extra `tpu`: make accelerators"
)
X = np.linspace(0.3, 1.7, 6)


def program_of(function, platform: str = "tpu") -> bytes:
    """Return the program of a function, of which nothing is rewritten."""
    checks = [jax.export.DisabledSafetyCheck.custom_call("ALL")]
    export = jax.export.export(jax.jit(function), platforms=[platform], disabled_checks=checks)
    return bytes(export(jax.ShapeDtypeStruct(X.shape, X.dtype)).serialize())


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (jnp.sum, "reduce(f64[1], f64[0]) -> f64[0]"),
        (lambda x: lax.sort(x), "sort(f64[1])"),
        (lambda x: lax.cummax(x), "reduce_window("),
        (lambda x: x @ x, "dot_general(f64[1], f64[1]) -> f64[0]"),
        (lambda x: lax.rev(x, (0,)), "reverse("),
        (lambda x: lax.asinh(x), "asinh"),
    ],
)
def test_an_operation_by_itself_computes_the_same(function, name):
    kinds, operations = operations_in(program_of(function, "cpu"), {})
    assert kinds == [each.kind for each in sorted(operations)]
    (found,) = (each for each in operations if name in each.kind)
    values = {x.shape: X for x in found.shapes}
    np.testing.assert_array_equal(found.function(*values.values())[0], jax.jit(function)(X))


def test_kinds_are_those_of_all_functions_and_loops():
    def body(x):
        return lax.cond(x[0] > 0.0, jax.jit(jnp.tanh), lambda x: jnp.sort(x), x) * 0.5

    program = program_of(lambda x: lax.while_loop(lambda x: jnp.max(x) > 1.0, body, x))
    kinds, _ = operations_in(program, {})
    for name in ("while of float64", "case of float64", "tanh(", "sort(", "compare(", "maximum("):
        assert any(name in kind for kind in kinds), name
    again, others = operations_in(program, dict.fromkeys(kinds[1:], ""))
    assert again == kinds and [each.kind for each in others] == kinds[:1]


def chain(x):
    return jnp.sum(lax.scan(lambda c, z: (c * jnp.exp(0.01 * z), jnp.sin(c)), x, X)[1])


@needs_libtpu
@pytest.mark.parametrize(
    ("function", "refused"),
    [
        (jax.grad(chain), None),
        (lambda x: jnp.linalg.solve(jnp.diag(x), x), "LuDecomposition"),
        (lambda x: lax.reduce_precision(x, 11, 52), "reduce_precision"),
        (lambda x: jnp.real(jnp.exp(x.astype(complex))), "complex<f64>"),
        (lambda x: jnp.nextafter(x, 2.0 * x), "bitcast_convert(f64[1]) -> i64[1]"),
    ],
)
def test_what_a_tpu_refuses_in_double_precision_is_named(function, refused):
    """These were once in programs of this library; since then, they are rewritten or avoided."""
    with TargetCompiler("tpu:v5e:2x2") as compiler:
        by_operation = ByOperation(compiler)
        row = by_operation.row_of(program_of(function))
    found = [kind for kind, reason in by_operation.reasons.items() if reason]
    assert row["operations"] == len(by_operation.reasons) > 0
    if refused is None:
        assert row["compiles"] and not found
    else:
        (kind,) = found
        assert refused in kind and kind in row["reason"] and not row["compiles"]
