"""Monte Carlo Greeks compared with exact values and with the usual estimators.

Run `python -m benchmarks.estimators [--paths 100000] [--slope-paths 65536] [--repeat 3] [--contracts 5] [--out
FILE]`: values and Gammas at equal numbers of paths, then the derivatives of a Heston call with respect to its
parameters, with `slope-paths` paths. References are closed forms, Fourier integrals, and quadrature for
barriers on dates. Seconds are those of one value and Gamma.
"""

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from rich.table import Table

from pricing import (
    Barrier,
    BlackScholes,
    Digital,
    European,
    Fourier,
    Heston,
    MonteCarlo,
    Quadrature,
    greeks,
    price,
)

from . import naive
from .command import Run, parser_of, table_of
from .timing import interleaved

BLOCK, EULER_BLOCK = 5000, 4096
STEPS = 50  # in naive paths, and in the variance
HESTON = {  # violates Feller's condition
    "initial_variance": 0.04,
    "mean_reversion": 1.5,
    "long_run_variance": 0.04,
    "vol_of_vol": 0.5,
    "correlation": -0.7,
}

Ladder = Callable[[Array], tuple[Array, Array]]  # key -> samples of the value and of Gamma


@dataclass(frozen=True)
class Contract:
    """A contract on a spot of 100; `payoff` is for naive paths, `ours` our names with and without a control."""

    name: str
    product: European | Digital | Barrier
    model: BlackScholes | Heston
    payoff: Callable[[Array], Array]
    ours: dict[str, bool]

    @property
    def times(self) -> Array:
        """Return the times of a naive path: the contract's dates, or equal steps."""
        expiry = self.product.expiry
        return expiry * jnp.arange(1.0, STEPS + 1) / STEPS

    @functools.cached_property
    def answer(self) -> tuple[float, float]:
        """Return value and Gamma."""
        method = Quadrature() if isinstance(self.product, Barrier) else None
        found = greeks(self.product, self.model, method)
        return float(found.value), float(found.gamma)

    def ways(self, paths: int) -> dict[str, Ladder]:
        """Return every estimator, the library's last."""
        usual = {
            "pathwise, twice": naive.twice_pathwise,
            "differences of 1.00, same noise": functools.partial(naive.differences, bump=1.0),
            "differences of 0.01, same noise": functools.partial(naive.differences, bump=0.01),
            "likelihood ratio, first step": naive.likelihood_ratio,
            "pathwise, then likelihood ratio": naive.pathwise_then_likelihood_ratio,
        }
        found = {name: self._naive(gamma, paths) for name, gamma in usual.items()}
        for name, control in self.ours.items():
            found[name] = self._ours(MonteCarlo(paths, STEPS, BLOCK, control_variate=control))
        return found

    def _naive(self, gamma: Callable[..., Array], paths: int) -> Ladder:
        times, by_score = self.times, gamma is naive.pathwise_then_likelihood_ratio
        at_once = by_score and not isinstance(self.product, Barrier)
        discounted = lambda spots: self.model.discount(times[-1]) * self.payoff(spots)

        @jax.jit
        def ladder(key):
            def of_block(key):
                drawn = naive.Paths.draw(self.model, times, key, BLOCK, at_once)
                value = discounted(self.model.spot * drawn.growth)
                return value, gamma(discounted, drawn, self.model.spot)

            samples = jax.lax.map(of_block, jax.random.split(key, -(-paths // BLOCK)))
            return jax.tree.map(jnp.ravel, samples)

        return ladder

    def _ours(self, method: MonteCarlo) -> Ladder:
        @jax.jit
        def ladder(key):
            at = lambda s: self.model.shifted(underlying=s)
            value = lambda s: method.samples(self.product, at(s), key=key)
            first = lambda s: jax.jvp(value, (s,), (jnp.ones_like(s),))
            (samples, _), (_, gamma) = jax.jvp(first, (jnp.zeros(()),), (jnp.ones(()),))
            return samples, gamma

        return ladder


def call(spots: Array) -> Array:
    return jnp.maximum(spots[-1] - 100.0, 0.0)


def digital(spots: Array) -> Array:
    return jnp.where(spots[-1] > 100.0, 1.0, 0.0)


def knock_out(barrier: float) -> Callable[[Array], Array]:
    return lambda spots: jnp.where(jnp.all(spots > barrier, axis=0), call(spots), 0.0)


def contracts() -> list[Contract]:
    equity, volatile = BlackScholes(100.0, 0.05, 0.2), BlackScholes(100.0, 0.1, 0.3)
    stochastic = Heston(100.0, 0.02, **HESTON)
    dates = 0.2 * np.arange(1, STEPS + 1) / STEPS
    last = {"last quarter integrated, half by score": True}
    survival = {"one-step survival": False, "one-step survival, of a fit's residual": True}
    given = {"given the variance path": False, "given the variance path, hedged": True}
    return [
        Contract("call", European(100.0, 1.0), equity, call, last),
        Contract("cash digital", Digital(100.0, 1.0), equity, digital, last),
        *(
            Contract(
                f"call, out below {level:g} on 50 dates",
                Barrier(100.0, 0.2, level, dates=dates),
                volatile,
                knock_out(level),
                survival,
            )
            for level in (90.0, 95.0)
        ),
        Contract("call under Heston", European(100.0, 1.0), stochastic, call, given),
    ]


@dataclass(frozen=True)
class Row:
    """One estimator of one contract: figures with standard errors, and their exact values."""

    contract: str
    estimator: str
    value: float
    value_error: float
    gamma: float
    gamma_error: float
    answer: tuple[float, float]
    seconds: float

    @property
    def cells(self) -> tuple[str, ...]:
        value, gamma = self.answer
        relative = self.gamma_error / abs(gamma)
        return (
            self.estimator,
            f"{self.value:.6f}",
            _deviations(self.value - value, self.value_error),
            f"{self.gamma:.6g}",
            f"{self.gamma_error:.1e}",
            f"{100.0 * relative:.2g} %",
            _deviations(self.gamma - gamma, self.gamma_error),
            f"{self.seconds:.2f}",
        )


def _deviations(bias: float, error: float) -> str:
    if error > 0.0:
        return f"{bias / error:+.1f}"
    return "0" if bias == 0.0 else "always wrong"


def mean_and_error(samples: Array) -> tuple[float, float]:
    found = np.asarray(samples)
    return float(found.mean()), float(found.std(ddof=1) / np.sqrt(found.size))


def gamma_rows(contract: Contract, paths: int, repeat: int) -> list[Row]:
    key = jax.random.key(2024)
    ways = {name: functools.partial(ladder, key) for name, ladder in contract.ways(paths).items()}
    results, timings = interleaved(ways, repeat)
    return [
        Row(
            contract.name,
            name,
            *mean_and_error(value),
            *mean_and_error(gamma),
            contract.answer,
            timings[name].best,
        )
        for name, (value, gamma) in results.items()
    ]


def gamma_table(contract: Contract, rows: list[Row]) -> Table:
    value, gamma = contract.answer
    title = f"{contract.name}: value {value:.6f}, Gamma {gamma:.6g}"
    columns = ("value", "off / error", "Gamma", "std. error", "relative", "off / error", "s")
    table = table_of(title, "estimator", *columns)
    for row in rows:
        table.add_row(*row.cells)
    return table


# --- the derivatives of a Heston call to its parameters
# -------------------------------------------------


def parameter_rows(paths: int) -> dict[str, dict[str, tuple[float, float]]]:
    """Return, for each way, the mean and standard error of the derivative with respect to each parameter."""
    at = jnp.asarray(list(HESTON.values()))
    key, call = jax.random.key(7), European(100.0, 1.0)

    def model(parameters: Array) -> Heston:
        return Heston(100.0, 0.02, *parameters)

    exact = jax.grad(lambda x: price(call, model(x), Fourier(), throw=False).value)(at)

    def along_paths(samples: Callable[[Array], Array]) -> list[tuple[float, float]]:
        slope = jax.jit(lambda d: jax.jvp(samples, (at,), (d,))[1])
        return [mean_and_error(slope(direction)) for direction in jnp.eye(at.size)]

    def euler(parameters: Array) -> Array:
        def of_block(key):
            normals = jax.random.normal(key, (2, 64, EULER_BLOCK))
            return naive.full_truncation_euler(parameters, normals, strike=100.0, rate=0.02)

        return jax.lax.map(of_block, jax.random.split(key, -(-paths // EULER_BLOCK))).ravel()

    def ours(control: bool) -> Callable[[Array], Array]:
        method = MonteCarlo(paths, 32, control_variate=control)
        return lambda x: method.samples(call, model(x), key=key)

    columns = {
        "Fourier": [(float(x), 0.0) for x in exact],
        "full-truncation Euler": along_paths(euler),
        "given the variance path": along_paths(ours(False)),
        "given the variance path, hedged": along_paths(ours(True)),
    }
    return {name: dict(zip(HESTON, found, strict=True)) for name, found in columns.items()}


def parameter_table(rows: dict[str, dict[str, tuple[float, float]]], paths: int) -> Table:
    title = f"call under Heston: derivatives along {paths:,} paths, (off / error), relative error"
    table = table_of(title, "way", *HESTON)
    for way, found in rows.items():
        cells = []
        for name, (mean, error) in found.items():
            cell, answer = f"{mean:.5g}", rows["Fourier"][name][0]
            if error > 0.0:
                relative = 100.0 * error / abs(answer)
                cell += f" ± {error:.2g} ({(mean - answer) / error:+.1f}) {relative:.2g} %"
            cells.append(cell)
        table.add_row(way, *cells)
    return table


def parser() -> argparse.ArgumentParser:
    return parser_of(__doc__, paths=100_000, slope_paths=65536, repeat=3, contracts=5)


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("estimators", parser(), argv, width=160)
    options, rows, relative = run.options, [], []
    for contract in contracts()[: options.contracts]:
        found = gamma_rows(contract, options.paths, options.repeat)
        run.console.print(gamma_table(contract, found))
        rows += found
        relative.append(abs(found[-1].gamma_error / contract.answer[1]))
    for row in rows:
        known = row.answer[1]
        figure = f"{row.contract}, Gamma, {row.estimator}"
        run.answer(figure, row.gamma / known - 1.0, known, row.gamma, row.gamma_error)
    parameters = parameter_rows(options.slope_paths)
    run.console.print(parameter_table(parameters, options.slope_paths))
    headline = f"relative errors of Gamma {min(relative):.2%} to {max(relative):.2%}"
    run.keep({"gammas": [asdict(row) for row in rows], "parameters": parameters}, headline)
    return 0


if __name__ == "__main__":
    sys.exit(main())
