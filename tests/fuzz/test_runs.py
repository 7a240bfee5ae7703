"""Whole runs of the command on what is odd: the rest is valued, every file is there, and nothing acts."""

import csv
import json
import re
import xml.etree.ElementTree as ET

import jax
import pytest
from typer.testing import CliRunner

from calibration import market_models
from jaxtape.cli.main import app

from .corpus import BOOK, BOOKS, COLUMNS, MARKET, MARKETS, csv_of

pytestmark = pytest.mark.repeat

FILES = {"npv.csv", "sensitivity.csv", "calibration.json", "report.html", "run.json"}
PAYLOADS = (r"$\frac$", "[/red]", "=1+1", "</svg><script>alert(1)</script>", "XETR:DAX", ":smile:")


@pytest.fixture(autouse=True)
def _same_precision_after():
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


def run(folder, market, book, *options, name="t.csv"):
    (folder / "m.json").write_bytes(market)
    (folder / name).write_bytes(book)
    paths = ("--trades", folder / name, "--market", folder / "m.json", "--out", folder / "out")
    outcome = CliRunner().invoke(app, ["risk", *map(str, paths), *options])
    assert outcome.exit_code in (0, 1), (outcome.exception, outcome.output)
    found = {path.name for path in (folder / "out").iterdir()}
    assert found - {"errors.txt"} == FILES
    assert ("errors.txt" in found) == (outcome.exit_code == 1)
    with (folder / "out" / "npv.csv").open(newline="", encoding="utf-8") as file:
        return outcome, list(csv.DictReader(file))


def black_scholes(folder, market, book, **named):
    return run(folder, market, book, "--model", "black-scholes", **named)


@pytest.mark.slow
def test_names_are_names_wherever_they_stand(tmp_path):
    """A curve, an equity, a currency and an id each of one name that acts elsewhere."""
    vols = {"days": [165], "strikes": [4500], "vols_by_expiry": [[0.3]]}
    market = {
        "asof": "2002-07-05",
        "currency": PAYLOADS[0],
        "curves": {name: {"zero_rate": 0.03} for name in PAYLOADS},
        "equities": {
            name: {"curve": name, "currency": name, "spot": 4468.0, "implied_vols": vols}
            for name in PAYLOADS
        },
    }
    trades = [{**BOOK[0], "id": name, "underlying": name} for name in PAYLOADS]
    outcome, rows = black_scholes(tmp_path, json.dumps(market).encode(), csv_of(trades))
    assert outcome.exit_code == 0, outcome.output
    assert [row["id"].removeprefix("'") for row in rows] == list(PAYLOADS)
    assert [row["currency"].removeprefix("'") for row in rows] == list(PAYLOADS)
    for name in ("npv.csv", "sensitivity.csv"):
        with (tmp_path / "out" / name).open(newline="", encoding="utf-8") as file:
            assert not any(
                re.match(r"[=+@\t\r]|-\D", cell) for row in csv.reader(file) for cell in row
            )
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    for picture in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ET.fromstring(picture)
    for name in PAYLOADS[:3]:
        assert f"Spot: {name}" in page and f"{name} zero rates, value per 1 bp" in page
    assert any(f"EQUITY/PRICE/{name}" in outcome.stdout for name in PAYLOADS)


@pytest.mark.parametrize(
    "case", ["nothing but an as-of date", "the only curve is refused", "no equities"]
)
def test_a_market_of_which_little_is_left_sets_its_trades_aside(tmp_path, case):
    outcome, rows = black_scholes(tmp_path, MARKETS[case], csv_of(BOOK[:2]))
    assert outcome.exit_code == 1
    assert all(row["status"].startswith("failed: ") for row in rows)
    assert "'DAX'" in outcome.stderr


def test_too_few_quotes_are_a_reason_found_before_any_work(tmp_path, monkeypatch):
    def never(*_, **__):
        raise AssertionError("a calibration was begun")

    monkeypatch.setattr(market_models, "calibrate_precisely", never)
    market = json.loads(MARKETS["one implied vol"])
    market["swaption_vols"] = json.loads(MARKETS["one swaption vol"])["swaption_vols"]
    outcome, rows = run(tmp_path, json.dumps(market).encode(), csv_of((BOOK[0], *BOOK[9:11])))
    assert outcome.exit_code == 1
    words = "the {} free parameters of {} need more quotes: there are 1; give at least {}"
    assert words.format(5, "Heston", 5) in rows[0]["status"]
    assert rows[1]["status"] == "ok"  # a swap needs no vols
    assert words.format(2, "Hull-White", 2) in rows[2]["status"]
    assert "'equities.DAX.implied_vols'" in outcome.stderr


@pytest.mark.slow
def test_quotes_that_do_not_tell_parameters_apart_are_a_reason(tmp_path):
    """Five vols of one expiry: enough by number, and Heston has no single best fit to them."""
    dax = MARKET["equities"]["DAX"] | {
        "implied_vols": {
            "days": [180],
            "strikes": [4000, 4250, 4500, 4750, 5000],
            "vols_by_expiry": [[0.3] * 5],
        }
    }
    market = MARKET | {"equities": {"DAX": dax}, "correlations": {}}
    outcome, rows = run(tmp_path, json.dumps(market).encode(), csv_of((BOOK[0], BOOK[9])))
    assert outcome.exit_code == 1
    assert "Heston could not be calibrated: Ended where the loss" in rows[0]["status"]
    assert rows[1]["status"] == "ok"


@pytest.mark.slow
def test_a_swap_of_two_centuries_is_valued_and_shown(tmp_path):
    market = json.dumps(MARKET).encode()
    outcome, rows = black_scholes(tmp_path, market, BOOKS["a swap of three centuries"][1])
    assert (outcome.exit_code, [row["status"] for row in rows]) == (0, ["ok", "ok"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", ["a surrogate in a bad row", "a kind that is a terminal escape", "NUL bytes in a row"]
)
def test_a_bad_row_keeps_its_place_and_the_others_their_values(tmp_path, case):
    name, content = BOOKS[case]
    more = f"\n{csv_of([BOOK[0] | {'id': 'last'}]).decode().splitlines()[1]}".encode()
    content = content + more if name.endswith(".csv") else content
    outcome, rows = black_scholes(tmp_path, json.dumps(MARKET).encode(), content, name=name)
    assert outcome.exit_code == 1
    assert rows[-1]["status"] == "ok"
    assert "failed: " in "".join(row["status"] for row in rows)


@pytest.mark.slow
def test_the_largest_numbers_that_are_read_leave_the_others_their_values(tmp_path):
    extremes = [
        {"strike": 1e15}, {"strike": 1e-15}, {"quantity": -1e15}, {"expiry": "2199-12-31"},
        {"expiry": "2002-07-06", "strike": 1e-9},
    ]  # fmt: skip
    trades = [BOOK[0], *({**BOOK[0], "id": f"X{i}", **x} for i, x in enumerate(extremes))]
    market = json.loads(json.dumps(MARKET))
    market["equities"]["SX5E"]["spot"] = 1e15
    trades.append({**BOOK[0], "id": "S", "underlying": "SX5E"})
    outcome, rows = black_scholes(tmp_path, json.dumps(market).encode(), csv_of(trades, COLUMNS))
    assert rows[0]["status"] == "ok", outcome.output
    alone = black_scholes(tmp_path, json.dumps(MARKET).encode(), csv_of(BOOK[:1]))[1]
    assert rows[0]["value"] == alone[0]["value"]
