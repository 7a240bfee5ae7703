"""A solution as text and as pictures."""

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest

from pricing.fbsde import (
    Certificate,
    DeepBSDE,
    Estimate,
    GradientRegression,
    Hermite,
    Tolerance,
    problems,
    solve,
)
from pricing.fbsde.showing import _rows, summary_of  # pyright: ignore[reportPrivateUsage]

matplotlib.use("agg")
DEEP = DeepBSDE(4, batch_size=4, iterations_per_stage=2, num_pilot_paths=8)


def test_a_summary_has_cross_gammas_after_the_diagonal():
    mean = np.arange(18.0).reshape(2, 3, 3)
    rows = list(_rows("gamma", mean, 0.1 * mean))
    first = ["0, 0, 0", "0, 1, 1", "0, 2, 2", "0, 0, 1", "0, 1, 2", "0, 0, 2"]
    second = ["1, 0, 0", "1, 1, 1", "1, 2, 2", "1, 0, 1"]
    labels = [label for label, *_ in rows]
    assert labels == [*(f"gamma[{at}]" for at in first + second), "gamma: 2 entries more"]
    assert rows[3] == ("gamma[0, 0, 1]", "1", "0.1")


@pytest.fixture(scope="module")
def call():
    return solve(
        problems.different_rates_call(4),
        GradientRegression(4096, (Hermite(3),)),
        key=jax.random.key(0),
    )


def test_a_summary_has_the_figures_and_their_errors(call):
    x0 = call.problem.x0
    own = call.summary()
    assert "GradientRegression" in own and " s\n" in own and "certify(solution, key=key)" in own
    figures = call.value(0.0, x0), call.delta(0.0, x0)[0], call.gamma(0.0, x0)[0, 0]
    assert all(f"{float(figure):.6g}" in own for figure in figures)
    estimate = lambda *shape: Estimate(jnp.full(shape, 7.25), jnp.full(shape, 0.125))
    figures = estimate(), estimate(1), estimate(1, 1)
    call.stats.update(
        certificate=Certificate(*figures, missed=jnp.zeros(()), left=jnp.zeros(())),
        errors=(0.002, 0.01, 0.05),
        absolute_errors=Tolerance(*(jnp.full(shape, 0.5) for shape in ((), (1,), (1, 1)))),
        upper=Estimate(jnp.asarray(7.5), jnp.asarray(0.1)),
    )
    summary = summary_of(call)
    del call.stats["upper"]
    for label in ("value", "delta[0]", "gamma[0, 0]"):
        (row,) = (line for line in summary.splitlines() if line.startswith(f"{label} "))
        assert row.split()[-3:] == ["7.25", "0.5", "0.12"]
    exact = (Estimate(figure.mean, jnp.zeros_like(figure.mean)) for figure in figures)
    certificate = Certificate(*exact, missed=jnp.zeros(()), left=jnp.zeros(()))
    call.stats.update(certificate=certificate, errors=(0.002, 0.01, 0.05))
    (row,) = (line for line in summary_of(call).splitlines() if line.startswith("value "))
    assert row.split() == ["value", "7.25", "0.5"]
    for name in ("certificate", "errors", "absolute_errors"):
        del call.stats[name]
    assert "value 0.2 %, delta 1 %, gamma 5 %" in summary
    assert "at most 7.5 (standard error 0.1)" in summary


@pytest.mark.costly
def test_a_picture_has_value_delta_gamma_and_loss(call):
    figure = call.plot(t=0.25)
    panels = figure.axes
    assert [panel.get_title() for panel in panels[:3]] == [
        f"{name} at t = 0.25" for name in ("value", "delta", "gamma")
    ]
    spots, gammas = panels[2].lines[0].get_data()
    at = jnp.array([spots[70]], call.problem.x0.dtype)
    np.testing.assert_allclose(gammas[70], call.gamma(0.25, at)[0, 0], rtol=1e-9)
    assert 70.0 < spots[0] < 100.0 < spots[-1] < 150.0
    np.testing.assert_array_equal(panels[3].lines[0].get_ydata(), np.ravel(call.stats["losses"]))
    matplotlib.pyplot.close(figure)
    with pytest.raises(ValueError, match="axis=1: give a coordinate of the state, 0 to 0"):
        call.plot(1)


@pytest.mark.costly
def test_a_figure_that_a_solver_does_not_know_is_named():
    """And of a long figure the first entries are shown."""
    solution = solve(problems.allen_cahn(12), DEEP, key=jax.random.key(0))
    lines = solution.summary().splitlines()
    assert "delta: 2 entries more" in lines
    assert any(line.startswith("gamma") and "not known" in line for line in lines)
    figure = solution.plot(3)
    shown = [text.get_text() for panel in figure.axes for text in panel.texts]
    assert shown == ["not known by this solver"] * 2  # value and Gamma; Delta is Z along the paths
    matplotlib.pyplot.close(figure)


def test_solutions_of_many_keys_are_refused():
    several = solve(problems.allen_cahn(12), DEEP, key=jax.random.split(jax.random.key(0), 2))
    for show in (several.summary, several.plot):
        with pytest.raises(ValueError, match="several keys: select one"):
            show()
