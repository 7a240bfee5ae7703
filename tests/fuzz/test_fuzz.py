"""Whatever a file or a command line holds, it is read or answered with its place, its value and a remedy.

`python -m tests.fuzz` checks as many as one likes.
"""

import random
from pathlib import Path

import pytest

from pricing import Book
from pricing.market import Market
from tests.fuzz.__main__ import main

from . import corpus, documents, mutations, surroundings
from .answers import (
    check_files,
    commands_in,
    fuzzed_command_line,
    fuzzed_comparison,
    fuzzed_files,
)

pytestmark = pytest.mark.repeat


@pytest.mark.parametrize("case", corpus.MARKETS)
def test_a_market_that_once_failed_is_answered(case, tmp_path):
    check_files(tmp_path, corpus.MARKETS[case], "t.csv", corpus.csv_of(corpus.BOOK))


@pytest.mark.parametrize("case", corpus.BOOKS)
def test_a_book_that_once_failed_is_answered(case, tmp_path):
    market = mutations.as_json(corpus.MARKET, random.Random(0))
    check_files(tmp_path, market, *corpus.BOOKS[case])


def test_a_book_of_a_hundred_thousand_columns_is_answered(tmp_path):
    market = mutations.as_json(corpus.MARKET, random.Random(0))
    columns = *corpus.COLUMNS, *(f"x{i}" for i in range(100_000))
    assert check_files(tmp_path, market, "t.csv", corpus.csv_of(corpus.BOOK[:1], columns)) == "read"


def test_the_files_that_the_fuzzer_begins_with_are_good(tmp_path):
    market = Market.from_text(mutations.as_json(corpus.MARKET, random.Random(0)).decode())
    book = Book.from_text(corpus.csv_of(corpus.BOOK).decode()).checked(market)
    assert market.errors == book.errors == ()
    assert len(book.trades) == len(corpus.BOOK)


@pytest.fixture
def run(tmp_path):
    """Runs a command line up to its work."""
    with commands_in(tmp_path) as ran:
        yield ran


def test_files_are_answered(tmp_path):
    outcomes = {fuzzed_files(tmp_path, seed) for seed in range(150)}
    assert len(outcomes) == 3  # good ones too


def test_other_documents_are_answered(run):
    outcomes = {
        documents.fuzzed_document(Path.cwd(), random.Random(seed), run) for seed in range(60)
    }
    assert len(outcomes) == 3


def test_surroundings_are_answered(run):
    surroundings.fuzzed(Path.cwd(), random.Random(1))


@pytest.mark.slow
def test_many_surroundings_are_answered(run):
    for seed in range(1000, 1060):
        surroundings.fuzzed(Path.cwd(), random.Random(seed))


def test_command_lines_are_answered(run):
    outcomes = {fuzzed_command_line(run, seed) for seed in range(100)}
    assert {"came to its work", "exit status 2"} <= outcomes


def test_comparisons_are_answered(run):
    pytest.importorskip("torch")
    outcomes = {fuzzed_comparison(run, seed) for seed in range(60)}
    assert outcomes >= {"exit status 0", "exit status 2"}


def test_many_are_counted_and_what_fails_is_named(tmp_path, monkeypatch, capsys):
    """By `python -m tests.fuzz`; here one market of five is answered with a traceback."""

    def faulty(folder, seed):
        if seed == 3:
            raise ZeroDivisionError("not answered")
        return "read"

    monkeypatch.setattr("tests.fuzz.counts.fuzzed_files", faulty)
    out = tmp_path / "found.json"
    words = "--files 5 --command-lines 4 --comparisons 0 --processes 1 --first-seed 0 --out"
    assert main([*words.split(), str(out)]) == 1
    said = capsys.readouterr().out
    assert "seed 3" in said and "ZeroDivisionError: not answered" in said
    assert '"read": 4' in out.read_text() and '"failed": 1' in out.read_text()


CHUNKS = 16


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_many_files_are_answered(tmp_path, chunk):
    for seed in range(1000 + chunk, 19_000, CHUNKS):
        fuzzed_files(tmp_path, seed)


@pytest.mark.slow
def test_many_command_lines_are_answered(run):
    for seed in range(1000, 3000):
        fuzzed_command_line(run, seed)


@pytest.mark.slow
def test_many_comparisons_are_answered(run):
    pytest.importorskip("torch")
    for seed in range(1000, 2000):
        fuzzed_comparison(run, seed)
