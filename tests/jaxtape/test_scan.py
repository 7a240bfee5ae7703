"""`jt.scan` under every transformation, beside `lax.scan`."""

import contextlib
import functools
import gc
import itertools
import weakref

import chex
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src import monitoring

import jaxtape as jt
import jaxtape.sweeps.reverse_only

from ..helpers_tape import (
    all_schedules,
    along,
    assert_close,
    heston,
    heston_call,
    heston_noise,
    loss_of,
    mixed_arguments,
    mixed_loss,
)

some_schedules = pytest.mark.parametrize("schedule", [jt.StoreAll(), jt.Revolve(3)], ids=str)


def lax_mixed_loss(reverse):
    """The same loss with `lax.scan` itself."""

    def scan(*args, schedule, **kwargs):
        del schedule
        return lax.scan(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jt, "scan", scan)
        return mixed_loss(None, reverse)


def value_and_gradients(loss):
    return jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))(*mixed_arguments())


@functools.cache
def lax_value_and_gradients(reverse):
    return value_and_gradients(lax_mixed_loss(reverse))


def _both_ways():
    """Every schedule in one of the two directions, the next in the other; the rest where there is time."""
    for (i, schedule), reverse in itertools.product(enumerate(all_schedules), (False, True)):
        marks = [pytest.mark.slow] if i % 2 != reverse else []
        yield pytest.param(schedule, reverse, marks=marks, id=f"{reverse}-{schedule}")


@pytest.mark.parametrize(("schedule", "reverse"), list(_both_ways()))
def test_value_and_gradients(schedule, reverse):
    """To the value closed over, the first state, xs; through the last state and ys."""
    found = value_and_gradients(mixed_loss(schedule, reverse))
    assert_close(found, lax_value_and_gradients(reverse))


TRANSFORMATIONS = {
    "jvp": lambda loss, args: jax.jvp(loss, args, args),
    "linearize": lambda loss, args: jax.linearize(loss, *args)[1](*args),
    "linear_transpose": lambda loss, args: jax.linear_transpose(
        jax.linearize(loss, *args)[1], *args
    )(1.0),
    "vmap of value": lambda loss, args: jax.vmap(loss, (None, None, 2))(
        *args[:2], args[2][..., None] * jnp.arange(1.0, 4.0)[None, None]
    ),
    "vmap of grad": lambda loss, args: jax.vmap(jax.grad(loss, (0, 1, 2)), (0, None, None))(
        args[0] * jnp.arange(3.0), *args[1:]
    ),
    "grad of vmap": lambda loss, args: jax.grad(
        lambda a, xs: jnp.sum(jax.vmap(loss, (0, None, 1))(a, args[1], xs)), (0, 1)
    )(args[0] * jnp.arange(3.0), args[2][:, None] * jnp.arange(1.0, 4.0)[None, :, None]),
    "jacrev": lambda loss, args: jax.jacrev(lambda a: jax.grad(loss, 2)(*args) + a)(args[0]),
    "hessian": lambda loss, args: jax.hessian(loss, (0, 1))(*args),
    "jacfwd of jacfwd": lambda loss, args: jax.jacfwd(jax.jacfwd(loss))(*args),
    "reverse over forward": lambda loss, args: jax.grad(
        lambda *p: jax.jvp(loss, p, args)[1], (0, 1, 2)
    )(*args),
    "checkpoint": lambda loss, args: jax.grad(jax.checkpoint(loss), (0, 1, 2))(*args),
    "vmap of checkpoint": lambda loss, args: jax.grad(
        lambda a: jnp.sum(jax.vmap(jax.checkpoint(loss), (0, None, None))(a, *args[1:]))
    )(args[0] * jnp.arange(3.0)),
    "scan": lambda loss, args: jax.grad(
        lambda a: lax.scan(lambda c, _: (c + 1e-3 * along(loss, c), None), a, None, 3)[0]
    )(args[0]),
    "cond": lambda loss, args: jax.grad(
        lambda a: lax.cond(a > 0, functools.partial(along, loss), jnp.sin, a)
    )(args[0]),
    "while": lambda loss, args: lax.while_loop(
        lambda c: c[0] < 2,
        lambda c: (c[0] + 1, 1e-3 * jax.grad(functools.partial(along, loss))(c[1])),
        (0, args[0]),
    ),
    "scan in scan": lambda loss, args: jax.grad(
        lambda a: jt.scan(
            lambda c, x: (1e-2 * along(loss, c) + x, None),
            a,
            args[2][:5, 0],
            schedule=jt.Revolve(2),
        )[0]
    )(args[0]),
}


def _transformed():
    """Slots on the host and those of a budget are swept as those of Revolve: every third in CI."""
    schedules = jt.Revolve(3), jt.MultiStage(device=1, host=2), jt.Budget(bytes=2**13)
    for (i, name), (j, schedule) in itertools.product(
        enumerate(TRANSFORMATIONS), enumerate(schedules)
    ):
        rare = pytest.mark.slow if (i + j) % 3 != 1 else pytest.mark.costly
        marks = [rare] if j > 0 else []
        yield pytest.param(name, schedule, marks=marks, id=f"{name}-{schedule}")


@pytest.mark.parametrize(("name", "schedule"), list(_transformed()))
def test_transformation(name, schedule):
    assert_close(transformed(name, schedule), transformed_without_schedule(name))


def transformed(name, schedule):
    arguments = mixed_arguments(n=7, width=3)
    return jax.jit(functools.partial(TRANSFORMATIONS[name], loss_of(schedule)))(arguments)


@functools.cache
def transformed_without_schedule(name):
    return transformed(name, None)


@pytest.mark.costly
def test_without_jit():
    arguments = mixed_arguments(n=7)
    actual, desired = (
        jax.grad(loss_of(schedule), (0, 1, 2))(*arguments) for schedule in (jt.Revolve(3), None)
    )
    assert_close(actual, desired)


def test_gradient_against_central_differences():
    a, init, xs = mixed_arguments()
    loss = jax.jit(loss_of(jt.Revolve(4)))
    h = 1e-5
    difference = (loss(a + h, init, xs) - loss(a - h, init, xs)) / (2 * h)
    np.testing.assert_allclose(jax.grad(loss)(a, init, xs), difference, rtol=1e-8)


def test_reverse_only(monkeypatch):
    """Where JAX offers no more than `custom_vjp`."""
    monkeypatch.setattr(jaxtape.sweeps, "run", jaxtape.sweeps.reverse_only.run)
    arguments = mixed_arguments(n=9)
    actual, desired = (
        jax.jit(jax.value_and_grad(loss_of(schedule), (0, 1, 2)))(*arguments)
        for schedule in (jt.Revolve(3), None)
    )
    assert_close(actual, desired)
    with pytest.raises(TypeError, match="can't apply forward-mode"):
        jax.jvp(loss_of(jt.Revolve(3)), arguments, arguments)


@some_schedules
def test_float32(schedule):
    def loss(a, xs):
        return jt.scan(lambda c, x: (jnp.cos(a * c) + x, None), a, xs, schedule=schedule)[0]

    grads = jax.grad(loss, (0, 1))(jnp.float32(0.5), jnp.linspace(0, 1, 20, dtype=jnp.float32))
    chex.assert_type(grads, jnp.float32)
    chex.assert_tree_all_finite(grads)


@some_schedules
def test_complex_state(schedule):
    def loss(w, xs):
        state, _ = jt.scan(lambda c, x: (c * w + x, None), w, xs, schedule=schedule)
        return jnp.abs(state) ** 2

    desired = jax.grad(
        lambda w, xs: jnp.abs(lax.scan(lambda c, x: (c * w + x, None), w, xs)[0]) ** 2, (0, 1)
    )
    arguments = jnp.complex128(0.3 + 0.8j), lax.complex(jnp.linspace(0.0, 1.0, 9), jnp.ones(9))
    assert_close(jax.grad(loss, (0, 1))(*arguments), desired(*arguments))


@some_schedules
@pytest.mark.parametrize("n", [0, 1, 2])
def test_short_chains(schedule, n):
    def run(scan, a):
        return scan(lambda c, _: (c * a, c), a, length=n)

    jt_scan = functools.partial(jt.scan, schedule=schedule)
    actual, desired = (jax.jit(jax.jacrev(functools.partial(run, s)))(2.0)
                       for s in (jt_scan, lax.scan))  # fmt: skip
    assert_close(actual, desired)


@some_schedules
def test_a_python_scalar_takes_the_dtype_of_the_step(schedule):
    xs = jnp.arange(3, dtype=jnp.float32)
    out, _ = jt.scan(lambda c, x: (c + x, None), 0.0, xs, schedule=schedule)
    assert out.dtype == jnp.float32
    assert out == 3


@some_schedules
def test_retraces_once(schedule):
    chex.clear_trace_counter()

    @chex.assert_max_traces(n=1)
    def run(a):
        return jt.scan(lambda c, x: (a * c + x, None), a, jnp.arange(9.0), schedule=schedule)[0]

    gradient = jax.jit(jax.grad(run))
    for a in range(4):
        gradient(float(a))


def test_compiles_once_without_jit():
    """The same function is traced and compiled once, whatever it closes over."""
    chex.clear_trace_counter()
    a = jnp.float64(0.3)

    @chex.assert_max_traces(n=1)
    def f(c, x):
        return a * c + x, None

    def run(init):
        return jt.scan(f, init, jnp.arange(9.0), schedule=jt.Revolve(3))[0]

    first = jax.grad(run)(jnp.float64(1.0))
    assert jax.grad(run)(jnp.float64(2.0)) == first


@contextlib.contextmanager
def compilations():
    """The names of the programs that are compiled meanwhile."""
    compiled = []

    def listen(name, _, **words):
        compiled.extend([words] * ("backend_compile" in name))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield compiled
    finally:
        monitoring.unregister_event_duration_listener(listen)


def sine(c, x):
    return jnp.sin(c) + x, c


def eager_scan(schedule):
    xs = jnp.arange(9.0)
    return lambda init: jt.scan(sine, init * jnp.ones(1000), xs, schedule=schedule)[0][0]


def eager_loop():
    a = jnp.float64(0.7)
    body = lambda state: (jnp.sin(a * state[0]) + state[0], state[1] + 1)
    cond = lambda state: state[1] < 9.0 * a
    return lambda init: jt.while_loop(cond, body, (init, 0), 9, slots=2)[0]


@pytest.mark.parametrize(
    "run",
    [*map(eager_scan, (jt.Revolve(3), jt.Periodic(3), jt.Budget(60_000))), eager_loop()],
    ids=["Revolve", "Periodic", "Budget", "while_loop"],
)
def test_a_second_eager_call_compiles_nothing(run):
    def both(init):
        init = jnp.float64(init)
        return float(run(init)), float(jax.grad(run)(init))

    first, other = both(0.5), both(0.25)
    with compilations() as compiled:
        assert (both(0.5), both(0.25)) == (first, other)
    assert not compiled and first != other


def test_a_second_plan_compiles_nothing():
    """Its functions may be others, if its program is the same."""

    def plan():
        tape = jt.Tape().append(lambda p, state: jnp.sin(state) * p, jnp.arange(9.0))
        return jt.plan(tape, jnp.ones(1000), budget=60_000).parts[0].slots

    slots = plan()
    with compilations() as compiled:
        assert plan() == slots < 9
    assert not compiled


def test_an_eager_loop_holds_nothing_of_its_caller():
    class Body:
        def __call__(self, state):
            return 2.0 * state

    def ran():
        body, cond = Body(), lambda state: state < 9.0
        assert jax.grad(lambda x: jt.while_loop(cond, body, x, 8, slots=2))(1.0) == 16.0
        return weakref.ref(body)

    held = ran()
    gc.collect()
    assert held() is None


@pytest.mark.costly
def test_every_derivative_where_a_budget_keeps_products():
    """It is that of `lax.scan`, which runs the chain then; so it is under a policy."""
    matrix = 0.1 * jnp.arange(64.0).reshape(8, 8) - 3.0

    def loss(schedule, a):
        def step(c, x):
            new = jnp.tanh(c @ (a * matrix)) + x
            return new, jnp.sum(new)

        c, ys = jt.scan(step, jnp.ones((5, 8)), jnp.linspace(0.0, 1.0, 6), schedule=schedule)
        return jnp.sum(c * c) + jnp.sum(ys[::2])

    @functools.partial(jax.jit, static_argnums=0)
    def derivatives(schedule, a):
        f = functools.partial(loss, schedule)
        return (
            jax.grad(f)(a),
            jax.jvp(jax.grad(f), (a,), (a,))[1],
            jax.grad(jax.grad(f))(a),
            jax.vmap(jax.grad(f))(a * jnp.arange(1.0, 3.0)),
            jax.grad(jax.checkpoint(f))(a),
        )

    desired = derivatives(None, jnp.float64(0.3))
    for schedule in (jt.Budget(2**20), jt.StoreAll(jax.checkpoint_policies.dots_saveable)):
        assert_close(derivatives(schedule, jnp.float64(0.3)), desired)


def test_a_policy_is_a_function():
    with pytest.raises(TypeError, match=r"policy is 'dots': give one of jax.checkpoint_policies"):
        jt.StoreAll("dots")


@pytest.mark.parametrize("slots", [5, 4])
def test_a_chain_that_keeps_every_state_holds_its_step_once_each_way(slots):
    def run(init):
        step = lambda c, _: (jnp.sin(c), None)
        return jt.scan(step, init, None, length=5, schedule=jt.Revolve(slots))[0]

    program = jax.jit(jax.grad(run)).lower(1.0).as_text()
    assert [program.count(f"stablehlo.{op}") for op in ("sine", "cosine", "while")] == [1, 1, 2]


def test_shard_map():
    """Over every device there is; CI gives 8."""
    devices = jax.device_count()
    mesh = jax.make_mesh((devices,), ("paths",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec
    xs = jnp.sin(jnp.arange(9.0 * 4 * devices)).reshape(9, 4 * devices)

    def gradient(schedule):
        @functools.partial(
            jax.shard_map, mesh=mesh, in_specs=(spec(), spec(None, "paths")), out_specs=spec()
        )
        def total(a, xs):
            c, ys = jt.scan(lambda c, x: (jnp.sin(a * c) + x, c * a), xs[0], xs, schedule=schedule)
            return lax.psum(jnp.sum(c) + jnp.sum(ys**2), "paths")

        return jax.jit(jax.grad(total, (0, 1)))(jnp.float64(0.7), xs)

    assert_close(gradient(jt.Revolve(3)), gradient(None))


@pytest.mark.parametrize("schedule", [None, jt.Revolve(2)])
def test_sums_of_ys(schedule):
    """Of two nodes at a time, and their derivatives."""

    def loss(c, xs, sum_ys):
        step = lambda c, x: (jnp.sin(c) * x, {"c": c, "x": x})
        c, ys = jt.scan(step, c, xs, schedule=schedule, sum_ys=sum_ys)
        if sum_ys == 1:
            ys = {"c": ys["c"][::2] + ys["c"][1::2], "x": ys["x"][::2] + ys["x"][1::2]}
        return c + jnp.sum(ys["c"] ** 2 * ys["x"]), ys

    gradient = jax.value_and_grad(loss, (0, 1), has_aux=True)
    found, expected = (gradient(0.7, jnp.linspace(1.0, 2.0, 6), count) for count in (2, 1))
    assert found[0][1]["c"].shape == (3,)
    assert_close(found, expected)


@pytest.mark.parametrize(
    ("error", "match", "call"),
    [
        (ValueError, "length: 4, xs: 3", lambda f: jt.scan(f, 1.0, jnp.ones(3), 4)),
        (ValueError, "no leaves and length is None", lambda f: jt.scan(f, 1.0)),
        (ValueError, r"xs\['a'\] is a scalar", lambda f: jt.scan(f, 1.0, {"a": jnp.float64(1)})),
        (
            TypeError,
            "return a pair",
            lambda f: jt.scan(lambda c, x: c, 1.0, length=3, schedule=jt.Revolve(2)),
        ),
        (
            TypeError,
            "changes the structure of the state",
            lambda f: jt.scan(lambda c, x: ((c, c), x), 1.0, length=3, schedule=jt.Revolve(2)),
        ),
        (
            TypeError,
            r"state\[0\] from float64\[3\] to float64\[\]",
            lambda f: jt.scan(
                lambda c, x: ((c[0].sum(),), x), (jnp.ones(3),), length=3, schedule=jt.Revolve(2)
            ),
        ),
        (
            ValueError,
            "sum_ys is 2, and there are 3",
            lambda f: jt.scan(f, 1.0, jnp.ones(3), sum_ys=2),
        ),
        (TypeError, "a y is of bool", lambda f: jt.scan(f, 1.0, jnp.ones(3) > 0, sum_ys=3)),
    ],
)
def test_misuse(error, match, call):
    with pytest.raises(error, match=match):
        call(lambda c, x: (c, x))


def test_slots_of_lower_precision_hold_half_and_round_gradients_only():
    """float32 slots under a float64 chain: the value is untouched, gradients agree to float32."""
    noise = heston_noise(100, 2048)
    exact, rounded = (
        jax.jit(
            jax.value_and_grad(
                functools.partial(
                    heston_call, functools.partial(jt.scan, schedule=schedule), dt=1 / 100
                )
            )
        )
        for schedule in (jt.Revolve(40), jt.Revolve(40, checkpoint_dtype=jnp.float32))
    )
    (value, bars), (same, near) = exact(heston, noise), rounded(heston, noise)
    assert value == same
    assert_close(near, bars, rtol=1e-5, atol=1e-6)
    assert any(a != b for a, b in zip(near, bars, strict=True))
    spent, saved = (
        f.lower(heston, noise).compile().memory_analysis().temp_size_in_bytes
        for f in (exact, rounded)
    )
    assert spent - saved > 0.9 * 40 * 2048 * 4


@pytest.mark.costly
def test_second_derivatives_and_batches_through_slots_of_half_precision():
    """Slots hold bits, which have no tangent: forward mode pushes through floats instead."""

    def loss(schedule, a, x):
        step = lambda c, z: (jnp.sin(a * c) + z, c)
        c, ys = jt.scan(step, x, jnp.linspace(0.0, 1.0, 7), schedule=schedule)
        return jnp.sum(c**2) + jnp.sum(ys)

    def derivatives(schedule):
        f, a, x = functools.partial(loss, schedule), jnp.float64(0.7), jnp.linspace(0.1, 1.0, 3)
        gradient = jax.grad(f, (0, 1))
        two = jax.vmap(gradient, (0, None))(jnp.array([0.7, 0.8]), x)
        return [
            gradient(a, x),
            two,
            jax.jvp(gradient, (a, x), (a, x))[1],
            jax.linearize(gradient, a, x)[1](a, x),
            jax.grad(lambda a: jnp.sum(jax.grad(f, 1)(a, x)))(a),
            jax.jvp(jax.vmap(jax.grad(f), (0, None)), (a[None], x), (a[None], x))[1],
        ]

    desired = derivatives(None)
    for dtype in (jnp.bfloat16, jnp.float16):
        assert_close(derivatives(jt.Revolve(2, checkpoint_dtype=dtype)), desired, rtol=0.03)


def test_slots_are_floating_point():
    with pytest.raises(TypeError, match=r"checkpoint_dtype is .*int32.*floating-point"):
        jt.Revolve(3, checkpoint_dtype=jnp.int32)


def test_a_rule_inside_the_step_may_close_over_an_array():
    """As `jax.custom_jvp` functions of other libraries do."""
    weights = np.array([2.0, 2.0, 2.0])

    @jax.custom_jvp
    def sine(x):
        return jnp.sin(x)

    @sine.defjvp
    def _(primals, tangents):
        return sine(*primals), jnp.cos(primals[0]) * tangents[0] * jnp.asarray(weights) / 2.0

    def run(x, schedule):
        return jnp.sum(jt.scan(lambda c, _: (sine(c), None), x, None, 5, schedule=schedule)[0])

    x = jnp.linspace(0.2, 0.6, 3)
    for derivative in (jax.grad, jax.jacfwd, lambda f: jax.grad(jax.checkpoint(f)), jax.hessian):
        found, desired = (
            derivative(functools.partial(run, schedule=schedule))(x)
            for schedule in (jt.Revolve(3), jt.StoreAll())
        )
        assert_close(found, desired)


def test_a_python_scalar_is_closed_over():
    """Unjitted, JAX hands it to the rules of a primitive as it is."""

    def run(a, schedule):
        step = lambda c, x: (jnp.sin(a * c) * x, None)
        return jt.scan(step, 1.0, jnp.ones(5), schedule=schedule)[0]

    for schedule in (jt.Budget(bytes=2**20), jt.Revolve(2)):
        assert_close(jax.grad(run)(0.7, schedule), jax.grad(run)(0.7, None))


def test_only_what_depends_on_the_batch_is_batched():
    def run(x, y, schedule):
        step = lambda c, z: ((jnp.sin(c[0]) * z, c[1] * x), (c[0], c[1]))
        return jt.scan(step, (y, y), jnp.linspace(0.1, 1.0, 6), schedule=schedule)

    over = functools.partial(
        jax.vmap(run, in_axes=(0, None, None), out_axes=((None, 0), (None, 0))), jnp.ones(3), 0.5
    )
    assert_close(over(jt.Revolve(3)), over(jt.StoreAll()))


def test_a_place_along_a_batch_is_batched():
    """No argument of the step shows that it depends on its place."""

    def run(x, schedule):
        step = lambda c, z: (jnp.sin(c) * z + lax.axis_index("members").astype(c.dtype), None)
        return jt.scan(step, 0.5, jnp.linspace(0.1, 1.0, 6), schedule=schedule)[0] * x

    over = jax.vmap(run, (0, None), axis_name="members")
    assert_close(over(jnp.ones(3), jt.Revolve(3)), over(jnp.ones(3), jt.StoreAll()))


def test_explicit_sharding():
    """Under a mesh whose axes are part of the types of arrays, over every device there is; CI gives 8."""
    devices = jax.device_count()
    mesh = jax.make_mesh((devices,), ("paths",), axis_types=(jax.sharding.AxisType.Explicit,))
    spec = jax.sharding.PartitionSpec("paths")
    with jax.set_mesh(mesh):
        x = jax.device_put(jnp.linspace(0.0, 1.0, 2 * devices), spec)
        for schedule in (jt.Revolve(3), jt.Budget(bytes=2**20)):

            def loss(x, xs, schedule=schedule):
                step = lambda c, z: (jnp.sin(c) * z + c, c.sum())
                c, ys = jt.scan(step, x, xs, schedule=schedule)
                return jnp.sum(c**2) + jnp.sum(ys)

            xs = jnp.linspace(0.1, 1.0, 9)
            found = jax.jit(jax.grad(loss, (0, 1)))(x, xs)
            assert jax.typeof(found[0]).sharding.spec == spec
            assert_close(found, jax.grad(functools.partial(loss, schedule=None), (0, 1))(x, xs))
            product = jt.hvp(functools.partial(loss, xs=xs), (x,), (x,))
            assert_close(product, jt.hvp(functools.partial(loss, xs=xs, schedule=None), (x,), (x,)))


def test_auto_axes_in_a_step_under_an_explicit_mesh():
    devices, explicit = jax.device_count(), jax.sharding.AxisType.Explicit
    mesh = jax.make_mesh((devices,), ("paths",), axis_types=(explicit,))
    spec = jax.sharding.PartitionSpec("paths")
    turned = jax.sharding.auto_axes(lambda c, a: jnp.sin(c * a), out_sharding=spec)

    def loss(schedule, a, x):
        return jnp.sum(jt.scan(lambda c, _: (turned(c, a), None), x, None, 5, schedule=schedule)[0])

    with jax.set_mesh(mesh):
        x = jax.device_put(jnp.linspace(0.1, 1.0, 2 * devices), spec)
        gradients = [
            jax.grad(functools.partial(loss, schedule), (0, 1))(jnp.float64(0.7), x)
            for schedule in (None, jt.Revolve(2))
        ]
        assert_close(*gradients)


@pytest.mark.costly
def test_a_program_checked_for_leaks():
    def gradient(a):
        step = lambda c, x: (jnp.sin(a * c) + x, None)
        return jt.scan(step, a, jnp.arange(4.0), schedule=jt.Revolve(2))[0]

    desired = jax.jit(jax.grad(gradient))(0.7)
    with jax.checking_leaks():
        if jax.__version_info__ < (0, 11):  # its own tracers stay where a program holds a primitive
            with pytest.raises(NotImplementedError, match=r"leave out jax.checking_leaks"):
                jax.jit(jax.grad(gradient))(0.7)
        else:
            assert_close(jax.jit(jax.grad(gradient))(0.7), desired)
        assert_close(jax.grad(gradient)(0.7), desired)


def test_export_with_a_symbolic_batch():
    def gradient(schedule):
        def loss(x, a):
            step = lambda c, z: (jnp.sin(a * c) * z, jnp.sum(c))
            return jnp.sum(jt.scan(step, x, jnp.ones(6), schedule=schedule)[0])

        return jax.jit(jax.grad(loss, (0, 1)))

    (size,) = jax.export.symbolic_shape("batch")
    types = jax.ShapeDtypeStruct((size,), jnp.float64), jax.ShapeDtypeStruct((), jnp.float64)
    exported = jax.export.export(gradient(jt.Revolve(2)))(*types)
    arguments = jnp.linspace(0.1, 1.0, 5), jnp.float64(0.9)
    assert_close(exported.call(*arguments), gradient(None)(*arguments))
    with pytest.raises(ValueError, match=r"2,048 bytes needs concrete shapes.*Revolve\(slots=12\)"):
        jax.export.export(gradient(jt.Budget(bytes=2**11)))(*types)
