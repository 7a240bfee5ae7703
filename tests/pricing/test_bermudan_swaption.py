"""The Bermudan swaption as a tape: published value, sensitivities, cotangents by date, erasing and rolling."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtape as jt
from pricing import BermudanSwaption, HullWhite, Quadrature, ZeroCurve, price
from pricing.induction import Exercise, cash_flows, induction, nothing_later
from tests.helpers import double, first_difference, second_difference
from tests.jaxtape.test_tape import first_example

pytestmark = double

STRIKE, NOTIONAL = 0.0499664907, 1000.0
RATE, MEAN_REVERSION, VOL = 0.04875825, 0.048696, 0.0058904
NODES = 64
METHOD = Quadrature(NODES)
PILLARS = 11.0 * np.arange(1, 201) / 365.0  # no payment date is on one
counts = {"traces": 0, "runs": 0, "programs": 0}


def contract(dates):
    """Annual payments from a year after the first exercise date to a year after the last, at the latest 6."""
    return BermudanSwaption(STRIKE, dates, [2.0, 3.0, 4.0, 5.0, 6.0], [1.0] * 5, "payer", NOTIONAL)


def hull_white():
    return HullWhite(RATE, MEAN_REVERSION, VOL)


def anchored():
    return hull_white().anchored(jnp.array(5.0))


BERMUDAN = contract([1.0, 2.0, 3.0, 4.0, 5.0])


def by_quadrature(product):
    return price(product, hull_white(), METHOD).value


# --- value and sensitivities --------------------------------------------------------------------------


def value(rates, mean_reversion, vol):
    """Under moves of the reference's parameters; of rates one for each pillar."""
    curve = ZeroCurve(PILLARS, RATE + rates)
    model = HullWhite(curve, MEAN_REVERSION + mean_reversion, VOL + vol)
    return price(BERMUDAN, model, METHOD).value


_value_and_gradient = jax.jit(jax.value_and_grad(value, (0, 1, 2)))


def value_and_gradient(rates=0.0, mean_reversion=0.0, vol=0.0):
    rates = np.broadcast_to(rates, PILLARS.shape)
    return _value_and_gradient(jnp.asarray(rates), np.asarray(mean_reversion), np.asarray(vol))


def value_at(**moves):
    return value_and_gradient(**moves)[0]


def by_rates(rate):
    """Under a flat rate that is higher by so much."""
    return price(BERMUDAN, HullWhite(RATE + rate, MEAN_REVERSION, VOL), METHOD).value


@pytest.mark.costly
def test_the_value():
    assert value_at() == pytest.approx(12.9258599208, rel=1e-8)


@pytest.mark.costly
def test_sensitivities_to_vol_and_mean_reversion():
    _, (_, mean_reversion, vol) = value_and_gradient()
    assert vol == pytest.approx(2201.30581, rel=1e-6)
    assert mean_reversion == pytest.approx(-30.43307, rel=1e-6)
    by_vol = first_difference(lambda h: value_at(vol=h), 1e-4)
    by_reversion = first_difference(lambda h: value_at(mean_reversion=h), 1e-3)
    np.testing.assert_allclose(vol, by_vol, rtol=1e-9)
    np.testing.assert_allclose(mean_reversion, by_reversion, rtol=1e-9)


@pytest.mark.costly
def test_sensitivities_to_the_level_of_rates():
    """The reference's are central differences of 1 bp; the derivatives differ by its error."""
    up, middle, down = (value_at(rates=h) for h in (1e-4, 0.0, -1e-4))
    assert (up - down) / 2e-4 == pytest.approx(1935.5241, rel=1e-6)
    assert (up - 2.0 * middle + down) / 1e-8 == pytest.approx(223570.4, rel=1e-6)

    def slope(rate):
        return jax.jvp(by_rates, (rate,), (jnp.ones_like(rate),))

    zero = jnp.zeros(())
    (found, first), (_, second) = jax.jit(lambda: jax.jvp(slope, (zero,), (jnp.ones(()),)))()
    assert found == pytest.approx(12.9258599208, rel=1e-8)
    assert first == pytest.approx(1935.5095, rel=1e-6)
    assert second == pytest.approx(223574.16, rel=1e-6)
    parallel = lambda h: value_at(rates=h)
    np.testing.assert_allclose(first, first_difference(parallel, 3e-4), rtol=1e-9)
    np.testing.assert_allclose(second, second_difference(parallel, 3e-4), rtol=1e-8)
    _, (by_pillar, *_) = value_and_gradient()
    np.testing.assert_allclose(jnp.sum(by_pillar), first, rtol=1e-9)


def test_one_sweep_gives_the_sensitivity_to_every_pillar():
    _, (by_pillar, *_) = value_and_gradient()
    assert by_pillar.shape == PILLARS.shape
    moving = np.flatnonzero(by_pillar)
    assert moving.size == 12  # on both sides of 1 ... 6, where the contract reads the curve
    for pillar in (*moving, 100):
        bump = lambda h, k=pillar: value_at(rates=h * np.eye(PILLARS.size)[k])
        np.testing.assert_allclose(by_pillar[pillar], first_difference(bump, 2e-4), rtol=1e-6)


# --- the induction's tape -----------------------------------------------------------------------------


class Counted(eqx.Module):
    """A step that counts how often it is traced and how often it runs forward."""

    step: Exercise

    def __call__(self, cash_flow, later):
        counts["traces"] += 1
        jax.debug.callback(_tell, cash_flow.date)
        return self.step(cash_flow, later)


def _tell(_):
    counts["runs"] += 1


def counting(f):
    """What `f` returns, how often the step ran, and how often it was traced."""
    jax.effects_barrier()
    before = dict(counts)
    out = jax.block_until_ready(f())
    jax.effects_barrier()
    return out, counts["runs"] - before["runs"], counts["traces"] - before["traces"]


@eqx.filter_jit
def flows_of(product):
    return cash_flows(product, anchored())


def start():
    return nothing_later(anchored(), NODES)


def tape_of(product):
    return induction(anchored(), flows_of(product), NODES)


def counted_recording(product):
    step = tape_of(product).segments[0].step
    return jt.Tape().append(Counted(step), flows_of(product)).record(start())


def value_of(recording):
    return recording.value.value_today()


@eqx.filter_jit
def induced(tape):
    """Today's value; counts how often it is traced."""
    counts["programs"] += 1
    return tape(start()).value_today()


def cotangents(recording):
    """One for each number of each cash flow, the latest date first."""
    layer_bar = jax.grad(lambda layer: layer.value_today())(recording.value)
    _, tape_bar = recording.pullback(layer_bar)
    return tape_bar.segments[0].params


@pytest.mark.costly
def test_the_first_exercise_date_alone_is_a_european():
    european = tape_of(BERMUDAN).record(start()).erase(0, 4)
    assert value_of(european) == pytest.approx(8.8569972471, rel=1e-8)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("name", "step"), [("date", 1e-2), ("discount_factor", 1e-2), ("exercise_value", 0.5)]
)
def test_cotangents_of_every_cash_flow_are_difference_quotients(name, step):
    """Of every number of all five dates: 40 exercise values a date. Relative to the date's largest."""
    flows, tape = flows_of(BERMUDAN), tape_of(BERMUDAN)
    leaf, found = (
        np.asarray(getattr(of, name)) for of in (flows, cotangents(tape.record(start())))
    )
    assert found.shape[0] == 5
    edited = tape.truncate(4).append(tape.segments[0].step, jax.tree.map(lambda x: x[4:], flows))

    def moved(index, h):
        there = eqx.tree_at(
            lambda flows: getattr(flows, name), flows, leaf + h * _unit(leaf, index)
        )
        return induced(eqx.tree_at(lambda tape: tape.segments[0].params, edited, there))

    for date in range(5):
        indices = [index for index in np.ndindex(leaf.shape) if index[0] == date]
        expected = [first_difference(lambda h, i=i: moved(i, h), step) for i in indices]
        gap = np.abs(np.array(expected) - found[date].ravel())
        assert np.max(gap) <= 1e-6 * np.max(np.abs(found[date]))


def _unit(leaf, index):
    unit = np.zeros(leaf.shape)
    unit[index] = 1.0
    return unit


@pytest.mark.slow
def test_the_gradient_of_the_tape_is_what_a_recording_reads_off():
    tape = tape_of(BERMUDAN)
    wanted = eqx.filter_grad(lambda tape: tape(start()).value_today())(tape).segments[0].params
    found = cotangents(tape.record(start()))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12 * np.abs(b).max())


@pytest.mark.costly
def test_cotangents_share_the_value_among_the_dates():
    """The value is linear in all discount factors at once, and in all exercise values (Euler)."""
    flows, recording = flows_of(BERMUDAN), tape_of(BERMUDAN).record(start())
    bar = cotangents(recording)
    shares = flows.discount_factor * bar.discount_factor
    assert np.all(shares > 0.0)
    np.testing.assert_allclose(jnp.sum(shares), value_of(recording), rtol=1e-12)
    by_value = jnp.sum(flows.exercise_value * bar.exercise_value, axis=1)
    np.testing.assert_allclose(by_value, shares, rtol=1e-12)


# --- edits --------------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize("node", range(5), ids=lambda node: f"exercise at {5 - node}")
def test_erasing_a_date_gives_the_contract_without_it(node):
    recording = counted_recording(BERMUDAN)
    assert recording.kept == tuple(range(6))
    erased, runs, _ = counting(lambda: value_of(recording.erase(node, node + 1)))
    assert runs == 4 - node  # the earlier dates: what comes later knows nothing of the erased one
    left = [date for date in (1.0, 2.0, 3.0, 4.0, 5.0) if date != 5.0 - node]
    np.testing.assert_allclose(erased, by_quadrature(contract(left)), rtol=1e-12)


@pytest.mark.costly
def test_rolling_the_window_of_dates_compiles_nothing():
    """Latest date first: `append` adds an earlier date than all others, `drop` forgets the latest."""
    dates = [1.0, 2.0, 3.0, 4.0]
    tape = tape_of(contract(dates))
    step, before = tape.segments[0].step, counts["programs"]
    for date in (0.8, 0.6, 0.45):
        dates = [date, *dates[:-1]]
        tape = tape.append(step, flows_of(contract([date]))).drop(1)
        np.testing.assert_allclose(induced(tape), by_quadrature(contract(dates)), rtol=1e-12)
        assert counts["programs"] - before <= 1, date


def test_time_passes():
    """A date that has passed was the last node: nothing runs. One that comes after all others moves every
    value: all nodes run, and none is traced again."""
    dates = [0.5, 1.5, 2.5, 3.5, 4.5]
    whole = counted_recording(contract(dates))
    recording, runs, traces = counting(lambda: whole.truncate(4))
    assert (runs, traces) == (0, 0)
    np.testing.assert_allclose(value_of(recording), by_quadrature(contract(dates[1:])), rtol=1e-12)

    rolled = contract([2.5, 3.5, 4.5, 5.5])
    flows = flows_of(rolled)
    value_of(recording.replace(0, 4, flows_of(contract([2.4, 3.4, 4.4, 5.4]))))
    found, runs, traces = counting(lambda: value_of(recording.replace(0, 4, flows)))
    assert (runs, traces) == (4, 0)
    np.testing.assert_allclose(found, by_quadrature(rolled), rtol=1e-12)


# --- the page -----------------------------------------------------------------------------------------


@pytest.mark.costly
def test_the_example_of_the_docs_prints_what_it_says():
    printed, said = first_example("bermudan.md")
    assert printed == said
