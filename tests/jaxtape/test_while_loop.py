"""`jt.while_loop` beside the same steps unrolled: value, both modes, work and memory."""

import collections
import functools

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import pytest

import jaxtape as jt
import jaxtape.sweeps.reverse_only
import jaxtape.tape.loops
from jaxtape.schedules import online

from ..helpers_tape import Counter, assert_close

MOST = 60


def body(rate, state):
    """Grows until the sum passes a level; the count rides along."""
    x, count = state
    return 1.1 * x + 0.01 * jnp.sin(rate * x), count + 1


def grown(level, rate, x, slots=None, most=MOST, step=body):
    """(sum of squares, steps taken) once the sum has passed the level; the level itself has no slope."""
    state = jt.while_loop(
        lambda state: jnp.sum(state[0]) < level,
        functools.partial(step, rate),
        (x, jnp.int32(0)),
        most,
        slots=slots,
    )
    return jnp.sum(state[0] ** 2), state[1]


def unrolled(rate, x, steps):
    state = x, 0
    for _ in range(steps):
        state = body(rate, state)
    return jnp.sum(state[0] ** 2)


RATE, X = jnp.float64(2.0), jnp.linspace(0.1, 0.3, 3)
LEVELS = {0.5: 0, 1.2: 7, 6.0: 22, 1e9: MOST}


@functools.cache
def of_unrolled_loop(steps):
    return jax.value_and_grad(unrolled, (0, 1))(RATE, X, steps)


@pytest.mark.parametrize("slots", [None, MOST, 10, 4, 2, 1])
def test_value_and_gradient_are_those_of_the_unrolled_loop(slots):
    """At every level, in one program of the value and one of the gradient."""
    value = functools.partial(grown, slots=slots)
    values, gradients = jax.jit(value), jax.jit(jax.grad(value, (1, 2), has_aux=True))
    for level, steps in LEVELS.items():
        found, count = values(level, RATE, X)
        bars, _ = gradients(level, RATE, X)
        assert count == steps
        assert_close((found, bars), of_unrolled_loop(steps))


@pytest.mark.parametrize("slots", range(1, 10))
def test_every_length_with_any_number_of_slots(slots):
    def sine(a, n, x):
        step = lambda s: (jnp.sin(a * s[0]) + 0.1 * s[0], s[1] + 1)
        start = x, jnp.int32(0)
        return jnp.sum(jt.while_loop(lambda s: s[1] < n, step, start, 9, slots=slots)[0] ** 2)

    def plain(a, n, x):
        step = lambda x, k: (jnp.where(k < n, jnp.sin(a * x) + 0.1 * x, x), None)
        return jnp.sum(jax.lax.scan(step, x, jnp.arange(9, dtype=jnp.int32))[0] ** 2)

    lengths = jnp.arange(-1, 12, dtype=jnp.int32)
    both = (jax.jit(jax.value_and_grad(f, (0, 2))) for f in (sine, plain))
    found, desired = ([f(0.8, n, X) for n in lengths] for f in both)
    assert_close(found, desired)


@pytest.mark.costly
@pytest.mark.parametrize("slots", [8, 1])
def test_as_many_steps_as_can_be_counted_take_no_memory(slots):
    """The bound is the greatest int32, and the loop stops after 22 steps."""
    value = lambda rate: grown(6.0, rate, X, slots, 2**31 - 1)[0]
    found = jax.jit(jax.value_and_grad(value))
    assert found.lower(RATE).compile().memory_analysis().temp_size_in_bytes < 2**20
    assert_close(found(RATE), jax.value_and_grad(lambda rate: unrolled(rate, X, 22))(RATE))


def test_a_last_state_that_moves_along(monkeypatch):
    """From position 16 on, every other step, which a loop does beyond a million steps."""
    for name, value in {"_GRAIN": 8, "REFRESH": 2, "REFRESHED": 16}.items():
        monkeypatch.setattr(online, name, value)
    monkeypatch.setattr(jaxtape.tape.loops, "online_table", online.online_table.__wrapped__)
    assert online.online_table.__wrapped__(MOST, 3).refreshes
    for level in (6.0, 1e9):
        value = lambda rate: grown(level, rate, X, 3)[0]  # noqa: B023
        desired = jax.value_and_grad(lambda rate: unrolled(rate, X, LEVELS[level]))  # noqa: B023
        assert_close(jax.jit(jax.value_and_grad(value))(RATE), desired(RATE))


def test_more_steps_than_can_be_counted():
    with pytest.raises(ValueError, match=r"max_steps is 2,147,483,648, .* at most 2,147,483,647"):
        jt.while_loop(lambda x: x < 1.0, lambda x: x, 0.0, 2**31, slots=3)


LOSS = lambda rate, slots=None: grown(6.0, rate, X, slots)[0]
PLAIN = lambda rate: unrolled(rate, X, 22)


@pytest.mark.parametrize(
    "derivative",
    [
        lambda f: jax.jvp(f, (RATE,), (1.0,)),
        lambda f: jax.linearize(f, RATE)[1](1.0),
        lambda f: jax.jacfwd(jax.grad(f))(RATE),
        lambda f: jt.hvp(f, (RATE,), (jnp.float64(1.0),)),
        lambda f: jax.grad(jax.checkpoint(f))(RATE),
        lambda f: jax.lax.scan(lambda c, _: (c, jax.grad(f)(c)), RATE, length=2)[1],
    ],
    ids=["jvp", "linearize", "jacfwd of grad", "hvp", "checkpoint", "inside scan"],
)
@pytest.mark.parametrize("slots", [None, 3])
def test_every_way_to_differentiate(derivative, slots):
    loss = functools.partial(LOSS, slots=slots)
    assert_close(derivative(loss), derivative(PLAIN), rtol=1e-11)


@pytest.mark.parametrize("slots", [None, 3])
def test_each_of_a_batch_stops_by_itself(slots):
    levels = jnp.array(list(LEVELS))
    grown_to = lambda level, rate: grown(level, rate, X, slots)[0]
    both = jax.vmap(lambda level: jax.value_and_grad(lambda r: grown_to(level, r))(RATE))
    desired = [jax.value_and_grad(unrolled)(RATE, X, steps) for steps in LEVELS.values()]
    assert_close(both(levels), tuple(map(jnp.stack, zip(*desired, strict=True))), rtol=1e-11)
    counts = jax.vmap(lambda level: grown(level, RATE, X)[1])(levels)
    assert list(counts) == list(LEVELS.values())
    total = jax.grad(lambda r: jnp.sum(jax.vmap(lambda level: grown_to(level, r))(levels)))
    assert_close(total(RATE), sum(bar for _, bar in desired), rtol=1e-11)


def test_keys_ride_along():
    def noisy(slots, scale):
        def draw(state):
            x, key, k = state
            key, own = jax.random.split(key)
            return jnp.cos(x) * scale + jax.random.normal(own), key, k + 1

        start = jnp.float64(0.3), jax.random.key(7), jnp.int32(0)
        return jt.while_loop(lambda s: s[2] < 17, draw, start, 40, slots=slots)[0]

    few, all_kept = (jax.grad(functools.partial(noisy, slots))(0.9) for slots in (9, 40))
    assert_close(few, all_kept, rtol=1e-14)


def probed(counter, rate, state):
    x, count = body(rate, state)
    return counter.probe(x), count


@pytest.mark.parametrize("slots", [None, 2000, 9, 3, 1])
def test_work_is_what_is_said(slots):
    """Of at most 2,000 steps those that are taken: each is pulled back once, and advanced as often as said."""
    counter = Counter()
    step = functools.partial(probed, counter)
    loss = lambda r, level: grown(level, r, X, slots, 2000, step)
    gradient = jax.jit(jax.grad(loss, has_aux=True))
    for level in (0.5, 1.2, 6.0, 400.0):
        counter.counts.clear()
        bar, steps = gradient(RATE, level)
        jax.effects_barrier()
        assert_close(bar, jax.grad(unrolled)(RATE, X, steps), rtol=1e-11)
        advanced = jt.loop_advances(int(steps), 62 if slots is None else slots)
        expected = collections.Counter(advanced=advanced, taped=int(steps))
        assert counter.counts == expected, steps


@pytest.mark.costly
def test_no_more_work_than_the_loop_of_equinox():
    """It has the same slots, and keeps the first state besides, as an argument."""
    lengths, least = (5, 13, 40, 90), 0

    def counts(loop):
        counter = Counter()

        @jax.jit
        @jax.grad
        def gradient(rate, n):
            step = functools.partial(probed, counter, rate)
            return jnp.sum(loop(lambda s: s[1] < n, step, (X, jnp.int32(0)))[0])

        for n in lengths:
            counter.counts.clear()
            gradient(RATE, n)
            jax.effects_barrier()
            yield counter.counts.total()  # theirs tapes whatever it runs again

    for slots in (1, 4, 9):
        ours = functools.partial(jt.while_loop, max_steps=100, slots=slots)
        theirs = functools.partial(
            eqxi.while_loop, max_steps=100, kind="checkpointed", checkpoints=slots
        )
        found, peer = (list(counts(loop)) for loop in (ours, theirs))
        assert found == [jt.loop_advances(n, slots) + n for n in lengths]
        assert all(a <= b for a, b in zip(found, peer, strict=True)), (slots, found, peer)
        least += sum(peer) - sum(found)
    assert least > 0


def test_memory_is_that_of_the_slots():
    def temp_bytes(slots):
        wide = jnp.linspace(0.1, 0.3, 4096)
        gradient = jax.jit(jax.grad(lambda r: grown(1e9, r, wide, slots, 4000)[0]))
        return gradient.lower(RATE).compile().memory_analysis().temp_size_in_bytes

    # the slots, and the work of one pullback
    assert temp_bytes(46) < 52 * 8 * 4096
    assert temp_bytes(4) < 10 * 8 * 4096


def test_the_fallback_without_the_primitive_agrees(monkeypatch):
    monkeypatch.setattr(jaxtape.sweeps, "run", jaxtape.sweeps.reverse_only.run)
    assert_close(jax.grad(LOSS)(RATE), jax.grad(PLAIN)(RATE), rtol=1e-11)


def test_misuse():
    go = lambda x: x < 3.0
    with pytest.raises(ValueError, match=r"slots is 0: .*at least 1"):
        jt.while_loop(go, lambda x: x + 1.0, 0.0, 60, slots=0)
    with pytest.raises(ValueError, match=r"max_steps is 0: .*at least 1"):
        jt.while_loop(go, lambda x: x + 1.0, 0.0, 0)
    with pytest.raises(TypeError, match=r"cond returns .*boolean scalar"):
        jt.while_loop(lambda x: x, lambda x: x + 1.0, 0.0, 5)
    with pytest.raises(TypeError, match=r"changes leaf state.*float64\[2\]"):
        jt.while_loop(lambda x: True, lambda x: jnp.stack([x, x]), jnp.float64(0.0), 5)


def test_a_batch_whose_step_has_no_derivative_where_it_stops():
    """sqrt(x - .1) is not differentiable, nor real, where the loop has stopped."""

    def fallen(x):
        return jt.while_loop(lambda x: x > 0.1, lambda x: x - 0.9 * jnp.sqrt(x - 0.1) - 0.05, x, 20)

    xs = jnp.array([0.1, 0.3, 3.0])
    alone = jnp.stack([jax.grad(fallen)(x) for x in xs])
    assert_close(jax.grad(lambda xs: jnp.sum(jax.vmap(fallen)(xs)))(xs), alone, rtol=1e-11)
    assert_close(jax.vmap(jax.grad(fallen))(xs), alone, rtol=1e-11)
    assert_close(jnp.diag(jax.jacfwd(jax.vmap(fallen))(xs)), alone, rtol=1e-11)


def test_python_numbers_are_a_state():
    assert jt.while_loop(lambda s: s < 10.0, lambda s: 2.0 * s, 1.0, 20) == 16.0


@pytest.mark.parametrize("varied", [True, False])
def test_devices_stop_by_themselves(varied):
    """In `shard_map` a value that the devices share is made to vary before the loop, or refused."""
    mesh = jax.make_mesh((jax.device_count(),), ("d",), axis_types=(jax.sharding.AxisType.Auto,))

    def total(rate, xs):
        def on_device(rate, xs):
            rate = jax.lax.pcast(rate, "d", to="varying") if varied else rate
            grown = jt.while_loop(lambda s: s[0] < 10.0, lambda s: s * rate, xs, 40, slots=3)
            return jax.lax.psum(jnp.sum(grown), "d")

        specs = {"in_specs": (jax.P(), jax.P("d")), "out_specs": jax.P()}
        return jax.shard_map(on_device, mesh=mesh, **specs)(rate, xs)

    xs = jnp.linspace(0.5, 3.0, jax.device_count())
    if not varied:
        with pytest.raises(ValueError, match=r"does not: give it .*pcast"):
            jax.grad(total)(1.5, xs)
        return
    steps = [int(jnp.ceil(jnp.log(10.0 / x) / jnp.log(1.5))) for x in xs]
    plain = lambda rate: sum(x * rate**n for x, n in zip(xs, steps, strict=True))
    found = jax.jit(jax.value_and_grad(total))(1.5, xs)
    assert_close(found, jax.value_and_grad(plain)(1.5), rtol=1e-11)
