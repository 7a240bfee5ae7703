"""Many fits as a function from Arrow tables to Arrow tables, for Ray, Spark and similar systems."""

from typing import Any

import numpy as np

from jaxtape.object_store import arrow_table
from pricing.models import Calibratable

from ..parameters import FreeParameters
from .calibrations import Calibrations
from .rounds import calibrate_many
from .searches import SearchResult
from .sources import jobs_in, start_of


def calibrate_table(
    quotes: Any, kind: type[Calibratable], *, source: str = "", **settings: Any
) -> Any:
    """Fit a model to every surface in an Arrow table of quotes, and return an Arrow table with one row each.

    It suits Ray Data's `map_batches` and Spark's `applyInArrow`: it keeps no state, and a surface that fails
    becomes a row with the reason. A surface's rows must be consecutive, and in one table. For the same quotes
    and precision, the result has the rows of the file that `jaxtape calibrate` writes, except that the reason
    of a failure names the row instead of file and line.

    Args:
        quotes: A `pyarrow.Table` or `RecordBatch`, or a frame of pandas (2.2 or later), polars or another that
            exports Arrow's streams, with the columns of `read_jobs`.
        kind: The class of the models, such as `Heston`.
        source: The name of the table in the reasons of failures, such as its file.
        settings: Keyword arguments of `calibrate_many`.

    Returns:
        A `pyarrow.Table` with the columns of `Calibrations.columns`.

    `UnreadableFile` is raised if the table lacks a column.

    Examples:
        >>> import pyarrow
        >>> from calibration import calibrate_table
        >>> from pricing import Heston
        >>> names = "surface", "spot", "rate", "expiry", "strike", "vol"
        >>> quote = dict(zip(names, (["A"], [100.0], [0.0], [1.0], [90.0], [0.2])))
        >>> calibrate_table(pyarrow.table(quote), Heston)["status"][0].as_py()
        'failed: row 1: it has 1 quotes for 5 parameters: give at least as many'
    """
    jobs = list(jobs_in(arrow_table(quotes), kind, source))
    if any(job.model is not None for job in jobs):
        return calibrate_many(iter(jobs), **settings).table
    refused = {place: job.at_its_place(job.unreadable) for place, job in enumerate(jobs)}
    parameters = FreeParameters.of(start_of(kind))
    nothing = np.zeros(0, int), SearchResult.empty(parameters), parameters
    return Calibrations.of(jobs, refused, *nothing).table
