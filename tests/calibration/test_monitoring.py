"""The monitor of nightly runs: each alarm has its place, value and limit, and a good run has none."""

import json
import os
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from calibration.app.monitor.alarms import Thresholds, alarms, summary
from calibration.app.monitor.runs import read_run
from jaxtape.cli.main import app
from jaxtape.output_folder import AtomicOutput
from pricing import Book, Market, Measures, RiskResult, TradeRisk
from pricing.reporting import positions_of, quote_risks, write_positions, write_quote_risks
from tests.calibration.test_serving import MARKET, SPOT

BOOK = Book.from_text(
    "id,type,underlying,quantity,option,strike,expiry\n"
    "E1,european,DAX,10,call,4500,2003-03-18\n"
    "=E2,european,DAX,-7,put,4100,2002-10-18\n"
)
VOL = "EQUITY_OPTION/RATE_LNVOL/DAX/2002-12-17/4400"
FIT = {
    "result": "Converged.",
    "parameters": {"initial_variance": 0.1, "correlation": -0.6},
    "standard_errors": {"initial_variance": 0.002, "correlation": 0.01},
    "condition_number": 900.0,
    "sum_squared_vol_points": 4.0,
    "residuals": {VOL: 0.02, VOL.replace("4400", "4500"): -0.001},
}


def run(
    folder,
    *,
    book=BOOK,
    values=(400.0, 60.0),
    errors=(0.0, 0.0),
    statuses=("ok", "ok"),
    spot=4.0,
    **fit,
):
    """A run of `jaxtape risk` in a folder, as its own writers write one, with these figures of contracts."""
    market = Market.from_text(json.dumps(MARKET))
    trades = tuple(
        TradeRisk(row.id, row.type, 0.0, None, "", status)
        if status != "ok"
        else TradeRisk(
            *(row.id, row.type, row.trade.quantity),
            Measures(value, {"DAX": 0.5}, {("DAX", "DAX"): 1e-3}, 900.0, -200.0, 300.0),
            *("MonteCarlo", "ok", Measures(error)),
        )
        for row, value, error, status in zip(book.rows, values, errors, statuses, strict=True)
    )
    result = RiskResult(trades, 0.0, {SPOT: spot, VOL: 50.0}, {}, ())
    with AtomicOutput(folder, "jaxtape risk").written() as aside:
        write_positions(aside / "npv.csv", positions_of(result, book, market))
        write_quote_risks(aside / "sensitivity.csv", quote_risks(result, market))
        (aside / "calibration.json").write_text(json.dumps({"DAX": {**FIT, **fit}}))
    return folder


def found(folder, *, limits=Thresholds(), yesterday=None):  # noqa: B008  # a value
    before = None if yesterday is None else read_run(yesterday)
    return alarms(read_run(folder), before, limits)


def test_a_good_run_and_the_one_before_have_no_alarms(tmp_path):
    today, yesterday = run(tmp_path / "today"), run(tmp_path / "yesterday", values=(401.0, 60.5))
    assert found(today, yesterday=yesterday) == []
    read = read_run(today)
    assert [row["id"] for row in read.trades] == ["E1", "=E2"]  # without a spreadsheet's apostrophe
    assert (read.value, read.gross) == (10 * 400.0 - 7 * 60.0, 10 * 400.0 + 7 * 60.0)
    assert read.calibrations["DAX"].rms == pytest.approx(2.0**0.5)


@pytest.mark.parametrize(
    ("figures", "check", "place", "value", "limit"),
    [
        ({"result": "Stopped at max_steps."}, "converged", "calibration.json: DAX", None, None),
        ({"sum_squared_vol_points": 18.0}, "rms_vol_points", "calibration.json: DAX", 3.0, 2.0),
        ({"residuals": {VOL: -0.2}}, "residual_vol_points", f"DAX: {VOL}", 20.0, 10.0),
        ({"residuals": {VOL: None}}, "residual_vol_points", f"DAX: {VOL}", None, 10.0),
        ({"condition_number": 1e7}, "condition_number", "calibration.json: DAX", 1e7, 1e6),
        (
            {"standard_errors": {"correlation": 1.2}},
            *("relative_error", "DAX: correlation", 2.0, 1.0),
        ),
        ({"standard_errors": {"correlation": None}}, "relative_error", "correlation", None, 1.0),
        ({"errors": (0.884, 0.0)}, "std_error", "npv.csv: E1", 0.002, 1e-3),
        ({"values": (float("nan"), 60.0)}, "non_finite", "npv.csv: E1", 1, 0),
        ({"statuses": ("ok", "failed: no method")}, "failed", "npv.csv: =E2", 1, 0),
    ],
)
def test_an_alarm_has_its_place_its_value_and_its_limit(
    tmp_path, figures, check, place, value, limit
):
    one = [alarm for alarm in found(run(tmp_path, **figures)) if alarm.check == check]
    assert len(one) == 1 and place in one[0].place and one[0].message
    assert (one[0].value, one[0].limit) == (value and pytest.approx(value), limit)
    assert found(run(tmp_path)) == []


def test_a_trade_that_a_run_has_set_aside_as_not_finite_counts_twice(tmp_path):
    status = "failed: a figure is not finite; check the trade's numbers for extremes"
    checks = {alarm.check: alarm for alarm in found(run(tmp_path, statuses=(status, "ok")))}
    assert set(checks) == {"failed", "non_finite"} and status in checks["failed"].message
    allowed = Thresholds(failed=1, non_finite=1)
    assert found(tmp_path, limits=allowed) == []


def test_a_limit_that_is_no_number_lets_nothing_through(tmp_path):
    told = found(run(tmp_path), limits=Thresholds(rms_vol_points=float("nan")))
    assert [alarm.check for alarm in told] == ["rms_vol_points"]


def test_rows_of_one_id_count_each_for_itself(tmp_path):
    """A duplicate that the book has set aside takes nothing from the trade whose id it bears."""
    twice = replace(BOOK, rows=(*BOOK.rows, *[replace(BOOK.rows[0], trade=None)] * 2))
    figures = {"errors": (0.0,) * 4, "statuses": ("ok", "ok", "failed: twice", "failed: twice")}
    today = run(tmp_path / "today", book=twice, values=(480.0, 60.0, 0.0, 0.0), **figures)
    yesterday = run(tmp_path / "yesterday", book=twice, values=(400.0, 60.0, 0.0, 0.0), **figures)
    told = {alarm.check: alarm for alarm in found(today, yesterday=yesterday)}
    assert set(told) == {"failed", "value_drift", "trade_drift"}
    assert told["failed"].value == 2 and "E1: failed: twice" in told["failed"].message
    said = summary(read_run(today), read_run(yesterday))
    assert (said["trades"], said["failed"], said["trades_new"]) == (4, 2, 0)
    assert (said["value"], said["value_change"]) == (10 * 480.0 - 7 * 60.0, 800.0)


def test_drift_is_told_of_the_book_of_each_trade_and_of_each_quote(tmp_path):
    yesterday = run(tmp_path / "yesterday")
    today = run(tmp_path / "today", values=(480.0, 60.0), spot=12.0)
    told = {alarm.check: alarm for alarm in found(today, yesterday=yesterday)}
    assert set(told) == {"value_drift", "trade_drift", "sensitivity_drift"}
    gross = 10 * 480.0 + 7 * 60.0
    assert told["value_drift"].value == told["trade_drift"].value == pytest.approx(800.0 / gross)
    assert told["trade_drift"].place.endswith("npv.csv: E1")
    assert told["sensitivity_drift"].place.endswith(f"sensitivity.csv: {SPOT}")
    assert told["sensitivity_drift"].value == pytest.approx(8.0 / 12.0)
    wide = Thresholds(value_drift=0.2, trade_drift=0.2, sensitivity_drift=0.7)
    assert found(today, yesterday=yesterday, limits=wide) == []


@pytest.mark.parametrize("figure", [float("nan"), float("inf"), float("-inf")])
def test_a_sensitivity_that_is_not_finite_is_an_alarm_and_hides_no_other(tmp_path, figure):
    today, yesterday = run(tmp_path / "today", spot=figure), run(tmp_path / "yesterday")
    (alone,) = found(today)
    assert (alone.check, alone.value, alone.limit) == ("finite", None, None)
    assert alone.place.endswith(f"sensitivity.csv: {SPOT}") and "not a finite" in alone.message
    assert found(today, yesterday=yesterday) == [alone]
    (back,) = found(yesterday, yesterday=today)
    assert (back.check, back.value) == ("sensitivity_drift", None)


def test_a_sensitivity_that_is_not_finite_is_no_measure_of_others(tmp_path):
    """Of two quotes in one unit, one is infinite, and the other one has grown."""
    folders = tmp_path / "today", tmp_path / "yesterday"
    for folder, lines in zip(folders, ("A,inf,EUR\nB,4,EUR", "A,1,EUR\nB,1,EUR"), strict=True):
        (run(folder) / "sensitivity.csv").write_text(f"quote_id,scaled,unit\n{lines}\n")
    told = {alarm.check: alarm for alarm in found(folders[0], yesterday=folders[1])}
    assert told["finite"].place.endswith(": A")
    assert told["sensitivity_drift"].place.endswith(": B")
    assert told["sensitivity_drift"].value == 0.75


def test_a_file_that_is_not_of_the_run_is_an_alarm(tmp_path):
    text = run(tmp_path).joinpath("npv.csv").read_text()
    tmp_path.joinpath("npv.csv").write_text(text.replace("MonteCarlo", "ClosedForm"))
    (alarm,) = found(tmp_path)
    assert (alarm.check, alarm.place) == ("complete", str(tmp_path / "npv.csv"))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("npv.csv", None, "No such file"),
        ("npv.csv", "a,b\n1,2\n", "KeyError"),
        ("npv.csv", "id,type,method,status,currency\nE1,european", "row 2 has 2 cells for 5"),
        ("npv.csv", "id,type,method,status,currency,value\nE1,,,ok,EUR,\n", "E1 has no value"),
        ("npv.csv", "", "npv.csv has no header"),
        ("npv.csv", f"id\n{'E' * 200_000}\n", "field larger than field limit"),
        ("sensitivity.csv", "quote_id,scaled,unit\nA,1", "row 2 has 2 cells for 3"),
        ("sensitivity.csv", "quote_id,scaled,unit\nA,much,EUR\n", "could not convert"),
        ("calibration.json", '{"DAX": {}}', "run it again"),
        ("run.json", "{", "run it again"),
        ("run.json", "[" * 100_000, "nested too deeply"),
        ("calibration.json", "[" * 100_000, "run it again"),
    ],
    ids=range(12),
)
def test_a_folder_that_is_no_run_is_refused(tmp_path, name, content, said):
    file = run(tmp_path) / name
    file.unlink()
    if content is not None:
        file.write_text(content)
    with pytest.raises(ValueError, match=said):
        read_run(tmp_path)


@pytest.mark.parametrize("name", ["npv.csv", "sensitivity.csv", "calibration.json", "run.json"])
def test_a_pipe_in_the_place_of_a_file_is_refused(tmp_path, name):
    """Reading one would never end."""
    file = run(tmp_path) / name
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ValueError, match=f"{name}: cannot be read: it is a pipe"):
        read_run(tmp_path)


@pytest.mark.parametrize("name", ["npv.csv", "sensitivity.csv"])
def test_a_file_that_was_cut_short_is_refused_or_an_alarm_wherever_it_ends(tmp_path, name):
    file = run(tmp_path) / name
    content = file.read_bytes()
    last_row = content.rindex(b"\n", 0, -1)
    for end in (0, 1, content.index(b"\n"), *range(last_row, len(content))):
        file.write_bytes(content[:end])
        try:
            assert found(tmp_path)[0].check == "complete"
        except ValueError as error:
            assert str(tmp_path) in str(error) and "run it again" in str(error)


def monitor(*words):
    return CliRunner().invoke(app, ["monitor", *map(str, words)])


def test_the_command_prints_json_and_its_status_says_whether_there_is_an_alarm(tmp_path):
    yesterday = run(tmp_path / "yesterday")
    today = run(tmp_path / "today", values=(480.0, 60.0))
    outcome = monitor(today, "--yesterday", yesterday, "--out", tmp_path / "alarms.json")
    document = json.loads(outcome.stdout)
    assert outcome.exit_code == 1
    assert json.loads((tmp_path / "alarms.json").read_text()) == document
    assert document["summary"]["value_change"] == 800.0 and document["summary"]["trades"] == 2
    assert [alarm["check"] for alarm in document["alarms"]] == ["value_drift", "trade_drift"]
    wide = "--max-value-drift", 0.2, "--max-trade-drift", 0.2
    outcome = monitor(today, "--yesterday", yesterday, *wide)
    assert (outcome.exit_code, json.loads(outcome.stdout)["alarms"]) == (0, [])
    outcome = monitor(tmp_path / "none")
    assert outcome.exit_code == 2 and "jaxtape risk --out" in outcome.stderr
    text = today.joinpath("npv.csv").read_text()
    today.joinpath("npv.csv").write_text(text[: text.index("ok,") + 2])
    outcome = monitor(today)
    assert outcome.exit_code == 2 and outcome.stderr.count("\n") == 1
    assert "row 2 has" in outcome.stderr and "run it again" in outcome.stderr
    outcome = monitor(today, "--out", tmp_path)
    assert outcome.exit_code == 2 and "it is a folder; give the path of a file" in outcome.stderr


def test_totals_of_a_run_are_by_currency(tmp_path):
    """A dollar book whose value doubles is an alarm, however large the one in euros beside it is."""
    head = "id,type,method,status,currency,value,std_error\n"
    euros, dollars = "E,european,ClosedForm,ok,EUR,1000000,0\n", "D,european,ClosedForm,ok,USD,"
    for name, value, error in (("today", 200.0, 0.5), ("yesterday", 100.0, 0.0)):
        folder = run(tmp_path / name)
        (folder / "npv.csv").write_text(f"{head}{euros}{dollars}{value},{error}\n")
    today, yesterday = (read_run(tmp_path / name) for name in ("today", "yesterday"))
    assert today.values == {"EUR": 1e6, "USD": 200.0} and today.value != today.value
    told = {alarm.check: alarm for alarm in alarms(today, yesterday, Thresholds())}
    assert (told["value_drift"].value, told["trade_drift"].value) == (0.5, 0.5)
    assert "in USD" in told["value_drift"].message and "npv.csv: D" in told["trade_drift"].place
    assert told["std_error"].value == 0.5 / 200.0
    said = summary(today, yesterday)
    assert said["value_changes"] == {"EUR": 0.0, "USD": 100.0}
    assert said["value_change"] != said["value_change"]  # no sum over currencies


def test_a_trade_whose_currency_changed_is_not_compared(tmp_path):
    for name, currency in (("today", "USD"), ("yesterday", "EUR")):
        folder = run(tmp_path / name)
        text = (folder / "npv.csv").read_text()
        (folder / "npv.csv").write_text(text.replace(",EUR", f",{currency}"))
    today, yesterday = (read_run(tmp_path / name) for name in ("today", "yesterday"))
    told = [alarm for alarm in alarms(today, yesterday, Thresholds()) if "drift" in alarm.check]
    assert "the value of E1 is in USD, and was in EUR" in [alarm.message for alarm in told]


@pytest.mark.parametrize("squares", [{"sum_squared_bp": 3600.0}, {"sum_squared_vol_points": 0.36}])
def test_residuals_of_normal_vols_are_bounded_in_basis_points(tmp_path, squares):
    """Vols of some 80 basis points, 60 of which are missed, are within any bound in vol points."""
    quotes = [f"SWAPTION/RATE_NVOL/EUR/{years}Y/5Y" for years in (1, 2)]
    fit = {
        "residuals": dict(zip(quotes, (0.006, 0.0), strict=True)),
        **squares,
    }
    told = {alarm.check: alarm for alarm in found(run(tmp_path, **fit))}
    assert set(told) == {"rms_bp", "residual_bp"} and quotes[0] in told["residual_bp"].place
    assert told["residual_bp"].value == pytest.approx(60.0)
    assert told["rms_bp"].value == pytest.approx(60.0 / 2.0**0.5)
    assert found(tmp_path, limits=Thresholds(rms_bp=45.0, residual_bp=61.0)) == []
    fits = summary(read_run(tmp_path), None)["fits"]
    assert fits["DAX"]["rms_bp"] == pytest.approx(60.0 / 2.0**0.5)
