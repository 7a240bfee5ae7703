"""Quote tables, scenarios, tables of known figures, and runs: each changed by one seed, and answered."""

import csv
import io
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from calibration import read_jobs
from jaxtape.cli.escaping import control_character
from jaxtape.cli.reference_tables import read_tables
from pricing import Heston, ScenarioSet
from pricing.ingestion import UnreadableFile
from pricing.market import Market

from .corpus import MARKET
from .mutations import as_json, changed, damaged, nasty

SCENARIOS = {
    "grid": {"spots": [-0.1, 0.0, 0.1], "vols": [-0.05, 0.0, 0.05]},
    "rates": [-0.01, 0.01],
    "scenarios": {
        "crash": {"spots": {"DAX": -0.3, "SX5E": -0.2}, "vols": 0.1},
        "up": {"rates": 0.01, "swaption_vols": 0.01},
    },
}
QUOTES = (
    ("surface", "spot", "rate", "expiry", "strike", "vol", "weight"),
    *(
        (name, 100.0, 0.02, expiry, strike, 0.2, 1.0)
        for name in ("A", "B")
        for expiry in (0.5, 1.0)
        for strike in (90.0, 100.0, 110.0)
    ),
)
FIGURES = (
    "[[table]]\nname = 'calls'\nsource = 'a book'\nmethods = ['']\n"
    "constants = { expiry = 1.0 }\nrows = '''\nstrike value\n90 16.70\n100 10.45\n'''\n"
)
PARTS = "name", "calls", "'''", "[[", "]]", "=", "''", "{", "1.0", "16.70", "strike value", "source"
NOTHING, ERRORS, ALL = "nothing of a file can be used", "read with errors", "read"


def quote_table(chance: random.Random) -> bytes:
    """Rows of quotes with cells, columns and rows put in, taken out or changed."""
    rows = [list(map(str, row)) for row in QUOTES]
    for _ in range(chance.choice((0, 1, 1, 2))):
        at, column = chance.randrange(len(rows)), chance.randrange(len(rows[0]))
        match chance.randrange(6):
            case 0:
                for row in rows:
                    row[column:column] = row[column : column + 1]
            case 1:
                for row in rows:
                    del row[column : column + 1]
            case 2:
                rows.append(list(rows[at]))
            case 3:
                rows[at] = rows[at][:column]
            case _ if column < len(rows[at]):
                rows[at][column] = str(nasty(chance))
        if not rows[0]:
            break
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    content = text.getvalue().encode("utf-8", "surrogatepass")
    return damaged(content, chance) if chance.random() < 0.2 else content


def fuzzed_quote_table(folder: Path, chance: random.Random) -> str:
    file = folder / "quotes.csv"
    file.write_bytes(quote_table(chance))
    try:
        jobs = list(read_jobs(file, Heston))
    except UnreadableFile as error:
        assert error.error.file == str(file) and error.error.remedy and error.error.message
        assert control_character(str(error)) is None
        return NOTHING
    refused = [why for job in jobs if (why := job.refusal(5))]
    assert all(why.strip() for why in refused)
    return ERRORS if refused else ALL


def fuzzed_scenarios(folder: Path, chance: random.Random) -> str:
    file, market = folder / "s.json", Market.from_text(as_json(MARKET, random.Random(0)).decode())
    content = as_json(changed(SCENARIOS, chance), chance)
    file.write_bytes(damaged(content, chance) if chance.random() < 0.1 else content)
    try:
        found = ScenarioSet.read(file).checked(market)
    except UnreadableFile as error:
        assert error.error.file == str(file) and error.error.remedy
        assert control_character(str(error)) is None
        return NOTHING
    for error in found.errors:
        assert error.file == str(file) and error.remedy and control_character(str(error)) is None
    return ERRORS if found.errors else ALL


def fuzzed_figures(folder: Path, chance: random.Random) -> str:
    """Tables of `jaxtape validate`."""
    file, text = folder / "figures.toml", FIGURES
    for _ in range(chance.choice((0, 1, 1, 2))):
        text = text.replace(chance.choice(PARTS), str(nasty(chance)), chance.choice((1, -1)))
    content = text.encode("utf-8", "surrogatepass")
    file.write_bytes(damaged(content, chance) if chance.random() < 0.3 else content)
    try:
        return ALL if read_tables(file, {"value", "delta"}) else NOTHING
    except ValueError as error:
        assert file.name in str(error), error
        return NOTHING


def fuzzed_run(folder: Path, chance: random.Random, run: Callable) -> str:
    """A run of `jaxtape risk` with something wrong, which `jaxtape monitor` looks at."""
    from tests.calibration.test_monitoring import run as write_run

    out = folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    file = write_run(out) / chance.choice(
        ("npv.csv", "sensitivity.csv", "calibration.json", "run.json")
    )
    content = file.read_bytes()
    match chance.randrange(8):
        case 0:
            file.unlink()
        case 1:
            file.unlink()
            os.mkfifo(file)
        case 2:
            file.unlink()
            file.mkdir()
        case 3:
            file.write_bytes(b"[" * chance.choice((900, 100_000)))
        case 4 if file.suffix == ".json":
            file.write_bytes(as_json(nasty(chance), chance))
        case 5:
            words = content.split(b",")
            words[chance.randrange(len(words))] = str(nasty(chance)).encode(
                "utf-8", "surrogatepass"
            )
            file.write_bytes(b",".join(words))
        case _:
            file.write_bytes(damaged(content, chance))
    outcome = run(["monitor", str(out)])
    assert outcome is not None
    return NOTHING if outcome.exit_code == 2 else ERRORS if outcome.exit_code else ALL


def fuzzed_document(folder: Path, chance: random.Random, run: Callable) -> str:
    """Check one of all these, and say what became of it."""
    kind = chance.choice((fuzzed_quote_table, fuzzed_scenarios, fuzzed_figures, fuzzed_run))
    return kind(folder, chance, run) if kind is fuzzed_run else kind(folder, chance)
