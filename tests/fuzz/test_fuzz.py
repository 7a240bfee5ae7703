"""Whatever a file or a command line holds, it is read or answered with its place, its value and a remedy.

What is read is taken as far as the work that precedes valuation: contracts, groups, what is to be fitted.
"""

import contextlib
import os
import random
import signal
import sys

import jax
import pytest
from typer.testing import CliRunner

from calibration import SwapLegs
from calibration.commands.calibrate import calibrate
from calibration.commands.fitting import standard_start, too_few
from calibration.commands.risk import risk
from calibration.objectives import objective_of
from calibration.parameters import Parameters
from calibration.problem import Problem
from jaxtape.command_line import app
from pricing import Book
from pricing.fbsde import command as solve_command
from pricing.ingestion import UnreadableFile
from pricing.ingestion.characters import control_character
from pricing.market import Market
from pricing.methods import METHODS, Quadrature
from pricing.models.surface_models import black_scholes
from pricing.sweep.fitted_models import with_baskets
from pricing.sweep.groups import batches_of, group_trades

from . import corpus, mutations

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
    def stop(*_):
        raise Hung(f"no answer in {SECONDS:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


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
        assert (row.trade is None) == bool(row.errors)
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
            Problem(quotes, start, objective_of(quotes), Parameters.of(start))
            if name not in market.equities:
                SwapLegs.plain(vols)
    if not models:
        return
    fit = with_baskets(lambda m: models | black_scholes(m), [t.underlyings for t in book.trades])
    settings = {"key": jax.random.key(0), "budget": 2**30, "mesh": None}
    group_trades(batches_of(book.trades, market), market, fit(market), UNPREPARED, **settings)


def check_files(folder, market_content, name, book_content):
    paths = folder / "m.json", folder / name
    for path, content in zip(paths, (market_content, book_content), strict=True):
        path.write_bytes(content)
    with answered_in_time():
        market, book = read(Market, paths[0]), read(Book, paths[1])
        if market is not None and book is not None:
            prepare(book, market)


def check_all_files(folder, seeds):
    for seed in seeds:
        chance = random.Random(seed)
        files = mutations.market(chance), *mutations.book(chance)
        if chance.random() < 0.5:  # one of the two is as it should be
            files = (mutations.as_json(corpus.MARKET, chance), *files[1:])
        try:
            check_files(folder, *files)
        except BaseException as error:
            error.add_note(f"seed {seed}: {files}")
            raise


@pytest.mark.parametrize("case", corpus.MARKETS)
def test_a_market_that_once_failed_is_answered(case, tmp_path):
    check_files(tmp_path, corpus.MARKETS[case], "t.csv", corpus.csv_of(corpus.BOOK))


@pytest.mark.parametrize("case", corpus.BOOKS)
def test_a_book_that_once_failed_is_answered(case, tmp_path):
    market = mutations.as_json(corpus.MARKET, random.Random(0))
    check_files(tmp_path, market, *corpus.BOOKS[case])


def test_the_files_that_the_fuzzer_begins_with_are_good(tmp_path):
    market = Market.from_text(mutations.as_json(corpus.MARKET, random.Random(0)).decode())
    book = Book.from_text(corpus.csv_of(corpus.BOOK).decode()).checked(market)
    assert market.errors == book.errors == ()
    assert len(book.trades) == len(corpus.BOOK)


class Reached(Exception):
    """A command came as far as the work itself."""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a command line up to its work, in a folder with a market, a book, and a pipe."""

    def reached(*_, **__):
        raise Reached

    for module, name in (
        *((sys.modules[risk.__module__], name) for name in ("calibrated", "value_book")),
        *((sys.modules[calibrate.__module__], "calibrated"), (solve_command, "_rows")),
    ):
        monkeypatch.setattr(module, name, reached)
        monkeypatch.setattr(module, "configure", lambda precision: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.json").write_bytes(mutations.as_json(corpus.MARKET, random.Random(0)))
    (tmp_path / "t.csv").write_bytes(corpus.csv_of(corpus.BOOK[:2]))
    os.mkfifo(tmp_path / "pipe")

    def invoke(words):
        with answered_in_time():
            outcome = CliRunner().invoke(app, words)
        if isinstance(outcome.exception, Reached):
            return None
        assert outcome.exit_code in (0, 1, 2), (words, outcome.exception)
        assert outcome.exception is None or isinstance(outcome.exception, SystemExit), words
        assert outcome.exit_code == 0 or outcome.output.strip(), words
        is_usage = outcome.stderr.startswith("Usage:")  # the words as they were typed
        assert is_usage or control_character(outcome.output.replace("\n", "")) is None, words
        return outcome

    return invoke


def check_all_lines(run, seeds):
    for seed in seeds:
        words = mutations.command_line(random.Random(seed))
        try:
            run(words)
        except BaseException as error:
            error.add_note(f"seed {seed}: {words}")
            raise


def test_files_are_answered(tmp_path):
    check_all_files(tmp_path, range(150))


def test_command_lines_are_answered(run):
    check_all_lines(run, range(100))


CHUNKS = 16


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_many_files_are_answered(tmp_path, chunk):
    check_all_files(tmp_path, range(1000 + chunk, 19_000, CHUNKS))


@pytest.mark.slow
def test_many_command_lines_are_answered(run):
    check_all_lines(run, range(1000, 3000))
