"""Problems for which nothing was tuned, and their references: the cases of `fbsde_unseen`."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pricing import Barrier, Basket, Bermudan, BlackScholes, European, FiniteDifference, Heston
from pricing.fbsde import Problem, coupled, from_product, problems

from . import fbsde_references as known
from .fbsde_references import Lognormal, Reference

FIFTY = np.arange(1, 51) / 50.0
UNLIKE = (0.08, 0.4)  # vols


class Case(NamedTuple):
    """A problem, its reference, and the amounts of the known coordinates in which figures are compared.

    The default of these are the spots, for prices. Gamma in the reference is a matrix or its diagonal.
    """

    problem: Callable[[], Problem]
    reference: Callable[[], Reference]
    amounts: Any = None


def lognormal(
    spots: Any,
    vols: Any,
    payoff: Callable,
    *,
    rate: float = 0.0,
    yields: Any = 0.0,
    correlation: float = 0.0,
    maturity: float = 1.0,
    num_steps: int = 20,
    driver: Callable | None = None,
    **rights: Any,
) -> Callable[[], Problem]:
    """Return a problem on lognormal assets with exact steps; the default driver discounts at the rate."""

    def make() -> Problem:
        x0 = jnp.atleast_1d(jnp.asarray(spots, float))
        vol = jnp.broadcast_to(jnp.asarray(vols, float), x0.shape)
        drift = rate - jnp.asarray(yields, float)
        noise = vol  # of each asset its own
        if correlation:
            own = (1.0 - correlation) * np.eye(x0.size)
            noise = vol[:, None] * np.linalg.cholesky(correlation + own)
        moved = lambda dw: noise @ dw if correlation else noise * dw
        return Problem(
            x0.size,
            maturity,
            x0,
            drift=lambda t, x: drift * x,
            diffusion=lambda t, x: (noise.T * x).T,
            driver=driver or (lambda t, x, y, z: -rate * y),
            terminal=payoff,
            num_steps=num_steps,
            step=lambda t, dt, x, dw: x * jnp.exp((drift - 0.5 * vol**2) * dt + moved(dw)),
            **rights,
        )

    return make


def positive(x):
    return jnp.maximum(x, 0.0)


def on_one_asset(product: Callable[[], Any]) -> Case:
    """Return a case on one asset, which `pricing` values by quadrature."""
    model = lambda: BlackScholes(100.0, 0.05, 0.2)  # pyright: ignore
    return Case(
        lambda: from_product(product(), model(), 50),
        lambda: known.of_pricing(product(), model()),
    )


def barrier(level: float, kind: str) -> Case:
    return on_one_asset(lambda: Barrier(100.0, 1.0, level, kind, dates=FIFTY))  # pyright: ignore


def closed(dim: int, maturity: float, payoff: Callable, value: Callable, vols: Any = 0.2) -> Case:
    """Return a case with a closed form, on assets at 100, discounted at .05."""
    x0 = np.full(dim, 100.0)
    make = lognormal(x0, vols, payoff, rate=0.05, maturity=maturity)
    return Case(make, lambda: known.of_function(value, x0))


def call(x: Any, strike: float, expiry: float) -> Any:
    return known.black_scholes(x, strike, 0.05, 0.2, expiry)


def digital(x: Any) -> Any:
    """Return a digital put on 95, at .05 and .2 in a year: the slope of a put in its strike."""
    d = (jnp.log(x[0] / 95.0) + 0.03) / 0.2
    return jnp.exp(-0.05) * jax.scipy.special.ndtr(-d)


def geometric_call() -> Reference:
    vol, drift = known.geometric_law(13, -0.02, 0.25, 0.75)
    one = BlackScholes(100.0, 0.0, vol, -drift)  # pyright: ignore[reportArgumentType]
    option = Bermudan(European(100.0, 2.0, "call"), 2.0 * FIFTY)  # pyright: ignore
    return known.of_geometric(known.of_pricing(option, one), 100.0, 13, 100.0)


def spread_at_two_rates(dim: int = 1) -> Case:
    """Return a call spread on the geometric mean of assets, with different lending and borrowing rates."""
    lend, borrow, vol = 0.04, 0.06, 0.2
    own, drift = known.geometric_law(dim, borrow, vol, 0.0)

    def terminal(x):
        mean = jnp.exp(jnp.mean(jnp.log(x)))
        return positive(mean - 95.0) - 2.0 * positive(mean - 105.0)

    def driver(t, x, y, z):
        held = jnp.sum(z) / vol
        return -lend * y - (borrow - lend) * held + (borrow - lend) * positive(held - y)

    def on_grid(y, z):
        held = z / own
        return -lend * y - (borrow - lend) * held + (borrow - lend) * np.maximum(held - y, 0.0)

    paid = lambda x: np.maximum(x - 95.0, 0.0) - 2.0 * np.maximum(x - 105.0, 0.0)

    def reference() -> Reference:
        one = known.of_recursion(Lognormal(drift, own), 0.25, 100.0, paid, on_grid)
        return known.of_geometric(one, 100.0, dim, 100.0)

    x0 = np.full(dim, 100.0)
    make = lognormal(x0, vol, terminal, rate=borrow, maturity=0.25, driver=driver)
    return Case(make, reference)


def defaultable() -> Case:
    """Return a geometric mean of fifty assets with a default intensity that grows as its value falls."""
    dim, vol = 50, 0.2

    def loss(y, module):
        return 0.02 + 0.18 / (1.0 + module.exp((y - 90.0) / 5.0))

    own, drift = known.geometric_law(dim, 0.02, vol, 0.0)
    driver = lambda y, z: -(loss(y, np) / 3.0 + 0.02) * y

    def reference() -> Reference:
        one = known.of_recursion(Lognormal(drift, own), 1.0, 100.0, lambda x: x, driver)
        return known.of_geometric(one, 100.0, dim, 100.0)

    make = lognormal(
        np.full(dim, 100.0),
        vol,
        lambda x: jnp.exp(jnp.mean(jnp.log(x))),
        rate=0.02,
        driver=lambda t, x, y, z: -(loss(y, jnp) / 3.0 + 0.02) * y,
    )
    return Case(make, reference)


def shifted_hjb() -> Case:
    x0 = np.full(20, 0.5)

    def make() -> Problem:
        return eqx.tree_at(lambda p: p.x0, problems.hjb(20), jnp.asarray(x0))

    return Case(make, lambda: known.hjb(20, x0))


def best_of_two(dates: np.ndarray, num_steps: int) -> Case:
    """Return a Bermudan call on the better of two assets with different vols."""

    def make() -> Problem:
        option = Bermudan(Basket(100.0, dates[-1], average="max"), dates)  # pyright: ignore
        model = BlackScholes(2 * [100.0], 0.05, list(UNLIKE), 2 * [0.1])  # pyright: ignore
        return from_product(option, model, num_steps)

    return Case(make, lambda: known.of_assets(UNLIKE, 0.05, 0.1, dates, _best, 100.0))


def _best(*spots: np.ndarray) -> np.ndarray:
    """Return the payoff of a call at 100 on the best of several."""
    return np.maximum(functools.reduce(np.maximum, spots) - 100.0, 0.0)


def best_of_three() -> Case:
    dates = np.arange(1, 10) / 3.0
    return Case(
        lambda: problems.max_call(3, num_steps=9),
        lambda: known.of_assets((0.2, 0.2, 0.2), 0.05, 0.1, dates, _best, 100.0, points=241),
    )


def heston_put(spot: float) -> Case:
    """Return Ikonen and Toivanen's put, exercisable on fifty dates."""
    dates = 0.25 * FIFTY
    option = lambda: Bermudan(European(10.0, 0.25, "put"), dates)  # pyright: ignore
    model = lambda: Heston(spot, 0.1, 0.0625, 5.0, 0.16, 0.9, 0.1)  # pyright: ignore
    fine = FiniteDifference(num_spots=400, num_variances=120, num_steps=200)
    return Case(
        lambda: from_product(option(), model(), 50),
        lambda: known.of_pricing(option(), model(), fine),
    )


def quadratic() -> Case:
    """Return the case |x|^2 of a hundred assets."""
    growth = float(np.exp(0.05 + 0.04))
    return closed(100, 1.0, lambda x: jnp.sum(x**2) / 1e4, lambda x: growth * jnp.sum(x**2) / 1e4)


def posed(
    problem: Callable[[], Problem], value: float, delta: Any, gamma: Any, amounts: Any = None
) -> Case:
    """Return a case with known figures; Gamma by its upper triangle, row by row."""
    delta = np.atleast_1d(np.asarray(delta, float))
    matrix = np.zeros((len(delta), len(delta)))
    matrix[np.triu_indices(len(delta))] = gamma
    whole = matrix + np.triu(matrix, 1).T
    return Case(problem, lambda: Reference(value, delta, whole), amounts)


def call_at_100(x: Any) -> Any:
    return positive(x[0] - 100.0)


def call_and_digitals(dim: int) -> Case:
    """Return a call at 100 and three digitals at 110 on the geometric mean of correlated assets."""
    rate, vol, correlation = 0.03, 0.25, 0.3
    own, drift = known.geometric_law(dim, rate, vol, correlation)
    mean_of = lambda x: jnp.exp(jnp.mean(jnp.log(x)))

    def paid(x):
        return positive(mean_of(x) - 100.0) + jnp.where(mean_of(x) > 110.0, 3.0, 0.0)

    def value(x):
        mean = mean_of(x)
        above = (jnp.log(mean / 110.0) + drift - 0.5 * own**2) / own
        digitals = 3.0 * jnp.exp(-rate) * jax.scipy.special.ndtr(above)
        return digitals + known.black_scholes(mean * jnp.exp(drift - rate), 100.0, rate, own, 1.0)

    x0 = np.full(dim, 100.0)
    make = lognormal(x0, vol, paid, rate=rate, correlation=correlation, num_steps=8)
    return Case(make, lambda: known.of_function(value, x0, whole=True))


def put_on_the_better() -> Callable[[], Problem]:
    paid = lambda x: positive(100.0 - jnp.max(x))
    return lognormal(
        (100.0, 95.0),
        (0.2, 0.35),
        paid,
        rate=0.04,
        yields=(0.05, 0.0),
        correlation=0.4,
        num_steps=12,
        exercise_times=np.arange(1, 7) / 6.0,
        exercise_value=lambda t, x: paid(x),
    )


def wave() -> Problem:
    still = Problem(
        1,
        1.0,
        0.3,
        diffusion=lambda t, x: 0.6,
        terminal=lambda x: 0.8 * jnp.tanh(x[0]),
        num_steps=20,
    )
    return coupled(still, lambda t, x, y, z: -y + 0.0 * x)


def heston_put_in_the_money() -> Problem:
    option = Bermudan(European(100.0, 1.0, "put"), np.arange(1, 6) / 5.0)  # pyright: ignore
    return from_product(option, Heston(90.0, 0.03, 0.04, 1.5, 0.06, 0.7, -0.7, 0.01), 50)  # pyright: ignore


def payer_under_two_factors() -> Problem:
    """Return a Bermudan right to pay 3.2 % for six years, annually, with r = .03 + x + y (G2++)."""
    speeds, vols, rho, level = np.array([0.1, 0.4]), np.array([0.012, 0.01]), -0.6, 0.03
    root = jnp.asarray(vols[:, None] * np.linalg.cholesky([[1.0, rho], [rho, 1.0]]))
    products = np.outer(vols, vols) * np.array([[1.0, rho], [rho, 1.0]])
    ends = jnp.arange(1.0, 7.0)

    def bonds(t, x):
        span = (ends - t)[:, None]
        duration = (1.0 - jnp.exp(-speeds * span)) / speeds
        sums = speeds[:, None] + speeds
        both = (1.0 - jnp.exp(-sums * span[:, None])) / sums
        own = duration[:, :, None], duration[:, None]
        variance = products / np.outer(speeds, speeds) * (span[:, None] - own[0] - own[1] + both)
        half = 0.5 * jnp.sum(variance, axis=(1, 2))
        return jnp.exp(-level * span[:, 0] - duration @ x + half)

    def swap(t, x):
        paid = jnp.where(ends > t + 0.01, bonds(t, x), 0.0)
        return 1.0 - paid[-1] - 0.032 * jnp.sum(paid)

    return Problem(
        2,
        5.0,
        0.0,
        drift=lambda t, x: -speeds * x,
        diffusion=lambda t, x: root,
        driver=lambda t, x, y, z: -(level + jnp.sum(x)) * y,
        terminal=lambda x: positive(swap(5.0, x)),
        num_steps=40,
        exercise_times=np.arange(1.0, 6.0),
        exercise_value=swap,
    )


def floored() -> Problem:
    """Return -|W| at the end, with the right to take -.4 before."""
    return Problem(
        1,
        1.0,
        0.0,
        diffusion=lambda t, x: 1.0,
        terminal=lambda x: -jnp.abs(x[0]),
        num_steps=20,
        exercise_times=(0.25, 0.5, 0.75, 1.0),
        exercise_value=lambda t, x: -0.4 + 0.0 * x[0],
    )


CASES = {
    "call": closed(1, 1.0, lambda x: positive(x[0] - 100.0), lambda x: call(x[0], 100.0, 1.0)),
    "straddle": closed(
        1,
        0.5,
        lambda x: jnp.abs(x[0] - 110.0),
        lambda x: 2.0 * call(x[0], 110.0, 0.5) - x[0] + 110.0 * jnp.exp(-0.025),
    ),
    "call spread": closed(
        1,
        1.0,
        lambda x: positive(x[0] - 90.0) - positive(x[0] - 110.0),
        lambda x: call(x[0], 90.0, 1.0) - call(x[0], 110.0, 1.0),
    ),
    "digital put": closed(1, 1.0, lambda x: jnp.where(x[0] < 95.0, 1.0, 0.0), digital),
    "exchange": closed(
        2,
        1.0,
        lambda x: positive(x[0] - x[1]),
        lambda x: known.margrabe(x, UNLIKE, 1.0),
        vols=UNLIKE,
    ),
    "sum of calls": closed(
        5,
        1.0,
        lambda x: jnp.sum(positive(x - 100.0)),
        lambda x: jnp.sum(call(x, 100.0, 1.0)),
    ),
    "up-and-out 115": barrier(115.0, "up-and-out"),
    "up-and-out 125": barrier(125.0, "up-and-out"),
    "up-and-out 140": barrier(140.0, "up-and-out"),
    "down-and-out 95": barrier(95.0, "down-and-out"),
    "Bermudan put": on_one_asset(
        lambda: Bermudan(European(105.0, 1.0, "put"), FIFTY)  # pyright: ignore
    ),
    "best of two, nine dates": best_of_two(np.arange(1, 10) / 3.0, 18),
    "best of three, nine dates": best_of_three(),
    "put under Heston at 9": heston_put(9.0),
    "put under Heston at 10": heston_put(10.0),
    "put under Heston at 11": heston_put(11.0),
    "best of two, at the end": best_of_two(np.array([1.0]), 20),
    "geometric call of 13": Case(lambda: problems.geometric_call(13), geometric_call),
    "spread at two rates": spread_at_two_rates(),
    "spread at two rates in 20": spread_at_two_rates(20),
    "call at two rates": Case(
        lambda: problems.different_rates_call(),
        lambda: known.of_function(
            lambda x: known.black_scholes(x[0], 100.0, 0.06, 0.2, 0.5), [100.0]
        ),
    ),
    "control in 20 dimensions": shifted_hjb(),
    "defaultable mean of 50": defaultable(),
    "quadratic in 100": quadratic(),
    "call and digitals on eight": call_and_digitals(8),
    "call and digitals on twenty": call_and_digitals(20),
    "vol of .2 %": posed(lognormal(100.0, 0.002, call_at_100), 0.0797884428, 0.5003989, 1.99471),
    "call of a day": posed(
        lognormal(100.0, 0.3, call_at_100, rate=0.02, maturity=1.0 / 365.0),
        0.6291676663,
        0.5045243,
        0.254043,
    ),
    "put at 45": posed(
        lognormal(100.0, 0.2, lambda x: positive(45.0 - x[0]), rate=0.02),
        6.2443192e-5,
        -1.3792514e-5,
        3.04089e-6,
    ),
    "digital on two": posed(
        lognormal(
            (100.0, 100.0),
            (0.2, 0.3),
            lambda x: jnp.where(jnp.min(x) > 100.0, 1.0, 0.0),
            rate=0.03,
            correlation=0.4,
        ),
        0.3055814901,
        (0.0090781917, 0.0068368094),
        (-2.812968e-4, 2.79699e-4, -1.315598e-4),
    ),
    "exchange of unlike spots": posed(
        lognormal(
            (1.0, 10000.0),
            (0.2, 0.3),
            lambda x: positive(10000.0 * x[0] - x[1]),
            correlation=0.5,
            num_steps=4,
        ),
        1052.4315781,
        (5526.2158, -0.44737842),
        (14947.24, -1.494724, 1.494724e-4),
    ),
    "put on the better of two": posed(
        put_on_the_better(),
        5.7467182,
        (-0.2885466, -0.1016807),
        (0.008976522, 0.00731029, -0.001110599),
    ),
    "coupled wave": posed(wave, 0.1200794822, 0.3965382, -0.0372182, amounts=0.6),
    "put under Heston at 90": posed(heston_put_in_the_money, 11.3210936, -0.6349964, 0.0445450),
    "payer under two factors": posed(
        payer_under_two_factors,  # by quadrature of steps of a year, without an error of time
        0.0165317,
        (1.15998, 0.38876),
        (74.425, 30.807, 13.649),
    ),
    "call of 250 dates": posed(
        lognormal(100.0, 0.25, call_at_100, rate=0.03, num_steps=250),
        11.3484768,
        0.5967718,
        0.0154859,
    ),
    "vol of .1 %, in the money": posed(
        lognormal(100.0, 0.001, call_at_100, rate=0.05), 4.8770575, 1.0, 0.0
    ),
    "floor below a mean": posed(
        floored,  # -.4 + E[max(.4 - E|w + Z / 2|, 0)] with w = W(.75), by quadrature: exercise only then
        -0.39997635,
        0.0,
        -3.1526e-5,
        amounts=1.0,
    ),
}
