"""`jaxtape monitor`: report values out of bounds in a nightly run, and drift since the previous run."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from jaxtape.cli.main import (
    output_file,
    path_of,
    refuse,
    write,
)

from .. import console
from ..fit_report import finite
from .alarms import Thresholds, alarms, summary
from .runs import FILES, read_run

_USUAL = Thresholds()


def _limit(default: float, what: str) -> Any:
    return typer.Option(min=0.0, help=what, show_default=f"{default:g}")


def monitor(
    run: Annotated[
        Path,
        typer.Argument(
            parser=path_of, metavar="RUN", help="The folder that jaxtape risk --out wrote."
        ),
    ],
    yesterday: Annotated[
        Path | None, console.path_option(help="The folder of the previous run.")
    ] = None,
    out: Annotated[
        Path | None, console.path_option(help="Write the JSON to this file as well as to stdout.")
    ] = None,
    max_rms: Annotated[
        float,
        _limit(_USUAL.rms_vol_points, "Largest root mean square residual of a fit, in vol points."),
    ] = _USUAL.rms_vol_points,
    max_residual: Annotated[
        float, _limit(_USUAL.residual_vol_points, "Largest residual of a quote, in vol points.")
    ] = _USUAL.residual_vol_points,
    max_relative_error: Annotated[
        float,
        _limit(
            _USUAL.relative_error,
            "Largest standard error of a parameter, as a fraction of the parameter.",
        ),
    ] = _USUAL.relative_error,
    max_condition: Annotated[
        float, _limit(_USUAL.condition_number, "Largest condition number of a fit.")
    ] = _USUAL.condition_number,
    max_std_error: Annotated[
        float,
        _limit(
            _USUAL.std_error, "Largest standard error of a trade, as a fraction of the gross value."
        ),
    ] = _USUAL.std_error,
    max_non_finite: Annotated[
        int, typer.Option(min=0, help="Largest number of trades with figures that are not finite.")
    ] = _USUAL.non_finite,
    max_failed: Annotated[
        int, typer.Option(min=0, help="Largest number of trades without figures.")
    ] = _USUAL.failed,
    max_value_drift: Annotated[
        float,
        _limit(_USUAL.value_drift, "Largest change of the book, as a fraction of the gross value."),
    ] = _USUAL.value_drift,
    max_trade_drift: Annotated[
        float,
        _limit(_USUAL.trade_drift, "Largest change of a trade, as a fraction of the gross value."),
    ] = _USUAL.trade_drift,
    max_sensitivity_drift: Annotated[
        float,
        _limit(
            _USUAL.sensitivity_drift,
            "Largest change of a sensitivity, as a fraction of the largest in its unit.",
        ),
    ] = _USUAL.sensitivity_drift,
    max_rms_bp: Annotated[
        float,
        _limit(_USUAL.rms_bp, "Largest root mean square residual of a fit to normal vols, in bp."),
    ] = _USUAL.rms_bp,
    max_residual_bp: Annotated[
        float, _limit(_USUAL.residual_bp, "Largest residual of a normal vol, in bp.")
    ] = _USUAL.residual_bp,
) -> None:
    """Check a run of jaxtape risk against bounds and against the previous run; print JSON.

    Exit status: 0; 1 if there is an alarm; 2 if a run cannot be read.
    """
    limits = Thresholds(
        *(max_rms, max_residual, max_relative_error, max_condition, max_std_error),
        *(max_non_finite, max_failed, max_value_drift, max_trade_drift, max_sensitivity_drift),
        *(max_rms_bp, max_residual_bp),
    )
    runs = [folder for folder in (run, yesterday) if folder is not None]
    inputs = [folder / name for folder in runs for name in FILES]
    files = None if out is None else output_file(out, inputs)
    try:
        today, before = read_run(run), None if yesterday is None else read_run(yesterday)
    except ValueError as error:
        refuse(str(error))
    found = alarms(today, before, limits)
    document = {
        "run": str(run),
        "yesterday": None if yesterday is None else str(yesterday),
        "limits": asdict(limits),
        "summary": summary(today, before),
        "alarms": [asdict(alarm) for alarm in found],
    }
    text = json.dumps(finite(document), indent=1, ensure_ascii=False, allow_nan=False)
    typer.echo(text)
    if out is not None and files is not None:
        write(files, {out.name: f"{text}\n"})
    console.exit_if([alarm.message for alarm in found])
