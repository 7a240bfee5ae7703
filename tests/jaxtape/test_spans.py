"""Spans: the nodes of a tape, one after the other, both ways."""

import equinox as eqx
import jax
import jax.numpy as jnp

import jaxtape as jt
from jaxtape.tape.segment import Segment

from ..helpers_tape import assert_close

X = jnp.array([0.3, -0.8])


def turn(params, state):
    return jnp.sin(state) * params["a"] + params["b"]


def damp(params, state):
    return 0.5 * state + params


def test_a_span_is_iterated_both_ways_and_replayed():
    a = jnp.linspace(0.1, 0.8, 8)
    span = jt.Tape().append(turn, {"a": a, "b": a}).erase(1, 3).traverse(1, 4)
    assert [(n.position, float(n.params["a"])) for n in span] == [
        (k, float(a[k + 2])) for k in (1, 2, 3)
    ]
    assert [n.position for n in reversed(span)] == [3, 2, 1]
    state = X
    for node in span:
        state = node(state)
    assert_close(span.replay(X), state)


def test_a_span_looks_once_at_each_segment(monkeypatch):
    """Several times as many nodes as are gathered at a time, of params of several kinds."""
    n, looked = 150, []
    params = {"a": jnp.linspace(0.0, n - 1.0, n), "key": jax.random.split(jax.random.key(1), n)}
    tape = jt.Tape().append(lambda params, state: state + params["a"], params).erase(40, 77)
    tape = tape.append(damp, jnp.arange(70.0))
    places = Segment.places.fget
    monkeypatch.setattr(Segment, "places", property(lambda s: looked.append(s) or places(s)))
    span = tape.traverse(5, len(tape) - 1)
    forward, back = list(span), list(reversed(span))
    assert len(looked) == 4
    assert [node.position for node in forward] == list(range(5, len(tape) - 1))
    values = [float(n.params["a"] if isinstance(n.params, dict) else n.params) for n in forward]
    assert values == [*range(5, 40), *range(77, n), *range(69)]
    for node, same in zip(forward, reversed(back), strict=True):
        assert (node.position, node.step) == (same.position, same.step)
        assert eqx.tree_equal(node.params, same.params)
    key = forward[40].params["key"]
    assert jnp.all(jax.random.key_data(key) == jax.random.key_data(params["key"][82]))
    assert not list(tape.traverse(9, 9)) and not list(jt.Tape().traverse())
