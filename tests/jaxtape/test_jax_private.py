"""Each private interface of JAX that the library uses does what the library expects of it."""

import re
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import cache_key
from jax.experimental import checkify

import jaxtape as jt
from jaxtape import jax_private

ROOT = Path(__file__).parents[2]
PRIVATE = re.compile(
    r"^\s*(from|import) (jax\._src|jax\.(interpreters|extend)|jaxlib|jax\.experimental(\.| import )hijax)\b",
    re.MULTILINE,
)


def test_no_other_file_imports_a_private_interface():
    listed = ["git", "ls-files", "jaxtape", "pricing", "calibration"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = [
        name
        for name in files.split()
        if name.endswith(".py") and PRIVATE.search((ROOT / name).read_text(encoding="utf-8"))
    ]
    assert found == ["jaxtape/jax_private.py"]


def test_the_version_of_jaxlib():
    assert ".".join(map(str, jax_private.JAXLIB_VERSION)) == version("jaxlib")


def test_backends_that_have_started_are_seen():
    jax.devices()
    assert jax_private.backends_are_initialized()


def test_tracing_is_seen_under_every_transformation():
    seen = []

    def f(x):
        seen.append(jax_private.is_tracing())
        return x**2

    assert not jax_private.is_tracing()
    x = jnp.ones(3)
    for transformed in (jax.jit(f), jax.vmap(f), jax.grad(lambda x: jnp.sum(f(x)))):
        transformed(x)
    assert seen == [True] * 3 and not jax_private.is_tracing()


def test_a_committed_array_becomes_one_that_may_move():
    committed = jax.device_put(jnp.arange(3.0), jax.devices()[0])
    free = jax_private.uncommitted(committed)
    assert committed.committed and not free.committed
    np.testing.assert_array_equal(free, committed)


def test_a_jaxpr_has_equations_variables_literals_and_inner_jaxprs():
    closed = jax.make_jaxpr(jax.jit(lambda x: 2.0 * x + 1.0))(jnp.ones(()))
    assert isinstance(closed, jax_private.ClosedJaxpr)
    assert isinstance(closed.jaxpr, jax_private.Jaxpr)
    (call,) = closed.jaxpr.eqns
    assert isinstance(call, jax_private.JaxprEqn)
    assert call.primitive is jax_private.primitives.jit_p
    (inner,) = jax_private.jaxprs_in_params(call.params)
    product, total = inner.eqns
    assert product.primitive is jax_private.primitives.mul_p
    assert any(isinstance(v, jax_private.Literal) for v in total.invars)
    assert all(isinstance(v, jax_private.Var) for v in inner.outvars)


def test_the_inputs_of_a_scan_are_counted():
    def looped(rate, start, noise):
        body = lambda carry, z: ((rate * carry[0] + z, carry[1]), carry[0])
        return jax.lax.scan(body, (start, start[:1]), noise)

    for form in (looped, jax.jacfwd(looped, 1)):
        eqns = jax.make_jaxpr(form)(2.0, jnp.ones(3), jnp.ones((5, 3))).eqns
        (scan,) = (eqn for eqn in eqns if eqn.primitive is jax_private.primitives.scan_p)
        constants, carry = jax_private.counts_of_scan(scan.params)
        inputs = [v.aval.shape for v in scan.invars[constants:]]
        assert constants >= 1 and inputs[carry:] == [(5, 3)] and len(scan.outvars) > carry
        assert inputs[:carry] == [v.aval.shape for v in scan.outvars[:carry]]


def test_an_equation_is_evaluated_alone():
    jaxpr = jax.make_jaxpr(lambda x: jnp.split(jax.jit(jnp.sin)(x) * 2.0, 2))(jnp.ones(4)).jaxpr
    call, product, halves = jaxpr.eqns
    (sine,) = jax_private.outputs_of(jaxpr, call, [jnp.ones(4)])
    np.testing.assert_array_equal(sine, jnp.sin(jnp.ones(4)))
    (twice,) = jax_private.outputs_of(jaxpr, product, [sine, None])
    np.testing.assert_array_equal(twice, 2.0 * sine)
    assert len(jax_private.outputs_of(jaxpr, halves, [twice])) == 2


def test_the_rules_of_an_equation_are_found():
    chain = lambda x: jt.scan(lambda s, _: (jnp.sin(s), None), x, length=3, schedule=jt.Revolve(2))
    eqns = jax.make_jaxpr(lambda x: chain(2.0 * x))(1.0).jaxpr.eqns
    found = [jax_private.hi_primitive_of(eqn) for eqn in eqns]
    assert found[0] is None
    assert any(isinstance(each, jax_private.HiPrimitive) for each in found)


def test_primitives_that_join_and_part_arrays():
    def f(x):
        a, b = jnp.unstack(x)
        return jnp.stack([b, a]), jnp.split(x, 2)

    found = {eqn.primitive for eqn in jax.make_jaxpr(f)(jnp.ones((2, 3))).jaxpr.eqns}
    assert found == {jax_private.split_p, jax_private.stack_p, jax_private.unstack_p}


def test_dead_code_is_eliminated_from_a_jaxpr():
    jaxpr = jax.make_jaxpr(lambda x, y: (jnp.sin(x), jnp.cos(y)))(1.0, 2.0).jaxpr
    alone, used = jax_private.dce_jaxpr(jaxpr, [True, False])
    assert used == [True, False] and [str(eqn.primitive) for eqn in alone.eqns] == ["sin"]


def test_symbolic_zeros_become_arrays():
    zero = jax_private.Zero(jax.typeof(jnp.ones(3)))
    np.testing.assert_array_equal(jax_private.instantiate_zeros(zero), jnp.zeros(3))
    assert isinstance(jax_private.instantiate_zeros(jnp.ones(3)), jax.Array)
    np.testing.assert_array_equal(jax_private.zeros_like_aval(zero.aval), jnp.zeros(3))


class Double(jax_private.HiPrimitive):
    """Twice a number: a primitive that is not the library's."""

    def __init__(self, aval):
        self.in_avals, self.out_aval, self.params = (aval,), aval, {}
        super().__init__()

    def expand(self, x):
        return 2.0 * x

    def vjp_fwd(self, nonzeros, x):
        return self(x), None

    def vjp_bwd_retval(self, residual, y_bar):
        return (2.0 * y_bar,)

    def lin(self, nonzeros, x):
        return self(x), None

    def linearized(self, residual, x_dot):
        return 2.0 * x_dot


def test_the_replaced_rules_leave_primitives_of_others_to_jax():
    x = jnp.ones(())
    double = Double(jax.typeof(x))
    assert float(jax.jit(double)(x)) == 2.0 and float(jax.grad(double)(x)) == 2.0
    error, value = checkify.checkify(double, errors=checkify.float_checks)(x)
    assert error.get() is None and float(value) == 2.0


def chain(x):
    return jt.scan(lambda s, _: (jnp.log(s), s), x, None, 3, schedule=jt.Revolve(1))[0]


def test_the_replaced_rules_linearize_and_check_a_chain():
    _, tangent = jax.linearize(chain, jnp.float64(40.0))
    assert float(tangent(1.0)) == pytest.approx(float(jax.jvp(chain, (40.0,), (1.0,))[1]))
    checked = checkify.checkify(chain, errors=checkify.float_checks)
    assert checked(jnp.float64(40.0))[0].get() is None
    assert "nan" in str(checked(jnp.float64(0.5))[0].get())


class _Options:
    """Compile options of a program of one device, or of several."""

    def __init__(self, devices: int):
        self.device_assignment = self
        self.devices = devices

    def replica_count(self):
        return self.devices

    def computation_count(self):
        return 1


def test_executables_of_one_device_have_names_without_it(monkeypatch):
    """Once, however often it is called; a program of several devices keeps their numbers."""
    stripped = []

    def original(digest, options, strip_device_assignment=False):
        stripped.append(strip_device_assignment)

    assert hasattr(cache_key, "_hash_serialized_compile_options")
    monkeypatch.setattr(cache_key, "_hash_serialized_compile_options", original)
    for _ in range(2):
        jax_private.share_executables_among_devices()
    for devices in (1, 2):
        cache_key._hash_serialized_compile_options(None, _Options(devices))
    assert stripped == [True, False]
    assert cache_key._hash_serialized_compile_options.__wrapped__ is original


def test_every_program_of_a_thread_is_kept_and_settings_stay():
    """Also where the contexts of two threads overlap."""
    names = (
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
    )
    settings = lambda: [jax.config.values[name] for name in names]
    before = settings()
    try:
        for name, value in zip(names, (5.0, 7), strict=True):
            jax.config.update(name, value)
        entered, left = threading.Event(), threading.Event()

        def overlapping():
            with jax_private.every_program_kept():
                entered.set()
                left.wait()
                return settings()

        with ThreadPoolExecutor() as pool:
            with jax_private.every_program_kept():
                other = pool.submit(overlapping)
                entered.wait()
                assert settings() == [0.0, -1]
            assert settings() == [5.0, 7]
            left.set()
            assert other.result() == [0.0, -1]
        assert settings() == [5.0, 7]
    finally:
        for name, value in zip(names, before, strict=True):
            jax.config.update(name, value)


def test_a_primitive_is_lowered_by_platform():
    """Each function is traced for its own platform alone; batches, tangents and checks have their rules."""
    traced = []

    def on_cpus(x, y):
        traced.append("cpu")
        return [x * y]

    def elsewhere(x, y):
        traced.append("other")
        return [x * y]

    def batched(axis, args, dims):
        assert (axis.size, dims) == (2, (0, None))
        return primitive.bind(args[0], jnp.broadcast_to(args[1], args[0].shape)), [0]

    def pushed(primals, tangents):
        (x, y), (dot, _) = primals, tangents
        return primitive.bind(x, y), primitive.bind(dot, y)

    def linearized(is_vjp, nonzeros, x, y):
        assert (is_vjp, tuple(nonzeros)) == (False, (True, False))
        return primitive.bind(x, y), [True], [y], lambda held, dot, _: primitive.bind(dot, *held)

    rules = {"batched": batched, "pushed": pushed, "linearized": linearized}
    lowered = {"cpu": on_cpus, None: elsewhere}
    types = lambda x, y: ([x], frozenset())
    primitive = jax_private.lowered_primitive("product", types, lowered=lowered, **rules)
    product = lambda x: primitive.bind(x, jnp.full_like(x, 3.0))[0]
    program = jax.jit(product).trace(2.0)
    for platform, name in (("cpu", "cpu"), ("cuda", "other"), ("tpu", "other")):
        traced.clear()
        program.lower(lowering_platforms=(platform,))
        assert set(traced) == {name}
    assert product(2.0) == 6.0
    x = jnp.array([1.0, 2.0])
    batch = jax.vmap(lambda x: primitive.bind(x, 3.0)[0])
    np.testing.assert_allclose(jax.jit(batch)(x), 3.0 * x)
    assert jax.jvp(lambda x: primitive.bind(x, 3.0)[0], (2.0,), (1.0,)) == (6.0, 3.0)
    assert jax.linearize(lambda x: primitive.bind(x, 3.0)[0], 2.0)[1](2.0) == 6.0

    def checked(*args):
        error, enabled, *operands = args[-4:]
        assert enabled == checkify.float_checks
        return error, primitive.bind(*operands)

    jax_private.set_check_rule(primitive, checked)
    error, out = checkify.checkify(product, errors=checkify.float_checks)(2.0)
    assert (error.get(), out) == (None, 6.0)


def test_a_jaxpr_is_batched_and_pushed_forward():
    jaxpr = jax.make_jaxpr(lambda x, y: (x * y, y))(1.0, 2.0)
    pushed, moving = jax_private.jvp_jaxpr(jaxpr, (True, False))
    assert moving == (True, False)
    out = jax.core.eval_jaxpr(pushed.jaxpr, pushed.consts, 3.0, 2.0, 1.0)
    assert list(map(float, out)) == [6.0, 2.0, 2.0]
    dims = []

    def batch(x, y):
        return [x * y, y]

    def batched(axis, args, dims_in):
        batch, found = jax_private.batch_jaxpr(jaxpr, axis, dims_in)
        dims.extend(found)
        return jax.core.eval_jaxpr(batch.jaxpr, batch.consts, *args), found

    rules = dict.fromkeys(("pushed", "linearized"), batch)
    types = lambda x, y: ([x, y], frozenset())
    primitive = jax_private.lowered_primitive(
        "pair", types, lowered={None: batch}, batched=batched, **rules
    )
    pair = lambda x, y: tuple(primitive.bind(x, y))
    found = jax.vmap(pair, (0, None), (0, None))(jnp.arange(3.0), 2.0)
    assert dims == [0, None]
    np.testing.assert_allclose(found[0], 2.0 * np.arange(3.0))


def test_operations_lose_their_names_and_nothing_else():
    """The names of the function's operations are not in what is compiled."""

    def halved():
        return jax.jit(lambda x: jnp.sin(x) / 2.0)

    x = jnp.arange(3.0)
    named, unnamed = halved().lower(x), jax_private.without_names(halved().lower(x))
    name = "<lambda>)/sin"
    assert name in named.as_text(debug_info=True)
    assert name not in unnamed.as_text(debug_info=True)
    assert np.array_equal(named.compile()(x), unnamed.compile()(x))


def test_branches_of_a_choice_between_platforms():
    choice = lambda x: jax.lax.platform_dependent(x, tpu=jnp.sin, default=jnp.cos)
    *_, cond = jax.make_jaxpr(choice)(1.0).eqns
    found = jax_private.platform_branches(cond.params)
    names = {name: branch.jaxpr.eqns[0].primitive.name for name, branch in found.items()}
    assert names == {"tpu": "sin", "default": "cos"}
    *_, cond = jax.make_jaxpr(lambda x: jax.lax.cond(x > 0.0, jnp.sin, jnp.cos, x))(1.0).eqns
    assert jax_private.platform_branches(cond.params) == {}
