"""What every answer to a file or a command line must be: in time, and with place, value and remedy.

What is read is taken as far as the work that precedes valuation: contracts, groups, what is to be fitted.
"""

import contextlib
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import pytest
from typer.testing import CliRunner

from calibration import SwapLegs, market_models
from calibration.app.calibrate import calibrate
from calibration.app.explain import explain
from calibration.app.risk import risk
from calibration.app.serve import factory, server
from calibration.app.serve.serve import serve
from calibration.app.several import calibrate_all
from calibration.least_squares_problem import LeastSquaresProblem
from calibration.market_models import standard_start, too_few
from calibration.objectives import objective_of
from calibration.parameters import FreeParameters
from jaxtape.cli.compare import compare
from jaxtape.cli.escaping import control_character
from jaxtape.cli.main import app
from jaxtape.cli.validate import validate
from pricing import Book
from pricing.fbsde import command as solve_command
from pricing.ingestion import UnreadableFile
from pricing.market import Market
from pricing.methods import METHODS, Quadrature
from pricing.models.surface_models import black_scholes
from pricing.portfolio.sweep.fitted_models import with_baskets
from pricing.portfolio.sweep.groups import batches_of, group_trades

from . import comparisons, corpus, documents, mutations, surroundings

UNPREPARED = [method for method in METHODS if not isinstance(method, Quadrature)]  # it lays grids
SECONDS = 60.0  # after which an input hangs
WHOLE_FILE = (
    "is empty",
    "has no header",
    "nested too deeply",
    "is not JSON",
    "missing",
    "no such column",
)


class Hung(BaseException):
    """An input that was not answered in time."""


@contextlib.contextmanager
def answered_in_time():
    late = []

    def stop(*_):
        late.append(f"no answer in {SECONDS:g} s")
        raise Hung(late[0])

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    if late:  # whatever became of it on its way
        raise Hung(late[0])


def check_error(error, path):
    """It names file, place, value and remedy, on one line that any sink can take."""
    text = str(error)
    assert error.file == str(path) and error.remedy and error.message
    assert error.line or any(words in error.message for words in WHOLE_FILE), text
    shown = error.value and (error.value in text or error.message.startswith("the row"))
    assert shown or error.field or error.line or error.message in WHOLE_FILE, text
    assert control_character(text) is None
    text.encode()


def read(kind, path):
    """A market or a book, or None where nothing of it can be used; its errors are checked."""
    try:
        found = kind.read(path)
    except UnreadableFile as error:
        check_error(error.error, path)
        assert str(error) == str(error.error)
        return None
    for error in found.errors:
        check_error(error, path)
    return found


def prepare(book, market):
    """All that precedes the valuation of a book, but for calibrations."""
    book = book.checked(market)
    for row in book.rows:
        assert (row.trade is None) == bool(row.errors or row.is_over)
        assert control_character(row.id) is control_character(row.type) is None
    market.flat_quotes()
    vols = market.swaption_vols
    quoted = () if vols is None else (vols.curve,)
    models = {}
    for name in {name for trade in book.trades for name in trade.underlyings}:
        if name in market.equities or name in quoted:
            start, quotes = standard_start(market, name)
            too_few(start, quotes, name, "market.json")
            models[name] = start
            LeastSquaresProblem(quotes, start, objective_of(quotes), FreeParameters.of(start))
            if name not in market.equities:
                SwapLegs.plain(vols)
    if not models:
        return
    fit = with_baskets(lambda m: models | black_scholes(m), [t.underlyings for t in book.trades])
    settings = {"key": jax.random.key(0), "budget": 2**30, "mesh": None}
    group_trades(batches_of(book.trades, market), market, fit(market), UNPREPARED, **settings)


def check_files(folder, market_content, name, book_content) -> str:
    """Read a market and a book, prepare what can be valued, and say what became of them."""
    paths = folder / "m.json", folder / name
    for path, content in zip(paths, (market_content, book_content), strict=True):
        path.write_bytes(content)
    with answered_in_time():
        market, book = read(Market, paths[0]), read(Book, paths[1])
        if market is None or book is None:
            return "nothing of a file can be used"
        prepare(book, market)
    return "read with errors" if market.errors or book.errors else "read"


def fuzzed_files(folder: Path, seed: int) -> str:
    """Check a market and a book of a seed, or every fourth time another kind of document."""
    chance = random.Random(seed)
    if seed % 4 == 3:
        with _named(seed, "a document"), answered_in_time():
            return documents.fuzzed_document(folder, chance, _invoked)
    files = mutations.market(chance), *mutations.book(chance)
    if chance.random() < 0.5:  # one of the two is as it should be
        files = (mutations.as_json(corpus.MARKET, chance), *files[1:])
    with _named(seed, files):
        return check_files(folder, *files)


class Reached(Exception):
    """A command came as far as the work itself."""


@contextlib.contextmanager
def commands_in(folder: Path) -> Iterator[Callable]:
    """Yield what runs a command line up to its work, in a folder with a market, a book, and a pipe."""

    def reached(*_, **__):
        raise Reached

    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (market_models, "calibrate_precisely"),
            (sys.modules[risk.__module__], "value_book"),
            (sys.modules[calibrate.__module__], "calibrate_precisely"),
            (sys.modules[explain.__module__], "explain_aged"),
            (sys.modules[calibrate_all.__module__], "calibrate_many"),
            (sys.modules[validate.__module__], "_results"),
            (sys.modules[serve.__module__], "configure"),
            (factory, "service_of"),
            (solve_command, "_rows"),
        ):
            patch.setattr(module, name, reached)
            patch.setattr(module, "configure", lambda *given, **settings: None, raising=False)
        patch.setattr(server, "log_as_json", lambda: None)
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setattr(sys.modules[compare.__module__], "configure", lambda precision: None)
        patch.setenv("JAXTAPE_CACHE", str(folder / "cache"))  # `jaxtape cache --clear` empties it
        patch.chdir(folder)
        (folder / "m.json").write_bytes(mutations.as_json(corpus.MARKET, random.Random(0)))
        (folder / "t.csv").write_bytes(corpus.csv_of(corpus.BOOK[:2]))
        (folder / "q.csv").write_bytes(documents.quote_table(random.Random(0)))
        (folder / "s.json").write_bytes(mutations.as_json(documents.SCENARIOS, random.Random(0)))
        for pipe in ("pipe", "pipe.py"):
            os.mkfifo(folder / pipe)
        yield _invoked


def _invoked(words: list[str]):
    """Run a command line; None where it came as far as its work."""
    with answered_in_time():
        outcome = CliRunner().invoke(app, words)
    if isinstance(outcome.exception, Reached):
        return None
    assert outcome.exit_code in (0, 1, 2), (words, outcome.exception)
    assert outcome.exception is None or isinstance(outcome.exception, SystemExit), words
    assert outcome.exit_code == 0 or outcome.output.strip(), words
    assert "Traceback (most recent call last)" not in outcome.output, words
    is_usage = outcome.stderr.startswith("Usage:")  # the words as they were typed
    assert is_usage or control_character(outcome.output.replace("\n", "")) is None, words
    return outcome


def fuzzed_command_line(run: Callable, seed: int) -> str:
    """Check a command line of a seed; of a few that of a process in surroundings of its own."""
    if seed % surroundings.EVERY == surroundings.EVERY - 1:
        with _named(seed, "surroundings"):
            return surroundings.fuzzed(Path.cwd(), random.Random(seed))
    words = mutations.command_line(random.Random(seed))
    with _named(seed, words):
        return _status(run(words))


def fuzzed_comparison(run: Callable, seed: int) -> str:
    """Check a comparison of a seed, of a file of one's own."""
    chance, file = random.Random(seed), f"mine_{seed}.py"
    content, words = comparisons.source(chance), comparisons.words(file, chance)
    Path(file).write_bytes(content)
    try:
        with _named(seed, (words, content)):
            outcome = run(words)
            if outcome is not None and outcome.exit_code == 2 and file in outcome.output:
                said = outcome.stderr if outcome.stderr.startswith("Usage:") else outcome.output
                assert "; give" in said or "; both must be" in said or "make them" in said, said
            return _status(outcome)
    finally:
        Path(file).unlink()
        sys.modules.pop(Path(file).stem, None)


def _status(outcome) -> str:
    return "came to its work" if outcome is None else f"exit status {outcome.exit_code}"


@contextlib.contextmanager
def _named(seed: int, what):
    """Note the seed, and what it made, on whatever fails."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"seed {seed}: {what}")
        raise
