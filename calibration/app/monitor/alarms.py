"""Check a run, alone and against the previous run, for values out of bounds."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .runs import Run, only_of

_CONVERGED = "Converged"
_NON_FINITE = "not finite"


@dataclass(frozen=True)
class Thresholds:
    """The bounds of a nightly run.

    Attributes:
        rms_vol_points: The root mean square of the residuals of a fit, in vol points.
        residual_vol_points: The largest residual of a fit, in vol points.
        relative_error: The standard error of a fitted parameter, as a fraction of it.
        condition_number: The condition number of a fit, above which parameters are poorly identified.
        std_error: The standard error of a trade's value, as a share of the book's gross value.
        non_finite: The number of trades with figures that are not finite.
        failed: The number of trades without figures.
        value_drift: The change of the book's value since yesterday, as a share of the gross value.
        trade_drift: The change of a trade's value since yesterday, as a share of the gross value.
        sensitivity_drift: The change of a sensitivity, as a share of the largest of its unit.
        rms_bp: The root mean square of the residuals of a fit to normal vols, in basis points.
        residual_bp: The largest residual of a fit to normal vols, in basis points.
    """

    rms_vol_points: float = 2.0
    residual_vol_points: float = 10.0
    relative_error: float = 1.0
    condition_number: float = 1e6
    std_error: float = 1e-3
    non_finite: int = 0
    failed: int = 0
    value_drift: float = 0.1
    trade_drift: float = 0.05
    sensitivity_drift: float = 0.5
    rms_bp: float = 10.0
    residual_bp: float = 50.0


@dataclass(frozen=True)
class Alarm:
    """A value out of bounds.

    Attributes:
        check: The name of a threshold, `complete`, `converged` or `finite`.
        place: A file, and the underlying, trade or quote in it.
        value: The value found; None if it is not a number.
        limit: The largest allowed value; None if the check has none.
        message: A description of the above.
    """

    check: str
    place: str
    value: float | int | None
    limit: float | int | None
    message: str


def alarms(today: Run, yesterday: Run | None, limits: Thresholds) -> list[Alarm]:
    """Return an alarm for each value of today's run that is out of bounds.

    Args:
        today: The run.
        yesterday: The previous run; without it, drift is not checked.
        limits: The bounds.
    """
    found = [*_of_files(today), *_of_fits(today, limits), *_of_trades(today, limits)]
    found += _of_sensitivities(today)
    if yesterday is not None:
        found += [*_of_values(today, yesterday, limits), *_of_quotes(today, yesterday, limits)]
    return found


def summary(today: Run, yesterday: Run | None) -> dict[str, Any]:
    """Return the numbers of a run for a dashboard."""
    found: dict[str, Any] = {
        "value": today.value,
        "gross_value": today.gross,
        "values": today.values,
        "gross_values": today.gross_values,
        "trades": len(today.trades),
        "failed": len(_failed(today)),
        "non_finite": len(_non_finite(today)),
        "fits": {
            name: {
                "result": fit.result,
                f"rms_{fit.unit.key}": fit.rms,
                "condition_number": fit.condition_number,
            }
            for name, fit in today.calibrations.items()
        },
    }
    if yesterday is not None:
        ids, ids_before = ({row["id"] for row in run.trades} for run in (today, yesterday))
        changes = _changes(today, yesterday)
        found |= {
            "value_yesterday": yesterday.value,
            "value_change": only_of(changes),
            "values_yesterday": yesterday.values,
            "value_changes": changes,
            "trades_new": len(ids - ids_before),
            "trades_gone": len(ids_before - ids),
            "quotes_new": len(today.sensitivities.keys() - yesterday.sensitivities.keys()),
            "quotes_gone": len(yesterday.sensitivities.keys() - today.sensitivities.keys()),
        }
    return found


def _changes(today: Run, yesterday: Run) -> dict[str, float]:
    both = yesterday.values | today.values
    return {name: today.values.get(name, 0.0) - yesterday.values.get(name, 0.0) for name in both}


def _above(check: str, place: str, value: float | None, limit: float, what: str) -> Iterator[Alarm]:
    """Yield an alarm if a number is above its limit, missing or not finite."""
    if value is None or not math.isfinite(value):
        yield Alarm(check, place, None, limit, f"{what} is not a finite number")
    elif not value <= limit:  # a limit may be NaN
        yield Alarm(check, place, value, limit, f"{what} is {value:.6g}, above {limit:g}")


def _of_files(run: Run) -> Iterator[Alarm]:
    for name in run.mismatched:
        message = "is not from the run of run.json: the run was cut short, or the file was changed"
        yield Alarm("complete", str(run.folder / name), None, None, f"{name} {message}")


def _of_fits(run: Run, limits: Thresholds) -> Iterator[Alarm]:
    for name, fit in run.calibrations.items():
        place = f"{run.folder / 'calibration.json'}: {name}"
        if not fit.result.startswith(_CONVERGED):
            yield Alarm("converged", place, None, None, f"the fit: {fit.result}")
        unit, words, scale = fit.unit
        what, limit = f"the root mean square residual in {words}", getattr(limits, f"rms_{unit}")
        yield from _above(f"rms_{unit}", place, fit.rms, limit, what)
        for quote, residual in fit.residuals.items():
            size = None if residual is None else scale * abs(residual)
            what = f"the residual of {quote} in {words}"
            at, limit = f"{place}: {quote}", getattr(limits, f"residual_{unit}")
            yield from _above(f"residual_{unit}", at, size, limit, what)
        number, what = fit.condition_number, "the condition number"
        yield from _above("condition_number", place, number, limits.condition_number, what)
        for parameter, error in fit.standard_errors.items():
            at, what = (
                f"{place}: {parameter}",
                f"the standard error of {parameter}, as a share of it,",
            )
            share = _share(error, fit.parameters.get(parameter))
            yield from _above("relative_error", at, share, limits.relative_error, what)


def _of_trades(run: Run, limits: Thresholds) -> Iterator[Alarm]:
    file = run.folder / "npv.csv"
    failed, non_finite, gross = _failed(run), _non_finite(run), run.gross_values
    for check, found, limit in (
        ("failed", failed, limits.failed),
        ("non_finite", non_finite, limits.non_finite),
    ):
        if len(found) > limit:
            name, status = found[0]["id"], found[0]["status"]
            message = f"{len(found):,} trades, above {limit:,}; the first is {name}: {status}"
            yield Alarm(check, f"{file}: {name}", len(found), limit, message)
    for row in run.trades:
        if row["status"] == "ok" and not _is_non_finite(row):
            name = row["id"]
            share = _share(row.get("std_error", 0.0), gross[row["currency"]])
            what = f"the standard error of {name}, as a share of the gross value,"
            yield from _above("std_error", f"{file}: {name}", share, limits.std_error, what)


def _of_sensitivities(run: Run) -> Iterator[Alarm]:
    for (quote, _), x in run.sensitivities.items():
        if not math.isfinite(x):
            place = f"{run.folder / 'sensitivity.csv'}: {quote}"
            message = f"the sensitivity to {quote} is not a finite number"
            yield Alarm("finite", place, None, None, message)


def _of_values(today: Run, yesterday: Run, limits: Thresholds) -> Iterator[Alarm]:
    file, changes, gross = today.folder / "npv.csv", _changes(today, yesterday), {}
    for currency, change in changes.items():
        both = (run.gross_values.get(currency, 0.0) for run in (today, yesterday))
        gross[currency] = max(both)
        of_part = f" in {currency}" if len(changes) > 1 else ""
        what = f"the change of the book's value{of_part}, as a share of the gross value,"
        share = _share(change, gross[currency])
        yield from _above("value_drift", f"{file}{of_part}", share, limits.value_drift, what)
    before = yesterday.valued
    for name, row in today.valued.items():
        if name not in before:
            continue
        currency, was = row["currency"], before[name]["currency"]
        if currency != was:
            message = (
                f"the value of {name} is in {currency or 'no currency'}, and was in {was or 'none'}"
            )
            yield Alarm("trade_drift", f"{file}: {name}", None, limits.trade_drift, message)
            continue
        share = _share(row["value"] - before[name]["value"], gross.get(currency, 0.0))
        what = f"the change of {name}, as a share of the gross value,"
        yield from _above("trade_drift", f"{file}: {name}", share, limits.trade_drift, what)


def _of_quotes(today: Run, yesterday: Run, limits: Thresholds) -> Iterator[Alarm]:
    largest: dict[str, float] = {}
    for run in (today, yesterday):
        for (_, unit), x in run.sensitivities.items():
            largest[unit] = max(largest.get(unit, 0.0), abs(x) if math.isfinite(x) else 0.0)
    file = today.folder / "sensitivity.csv"
    for (quote, unit), x in today.sensitivities.items():
        if (quote, unit) not in yesterday.sensitivities or not math.isfinite(x):
            continue
        share = _share(x - yesterday.sensitivities[quote, unit], largest[unit])
        what = f"the change of {quote}, as a share of the largest sensitivity in {unit},"
        yield from _above(
            "sensitivity_drift", f"{file}: {quote}", share, limits.sensitivity_drift, what
        )


def _failed(run: Run) -> list[Mapping[str, Any]]:
    return [row for row in run.trades if row["status"] != "ok"]


def _non_finite(run: Run) -> list[Mapping[str, Any]]:
    return list(filter(_is_non_finite, run.trades))


def _is_non_finite(row: Mapping[str, Any]) -> bool:
    """Return True if a trade has a figure that is not finite, or the run refused it for one."""
    numbers = (x for x in row.values() if isinstance(x, float))
    return _NON_FINITE in row["status"] or not all(map(math.isfinite, numbers))


def _share(part: float | None, whole: float | None) -> float | None:
    """Return |part / whole|; 0 if both are 0."""
    if part is None or whole is None:
        return None
    return abs(part / whole) if whole else (0.0 if part == 0.0 else math.inf)
