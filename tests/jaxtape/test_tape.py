"""The tape as a value: appended, called, differentiated."""

import contextlib
import io
import pathlib
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtape as jt

from ..helpers_tape import all_schedules, assert_close


class Oscillator(eqx.Module):
    """A step with an array leaf, shared by its nodes, and a static one."""

    frequency: jax.Array
    wave: Any = jnp.sin

    def __call__(self, params, state):
        return self.wave(self.frequency * state) + params

    def damp(self, params, state):
        return state * self.frequency + params


def scale(params, state):
    return state * params["by"]


def make_tape(schedule=all_schedules[0]):
    step = Oscillator(jnp.float64(0.7))
    tape = jt.Tape().with_schedule(schedule)
    tape = tape.append(step, jnp.linspace(0.0, 1.0, 9)).append(step, jnp.ones(3))
    return tape.append(step.damp, jnp.arange(4.0)).append(scale, {"by": jnp.linspace(0.5, 1.5, 5)})


def by_hand(frequency, params, x):
    for p in params[0]:
        x = jnp.sin(frequency[0] * x) + p
    for p in params[1]:
        x = x * frequency[1] + p
    for p in params[2]["by"]:
        x = x * p
    return x


@pytest.mark.parametrize("schedule", all_schedules, ids=str)
def test_gradient_of_a_tape_is_a_tape(schedule):
    tape, x = make_tape(schedule), jnp.float64(0.4)
    assert len(tape) == 21
    assert [len(segment) for segment in tape.segments] == [12, 4, 5]
    frequency, params = jnp.array([0.7, 0.7]), [s.params for s in tape.segments]
    value, (f_bar, p_bar, x_bar) = jax.value_and_grad(by_hand, (0, 1, 2))(frequency, params, x)
    assert_close(jax.jit(lambda tape, x: tape(x))(tape, x), value)
    tape_bar, tape_x_bar = jax.jit(jax.grad(lambda tape, x: tape(x), (0, 1)))(tape, x)
    assert isinstance(tape_bar, jt.Tape)
    assert_close([s.params for s in tape_bar.segments], p_bar)
    assert_close(tape_bar.segments[0].step.frequency, f_bar[0])
    assert_close(tape_bar.segments[1].step.__self__.frequency, f_bar[1])
    assert_close(tape_x_bar, x_bar)


def test_append_leaves_the_tape_as_it_was():
    tape = make_tape()
    longer = tape.append(scale, {"by": jnp.ones(2)})
    assert (len(tape), len(longer), len(longer.segments)) == (21, 23, 3)


@pytest.mark.parametrize(
    ("step", "params"),
    [
        (Oscillator(jnp.float64(0.7)), jnp.ones(2)),  # other arrays, though equal ones
        (scale, {"by": jnp.ones((2, 1))}),
        (scale, {"by": jnp.ones(2, jnp.float32)}),
        (scale, {"by": jnp.ones(2), "also": jnp.ones(2)}),
        (lambda params, state: state, {"by": jnp.ones(2)}),
    ],
)
def test_another_step_or_structure_starts_a_segment(step, params):
    assert len(make_tape().append(step, params).segments) == 4


def test_integer_and_key_params():
    """Gradients skip them, under `eqx.filter_grad`."""

    def step(params, state):
        key, power, drift = params
        return state + drift * jax.random.normal(key) + 0.1 * power.astype(float)

    params = jax.random.split(jax.random.key(2), 8), jnp.arange(8), jnp.linspace(0.0, 1.0, 8)
    bars = []
    for schedule in (jt.StoreAll(), jt.Revolve(3)):
        tape = jt.Tape().append(step, params).with_schedule(schedule)
        bars.append(eqx.filter_grad(lambda tape: tape(jnp.float64(1.0)) ** 2)(tape))
    keys, power, drift = bars[1].segments[0].params
    assert keys is None and power is None
    assert_close(drift, bars[0].segments[0].params[2])


def test_the_empty_tape_is_the_identity():
    assert len(jt.Tape()) == 0
    assert jt.Tape()(3.0) == 3.0


def test_a_pytree_through_vmap_and_jit():
    tape, xs = make_tape(jt.Revolve(3)), jnp.linspace(0.0, 1.0, 5)
    doubled = jax.tree.map(lambda leaf: 2 * leaf, tape)
    assert len(doubled) == len(tape)
    assert_close(jax.vmap(tape)(xs), jnp.stack([tape(x) for x in xs]))
    tangents = jax.jvp(lambda tape: tape(xs[1]), (tape,), (tape,))
    plain = tape.with_schedule(jt.StoreAll())
    assert_close(tangents, jax.jvp(lambda tape: tape(xs[1]), (plain,), (plain,)))


def test_appending_within_jit_compiles_once():
    traces = []

    @jax.jit
    def value(tape, x):
        traces.append(x)
        return tape(x)

    tape = make_tape(jt.Revolve(3))
    for factor in (1.0, 2.0):
        value(jax.tree.map(lambda leaf, by=factor: by * leaf, tape), factor)
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("error", "match", "params"),
    [
        (ValueError, "has no leaves", None),
        (ValueError, r"params\['a'\]: \[3\], params\['b'\]: \[4\]", {"a": np.ones(3), "b": np.ones(4)}),
        (ValueError, r"params: \[\]", 1.0),
    ],
)  # fmt: skip
def test_params_must_be_stacked(error, match, params):
    with pytest.raises(error, match=match):
        jt.Tape().append(scale, params)


@pytest.mark.parametrize("schedule", [jt.StoreAll(), jt.Revolve(2)], ids=str)
@pytest.mark.parametrize(
    ("match", "step"),
    [
        ("changes the structure of the state", lambda p, s: (s, s)),
        (r"from float64\[2\] to float64\[\]", lambda p, s: jnp.sum(s)),
        (r"from float64\[2\] to float32\[2\]", lambda p, s: s.astype(jnp.float32)),
    ],
)
def test_a_step_must_keep_the_state(schedule, match, step):
    tape = jt.Tape().append(step, jnp.ones(3)).with_schedule(schedule)
    with pytest.raises(TypeError, match=match):
        tape(jnp.ones(2))


@pytest.mark.parametrize("page", ["tape.md", "developers.md"])
def test_the_first_example_of_a_page_prints_what_it_says(page):
    printed, said = first_example(page)
    assert printed == said


def test_the_plan_of_the_docs_is_what_they_say():
    """Bytes apart, which are the compiler's."""

    def counts(text):
        words = [re.findall(r"[^\s│]+", line) for line in text.splitlines()]
        (row,) = (line[:-2] for line in words if line[0] == "walk")
        (sums,) = (line for line in words if "evaluations" in line)
        return row, sums

    printed, said = first_example("memory.md")
    assert counts(printed) == counts(said)


def first_example(page):
    """What the first Python block of a page prints, and what the page says it does."""
    text = (pathlib.Path(__file__).parents[2] / "docs" / page).read_text()
    blocks = re.findall(r"```(?:python|text)\n(.*?)```", text, re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(blocks[0], {})
    return printed.getvalue(), blocks[1]


def test_calls_outside_of_jit_are_traced_once():
    traces = []

    def step(params, state):
        traces.append(params)
        return jnp.sin(state) * params

    tape = jt.Tape().append(step, jnp.linspace(0.5, 1.0, 4)).with_schedule(jt.Revolve(2))
    x = jnp.array([0.3, -0.8])
    gradient = jax.grad(lambda tape: jnp.sum(tape(x)))

    def counted(call):
        before = len(traces)
        call()
        return len(traces) - before

    assert counted(lambda: tape(x))
    gradient(tape)
    assert not counted(lambda: tape(2.0 * x)) and not counted(lambda: gradient(tape))
