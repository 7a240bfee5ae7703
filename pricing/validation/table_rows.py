"""Conversion of a row of reference values to a contract, a model and a method."""

import inspect
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxtape.cli.check import Check

from .. import methods, models, products
from ..fields import Number
from ..market import (
    CapletVols,
    DeltaQuotes,
    Dividends,
    Equity,
    FxPair,
    Market,
    VolSurface,
    ZeroCurve,
)
from ..methods import AbstractMethod
from ..models import AbstractModel, BlackScholes, ForwardRates, LocalVol, WithDividends
from ..models.surface_models import of_surface
from ..products import AbstractProduct, Bermudan, European
from ..sampling import Sobol
from ..valuation import select_method


def bermudan(strike: Number, dates: Number, option: str = "call") -> Bermudan:
    """Return a Bermudan call or put that expires on the last of its dates."""
    payoff: Any = European(strike=strike, expiry=dates[-1], option=option)  # pyright: ignore
    return Bermudan(payoff_product=payoff, dates=dates)  # pyright: ignore[reportCallIssue]


def two_assets(
    spots: Number, rate: Number, vols: Number, correlation: Number, dividend_yields: Number = 0.0
) -> BlackScholes:
    """Return two lognormal assets."""
    matrix: Any = [[1.0, correlation], [correlation, 1.0]]
    yields: Any = np.broadcast_to(dividend_yields, spots.shape)
    assets: Any = BlackScholes
    return assets(spots, rate, vols, yields, asset_correlation=matrix)


def flat_local_vol(
    spot: Number, rate: Number, vol: Number, dividend_yield: Number = 0.0
) -> LocalVol:
    """Return the local volatility of a flat surface."""
    strikes: Any = [0.5 * spot, spot, 2.0 * spot]
    expiries: Any = [0.05, 2.0]
    vols: Any = np.full((2, 3), vol)
    surface = VolSurface(expiries, strikes, vols)
    local: Any = LocalVol
    return local(spot, rate, surface, dividend_yield)


def with_dividends(
    spot: Number,
    rate: Number,
    vol: Number,
    ex_dates: Number,
    cash: Number,
    dividend_yield: Number = 0.0,
    dynamics: str = "escrowed",
) -> WithDividends:
    """Return a lognormal asset that pays cash on some dates."""
    asset: Any = BlackScholes
    base = asset(spot, rate, vol, dividend_yield)
    paid: Any = Dividends(np.atleast_1d(ex_dates), np.atleast_1d(cash))
    return WithDividends(base, paid, dynamics)


def in_another_currency(
    kind: str,
    spot: Number,
    own_rate: Number,
    paid_rate: Number,
    vol: Number,
    fx_vol: Number,
    correlation: Number,
    dividend_yield: Number = 0.0,
    fx_spot: Number = 1.0,
) -> AbstractModel:
    """Return the model of a quanto or a compo on a market of flat curves and vols."""
    make: Any = Market
    surface: Any = VolSurface([1.0], [spot], [[vol]])  # pyright: ignore[reportArgumentType]
    equity: Any = Equity(spot, dividend_yield, surface, "own", "OWN")  # pyright: ignore
    quotes = DeltaQuotes([1.0], [fx_vol], [[0.0]], [[0.0]])  # pyright: ignore[reportArgumentType]
    pair = FxPair(fx_spot, "OWN", "PAY", "own", "paid", quotes)  # pyright: ignore
    rates = {"own": own_rate, "paid": paid_rate}
    market = make(
        {name: ZeroCurve([1.0], [rate]) for name, rate in rates.items()},  # pyright: ignore
        *({"S": equity}, None, date(2026, 1, 5)),
        correlations={("S", "OWNPAY"): jnp.asarray(correlation)},
        fx={"OWNPAY": pair},
    )
    return of_surface(market, f"S {kind} PAY")


def rates_on_a_smile(
    curve_times: Number,
    curve_rates: Number,
    forward_rates: Number,
    smile_strikes: Number,
    smile_vols: Number,
    shift: Number = 0.0,
    mean_reversion: Number = 0.0,
) -> ForwardRates:
    """Return forward rates with vols linear in strike, of a discount and a forward curve."""
    curve, smile, model = ZeroCurve, CapletVols, ForwardRates
    both: Any = [curve(curve_times, rates) for rates in (curve_rates, forward_rates)]
    vols: Any = smile([1.0], smile_strikes, [smile_vols], shift)  # pyright: ignore
    return model(both[0], vols, both[1], mean_reversion=mean_reversion)  # pyright: ignore


_PRODUCTS = {"Bermudan": bermudan}
_MODELS = {
    "BlackScholes of two assets": two_assets,
    "BlackScholes in another currency": in_another_currency,
    "BlackScholes with dividends": with_dividends,
    "ForwardRates on a smile": rates_on_a_smile,
    "LocalVol of a flat surface": flat_local_vol,
}
_METHODS = {
    "FiniteDifference on 240 x 80 x 128": lambda: methods.FiniteDifference(240, 80, 128),
    "MonteCarlo of 262144 Sobol points": lambda: methods.MonteCarlo(2**18, sampler=Sobol()),
}


Contract = tuple[AbstractProduct, AbstractModel, AbstractMethod]


def contract_of(check: Check, key: Any) -> Contract:
    """Return the product, the model and the method that a row describes.

    Args:
        check: A check whose source names a `product` and a `model`: names of classes of the library, or of
            functions of this module.
        key: The seed of random methods.

    Returns:
        The product in canonical form, the model, and the named method or else the best one that applies.

    Raises:
        ValueError: The row has a column that no argument uses, or a name is unknown.
    """
    settings, cells = check.source.settings, dict(check.cells)
    product = _made(_maker(settings, "product", _PRODUCTS, products), cells)
    model = _made(_maker(settings, "model", _MODELS, models), cells)
    if cells:
        raise ValueError(f"{check.source.name}: no argument is named {', '.join(sorted(cells))}")
    method = _method(check.method) if check.method else None
    return product.canonical, model, select_method(product, model, method, key=key)


def _maker(
    settings: Mapping[str, Any], kind: str, own: Mapping[str, Callable], package: Any
) -> Callable[..., Any]:
    name = settings.get(kind, "")
    found = own.get(name) or getattr(package, name, None)
    if found is None:
        raise ValueError(f"no {kind} is called {name!r}")
    return found


def _made(maker: Callable[..., Any], cells: dict[str, str]) -> Any:
    """Return the result of a maker, whose arguments are removed from `cells`."""
    arguments = inspect.signature(maker).parameters
    return maker(**{name: value_of(cells.pop(name)) for name in arguments if name in cells})


def value_of(text: str) -> Any:
    """Return the value of a cell.

    Args:
        text: A number; numbers separated by commas; `first:last:count` for equally spaced numbers; or a word.

    Returns:
        A number, an array, or the word.

    Examples:
        >>> value_of("0.5"), value_of("1,2").tolist(), value_of("0.5:1.5:3").tolist(), value_of("call")
        (0.5, [1.0, 2.0], [0.5, 1.0, 1.5], 'call')
    """
    try:
        if ":" in text:
            first, last, count = text.split(":")
            return np.linspace(float(first), float(last), int(count))
        if "," in text:
            return np.array([float(word) for word in text.split(",")])
        return float(text)
    except ValueError:
        return text


def _method(name: str) -> AbstractMethod:
    found = _METHODS.get(name) or getattr(methods, name, None)
    if found is None:
        raise ValueError(f"no method is called {name!r}")
    return found()
