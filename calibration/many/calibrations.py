"""Results of many calibrations, stored as columns."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxtape.object_store import arrow, local_copy, place_of
from pricing.market.vol_unit import BASIS_POINTS, VOL_POINTS, VolUnit, vol_unit

from ..parameters import FreeParameters
from ..results import RESULTS
from .job import Job
from .searches import SearchResult

_ERROR = "std_error_"
_SHARD = "jaxtape"  # a key in a file's metadata
_OPEN = "not identified: "
_SQUARES = "sum_squared_"
_UNITS = VOL_POINTS, BASIS_POINTS
_SIDES = "num_bid_ask", "num_within_bid_ask"
_BP_SQUARED = (BASIS_POINTS.per_one / VOL_POINTS.per_one) ** 2


class ShardPlace(NamedTuple):
    """The place of a shard within the run.

    Attributes:
        positions: The index of each job among all jobs of the run, from 0.
        num_jobs: The number of jobs of all shards.
        run: Digest of all jobs, of the settings and of the versions of the software.
    """

    positions: np.ndarray
    num_jobs: int
    run: str


@dataclass(frozen=True)
class Calibrations:
    """Results of `calibrate_many`, as columns with one entry per job, in the order of the jobs.

    Attributes:
        ids: The names of the jobs.
        parameters: Field -> the fitted parameters; NaN if the job failed. If the quotes do not identify them, a
            weak prior holds them.
        std_errors: Field -> the standard errors of the parameters, from the residuals and their Jacobian.
        sum_squared_vol_points: The sum over the quotes of (100 residual)^2; NaN if the job failed. In
            `columns`, that of normal vols is `sum_squared_bp`, the sum of (10,000 residual)^2.
        num_quotes: The number of quotes used.
        steps: The number of steps of each search; NaN if there was none.
        status: "ok", or "not identified: " or "failed: " and the reason.
        is_normal: Whether the vols are normal; None if none are.
        num_bid_ask: The number of quotes used that have a bid and an ask; None if no job has any.
        num_within_bid_ask: The number of those for which the fitted vol lies within bid and ask; NaN if the job
            failed.
        shard: The place of a shard within the run, which adds the column `position` to `columns`; None without
            shards.
    """

    ids: tuple[str, ...]
    parameters: dict[str, np.ndarray]
    std_errors: dict[str, np.ndarray]
    sum_squared_vol_points: np.ndarray
    num_quotes: np.ndarray
    steps: np.ndarray
    status: tuple[str, ...]
    is_normal: np.ndarray | None = None
    num_bid_ask: np.ndarray | None = None
    num_within_bid_ask: np.ndarray | None = None
    shard: ShardPlace | None = None

    @classmethod
    def of(
        cls,
        jobs: Sequence[Job],
        refused: Mapping[int, str],
        places: np.ndarray,
        ends: SearchResult,
        parameters: FreeParameters,
    ) -> "Calibrations":
        """Return the results of jobs, including refused ones, in the order of the jobs."""
        (codes,) = jax.tree.leaves(ends.result)
        item = lambda code: jax.tree.map(lambda _: np.asarray(code), RESULTS.converged)
        words = {code: RESULTS[item(code)] for code in np.unique(codes)}
        is_code = lambda result: codes == jax.tree.leaves(result)[0]
        is_open = is_code(RESULTS.not_identified)
        good = is_code(RESULTS.converged) | is_open
        status = np.full(len(jobs), "ok", object)
        status[places[~good]] = [f"failed: {words[code]}" for code in codes[~good]]
        status[places[is_open]] = [words[code].replace("N", "n", 1) for code in codes[is_open]]
        for place, why in refused.items():
            status[place] = f"failed: {why}"

        def column(values: Any, is_known: np.ndarray | bool = good) -> np.ndarray:
            found = np.full(len(jobs), np.nan)
            found[places] = np.where(is_known, values, np.nan)
            return found

        def table(values: Any) -> dict[str, np.ndarray]:
            return dict(zip(parameters.names, map(column, values.T), strict=True))

        two_sided = np.array([job.num_bid_ask for job in jobs], int)
        of_sides = (two_sided, column(ends.num_within)) if np.any(two_sided) else (None, None)
        return cls(
            tuple(job.id for job in jobs),
            table(ends.parameters),
            table(ends.std_errors),
            column(ends.sum_squared_vol_points),
            np.array([np.sum(job.counts) for job in jobs], int),
            column(ends.steps, True),
            tuple(status),
            np.array([vol_unit(job.quotes) is BASIS_POINTS for job in jobs]),
            *(of_sides[0], of_sides[1]),
        )

    @classmethod
    def of_columns(cls, columns: Mapping[str, Any]) -> "Calibrations":
        """Return the calibrations in a table made by `columns`."""
        names = [name.removeprefix(_ERROR) for name in columns if name.startswith(_ERROR)]
        counts, steps = (np.asarray(columns[name]) for name in ("num_quotes", "steps"))
        nothing = np.full(counts.shape, np.nan)
        totals, in_bp = (np.asarray(columns.get(_SQUARES + unit.key, nothing)) for unit in _UNITS)
        is_normal = np.isfinite(in_bp)
        of_sides = [np.asarray(columns[name]) if name in columns else None for name in _SIDES]
        totals = np.where(is_normal, in_bp / _BP_SQUARED, totals)
        return cls(
            tuple(columns["id"]),
            {name: np.asarray(columns[name], float) for name in names},
            {name: np.asarray(columns[_ERROR + name], float) for name in names},
            totals,
            counts,
            steps,
            tuple(columns["status"]),
            is_normal,
            num_bid_ask=of_sides[0],
            num_within_bid_ask=of_sides[1],
        )

    @classmethod
    def joined(cls, parts: Sequence["Calibrations"]) -> "Calibrations":
        """Return the jobs of all parts, in order."""
        tables = [part.columns for part in parts]
        names = dict.fromkeys(name for table in tables for name in table)
        nothing = [np.full(len(part.ids), np.nan) for part in parts]
        pairs = list(zip(tables, nothing, strict=True))
        return cls.of_columns(
            {name: np.concatenate([t.get(name, none) for t, none in pairs]) for name in names}
        )

    def without(self, reasons: Mapping[str, str]) -> "Calibrations":
        """Return the results with the jobs of these ids failed for these reasons, unless they already are."""
        if not reasons:
            return self
        pairs = zip(self.ids, self.status, strict=True)
        out = np.array([id in reasons and not now.startswith("failed") for id, now in pairs])
        pairs = zip(self.ids, self.status, out, strict=True)
        cut = lambda column: np.where(out, np.nan, column)
        return replace(
            self,
            parameters={name: cut(column) for name, column in self.parameters.items()},
            std_errors={name: cut(column) for name, column in self.std_errors.items()},
            sum_squared_vol_points=cut(self.sum_squared_vol_points),
            num_within_bid_ask=self.num_within_bid_ask
            if self.num_within_bid_ask is None
            else cut(self.num_within_bid_ask),
            status=tuple(f"failed: {reasons[id]}" if is_out else now for id, now, is_out in pairs),
        )

    @property
    def sums_of_squares(self) -> dict[VolUnit, np.ndarray]:
        """The sums over the quotes of squared residuals, by unit; NaN for a job with another unit."""
        totals, is_normal = self.sum_squared_vol_points, self.is_normal
        if is_normal is None or not np.any(is_normal):
            return {VOL_POINTS: totals}
        in_bp = {BASIS_POINTS: np.where(is_normal, _BP_SQUARED * totals, np.nan)}
        if np.all(is_normal):
            return in_bp
        return {VOL_POINTS: np.where(is_normal, np.nan, totals), **in_bp}

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """The table with one row per job: id, status, parameters, errors (`std_error_...`), and the rest."""
        return {
            "id": np.array(self.ids, object),
            "status": np.array(self.status, object),
            **self.parameters,
            **{_ERROR + name: errors for name, errors in self.std_errors.items()},
            **{_SQUARES + unit.key: squares for unit, squares in self.sums_of_squares.items()},
            "num_quotes": self.num_quotes,
            **{name: x for name in _SIDES if (x := getattr(self, name)) is not None},
            "steps": self.steps,
            **({"position": self.shard.positions} if self.shard else {}),
        }

    @property
    def table(self) -> Any:
        """The `columns` as an Arrow table; the metadata of a shard's table identifies the run."""
        text = arrow("pyarrow").string()
        table = arrow("pyarrow").table(
            {
                name: arrow("pyarrow").array(x, text if x.dtype == object else None)
                for name, x in self.columns.items()
            }
        )
        if self.shard is None:
            return table
        facts = {"num_jobs": self.shard.num_jobs, "run": self.shard.run}
        return table.replace_schema_metadata({_SHARD: json.dumps(facts)})

    def write_parquet(self, path: str | os.PathLike) -> None:
        """Write `table` to a Parquet file; the same numbers give the same bytes."""
        arrow("pyarrow.parquet").write_table(self.table, path)

    @classmethod
    def read_parquet(cls, path: str | os.PathLike) -> "Calibrations":
        """Read a file written by `write_parquet`, at a path or the URL of an object store.

        Raises:
            ValueError: If it is not such a file.
        """
        with local_copy(place_of(path)) as file:
            try:
                table = arrow("pyarrow.parquet").read_table(file)
                columns = {name: table[name].to_numpy() for name in table.column_names}
                facts = json.loads((table.schema.metadata or {}).get(_SHARD.encode(), b"null"))
                shard = facts and ShardPlace(columns.pop("position"), **facts)
                return replace(cls.of_columns(columns), shard=shard)
            except (KeyError, TypeError, ValueError, arrow("pyarrow").ArrowException) as error:
                raise ValueError(f"{path}: contains no calibrations ({error})") from None

    @property
    def failed(self) -> dict[str, str]:
        """Id -> the reason why the job has no parameters."""
        pairs = zip(self.ids, self.status, strict=True)
        return {name: status for name, status in pairs if status.startswith("failed")}

    @property
    def not_identified(self) -> dict[str, str]:
        """Id -> the reason why a weak prior holds the job's parameters."""
        pairs = zip(self.ids, self.status, strict=True)
        return {name: status for name, status in pairs if status.startswith(_OPEN)}
