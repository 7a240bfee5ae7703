"""Read the files of a run of `jaxtape risk`."""

import csv
import functools
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, RootModel, model_validator

from jaxtape.output_folder import MANIFEST, mismatched_files, read_bytes
from pricing.market.vol_unit import BASIS_POINTS, VOL_POINTS, VolUnit

FILES = "npv.csv", "sensitivity.csv", "calibration.json", MANIFEST  # files of a run
_NOT_A_NUMBER = ("id", "type", "method", "status", "currency")


class Fit(BaseModel):
    """Entry of an underlying in `calibration.json`; a number that is not finite is None.

    Attributes:
        result: The reason why the fit stopped.
        parameters: Parameter -> number.
        standard_errors: Parameter -> its standard error.
        condition_number: The condition number of the scaled normal matrix.
        sum_squared_vol_points: The sum of squared residuals, in vol points; in runs of earlier versions also
            that of normal vols.
        sum_squared_bp: The sum of squared residuals of normal vols, in basis points.
        residuals: Quote id -> model less market, per 1.00 vol.
    """

    result: str
    parameters: dict[str, float | None]
    standard_errors: dict[str, float | None]
    condition_number: float | None
    sum_squared_vol_points: float | None = None
    sum_squared_bp: float | None = None
    residuals: dict[str, float | None]

    @model_validator(mode="after")
    def _require_squares(self) -> "Fit":
        if not self.model_fields_set & {"sum_squared_vol_points", "sum_squared_bp"}:
            raise ValueError("a fit has no sum_squared_vol_points or sum_squared_bp")
        return self

    @property
    def unit(self) -> VolUnit:
        """The unit of its residuals."""
        is_normal = any(quote.startswith("SWAPTION/RATE_NVOL/") for quote in self.residuals)
        return BASIS_POINTS if is_normal else VOL_POINTS

    @property
    def rms(self) -> float | None:
        """The root mean square of the residuals, in their unit."""
        in_bp = self.sum_squared_bp is not None
        squares = self.sum_squared_bp if in_bp else self.sum_squared_vol_points
        if squares is None or not self.residuals:
            return None
        given = BASIS_POINTS if in_bp else VOL_POINTS
        return math.sqrt(squares / len(self.residuals)) * self.unit.per_one / given.per_one


@dataclass(frozen=True)
class Run:
    """Output of a run.

    Attributes:
        folder: The folder of the run.
        mismatched: The files that do not belong to the run of the folder's `run.json`.
        trades: The rows of `npv.csv`, numbers as numbers; an id may occur twice.
        sensitivities: (quote id, unit, which names the currency) -> the column `scaled` of `sensitivity.csv`.
        calibrations: Underlying -> its entry in `calibration.json`.
    """

    folder: Path
    mismatched: tuple[str, ...]
    trades: Sequence[Mapping[str, Any]]
    sensitivities: Mapping[tuple[str, str], float]
    calibrations: Mapping[str, Fit]

    @property
    def valued(self) -> dict[str, Mapping[str, Any]]:
        """The rows of the trades that have figures, by id."""
        return {row["id"]: row for row in self.trades if row["status"] == "ok"}

    @functools.cached_property
    def values(self) -> dict[str, float]:
        """Currency -> the sum over its trades with a finite value."""
        return self._sums(lambda value: value)

    @functools.cached_property
    def gross_values(self) -> dict[str, float]:
        """Currency -> the sum of the absolute values of its trades."""
        return self._sums(abs)

    @property
    def value(self) -> float:
        """The sum over all trades with a finite value; NaN if they are in several currencies."""
        return only_of(self.values)

    @property
    def gross(self) -> float:
        """The sum of the absolute values of trades; NaN if they are in several currencies."""
        return only_of(self.gross_values)

    def _sums(self, part: Callable[[float], float]) -> dict[str, float]:
        found: dict[str, float] = {}
        for row in self.trades:
            if row["status"] == "ok" and math.isfinite(row["value"]):
                found[row["currency"]] = found.get(row["currency"], 0.0) + part(row["value"])
        return found


def only_of(sums: Mapping[str, float]) -> float:
    """Return the sum of a single currency, 0 if there is none, NaN if there are several."""
    return next(iter(sums.values()), 0.0) if len(sums) < 2 else math.nan


def read_run(folder: Path) -> Run:
    """Return the run in a folder.

    Raises:
        ValueError: If the folder lacks a file of a run, or one is not as a run writes it.
    """
    try:
        mismatched = tuple(mismatched_files(folder))
        trades = tuple(map(_numbers, _rows(folder / "npv.csv")))
        quotes = [(_text(row["quote_id"]), row) for row in _rows(folder / "sensitivity.csv")]
        content = read_bytes(folder / "calibration.json")
        calibrations = RootModel[dict[str, Fit]].model_validate_json(content).root
        sensitivities = {(quote, _text(row["unit"])): float(row["scaled"]) for quote, row in quotes}
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"{error.filename or folder}: cannot be read: {reason}"
        raise ValueError(f"{message}; give a folder that jaxtape risk --out has written") from None
    except (ValueError, KeyError, csv.Error) as error:
        message = f"{folder}: is not what jaxtape risk writes ({error!r})"
        raise ValueError(f"{message}; run it again (its {MANIFEST} names the command)") from None
    return Run(folder, mismatched, trades, sensitivities, calibrations)


def _rows(file: Path) -> list[dict[str, str]]:
    """Return the rows of a file, each with a cell for each column.

    Raises:
        ValueError: If the file has no header, or a row has too many or too few cells, such as one that was cut
            short.
    """
    stream = io.StringIO(read_bytes(file).decode("utf-8"), newline="")
    header, *rows = list(csv.reader(stream)) or [[]]
    if not header:
        raise ValueError(f"{file.name} has no header")
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise ValueError(f"{file.name}: row {number} has {len(row)} cells for {len(header)}")
    return [dict(zip(header, row, strict=True)) for row in rows]


def _text(cell: str) -> str:
    """Return the text of a cell, without the apostrophe that keeps spreadsheets from evaluating it."""
    return cell.removeprefix("'")


def _numbers(row: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {name: _text(row[name]) for name in _NOT_A_NUMBER}
    found |= {name: float(cell) for name, cell in row.items() if name not in found and cell}
    if found["status"] == "ok" and "value" not in found:
        raise ValueError(f"npv.csv: {found['id']} has no value")
    return found
