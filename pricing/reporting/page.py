"""The self-contained HTML pages of fits, a book's risk and P&L explanations."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from jaxtape.cli.escaping import escaped
from jaxtape.cli.html import render

from ..market import CurveQuotes, Market
from ..portfolio.book import Book
from ..portfolio.book_risk import RiskResult
from ..portfolio.explanation import Explanation
from . import charts, explanations, ladders, tables
from .formats import counted, day, decimals_for, number, plain, significant
from .positions import Position, by_currency, positions_of
from .quotes import QuoteRisk, quote_risks
from .stress import Stress
from .surface_fit import ManyFits, SurfaceFit

_FX_QUOTES = {
    1: ("ATM", "25 RR", "25 BF"),
    2: ("ATM", "25 RR", "10 RR", "25 BF", "10 BF"),
}
"""Number of deltas of FX quotes -> the headings of the quotes."""
_LARGEST, _LARGEST_RISKS, _TOP_QUOTES, _MAX_FAILED = 100, 5, 15, 500


def fit_section(fit: SurfaceFit) -> dict[str, Any]:
    """Return the charts and tables of one fit."""
    residuals = fit.unit.per_one * fit.residuals
    return {
        "fit": fit,
        "parameters": tables.parameters(fit),
        "facts": tables.facts({**fit.facts, "why it stopped": fit.result}, ("Fit", "Outcome")),
        "smiles": charts.smiles(fit),
        "residuals": tables.heat_map(fit.rows, map(plain, fit.strikes), residuals, sums=False),
    }


def risk_page(
    result: RiskResult,
    book: Book,
    market: Market,
    fits: Sequence[SurfaceFit],
    seconds: Mapping[str, float],
    stress: Stress | None = None,
) -> str:
    """Return the page of a book; see `write_report`."""
    sections = [fit_section(fit) for fit in fits]
    positions = positions_of(result, book, market)
    exposures = tables.by_currency(positions, result) if result.is_converted else None
    if result.is_converted:
        positions = [p.converted(result.currency, result.fx_rates) for p in positions]
    risks = quote_risks(result, market)
    parts = by_currency(positions, market)
    named = stress if stress and stress.currencies else None
    names = dict.fromkeys(name for p in positions if p.figures for name in p.trade.underlyings)
    failed = sum(not p.figures and not p.is_over for p in positions)
    context = {
        "heading": f"Risk of {counted(len(positions), 'trade')} on {', '.join(names) or 'nothing'}",
        "sources": (
            *dict.fromkeys(each["fit"].model for each in sections),
            escaped(Path(book.file).name),
        ),
        "exposures": exposures,
        "parts": [
            _part(
                currency,
                own,
                [risk for risk in risks if len(parts) == 1 or risk.currency == currency],
                market,
                named and named.of(currency),
            )
            for currency, own in parts.items()
        ],
        "failed_count": number(failed),
        "trade_count": number(len(positions)),
        "failed": tables.failed(positions, _MAX_FAILED),
        "market_errors": [str(error) for error in result.errors if error.file != book.file],
        "notes": [note[:1].upper() + note[1:] for note in result.notes],
    }
    return _page(market, sections, seconds, context)


def _part(
    currency: str,
    positions: Sequence[Position],
    risks: Sequence[QuoteRisk],
    market: Market,
    stress: Stress | None,
) -> dict[str, Any]:
    """Return the part of the page for the positions in one currency."""
    by_quote = {risk.quote_id: risk for risk in risks}
    valued = [position for position in positions if position.figures]
    names = dict.fromkeys(
        name for p in valued if not p.trade.in_rates for name in p.trade.underlyings
    )
    parts = dict.fromkeys(part for name in names for part in market.parts_of(name))
    in_rates = [p.trade for p in valued if p.trade.in_rates]
    curves = list(dict.fromkeys(trade.underlying for trade in in_rates))
    all_curves = dict.fromkeys(name for trade in in_rates for name in trade.underlyings)
    value, *greeks = _tiles(positions, currency)
    return {
        "currency": currency or "a currency that the market does not name",
        "tiles": [value, *(stress.tiles(currency) if stress else []), *greeks],
        "stress": _stress(stress, currency) if stress else None,
        "spot_risk": [_spot_risk(name, valued, market) for name in names],
        "vol_risk": [
            *(_vol_risk(name, by_quote, market, currency) for name in parts),
            *(_swaption_risk(by_quote, market) for _ in curves[:1] if market.swaption_vols),
            *(_cap_risk(name, by_quote, market) for name in all_curves if name in market.cap_vols),
        ],
        "rate_risk": _rate_risk([*names, *parts], all_curves, by_quote, market),
        "curve_risk": [_curve_risk(name, valued, market) for name in curves],
        "groups": {
            "underlying": tables.by_underlying(positions),
            "product": tables.by_product(positions),
            "expiry": tables.by_expiry(positions, market.asof),
        },
        "largest_risks": tables.largest_risks(positions, _LARGEST_RISKS),
        "largest": tables.largest(positions, _LARGEST),
        "top_quotes": tables.top_quotes(risks, _TOP_QUOTES),
    }


def write_fit_report(
    path: Path, market: Market, fits: Sequence[dict[str, Any]], seconds: Mapping[str, float]
) -> None:
    """Write the page of a calibration."""
    names = ", ".join(each["fit"].underlying for each in fits)
    context = {
        "heading": f"{fits[0]['fit'].model} on {names}",
        "sources": (),
        "tiles": (),
        "market_errors": [str(error) for error in market.errors],
    }
    path.write_text(_page(market, fits, seconds, context), encoding="utf-8")


def write_explanation(
    path: Path,
    found: Mapping[str, Explanation],
    after: Market,
    book: Book,
    reasons: Mapping[int, str],
    seconds: Mapping[str, float],
    total: tuple[str, Explanation] | None = None,
) -> None:
    """Write the page that explains the change of a book's value.

    `found`: explanations by currency; `after`: the later market; `reasons`: index of an excluded row -> reason;
    `total`: the explanation of all currencies in one.
    """
    shown = [(currency, currency, explanation) for currency, explanation in found.items()]
    if total is not None:
        shown.insert(0, (f"{total[0]}, all trades", *total))
    names = dict.fromkeys(
        name
        for place, row in enumerate(book.rows)
        if row.trade and place not in reasons
        for name in row.trade.underlyings
    )
    rows = [(book.rows[place], why) for place, why in reasons.items()]
    failed = tuple((str(row.line), row.id, row.type, why) for row, why in rows)
    headers = ("Line", "Trade", "Product", "Reason")
    left_out = max(0, len(failed) - _MAX_FAILED)
    count = sum(explanation.trades for explanation in found.values())
    context = {
        "heading": f"P&L of {counted(count, 'trade')} on {', '.join(names) or 'nothing'}",
        "sources": (escaped(Path(book.file).name),),
        "explanations": [
            {
                "since": day(explanation.asof),
                "tiles": explanations.tiles(explanation, currency),
                "parts": explanations.parts(explanation, currency),
                "picture": explanations.picture(explanation, currency),
                "steps": explanations.steps(explanation, currency),
                "quotes": explanations.quotes(explanation, currency, _TOP_QUOTES),
                "payments": explanations.payments(explanation, currency),
                "currency": name or "a currency that the market does not name",
                "has_trades": explanation.trades > 0,
            }
            for name, currency, explanation in shown
        ],
        "failed_count": number(len(failed)),
        "trade_count": number(len(book.rows)),
        "failed": tables.TextTable(headers, failed[:_MAX_FAILED], words=4, left_out=left_out),
        "market_errors": [str(error) for error in after.errors],
    }
    path.write_text(_page(after, (), seconds, context), encoding="utf-8")


def write_many_fits_report(path: Path, fits: ManyFits, seconds: Mapping[str, float]) -> None:
    """Write the page of many calibrations: distributions of the parameters, and failed fits."""
    count, failed = len(next(iter(fits.rms.values()))), len(fits.failed)
    context = {
        "heading": f"{fits.model} on {counted(count, 'surface')}",
        "sources": (escaped(fits.source),),
        "tiles": [
            ("Surfaces", number(count), "read", ""),
            ("Fitted", number(count - failed), "surfaces", ""),
            ("Failed", number(failed), "surfaces", ""),
            *(
                ("Residuals, median", _median(rms), f"{unit.words}, rms", "")
                for unit, rms in fits.rms.items()
            ),
        ],
        "market_errors": (),
        "many": {
            "histograms": charts.histograms(fits),
            "quantiles": tables.quantiles(fits),
            "facts": tables.facts(fits.facts, ("Run", "")),
            "failed": tables.unfitted(fits, _MAX_FAILED),
        },
    }
    path.write_text(_page(None, (), seconds, context), encoding="utf-8")


def _median(values: np.ndarray) -> str:
    known = values[np.isfinite(values)]
    return significant(float(np.median(known)), 3) if known.size else "\N{EN DASH}"


def _page(market: Market | None, fits, seconds, context: dict[str, Any]) -> str:
    times = {stage: f"{significant(length, 2)} s" for stage, length in seconds.items()}
    return render(
        "pricing.reporting",
        "report.html",
        asof=f"{market.asof.day} {market.asof:%B %Y}" if market else "",
        fits=fits,
        timings=tables.facts(times, ("Stage", "Time")),
        has_risk="parts" in context,
        **{
            "exposures": None,
            "many": None,
            "explanations": None,
            "parts": (),
            "tiles": (),
            "notes": (),
            **context,
        },
    )


def _tiles(positions: Sequence[Position], currency: str) -> list[tuple[str, str, str, str]]:
    """Return the label, number, unit and standard error of each total at the top of the page.

    The standard error assumes fully correlated errors of the trades, and is therefore an upper bound.
    """
    sums = {figure: tables.total(positions, figure) for figure in tables.figures_of(positions)}
    tiles = []
    for figure, figure_sum in sums.items():
        shown = tables.FIGURES[figure]
        unit = f"{currency} per {shown.shift}" if shown.shift else currency
        unit += _without(figure, positions)
        text = tables.rounded(figure_sum, min(4, decimals_for([figure_sum])))
        error = sum(position.errors.get(figure, 0.0) for position in positions)
        tiles.append((shown.label, text, unit, tables.margin(error)))
    return tiles


def _without(figure: str, positions: Iterable[Position]) -> str:
    """Return the number of trades in a total, in words, if other trades lack the figure."""
    whom = {"equities": (False,), "rates": (True,)}.get(tables.FIGURES[figure].of, (False, True))
    of = [p for p in positions if p.figures and p.trade.in_rates in whom]
    have = sum(figure in position.figures for position in of)
    return f", {number(have)} of {counted(len(of), 'trade')}" if 0 < have < len(of) else ""


def _stress(stress: Stress, currency: str) -> dict[str, Any]:
    return {
        "grids": stress.grids(),
        "ladders": stress.ladders(currency),
        "named": stress.named(),
        "movers": stress.movers(),
        "unvalued": stress.unvalued(),
        "errors": [str(error) for error in stress.scenarios.errors],
        "file": escaped(Path(stress.scenarios.file).name),
        "worst": stress.title(stress.ordered[0]) if stress.ordered else "",
    }


def _spot_risk(name: str, valued: Iterable[Position], market: Market) -> dict[str, Any]:
    """Return Delta and Gamma of one underlying, by strike and by expiry."""
    asset = market.asset(name)
    on_equities = (position for position in valued if not position.trade.in_rates)
    own = [position.on(name) for position in on_equities if name in position.trade.underlyings]
    struck = [position for position in own if position.trade.level is not None]
    pillars = market.dates(asset.surface.expiries)
    unit = f"{own[0].currency or 'currency'} per 1 % of spot"
    titles = _titles(own, {"delta_1pct": f"Delta, {unit}", "gamma_1pct": f"Gamma, {unit}"})
    by_strike = [
        (f"{titles[f]}, by strike", ladders.by_strike(struck, f)) for f in titles if struck
    ]
    return {
        "name": name,
        "spot": plain(float(asset.spot)),
        "by_strike": charts.ladders(by_strike, float(asset.spot)) if by_strike else "",
        "by_expiry": _by_expiry(own, titles, pillars),
        "has_baskets": len(struck) < len(own),
    }


def _curve_risk(name: str, valued: Iterable[Position], market: Market) -> dict[str, Any]:
    """Return Delta and Gamma of the trades on one curve to its zero-rate level, by expiry."""
    in_rates = (position for position in valued if position.trade.in_rates)
    own = [position for position in in_rates if position.trade.underlying == name]
    last = max(position.trade.expiry for position in own)
    years = range(1, (last - market.asof).days // 365 + 2)
    pillars = [market.asof + timedelta(365 * count) for count in years]
    unit = f"{own[0].currency or 'currency'} per 1 bp"
    titles = _titles(own, {"delta_1bp": f"Delta, {unit}", "gamma_1bp": f"Gamma, {unit}"})
    return {"name": name, "by_expiry": _by_expiry(own, titles, pillars)}


def _titles(own: Sequence[Position], titles: Mapping[str, str]) -> dict[str, str]:
    return {f: title for f, title in titles.items() if any(f in p.figures for p in own)}


def _by_expiry(own: Iterable[Position], titles: Mapping[str, str], pillars: Iterable[date]) -> str:
    found = {title: ladders.by_expiry(own, figure, pillars) for figure, title in titles.items()}
    titled = [(f"{title}, by expiry", ladder) for title, ladder in found.items()]
    return charts.ladders(titled) if titled else ""


def _vol_risk(
    name: str, risks: Mapping[str, QuoteRisk], market: Market, currency: str
) -> dict[str, Any]:
    """Return the P&L of one vol point of each quote, by expiry and strike (or kind of FX quote)."""
    if name in market.fx:
        quotes: Any = market.fx[name].vols
        ids: Any = market.quote_ids().fx[name].vols
        ids = np.column_stack([ids.at_the_money, ids.risk_reversals, ids.butterflies])
        expiries, columns = quotes.expiries, _FX_QUOTES[quotes.butterflies.shape[1]]
    else:
        surface: Any = market.equities[name].surface
        ids = surface.by_strike(market.quote_ids().equities[name].surface.vols, missing="")
        expiries, columns = surface.expiries, map(plain, surface.all_strikes)
    rows, values = map(day, market.dates(expiries)), ladders.by_pillar(risks, ids)
    return {
        "name": name,
        "unit": f"{currency or 'currency'} per vol point",
        "map": tables.heat_map(rows, columns, values, sums=name not in market.fx),
    }


def _swaption_risk(risks: Mapping[str, QuoteRisk], market: Market) -> dict[str, Any]:
    """Return the P&L of a shift of each quoted swaption vol, by expiry and tenor."""
    vols: Any = market.swaption_vols
    ids: Any = market.quote_ids().swaption_vols
    values = ladders.by_pillar(risks, ids.vols)
    expiries, tenors = (
        [f"{plain(x)}Y" for x in axis.tolist()] for axis in (vols.expiries, vols.tenors)
    )
    return {
        "name": "swaptions",
        "unit": next((risks[quote].unit for quote in ids.vols.flat if quote in risks), ""),
        "map": tables.heat_map(expiries, tenors, values, sums=True),
    }


def _cap_risk(name: str, risks: Mapping[str, QuoteRisk], market: Market) -> dict[str, Any]:
    """Return the P&L of a shift of each cap quote on a curve, by last fixing and strike."""
    quotes: Any = market.cap_vols[name]
    ids: Any = market.quote_ids().cap_vols[name]
    rows = map(day, market.dates(quotes.times))
    columns = [f"{100.0 * x:g} %" for x in quotes.strikes.tolist()]
    return {
        "name": f"caps on {name}, by their last fixing",
        "unit": next((risks[quote].unit for quote in ids.quotes.flat if quote in risks), ""),
        "map": tables.heat_map(rows, columns, ladders.by_pillar(risks, ids.quotes), sums=True),
    }


def _rate_risk(
    equities: Iterable[str], curves: Iterable[str], risks: Mapping[str, QuoteRisk], market: Market
) -> str:
    """Return the P&L of one basis point of each quote, for each curve in use."""
    ids, titled = market.quote_ids(), []
    of_pairs = (market.fx[name] for name in equities if name in market.fx)
    foreign = (pair.foreign_curve for pair in of_pairs)
    used = (*(market.curve_of(name) for name in equities), *foreign, *curves)
    for name in dict.fromkeys(used):
        dates = market.dates(market.curves[name].times)
        totals = ladders.by_pillar(risks, np.concatenate(ids.curves[name].quotes))
        ladder = ladders.Ladder(totals, labels=tuple(map(day, dates)))
        is_bootstrapped = isinstance(market.curves[name], CurveQuotes)
        of_quotes = "quotes, value per 1 bp (of futures: per 0.01 of price)"
        what = of_quotes if is_bootstrapped else "zero rates, value per 1 bp"
        titled.append((f"{name} {what}", ladder))
    return charts.ladders(titled) if titled else ""
