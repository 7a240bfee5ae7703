"""Read jobs lazily from files: tables of quotes in CSV or Parquet, and market files in a folder.

Whatever cannot be read becomes a job with the reason, without affecting others.
"""

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import equinox as eqx
import jax
import numpy as np

from jaxtape.object_store import Place, StoredPath, arrow_table, place_of
from pricing.formulas.stock import market_above_cash
from pricing.ingestion.errors import UnreadableFile, listed, unreadable
from pricing.market import Market, SmileQuotes
from pricing.models import Calibratable

from .job import Job
from .table_surfaces import TableSurface, surfaces_in, surfaces_of

_HIDDEN = ".", "_"
_NAMING = "surface="  # prefix of a folder that names the surface of its tables


def read_jobs(path: Any, kind: type[Calibratable]) -> Iterator[Job]:
    """Yield the jobs of a file, a folder or a data frame: fits of one kind of model from its standard start.

    A table in CSV or Parquet has the columns `surface` (a name), `spot`, `rate` (continuous, per year),
    `expiry`, `strike` and `vol` (decimals; empty: no quote), and may have `dividend_yield` and `weight`. An
    expiry is in years, or a date after the date in `asof`. Spot, rate and dividend yield are those of a
    surface's first row. In a folder, every such table is read, and from every market file (JSON) each
    underlying with quotes for the model, named "FILE/UNDERLYING", in the order of the file names.

    Subfolders are read in the same way. Names within them are prefixed by the folder, as in
    "date=2002-07-05/DAX". A folder "COLUMN=VALUE", as in a data lake, gives its value to tables without that
    column; "surface=DAX" names the surface, and is not repeated. Names that begin with "." or "_" are skipped,
    as in Spark and Arrow.

    Args:
        path: The file or the folder; or its URL in an object store, such as gs://bucket/quotes; or the table
            itself, as a frame of pandas (2.2 or later), polars, pyarrow or another that exports Arrow's
            streams.
        kind: The class of the models; a table needs a model of one equity.

    Yields:
        The jobs, in the order of the rows.

    Raises:
        unreadable: If there is no such file, or no readable one in the folder; an `UnreadableFile`.

    `ConnectionError` is raised if an object store cannot be reached.

    Examples:
        >>> from calibration import calibrate_many, read_jobs
        >>> from pricing import Heston
        >>> def fitted(path):
        ...     return calibrate_many(read_jobs(path, Heston))
    """
    if not isinstance(path, str | os.PathLike):
        return jobs_in(arrow_table(path), kind, "")
    place = place_of(path)
    if not is_folder(place):
        is_there = place.exists() if isinstance(place, StoredPath) else os.path.exists(place)
        if not is_there:
            raise unreadable(str(place), "there is no such file", "check the path")
        return _of_file(place, kind)
    files = _files_below(place)
    if not files:
        kinds = listed(_READERS)
        raise unreadable(str(place), f"has no file of {kinds}", "give another folder")
    return itertools.chain.from_iterable(
        _of_file(files[levels], kind, levels[:-1]) for levels in sorted(files)
    )


def bytes_by_file(place: Place) -> dict[str, int]:
    """Return path -> size of the files that `read_jobs` reads in a folder, in the same order."""
    if not is_folder(place):
        return {}
    files = _files_below(place)
    in_order = [files[levels] for levels in sorted(files)]
    size_of = lambda x: x.num_bytes if isinstance(x, StoredPath) else os.path.getsize(x)
    return {str(file): size_of(file) for file in in_order}


def is_folder(place: Place) -> bool:
    """Return True if a path or a URL is a folder."""
    return place.is_dir() if isinstance(place, StoredPath) else os.path.isdir(place)


def _files_below(folder: Place) -> dict[tuple[str, ...], Place]:
    """Return the files of tables and markets in a folder and below it, by the parts of their relative paths."""
    found: dict[tuple[str, ...], Place] = {}
    if isinstance(folder, StoredPath):
        start = len(folder.key) + 1
        found |= {tuple(file.key[start:].split("/")): file for file in folder.files()}
    else:
        files = [Path(top) / name for top, _, names in os.walk(folder) for name in names]
        found |= {file.relative_to(folder).parts: file for file in files}
    is_hidden = lambda levels: any(name.startswith(_HIDDEN) for name in levels)
    return {
        levels: file
        for levels, file in found.items()
        if file.suffix.lower() in _READERS and not is_hidden(levels)
    }


def _of_file(
    file: Place, kind: type[Calibratable], levels: tuple[str, ...] | None = None
) -> Iterator[Job]:
    """Yield the jobs of a file; if it cannot be read to its end, the last job reports that.

    `levels` are the names of its folders within the one being read; None for a single file.

    Raises:
        unreadable: If nothing in the file can be used; an `UnreadableFile`.
        UnreadableFile: Likewise.
    """
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        kinds = listed(_READERS)
        raise unreadable(str(file), f"is not a file of {kinds}", "give it the suffix of its format")
    before = "".join(f"{name}/" for name in levels or () if not name.startswith(_NAMING))
    is_begun = False
    try:
        for job in reader(file, kind, levels or ()):
            yield job._replace(id=f"{before}{job.id}") if before else job
            is_begun = True
    except UnreadableFile as error:
        if levels is None and not is_begun:
            raise
        message = f"{error} (what follows was not read)" if is_begun else str(error)
        yield _unreadable_job(f"{before}{file.name}", message)


def _of_market(file: Place, kind: type[Calibratable], levels: tuple[str, ...]) -> Iterator[Job]:
    del levels
    market = Market.read(file)
    errors: dict[str, list[str]] = {}
    for error in market.errors:
        errors.setdefault(error.field, []).append(str(error))
    for field, reasons in errors.items():
        yield _unreadable_job(f"{file.stem}/{field}", "; ".join(reasons))
    market = market_above_cash(market)
    for name, quotes in kind.quotes_in(market).items():
        id = f"{file.stem}/{name}"
        try:
            yield Job(id, quotes, kind.starting_on(market, name), place=str(file))
        except (ValueError, ArithmeticError) as error:
            yield _unreadable_job(id, f"{file}: {error}")


def _of_table(file: Place, kind: type[Calibratable], levels: tuple[str, ...]) -> Iterator[Job]:
    """Yield a fit to each surface of a table, whose folders may define columns, as in `asof=2002-07-05`."""
    pairs = (level.partition("=") for level in levels)
    given = {name: unquote(value) for name, is_column, value in pairs if is_column}
    return _of_surfaces(surfaces_of(file, given), kind, str(file))


def jobs_in(table: Any, kind: type[Calibratable], source: str) -> Iterator[Job]:
    """Yield the jobs of an Arrow table; `source` names it in errors, or "" to name only the row."""
    return _of_surfaces(surfaces_in(table, source or "the table"), kind, source)


def _of_surfaces(
    surfaces: Iterator[TableSurface], kind: type[Calibratable], source: str
) -> Iterator[Job]:
    """Yield a fit to each surface; quotes and market are NumPy arrays."""
    model_on, smiles = _models_of(kind), _structures()
    before = f"{source}:" if source else "row "
    for surface in surfaces:
        place = f"{before}{surface.line}"
        if surface.wrong:
            yield _unreadable_job(surface.name, f"{before}{surface.wrong}", place)
            continue
        spot, rate, dividend_yield = surface.market
        forwards = np.log(spot) + (rate - dividend_yield) * surface.expiries
        k = forwards[:, None] - np.log(surface.strikes)
        numbers = surface.expiries, k, surface.vols, surface.weights
        sides = () if surface.asks is None else (surface.bids, surface.asks)
        quotes = smiles[len(sides)].unflatten((*numbers, *sides))
        start = model_on(*surface.market).starting_for(quotes)
        yield Job(surface.name, quotes, start, place=place)


def _models_of(kind: type[Calibratable]) -> Callable[[float, float, float], Calibratable]:
    """Return a function from spot, rate and dividend yield to the standard start of a model of an equity."""
    of_market = lambda m: [m.spot, m.rate, m.dividend_yield]
    in_numpy = jax.tree.map(np.asarray, start_of(kind))
    leaves, structure = jax.tree.flatten(eqx.tree_at(of_market, in_numpy, [0, 1, 2]))

    def model_on(*market: float) -> Calibratable:
        numbers = (np.asarray(market[x]) if isinstance(x, int) else x for x in leaves)
        return structure.unflatten(numbers)

    return model_on


def start_of(kind: type[Calibratable]) -> Calibratable:
    """Return the standard start of a model of an equity, on a placeholder market.

    Raises:
        TypeError: If it is not a model of an equity, or needs more than a market and its free parameters.
    """
    market, fields = {"spot", "rate", "dividend_yield"}, dataclasses.fields(kind)
    needed = {x.name for x in fields if x.default is x.default_factory is dataclasses.MISSING}
    if not market <= {x.name for x in fields} or not needed <= market | {*kind.free_parameters}:
        raise TypeError(
            f"a table of options has no quotes for {kind.__name__}: give a model of an equity "
            f"that needs no "
            "more than spot, rate and its free parameters"
        )
    of_equity: Any = kind
    starts = {name: free.start for name, free in kind.free_parameters.items()}
    return of_equity(spot=1.0, rate=0.0, dividend_yield=0.0, **starts)


def _unreadable_job(name: str, why: str, place: str = "") -> Job:
    return Job(name, _no_quotes(), None, unreadable=why, place=place)


def _no_quotes() -> SmileQuotes:
    nothing = np.zeros((1, 1))
    return SmileQuotes([1.0], nothing, np.full((1, 1), np.nan), nothing)


def _structures() -> dict[int, Any]:
    """Return the tree structures of smiles, with and without bids and asks, by the number of those arrays."""
    nothing = _no_quotes()
    with_sides = dataclasses.replace(nothing, bids=nothing.vols, asks=nothing.vols)
    return {0: jax.tree.structure(nothing), 2: jax.tree.structure(with_sides)}


_READERS = {".csv": _of_table, ".parquet": _of_table, ".json": _of_market}
