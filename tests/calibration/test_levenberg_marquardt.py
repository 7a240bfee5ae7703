"""Levenberg-Marquardt through optax's interface, on residuals with a known minimum."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from calibration import join_optimizers, levenberg_marquardt
from tests.helpers import double

pytestmark = double


def rosenbrock(x):
    """More, Garbow and Hillstrom (1981), problem 1: minimum 0 at (1, 1)."""
    return jnp.stack([10.0 * (x[1] - x[0] ** 2), 1.0 - x[0]])


def powell(x):
    """Problem 13: minimum 0 at 0, where the Jacobian is singular."""
    return jnp.stack(
        [
            x[0] + 10.0 * x[1],
            np.sqrt(5.0) * (x[2] - x[3]),
            (x[1] - 2.0 * x[2]) ** 2,
            np.sqrt(10.0) * (x[0] - x[3]) ** 2,
        ]
    )


def exponential(x):
    """A fit with residuals left over: x0 exp(x1 t) to noise around 2 exp(-t)."""
    t = jnp.linspace(0.0, 3.0, 20)
    return x[0] * jnp.exp(x[1] * t) - 2.0 * jnp.exp(-t) - 0.1 * jnp.cos(7.0 * t)


def curvature_of(residual_fn):
    """What geodesic acceleration asks for: J'r'' along a direction."""

    def curvature(x, v):
        along = lambda x: jax.jvp(residual_fn, (x,), (v,))[1]
        return jax.jacfwd(residual_fn)(x).T @ jax.jvp(along, (x,), (v,))[1]

    return curvature


def minimise(residual_fn, start, steps, optimizer=None):
    """The path of (x, sum of squares), one optax update a step."""
    optimizer = optimizer or levenberg_marquardt()

    @jax.jit
    def step(x, state):
        residual, jacobian = residual_fn(x), jax.jacfwd(residual_fn)(x)
        extra = {"residual": residual, "jacobian": jacobian, "curvature": curvature_of(residual_fn)}
        with jax.numpy_dtype_promotion("standard"):  # optax counts its steps in integers
            updates, state = optimizer.update(jacobian.T @ residual, state, x, **extra)
        return optax.apply_updates(x, updates), state, jnp.sum(residual**2)

    x = jnp.asarray(start)
    state, losses = optimizer.init(x), []
    for _ in range(steps):
        x, state, loss = step(x, state)
        losses.append(float(loss))
    return x, losses


@pytest.mark.parametrize(
    ("residual_fn", "start", "steps", "minimum", "atol"),
    [
        (rosenbrock, [-1.2, 1.0], 40, [1.0, 1.0], 1e-10),
        (powell, [3.0, -1.0, 0.0, 1.0], 40, [0.0] * 4, 1e-4),
    ],
)
def test_it_finds_a_known_minimum(residual_fn, start, steps, minimum, atol):
    x, losses = minimise(residual_fn, start, steps)
    np.testing.assert_allclose(x, minimum, atol=atol)
    assert min(losses) < 1e-15 * losses[0]


def test_a_step_up_is_taken_back():
    """After a point above the lowest, the next starts from the lowest again, with more damping."""
    optimizer, x = levenberg_marquardt(), jnp.asarray([-1.2, 1.0])

    def update(at, state, factor=1.0):
        residual, jacobian = factor * rosenbrock(at), jax.jacfwd(rosenbrock)(at)
        extra = {"residual": residual, "jacobian": jacobian}
        step, state = optimizer.update(jacobian.T @ residual, state, at, **extra)
        return at + step, state

    first, state = update(x, optimizer.init(x))
    for factor in (2.0, jnp.nan):
        again, after = update(first, state, factor / jnp.linalg.norm(rosenbrock(first)) * 10.0)
        assert after.rejected
        assert after.damping == 4.0 * state.damping
        np.testing.assert_allclose(after.best.x, x)
        assert 0.0 < jnp.linalg.norm(again - x) < jnp.linalg.norm(first - x)


def at_points(optimizer, residuals):
    """The states after these residuals, at 0, 1, ... of one parameter that lowers each of them."""
    state, found = optimizer.init(jnp.zeros(1)), []
    for place, residual in enumerate(jnp.asarray(residuals)):
        extra = {"residual": residual[None], "jacobian": -jnp.ones((1, 1))}
        _, state = optimizer.update(-residual[None], state, jnp.full(1, float(place)), **extra)
        found.append(state)
    return found


def test_the_loss_is_half_the_sum_of_squares_and_as_much_again_is_not_lower():
    first, again, lower = at_points(levenberg_marquardt(), [3.0, -3.0, 2.0])
    assert (first.best.loss, again.best.loss, lower.best.loss) == (4.5, 4.5, 2.0)
    assert (again.best.x[0], again.rejected, lower.best.x[0], lower.rejected) == (0, True, 2, False)


def test_with_slack_a_step_may_raise_the_loss_a_little():
    a_tenth_more, too_much = np.sqrt(1.09), np.sqrt(1.11)
    for factor, rejected in ((a_tenth_more, False), (too_much, True)):
        *_, last = at_points(levenberg_marquardt(slack=0.1), [3.0, 3.0 * factor])
        assert last.rejected == rejected


def test_with_residuals_left_over_the_gradient_vanishes():
    x, losses = minimise(exponential, [1.0, 0.0], 40)
    gradient = jax.grad(lambda x: 0.5 * jnp.sum(exponential(x) ** 2))(x)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-8)
    assert losses[-1] > 1e-2


def test_no_coordinate_moves_by_more_than_max_step():
    x, _ = minimise(exponential, [1.0, 0.0], 1, levenberg_marquardt(1e-12, max_step=0.1))
    assert jnp.max(jnp.abs(x - jnp.asarray([1.0, 0.0]))) == pytest.approx(0.1)


def test_at_the_minimum_it_stays():
    x, losses = minimise(rosenbrock, [1.0, 1.0], 3)
    np.testing.assert_array_equal(x, 1.0)
    assert losses == [0.0, 0.0, 0.0]


def test_it_composes_with_optax():
    """A chain passes the extra arguments on: half steps reach the same minimum."""
    half = optax.chain(levenberg_marquardt(), optax.scale(0.5))
    x, _ = minimise(exponential, [1.0, 0.0], 80, half)
    np.testing.assert_allclose(x, minimise(exponential, [1.0, 0.0], 40)[0], atol=1e-6)


# --- geodesic acceleration ----------------------------------------------------------------------------


def valley(x):
    """Rosenbrock's with a bend ten times as sharp: the loss falls along a parabola."""
    return jnp.stack([100.0 * (x[1] - x[0] ** 2), 1.0 - x[0]])


@pytest.mark.parametrize("residual_fn", [rosenbrock, valley])
def test_it_needs_fewer_steps_where_the_valley_bends(residual_fn):
    """Transtrum and Sethna's case for it: at most 2/3 of the plain steps to 1e-15 of the loss at the start."""
    counts = []
    for geodesic in (False, True):
        optimizer = levenberg_marquardt(geodesic=geodesic)
        _, losses = minimise(residual_fn, [-1.2, 1.0], 160, optimizer)
        below = np.flatnonzero(np.array(losses) < 1e-15 * losses[0])
        assert below.size
        counts.append(below[0])
    assert counts[1] <= counts[0] * 2 / 3


def test_half_the_second_order_step_is_added():
    """At the first step, against the two linear systems of the paper solved by numpy."""
    optimizer, x = levenberg_marquardt(0.5, max_step=1e9, geodesic=True), jnp.asarray([1.0, 0.2])
    residual, jacobian = exponential(x), np.asarray(jax.jacfwd(exponential)(x))
    curvature = curvature_of(exponential)
    extra = {"residual": residual, "jacobian": jnp.asarray(jacobian), "curvature": curvature}
    step, _ = optimizer.update(jnp.asarray(jacobian.T @ residual), optimizer.init(x), x, **extra)
    matrix = jacobian.T @ jacobian
    matrix = matrix + 0.5 * np.diag(np.diag(matrix))
    first = -np.linalg.solve(matrix, jacobian.T @ np.asarray(residual))
    second = -np.linalg.solve(matrix, np.asarray(curvature(x, jnp.asarray(first))))
    np.testing.assert_allclose(step, first + 0.5 * second, rtol=1e-10)
    assert np.max(np.abs(second)) > 1e-3


def test_acceleration_that_is_not_small_is_left_out():
    x = jnp.asarray([1.0, 0.2])
    residual, jacobian = exponential(x), jax.jacfwd(exponential)(x)
    plain, geodesic = levenberg_marquardt(), levenberg_marquardt(geodesic=True)
    large = lambda x, v: 1e6 * jnp.ones_like(x)
    extra = {"residual": residual, "jacobian": jacobian, "curvature": large}
    steps = [
        optimizer.update(jacobian.T @ residual, optimizer.init(x), x, **extra)[0]
        for optimizer in (plain, geodesic)
    ]
    np.testing.assert_array_equal(*steps)


def test_without_the_second_derivative_it_says_what_it_needs():
    optimizer, x = levenberg_marquardt(geodesic=True), jnp.asarray([1.0, 0.2])
    residual, jacobian = exponential(x), jax.jacfwd(exponential)(x)
    with pytest.raises(TypeError, match=r"give update\(..., curvature=f\)"):
        optimizer.update(
            jacobian.T @ residual, optimizer.init(x), x, residual=residual, jacobian=jacobian
        )


# --- one optimizer after another ----------------------------------------------------------------------


def test_joined_optimizers_take_their_own_steps():
    """Up to the boundary those of the first; from there the second's, as if it began at that point."""
    adam, lm = optax.adam(0.1), levenberg_marquardt()
    _, joined = minimise(rosenbrock, [-1.2, 1.0], 12, join_optimizers([adam, lm], [5]))
    x, alone = minimise(rosenbrock, [-1.2, 1.0], 5, optax.with_extra_args_support(adam))
    np.testing.assert_allclose(joined[:5], alone, rtol=1e-12)
    _, after = minimise(rosenbrock, x, 7)
    np.testing.assert_allclose(joined[5:], after, rtol=1e-8)


def test_three_of_them_reach_a_minimum_that_the_first_does_not():
    stages = [optax.sgd(1e-4), optax.adam(0.05), levenberg_marquardt()]
    x, losses = minimise(rosenbrock, [-1.2, 1.0], 60, join_optimizers(stages, [3, 20]))
    np.testing.assert_allclose(x, 1.0, atol=1e-8)
    assert losses[19] > 1e-3
    assert join_optimizers(stages, [3, 20]) is join_optimizers(stages, (3, 20))


@pytest.mark.parametrize("boundaries", [[], [5, 5], [0, 5], [1, 2, 3]])
def test_boundaries_that_do_not_go_between_are_refused(boundaries):
    stages = [optax.sgd(1e-4), optax.adam(0.05), levenberg_marquardt()]
    with pytest.raises(ValueError, match=r"3 optimizers have boundaries .*give one fewer than"):
        join_optimizers(stages, boundaries)


@pytest.mark.parametrize(("size", "is_taken"), [(0.74, True), (0.76, False)])
def test_an_acceleration_is_taken_up_to_three_quarters_of_the_step(size, is_taken):
    """A residual x - 1 of one parameter: its step is 1, and the second-order one `size` of it."""
    optimizer, at = levenberg_marquardt(1e-12, geodesic=True), jnp.zeros(1)
    curvature = lambda x, v: size * v
    extra = {"residual": at - 1.0, "jacobian": jnp.ones((1, 1)), "curvature": curvature}
    step, _ = optimizer.update(at - 1.0, optimizer.init(at), at, **extra)
    np.testing.assert_allclose(step, [1.0 - 0.5 * size * is_taken], rtol=1e-9)
