"""`jt.scan` beside `lax.scan` under every transformation, and under two in every order."""

import functools
import itertools

import jax
import jax.numpy as jnp
import pytest

import jaxtape as jt

from ..helpers_scan import XS, A, check, each_program, few_schedules, summed, turn


def loss_of(scan):
    """Scalars of `a` and of all of `xs`, closed over, carried and scanned."""

    def loss(a, xs):
        carry, ys = scan(functools.partial(turn, a), xs[0], xs)
        return summed((carry, ys[::2]))

    return loss


FIRST = {
    "grad": lambda f, a: jax.grad(f)(a),
    "vjp": lambda f, a: jax.vjp(f, a)[1](jnp.ones_like(f(a)))[0],
    "jacrev": lambda f, a: jax.jacrev(f)(a),
    "jvp": lambda f, a: jax.jvp(f, (a,), (jnp.ones_like(a),))[1],
    "jacfwd": lambda f, a: jax.jacfwd(f)(a),
    "linearize": lambda f, a: jax.linearize(f, a)[1](jnp.ones_like(a)),
    "linear_transpose": lambda f, a: jax.linear_transpose(jax.linearize(f, a)[1], a)(
        jnp.ones_like(f(a))
    )[0],
    "checkpoint": lambda f, a: jax.grad(jax.checkpoint(f))(a),
    "jit": lambda f, a: jax.jit(f)(a),
    "vmap": lambda f, a: jnp.sum(jax.vmap(f)(a * jnp.array([0.5, 1.0, 1.5]))),
}
REVERSE = {"grad", "vjp", "jacrev", "checkpoint", "linear_transpose"}
# reverse mode does not go through jax.checkpoint of a gradient: test_reverse_twice.py
REFUSED = set(itertools.product(REVERSE - {"linear_transpose"}, ["checkpoint"])) | {
    ("checkpoint", inner) for inner in REVERSE
}


def _pairs():
    """Every order of two: the outer, the inner."""
    for outer, inner in itertools.product(FIRST, FIRST):
        if (outer, inner) not in REFUSED and outer != "linear_transpose":
            yield outer, inner


def applied(names):
    """The transformations over a loss of `a`, the last name innermost, under one jit."""

    def case(scan, a, xs):
        def differentiated(names, a):
            if not names:
                return loss_of(scan)(a, xs)
            return FIRST[names[0]](functools.partial(differentiated, names[1:]), a)

        return [differentiated(each, a) for each in names]

    return case


def _outer():
    """At every run one of each mode: grad calls vjp, and Jacobians are batches of it and of jvp."""
    for name in FIRST:
        if name != "linear_transpose":
            repeated = name in ("vjp", "jacrev", "jacfwd")
            yield pytest.param(name, marks=[pytest.mark.slow] * repeated)


@each_program
def test_each_transformation(schedule):
    check(applied([(name,) for name in FIRST]), schedule, A, XS)


@pytest.mark.costly
@pytest.mark.parametrize(
    "schedule", [pytest.param(jt.Revolve(1), marks=pytest.mark.slow), jt.Revolve(3)], ids=str
)
@pytest.mark.parametrize("outer", list(_outer()))
def test_two_transformations_in_every_order(schedule, outer):
    pairs = [pair for pair in _pairs() if pair[0] == outer]
    check(applied(pairs), schedule, A, XS[:4], rtol=1e-11, parameter=outer)


@few_schedules
def test_hessian(schedule):
    check(lambda scan, xs: jax.hessian(lambda xs: loss_of(scan)(A, xs))(xs), schedule, XS[:3])


@each_program
@pytest.mark.parametrize("of", ["value", "grad"])
def test_vmap_axes(schedule, of):
    """The batch on any axis of what is scanned, carried or closed over, and of the results."""

    def case(scan, a, init, xs):
        def run(a, init, xs):
            return scan(functools.partial(turn, a), init, xs)

        if of == "grad":
            run = jax.grad(lambda *args, run=run: summed(run(*args)), (0, 1, 2))
        batches = [(0, None, None), (None, 0, None), (None, 1, 0), (None, 1, -1), (0, 0, 1)]
        outs = [0, 0, 1, 0, -1] if of == "value" else [0] * 5
        found = []
        for axes, out in zip(batches, outs, strict=True):
            part = [a if axes[0] is None else a * jnp.arange(1.0, 4.0), init[:, 0], xs[..., 0]]
            part[1] = part[1] if axes[1] is None else init.T if axes[1] == 0 else init
            if axes[2] is not None:
                part[2] = jnp.moveaxis(xs, 2, axes[2])
            found.append(jax.vmap(run, axes, out)(*part))
        return found

    init = jnp.cos(jnp.arange(6.0)).reshape(2, 3)
    xs = jnp.sin(jnp.arange(24.0)).reshape(4, 2, 3)
    check(case, schedule, A, init, xs, parameter=of)
