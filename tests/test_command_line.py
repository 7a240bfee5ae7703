"""The command: exit statuses, files, messages, and figures equal to those of the library."""

import csv
import dataclasses
import errno
import json
import os
import pathlib
import re
import subprocess
import sys

import jax
import numpy as np
import pytest
from rich.table import Table
from typer import BadParameter, Exit
from typer.testing import CliRunner

from calibration import RESULTS, Calibration, MarketModels, market_models
from calibration.app import risk as risk_command
from calibration.app.console import (
    Output,
    Stages,
    bytes_of,
    summarize,
)
from jaxtape.cli import dry_run
from jaxtape.cli.main import app, refuse
from jaxtape.output_folder import mismatched_files
from jaxtape.programs.compile_for import TargetCompiler
from jaxtape.programs.compiled_report import CompiledReport
from jaxtape.programs.targets import target_of
from pricing import Book, RiskResult, TradeRisk
from pricing import risk as value_book
from pricing.market import Market
from pricing.models.surface_models import black_scholes
from pricing.reporting.positions import MEASURES

ROOT = pathlib.Path(__file__).parent.parent
MARKET = ROOT / "pricing" / "samples" / "dax_2002-07-05.json"
HEADER = (
    "id,type,underlying,quantity,option,strike,expiry,barrier,barrier_type,rebate,payout,amount\n"
)
GOOD = (
    "E1,european,DAX,10,call,4500,2003-03-18,,,,,\n",
    "E2,european,DAX,-7,put,4100,2002-10-18,,,,,\n",
    "D1,digital,DAX,3,call,4700,2002-12-17,,,,cash,100\n",
    "D2,digital,DAX,-2,put,4300,2003-06-15,,,,asset,1\n",
    "B1,barrier,DAX,5,call,4400,2003-03-18,3900,down-and-out,10,,\n",
    "B2,barrier,DAX,-4,put,4600,2002-12-17,5200,up-and-in,0,,\n",
)
BAD = "X1,european,DAX,1,call,-1,2003-03-18,,,,,\n"
NPV = (
    *("id", "type", "value", "std_error", "delta", "gamma", "vega", "theta", "rho", "method"),
    *("status", "delta_1pct", "gamma_1pct", "vega_1volpt", "theta_1day", "rho_1bp"),
    *("delta_1bp", "gamma_1bp", "vega_1bp", "vega_rates_1volpt", "currency"),
)


@pytest.fixture(autouse=True)
def _same_precision_after():
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def run_risk(folder, rows, *options, market=MARKET):
    folder.mkdir(parents=True, exist_ok=True)
    trades = folder / "trades.csv"
    trades.write_text(HEADER + "".join(rows))
    inputs = ("--trades", trades, "--market", market, "--out", folder / "out")
    return run("risk", *inputs, "--model", "black-scholes", *options)


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def valued(tmp_path_factory):
    folder = tmp_path_factory.mktemp("valued")
    return folder, run_risk(folder, GOOD)


@pytest.fixture(scope="module")
def expected(valued):
    folder, _ = valued
    market = Market.read(MARKET)
    return value_book(Book.read(folder / "trades.csv"), market, black_scholes)


@pytest.mark.repeat
def test_it_writes_every_file_and_says_where(valued):
    folder, outcome = valued
    assert outcome.exit_code == 0, outcome.output
    names = {path.name for path in (folder / "out").iterdir()}
    tables = {"npv.csv", "sensitivity.csv", "calibration.json", "report.html"}
    assert names == {*tables, "run.json"}
    run = json.loads((folder / "out" / "run.json").read_text())
    assert run["complete"] and run["command"].split()[0] == "jaxtape"
    assert run["files"].keys() == tables and not mismatched_files(folder / "out")
    assert str(folder / "out" / "report.html") in outcome.stdout
    assert "read 6 trades and 399 quotes" in outcome.stderr


def test_the_label_has_the_command_as_it_was_typed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/bin/jaxtape", "risk", "--out", "of a day"])
    with Output(tmp_path).written() as folder:
        (folder / "npv.csv").write_text("id")
    label = json.loads((tmp_path / "run.json").read_text())
    assert label["command"] == "jaxtape risk --out 'of a day'"


@pytest.mark.repeat
def test_positions_are_those_of_the_library_to_the_last_digit(valued, expected):
    folder, _ = valued
    rows = rows_of(folder / "out" / "npv.csv")
    assert tuple(rows[0]) == NPV
    assert [row["id"] for row in rows] == [line.split(",")[0] for line in GOOD]
    for row, line, trade in zip(rows, GOOD, expected.trades, strict=True):
        method = "FiniteDifference" if ",barrier," in line else "ClosedForm"  # on a curve of rates
        assert (row["status"], row["method"], row["currency"]) == ("ok", method, "EUR")
        position, found = trade.position, {name: float(row[name]) for name in MEASURES}
        assert found.pop("std_error") == trade.std_errors.value == 0.0
        assert found.pop("delta") == position.delta["DAX"]
        assert found.pop("gamma") == position.gamma["DAX", "DAX"]
        assert found == {
            name: getattr(position, name) for name in ("value", "vega", "theta", "rho")
        }


@pytest.mark.repeat
def test_scaled_columns_state_their_shift(valued):
    spot = 4468.17
    factors = {
        "delta_1pct": ("delta", 0.01 * spot),
        "gamma_1pct": ("gamma", 0.01 * spot**2),
        "vega_1volpt": ("vega", 0.01),
        "theta_1day": ("theta", 1 / 365),
        "rho_1bp": ("rho", 1e-4),
    }
    for row in rows_of(valued[0] / "out" / "npv.csv"):
        for column, (raw, factor) in factors.items():
            np.testing.assert_allclose(float(row[column]), float(row[raw]) * factor, rtol=1e-6)


@pytest.mark.repeat
def test_sensitivities_are_those_of_the_library_and_add_up(valued, expected):
    folder, _ = valued
    rows = rows_of(folder / "out" / "sensitivity.csv")
    assert tuple(rows[0]) == ("quote_id", "derivative", "shift", "scaled", "unit", "currency")
    derivatives = {row["quote_id"]: float(row["derivative"]) for row in rows}
    assert derivatives == expected.sensitivities
    positions = rows_of(folder / "out" / "npv.csv")
    for measure, kind in (("delta", "EQUITY/P"), ("vega", "EQUITY_O"), ("rho", "ZERO")):
        total = sum(float(row[measure]) for row in positions)
        by_quote = sum(value for quote, value in derivatives.items() if quote.startswith(kind))
        np.testing.assert_allclose(by_quote, total, rtol=1e-3 if total < 1e-3 else 1e-9)
    units = {row["unit"] for row in rows if row["unit"].startswith("EUR")}
    shifts = ("1 vol point", "1 bp", "1 % of spot", "1 % of correlation")
    of_dividends = "0.1 of dividend", "1 bp of the spot"
    assert units == {f"EUR per {shift}" for shift in (*shifts, *of_dividends)}


@pytest.mark.repeat
def test_the_report_opens_without_a_network(valued):
    page = (valued[0] / "out" / "report.html").read_text()
    assert page.lstrip().startswith("<!doctype html>")
    assert not re.search(r"<(link|img|iframe)\b|<script[^>]|@import|url\((?!#)", page)
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#)""", page)
    groups = "Risk by underlying, product and expiry"
    for heading in (groups, "Spot: DAX", "Volatility: DAX", "Rates and quotes", "Timings"):
        assert f">{heading}</h2>" in page


@pytest.mark.repeat
def test_a_bad_row_leaves_the_others_valued(tmp_path, expected):
    outcome = run_risk(tmp_path, (*GOOD[:2], BAD, *GOOD[2:]))
    assert outcome.exit_code == 1
    assert "trades.csv:4: column 'strike': -1 is not a positive number" in outcome.stderr
    rows = rows_of(tmp_path / "out" / "npv.csv")
    assert [row["id"] for row in rows] == ["E1", "E2", "X1", "D1", "D2", "B1", "B2"]
    failed = rows[2]
    assert failed["type"] == "european" and failed["status"].startswith("failed: ")
    assert all(failed[name] == "" for name in MEASURES)
    good = [row for row in rows if row["status"] == "ok"]
    assert sum(float(row["value"]) for row in good) == pytest.approx(expected.value, rel=1e-9)
    assert "strike" in (tmp_path / "out" / "errors.txt").read_text()
    assert "Failed trades" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.repeat
def test_a_clean_run_forgets_the_errors_of_the_last(tmp_path):
    assert run_risk(tmp_path, [BAD]).exit_code == 1
    assert (tmp_path / "out" / "errors.txt").exists()
    assert run_risk(tmp_path, GOOD[:1]).exit_code == 0
    assert not (tmp_path / "out" / "errors.txt").exists()


def test_many_errors_are_counted_on_the_screen_and_kept_in_the_file(tmp_path):
    rows = [BAD.replace("X1", f"X{index}") for index in range(60)]
    outcome = run_risk(tmp_path, rows)
    assert outcome.exit_code == 1
    shown = [line for line in outcome.stderr.splitlines() if "not a positive number" in line]
    assert len(shown) == 50 and "and 10 more" in outcome.stderr
    assert len((tmp_path / "out" / "errors.txt").read_text().splitlines()) == 60
    assert len(rows_of(tmp_path / "out" / "npv.csv")) == 60


def test_an_underlying_that_cannot_be_fitted_sets_its_trades_aside(tmp_path, monkeypatch):
    def unfinished(start, quotes, **settings):
        del settings
        return Calibration(start, quotes.vols, RESULTS.max_steps_reached, {})

    monkeypatch.setattr(market_models, "calibrate_precisely", unfinished)
    outcome = run_risk(tmp_path, GOOD, "--model", "heston")
    assert outcome.exit_code == 1
    assert "Heston could not be calibrated: Stopped at max_steps" in outcome.stderr
    statuses = {row["status"] for row in rows_of(tmp_path / "out" / "npv.csv")}
    assert all("could not be calibrated" in status for status in statuses)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--budget", "much"), "is not a size"),
        (("--budget", "1B"), "--budget: a budget of 1 bytes"),
        (("--devices", "999"), "--devices 999: there are"),
        (("--model", "sabr"), "sabr"),
        (("--precision", "half"), "half"),
        (("--paths", "0"), "--paths"),
        (("--seed", "-1"), "--seed"),
        (("--seed", str(2**63)), "9223372036854775807"),
        (("--paths", str(2**31)), "2147483647"),
    ],
)
def test_unusable_options_exit_with_2(tmp_path, options, message):
    outcome = run_risk(tmp_path, GOOD, *options)
    assert outcome.exit_code == 2
    assert message in outcome.stderr and "Traceback" not in outcome.output


@pytest.mark.parametrize("option", ["--trades", "--market", "--out"])
@pytest.mark.parametrize("path", ["", " ", "a\0b", "\ud800"])
def test_what_is_no_path_exits_with_2_and_writes_nothing(tmp_path, monkeypatch, option, path):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    outcome = run_risk(tmp_path, GOOD, option, path)
    assert outcome.exit_code == 2
    assert "is not a path: give" in outcome.stderr
    assert not list((tmp_path / "here").iterdir())


def test_a_file_that_not_every_run_writes_is_not_the_last_runs(tmp_path):
    for names in (("npv.csv", "scenarios.csv"), ("npv.csv",)):
        with Output(tmp_path, ["scenarios.csv"]).written() as folder:
            for name in names:
                (folder / name).write_text("new")
    assert (tmp_path / "npv.csv").exists() and not (tmp_path / "scenarios.csv").exists()


def test_of_a_book_on_one_line_every_failure_has_its_line():
    """A row with a mistake, which is told once, and beside it a trade that no method values."""
    good = {"type": "european", "underlying": "DAX", "option": "call", "expiry": "2003-03-18"}
    rows = [{"id": "G", **good, "strike": 4400}, {"id": "B", **good, "strike": -1}]
    book = Book.from_text(json.dumps(rows), "book.json")
    failed = [TradeRisk(row.id, row.type, 1.0, None, "", "failed: why") for row in book.rows]
    result = RiskResult(tuple(failed), 0.0, {}, {}, book.errors)
    told = risk_command._errors(result, book, None, None)
    assert (len(told) == 2 and "column 'strike'" in told[0]) or "'strike'" in told[0]
    assert told[1] == "book.json:1: trade 'G': failed: why"


def test_a_curve_without_a_fit_leaves_the_rest_to_explain():
    market = Market.read(MARKET)
    served = dataclasses.replace(market, swaption_vols=None)
    assert MarketModels(served, {}).restrict(market).swaption_vols is None
    assert MarketModels(market, {}).restrict(market).swaption_vols is market.swaption_vols


def test_what_is_said_stands_as_it_is(capsys):
    """No word of a name is markup, and none a terminal's command."""
    with Stages().stage("read") as said:
        said.append("calibrated [/red] :smile: \x1b[31m")
    table = Table("a")
    table.add_row("[/red] :smile:")
    summarize(table, pathlib.Path("out/[red]\x1b[0m/report.html"))
    with pytest.raises(Exit):
        refuse("a\x1b[31m [/red]\nb")
    said = capsys.readouterr()
    assert r"calibrated [/red] :smile: \x1b[31m (" in said.err
    assert r"jaxtape: a\x1b[31m [/red] b" in said.err
    assert "[/red] :smile:" in said.out and r"Report: out/[red]\x1b[0m/report.html" in said.out


def test_inputs_that_cannot_be_read_exit_with_2(tmp_path):
    (tmp_path / "bad.json").write_text("{")
    for outcome in (
        run("risk", "--trades", "none.csv", "--market", MARKET, "--out", tmp_path / "o"),
        run_risk(tmp_path, GOOD, market=tmp_path / "bad.json"),
        run(
            "calibrate", "--market", tmp_path / "bad.json", "--underlying", "DAX", "--out", tmp_path
        ),
    ):
        assert outcome.exit_code == 2
        assert len(outcome.stderr.splitlines()) == 1
        assert outcome.stderr.startswith("jaxtape: ")


def test_a_folder_that_cannot_be_written_exits_with_2(tmp_path):
    (tmp_path / "file").write_text("")
    outcome = run_risk(tmp_path, GOOD, "--out", tmp_path / "file" / "out")
    assert outcome.exit_code == 2
    assert "give another --out" in outcome.stderr


@pytest.fixture(scope="module")
def small_market(tmp_path_factory):
    """The sample market on three expiries and five strikes."""
    market = json.loads(MARKET.read_text())
    vols = market["equities"]["DAX"]["implied_vols"]
    rows, columns = (2, 4, 7), (2, 4, 6, 8, 10)
    del vols["days"]
    vols["expiries"] = [vols["expiries"][row] for row in rows]
    vols["strikes"] = [vols["strikes"][column] for column in columns]
    vols["vols_by_expiry"] = [
        [vols["vols_by_expiry"][row][column] for column in columns] for row in rows
    ]
    path = tmp_path_factory.mktemp("market") / "market.json"
    path.write_text(json.dumps(market))
    return path


@pytest.mark.repeat
def test_calibrate_writes_parameters_residuals_and_a_report(tmp_path, small_market):
    outcome = run("calibrate", "--market", small_market, "--underlying", "DAX", "--out", tmp_path)
    assert outcome.exit_code == 0, outcome.output
    found = json.loads((tmp_path / "calibration.json").read_text())
    names = ["initial_variance", "mean_reversion", "long_run_variance", "vol_of_vol", "correlation"]
    assert found["model"] == "heston"
    assert list(found["parameters"]) == names == list(found["standard_errors"])
    assert found["result"].startswith("Converged") and found["steps"] > 0
    assert len(found["residuals"]) == 15 and found["condition_number"] >= 1.0
    assert "EQUITY_OPTION/RATE_LNVOL/DAX/2002-09-18/3800" in found["residuals"]
    squares = sum((100 * residual) ** 2 for residual in found["residuals"].values())
    np.testing.assert_allclose(found["sum_squared_vol_points"], squares, rtol=1e-6)
    assert "Heston on DAX" in (tmp_path / "report.html").read_text()


class _Compiler(TargetCompiler):
    """A compiler that finds every program to fit."""

    def __init__(self):
        self.target, self.compiled = target_of("tpu:v5e:2x2"), []

    def compile(self, function, *args, **kwargs) -> CompiledReport:
        self.compiled.append(function.__name__)
        return CompiledReport(self.target.name, device_bytes=2**34, temporary_bytes=10**6)

    def __exit__(self, *_) -> None:
        """Do nothing: no process runs."""


@pytest.mark.repeat
def test_a_dry_run_of_calibrate_compiles_its_search_and_writes_nothing(
    tmp_path, small_market, monkeypatch
):
    compiler = _Compiler()
    monkeypatch.setattr(dry_run, "compiler_for", lambda name: compiler)
    command = (
        "calibrate",
        "--market",
        small_market,
        "--underlying",
        "DAX",
        "--out",
        tmp_path / "out",
    )
    options = "--precision", "double", "--target", "tpu:v5e:2x2", "--dry-run"
    outcome = run(*command, *options)
    assert outcome.exit_code == 0, outcome.output
    assert "solved" in compiler.compiled
    assert "compile and fit; the largest takes 1.0 MB" in outcome.output
    assert not (tmp_path / "out").exists()
    outcome = run(*command, "--dry-run")
    assert outcome.exit_code == 2 and "--target and --dry-run: give both" in outcome.output


def test_a_report_that_cannot_be_written_leaves_the_last_run_whole(
    tmp_path, small_market, monkeypatch
):
    inputs = ("--market", small_market, "--underlying", "EUR", "--out", tmp_path)
    assert run("calibrate", *inputs).exit_code == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(path, *_):
        path.write_text("<!doctype html>")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("calibration.app.calibrate.write_fit_report", full)
    outcome = run("calibrate", *inputs, "--max-steps", 1)
    assert outcome.exit_code == 2
    assert f"jaxtape: {tmp_path}: cannot be written: No space left" in outcome.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_rename_that_fails_says_which_files_are_of_an_earlier_run(
    tmp_path, small_market, monkeypatch
):
    out, later = tmp_path / "out", tmp_path / "later.json"
    market = json.loads(small_market.read_text())
    market["swaption_vols"]["vols_by_expiry"][0][0] += 0.001
    later.write_text(json.dumps(market))  # the same market in as short a time has the same page
    of_curve = ("--underlying", "EUR", "--out", out)
    assert run("calibrate", "--market", small_market, *of_curve).exit_code == 0
    replace = pathlib.Path.replace

    def refused(path, target):
        if path.name == "report.html":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return replace(path, target)

    monkeypatch.setattr(pathlib.Path, "replace", refused)
    outcome = run("calibrate", "--market", later, *of_curve)
    assert outcome.exit_code == 2
    place, mixed = out / "report.html", "report.html is not of the last run"
    assert f"{place}: cannot be written: Permission denied" in outcome.stderr
    assert mixed in outcome.stderr and mismatched_files(out) == ["report.html"]


def test_a_calibration_that_stops_early_exits_with_1(tmp_path, small_market):
    inputs = ("--market", small_market, "--underlying", "DAX", "--out", tmp_path)
    outcome = run("calibrate", *inputs, "--max-steps", 1)
    assert outcome.exit_code == 1
    assert "Stopped at max_steps" in outcome.stderr


def test_calibrate_names_the_underlyings_it_knows(tmp_path):
    outcome = run("calibrate", "--market", MARKET, "--underlying", "DAXX", "--out", tmp_path)
    assert outcome.exit_code == 2
    assert "did you mean 'DAX'? the underlyings are EUR, DAX" in outcome.stderr
    inputs = ("--market", MARKET, "--underlying", "EUR", "--out", tmp_path)
    outcome = run("calibrate", *inputs, "--model", "heston")
    assert outcome.exit_code == 2
    assert "--model heston: EUR has vols for hull-white, g2" in outcome.stderr


def test_help_lists_the_commands():
    outcome = run("--help")
    assert outcome.exit_code == 0
    assert "calibrate" in outcome.stdout and "risk" in outcome.stdout
    assert run("nonsense").exit_code == 2
    assert re.fullmatch(r"jaxtape \d+\.\d+\.\d+\S*\n", run("--version").stdout)


def test_sizes():
    assert [bytes_of(text) for text in ("1GiB", "512 MiB", "2kB", "7", "1e9")] == [
        *(2**30, 2**29, 2000, 7, 10**9)
    ]
    for text in ("", "0", "-1GiB", "1.2.3MB", "GiB", "nan"):
        with pytest.raises(BadParameter, match="is not a size"):
            bytes_of(text)


COMMANDS = """
import json, sys
from jaxtape.cli.main import main
for words in json.loads(sys.argv[1]):
    sys.argv, status = ["jaxtape", *words], 0
    try:
        main()
    except SystemExit as end:
        status = end.code or 0
    print(status, end=chr(0), file=sys.stderr)
"""


def jaxtape(*commands):
    """What each command says on standard error, its exit status behind it; all in one process."""
    cache = os.environ.get("JAXTAPE_CACHE") or str(ROOT / ".jax_cache")
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps([[*map(str, words)] for words in commands])],
        env={**os.environ, "JAXTAPE_CACHE": cache},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    *said, rest = done.stderr.split(chr(0))
    assert len(said) == len(commands) and not rest
    return said


@pytest.mark.repeat
def test_in_a_process_of_its_own(tmp_path, expected):
    """Single precision gives the figures, and states their errors; an error is a line and no traceback."""
    trades, out = tmp_path / "trades.csv", ("--market", MARKET, "--out", tmp_path / "out")
    trades.write_text(HEADER + "".join(GOOD[:3]))
    single = ("--model", "black-scholes", "--precision", "single")
    valued, refused = jaxtape(
        ("risk", "--trades", trades, *out, *single), ("risk", "--trades", tmp_path, *out)
    )
    assert valued.splitlines()[-1] == "0", valued
    for row, trade in zip(rows_of(tmp_path / "out" / "npv.csv"), expected.trades, strict=False):
        position = trade.position
        wanted = {"value": position.value, "delta": position.delta["DAX"], "vega": position.vega}
        for measure, figure in wanted.items():
            np.testing.assert_allclose(float(row[measure]), figure, rtol=1e-3)
        assert abs(float(row["value"]) - position.value) <= float(row["rounding_error"]) + 1e-6
    assert json.loads((tmp_path / "out" / "run.json").read_text())["precision"] == "single"
    assert "computed in single precision" in (tmp_path / "out" / "report.html").read_text()
    assert refused == f"jaxtape: {tmp_path}: is a directory; give the path of a file\n2"


@pytest.mark.repeat
def test_a_shell_completes_commands_and_options():
    def completed(words: str) -> list[str]:
        asked = {"_JAXTAPE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "1"}
        code = "import sys; sys.argv = ['jaxtape']; from jaxtape.cli.main import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True
        )
        return done.stdout.split()

    assert completed("jaxtape ca") == ["cache", "calibrate"]
