"""Every benchmark runs to its end on a tiny problem, keeps its figures as JSON, and finds what is known."""

import argparse
import ast
import importlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest
import QuantLib as ql

import benchmarks
import jaxtape as jt
from benchmarks import harness, pareto_figure, quantlib_heston, quantlib_peer
from benchmarks.command import Run, installed, parser_of
from tests.helpers import double
from tests.references import DAX_SSE_AT_OPTIMUM, dax_heston

pytestmark = pytest.mark.repeat

ROOT = Path(benchmarks.__file__).parent
# tools that time nothing; compiled_sweeps needs the compiler of an accelerator
TOOLS = {"pareto_figure", "compiled_sweeps"}
AS_USERS_HAVE_IT = {
    "jax_enable_x64": True,
    "jax_numpy_rank_promotion": "allow",
    "jax_numpy_dtype_promotion": "standard",
}
TORCH = ["PyTorch"] if installed("torch") else []
DIFFRAX = ["diffrax"] if installed("diffrax") else []


@pytest.fixture
def run(tmp_path):
    """Runs a benchmark in this process, under JAX's own settings, and returns the figures that it keeps."""
    before = {name: getattr(jax.config, name) for name in AS_USERS_HAVE_IT}
    for name, value in AS_USERS_HAVE_IT.items():
        jax.config.update(name, value)

    def ran(name: str, arguments: str) -> dict:
        file, words = tmp_path / f"{name}.json", shlex.split(arguments)
        main = importlib.import_module(f"benchmarks.{name}").main
        assert main([*words, "--out", str(file)]) == 0
        found = json.loads(file.read_text(), parse_constant=pytest.fail)  # no NaN
        assert shlex.split(found["command"]) == ["python", "-m", f"benchmarks.{name}", *words]
        assert {"machine", "load", "versions", "backend", "options", "left_out"} <= set(found)
        for row in found["comparisons"]:
            speed = row["speed"]
            low, high = speed["low"] or speed["median"], speed["high"] or speed["median"]
            assert 0.0 < low <= speed["median"] <= high and speed["rounds"] >= 1
            assert row["memory"] is None or row["memory"] > 0.0
        return found | {"kept_in": file}

    yield ran
    for name, value in before.items():
        jax.config.update(name, value)


def by(found: dict, name: str) -> dict[str, dict]:
    return {row[name]: row for row in found["rows"]}


# --- what each must have found --------------------------------------------------------------------------


def of_pareto(found):
    (case,) = found["cases"]
    wanted = {"jaxtape", "lax.scan", "jax.checkpoint", "equinox", *DIFFRAX, *TORCH}
    assert {point["system"] for point in case["points"]} == wanted
    assert all(0.0 <= point["error"] < 1e-9 for point in case["points"])
    assert len({tuple(np.round(point["gradient"], 6)) for point in case["points"]}) == 1
    picture = found["kept_in"].with_suffix(".svg")
    assert pareto_figure.main([str(found["kept_in"]), str(picture)]) == 0
    assert picture.read_text(encoding="utf-8").startswith("<?xml")


def of_floors(found):
    rows = {(row["title"], row["noise"]): row for row in found["floors"]}
    assert set(rows) == {(m, n) for m in ("Heston", "Black-Scholes") for n in ("given", "drawn")}
    for (title, _), row in rows.items():
        assert row["advances"] == jt.advances(10, 8 if title == "Black-Scholes" else 4)
        assert min(row["second_order_bytes"], row["temp_bytes"]) > 0


def of_noise(found):
    ways = {"pricing.sampling", "pricing.sampling, 512-bit vectors", "jax.random"}
    ways |= {"torch.randn"} if TORCH else set()
    rows = {(row["way"], row["task"], row["dtype"]) for row in found["rows"]}
    assert rows == {
        (w, t, d) for w in ways for t in ("kept", "read") for d in ("float32", "float64")
    }
    assert all(abs(row["z_score"]) < 5.0 for row in found["rows"])


def of_heston_gradient(found):
    ours = "jaxtape", "jaxtape, 512-bit vectors"
    assert list(by(found, "way")) == [*ours, *(f"{peer}, eager" for peer in TORCH)]
    assert all(0.0 < row["gradient"]["spot"] < 1.0 for row in found["rows"])
    if TORCH:
        assert found["relative_difference_on_the_same_normals"] < 1e-3


def of_simulated_price(found):
    figures = [(row["figure"], row["way"]) for row in found["rows"]]
    assert figures == [(name, "without kernels") for name in ("value", "gradient", "Greeks")]


def of_edits(found):
    assert [row["bytes"] for row in found["rows"]] == [32 * 10**n for n in (0, 2, 4, 5)]
    edits = {"erase", "drop", "truncate", "mark", "split", "cut an array"}
    assert all(set(row["microseconds"]) == edits for row in found["rows"])


def of_first_price(found):
    off, empty, filled = found["rows"]
    assert filled["price"] + filled["greeks"] < off["price"] + off["greeks"]
    assert (off["ratio"], empty["cache"]) == (1.0, "empty")


def of_import_time(found):
    names = "jax, equinox, optax", "jaxtape", "pricing", "pricing.fbsde", "calibration"
    assert tuple(row["import"] for row in found["rows"]) == names
    assert all(row["processor_seconds"] > 0.1 for row in found["rows"])
    assert found["rows"][0]["wall_ratio"] == found["rows"][0]["processor_ratio"] == 1.0


def of_estimators(found):
    *usual, ours = found["gammas"]
    assert ours["estimator"].startswith("last quarter integrated")
    assert abs(ours["value"] - ours["answer"][0]) < 5.0 * ours["value_error"]
    assert abs(ours["gamma"] - ours["answer"][1]) < 5.0 * ours["gamma_error"]
    zero = {row["estimator"]: row["gamma"] for row in usual}["pathwise, twice"]
    assert zero == 0.0 < ours["answer"][1]
    exact, slopes = found["parameters"]["Fourier"], found["parameters"]["given the variance path"]
    for name, (mean, error) in slopes.items():
        assert abs(mean - exact[name][0]) < 5.0 * error


def of_equal_accuracy(found):
    assert [row["job"] for row in found["rows"]] == ["value, Delta, vega", "and Gamma"]
    assert all(0.0 < row["relative_error"] <= 0.1 for row in found["rows"])
    assert all((row["off"] or 0.0) < 5.0 for row in found["rows"])
    assert all((row["their_paths"] is not None) == bool(TORCH) for row in found["rows"])


def of_main_job(found):
    (row,) = found["rows"]
    assert (row["run"], row["status"]) == ("cold", 0)
    stages = [row[name] for name in ("import", "read", "value", "write")]
    assert 0.0 < sum(stages) <= row["wall"] + 0.3  # rounded to .1 s each
    assert row["programs"] > 0 and row["trace"] > 0.0


def of_single_precision(found):
    assert {(row["kind"], row["figure"]) for row in found["rows"]} == {
        ("european", "value"),
        ("european", "delta"),
    }
    for row in found["rows"]:
        assert row["trades"] == 26 and 0.0 < row["largest"] < 1e-5
        assert not row["too_far"] and not row["untrue"]
    assert found["failed"] == 0


def of_live_session(found):
    assert found["same_bits"] and len(found["seconds"]) == 5


def of_evenings(found):
    assert len(found["evenings"]) == 3 and found["largest_shares"]["residual"] < 1e-6
    assert found["largest_shares"]["higher_order"] < 0.02
    last = found["evenings"][-1]["status"]
    assert sum(last.values()) == 200 and last["expired"] > 0 and "failed" not in last


def of_many_surfaces(found):
    (row,) = found["rows"]
    assert (row["surfaces"], row["reasons"]) == (4, {}) and row["per_surface"] > 0.0
    assert found["worst_excess"] < 1e-5
    assert all(0 <= count <= 4 for count in found["coarse"].values())
    assert found["reading"] > 0.0


def of_quote_sensitivities(found):
    assert [row["quotes"] for row in found["rows"]] == [104, 25]
    for row in found["rows"]:
        assert row["difference"] < 1e-4  # of plain central differences
        assert row["seconds"]["bumps of all"] > row["seconds"]["quote_sensitivities"] > 0.0


def of_many_scaling(found):
    assert [row["devices"] for row in found["rows"]] == [1, 2]
    assert found["same_bits"]


def of_optimizers(found):
    assert [row["starts_at_optimum"] for row in found["rows"]] == [2] * 4
    for row in found["rows"]:
        assert abs(row["sum_squared_vol_points"] - DAX_SSE_AT_OPTIMUM) < 1e-3


def of_simulated_calibration(found):
    ours = "jaxtape", "lax.scan", "jaxtape, Jacobian forward", "jaxtape, Jacobian in reverse"
    assert list(by(found, "way")) == [*ours, *(f"{peer}, eager" for peer in TORCH)]
    assert found["fit"]["rms_residual"] < 10.0 and len(found["fit"]["parameters"]) == 5
    if TORCH:
        assert found["relative_difference_on_the_same_noise"] < 1e-8


def of_neural_sde(found):
    assert list(by(found, "way")) == ["jaxtape", "lax.scan", *(f"{peer}, eager" for peer in TORCH)]
    assert found["repricing"]["quotes"] == 104
    arbitrage = found["arbitrage"]
    assert min(arbitrage["least_butterfly"], arbitrage["least_calendar"]) > -1e-12
    if TORCH:
        assert found["relative_difference_on_the_same_noise"] < 1e-8


def of_large_book(found):
    assert (found["trades"], found["failed"], found["sensitivities"]) == (20, 0, 306)
    assert found["by_monte_carlo"] == 0


def of_early_exercise(found):
    (row,) = found["rows"]
    assert row["lower"] - 4.0 * row["lower_error"] < row["answer"]
    assert row["upper"] + 4.0 * row["upper_error"] > row["answer"]
    assert abs(row["gap"]) < 0.01


def of_bermudan(found):
    rows = by(found, "way")
    sweep, one_by_one = rows["ours, one reverse sweep"], rows["ours, 11 prices"]
    assert sweep["value_error"] < 1e-9
    assert 0.0 < one_by_one["sensitivity_error"] < 0.01  # the bump's own
    peer = rows["QuantLib, TreeSwaptionEngine(50)"]
    assert peer["value_error"] < 0.002
    assert peer["sensitivity_error"] < 0.05


def of_fbsde_unseen(found):
    (row,) = found["rows"]
    assert row["case"] == "call" and "OFF" not in row["verdicts"]
    assert max(row["z"]) < 4.0 and max(row["off"]) < 1.0


def of_deep_bsde(found):
    ways = ["jaxtape", *(f"{peer} {form} eager" for peer in TORCH for form in ("plain", "batched"))]
    assert list(by(found, "way")) == ways
    assert all(abs(row["errors"]["value"][0]) < 0.15 for row in found["rows"])


def of_picard_check(found):
    assert [row["problem"] for row in found["rows"]] == ["allen_cahn", "default_risk"]
    assert all(0.0 < row["std_error"] < 0.2 * row["value"] for row in found["rows"])


def of_many_dimensions(found):
    for row in found["rows"]:
        assert row["dim"] == 100 and abs(row["off"]) < 0.2
        assert row["known"] == pytest.approx(
            {"allen_cahn": 0.0527813, "hjb": 4.59016}[row["problem"]]
        )


def of_portfolio_fbsde(found):
    figures = {row["figure"]: row["found"] for row in found["rows"]}
    for name in ("value", "delta", "gamma"):
        assert figures[f"{name}, many beside alone, the same paths"] < 1e-4
    for name in ("delta", "gamma"):
        assert figures[f"{name} of the portfolio beside the sum"] < 1e-4
    assert figures["value, many beside alone, other paths"] < 0.1
    assert 0.0 < figures["standard error of delta, each contract worst"] < 0.5
    assert figures["standard error of value, the portfolio"] > 0.0


def of_book_gammas(found):
    figures = {row["figure"]: row["found"] for row in found["rows"]}
    for name, most in {"value": 0.02, "delta": 0.06, "gamma": 0.5}.items():
        assert 0.0 < figures[f"{name} off, median"] < most
        assert figures[f"{name} of the portfolio off"] < 5.0 * most
        assert figures[f"coverage of {name}, nominal 95 %"] > 0.6
    assert figures["contracts off by more that are not flagged"] == 0.0


def of_many_baskets(found):
    figures = {row["figure"]: row["found"] for row in found["rows"]}
    for name in ("value", "delta", "gamma", "vega", "theta", "rho"):
        assert figures[f"{name}, in tiles beside alone"] < 1e-9
    assert figures["baskets a second"] > 0.0


def of_xva(found):
    error = np.hypot(found["total_error"], found["nested_error"])
    assert abs(found["total"] - found["nested"]) < 5.0 * error + 0.01 * abs(found["nested"])
    assert found["cva"] > 0.0 and found["dva"] > 0.0
    assert all(abs(row["difference"]) < 0.2 for row in found["derivatives"])


def of_one_step_malliavin(found):
    ways = by(found, "way")
    assert list(ways) == [
        "jaxtape",
        *(f"{p} {v}, eager" for p in TORCH for v in ("plain", "tuned")),
    ]
    for row in ways.values():
        for figure, bound in {"value": 0.2, "delta": 0.4, "gamma": 0.6}.items():
            mean, ours = row["errors"][figure][0], ways["jaxtape"]["errors"][figure][0]
            assert 0.0 < mean < bound
            assert abs(mean - ours) < 0.05


def of_malliavin_networks(found):
    (row,) = found["rows"]
    assert (row["gamma"], row["width"]) == ("diagonal", 13)
    assert 0.0 < row["errors"]["gamma"][0] < 0.6


def of_malliavin_floor(found):
    assert [row["library"] for row in found["rows"]] == ["JAX", *TORCH]
    products = importlib.import_module("benchmarks.malliavin_floor").of_a_date
    more = products(3, 3, 64, 8) - products(3, 2, 64, 8)  # of an iteration
    assert (more[8, 3, 13], more[3, 8, 13], more[8, 13, 13], more[8, 3, 3]) == (5, 3, 6, 1)
    assert all(row["seconds"] > 0.0 < row["flops"] for row in found["rows"])


def of_two_rates(found):
    rows = by(found, "way")
    borrowing, picard = rows["always borrowing"], rows["Picard"]
    assert "published" not in rows
    assert borrowing["value"] < picard["value"]
    rule = rows["rule, a lower bound"]
    assert rule["value"] < picard["value"] + 4.0 * np.hypot(rule["error"], picard["error"])
    regression = rows["GradientRegression"]
    np.testing.assert_allclose(regression["value"], picard["value"], rtol=0.05)


def of_exercise_rule(found):
    assert abs(found["mean"] - found["published"]) < 4.0 * found["error"] < 1.0


def of_quantlib_peer(found):
    rows = [row for row in found["rows"] if row["differences"]]
    assert {row["task"] for row in rows} == {"20 Europeans", "20 barriers"}
    for row in rows:
        assert row["differences"]["value"][1] < 1e-8
        assert all(relative < 1e-4 for _, relative in row["differences"].values())
    ours, theirs = (
        float(found["facts"][f"sum of squared vol points, {n}"]) for n in ("ours", "QuantLib")
    )
    assert ours <= theirs * (1.0 + 1e-6)


def of_quantlib_heston(found):
    rows = {row["theirs"]: row for row in found["rows"] if row["differences"]}
    for engine in ("AnalyticHestonEngine", "ExponentialFittingHestonEngine"):
        gaps = rows[f"{engine}, 5 prices"]["differences"]
        assert gaps["value"][1] < 1e-6
        assert gaps["vega"][1] < 1e-4
    barriers = rows["FdHestonBarrierEngine 100x100x50, 2 grids"]["differences"]
    assert all(relative < 0.1 for _, relative in barriers.values())  # both grids are coarse
    assert any(fact.startswith("our 40 x 12 x 20 grid against") for fact in found["facts"])


def of_serve_load(found):
    assert sum(found["rounds"].values()) == found["latency"]["value"]["requests"] == 6
    assert not found["errors"] and found["difference"] < 1e-9
    assert {row["case"] for row in found["refusals"] if row["wanted"] != row["found"]} == set()
    assert len(found["refusals"]) > 20 and found["exit_status"] == 0
    crashes = found["crashes"]
    assert not crashes["lost"] and crashes["accepted_books"] > 0 < crashes["accepted_moves"]


Smoke = tuple[str, Callable[[dict], None]]  # arguments, and what checks the figures

SMOKE: dict[str, Smoke] = {
    "pareto": ("--steps 9 --paths 64 --noise given --devices 1 --repeat 1 --eager", of_pareto),
    "floors": ("--steps 10 --paths 16 --slots 4 --repeat 1", of_floors),
    "noise": ("--rows 64 --columns 4096 --repeat 1 --devices 1", of_noise),
    "heston_gradient": (
        "--steps 16 --paths 128 --tile 64 --torch-tile 64 --segment 4 --devices 1 --repeat 1 --eager",
        of_heston_gradient,
    ),
    "edits": ("--nodes 8 --repeat 1 --planned 1000", of_edits),
    "first_price": ("--repeat 1", of_first_price),
    "simulated_price": ("--paths 64 --steps 2 --block 64 --repeat 1", of_simulated_price),
    "import_time": ("--repeat 1", of_import_time),
    "estimators": (
        "--paths 5000 --slope-paths 4096 --contracts 1 --repeat 1",
        of_estimators,
    ),
    "equal_accuracy": (
        "--target 0.1 --batch 4096 --repeat 1 --kinds European",
        of_equal_accuracy,
    ),
    "large_book": ("--trades 20 --kinds european --devices 1 --repeat 1", of_large_book),
    "evenings": (
        "--trades 200 --evenings 3 --paths 256 --kinds european digital pending",
        of_evenings,
    ),
    "live_session": ("--trades 8 --repeat 1 --model heston", of_live_session),
    "simulated_calibration": (
        "--paths 256 --steps 32 --megabytes 32 --repeat 1 --eager",
        of_simulated_calibration,
    ),
    "neural_sde": (
        "--paths 128 --substeps 2 --training-steps 2 --test-sets 2 --repeat 1 --eager",
        of_neural_sde,
    ),
    "many_surfaces": ("--surfaces 4 --peer-surfaces 2 --repeat 1", of_many_surfaces),
    "many_scaling": (
        "--most-devices 2 --surfaces 9 --a-device 4 --repeat 1",
        of_many_scaling,
    ),
    "quote_sensitivities": ("--bumps 1 --repeat 2", of_quote_sensitivities),
    "optimizers": ("--starts 2 --repeat 1", of_optimizers),
    "main_job": ("--trades 1 --model black-scholes --only cold", of_main_job),
    "single_precision": (
        "--every 400 --kinds european --model black-scholes",
        of_single_precision,
    ),
    "early_exercise": ("--paths 1024 --repeat 1 --only 'put 36, 20%'", of_early_exercise),
    "bermudan": ("--pillars 10 --repeat 1 --bumps 1 --engines 1", of_bermudan),
    "fbsde_unseen": ("--only call --max-paths 8192", of_fbsde_unseen),
    "deep_bsde": ("--iterations 60 --seeds 1 --eager", of_deep_bsde),
    "portfolio_fbsde": (
        "--contracts 2 --paths 1024 --repeat 1 --fresh 512 --fresh-each 512",
        of_portfolio_fbsde,
    ),
    "book_gammas": (
        "--contracts 4 --paths 8192 --training 2048",
        of_book_gammas,
    ),
    "many_baskets": (
        "--baskets 6 --assets 2 --paths 64 --block 64 --budget 1",
        of_many_baskets,
    ),
    "xva": ("--trades 8 --dates 6 --paths 2048 --outer 64 --inner 8 --repeat 1", of_xva),
    "one_step_malliavin": (
        "--dim 3 --iterations 2 --paths 512 --batch 64 --seeds 1 --eager",
        of_one_step_malliavin,
    ),
    "malliavin_networks": (
        "--dim 3 --iterations 2 --paths 512 --batch 64 --seeds 2 --forms diagonal --widths 13",
        of_malliavin_networks,
    ),
    "malliavin_floor": (
        "--dim 3 --iterations 2 --paths 64 --batch 8 --operations 1000 --repeat 1",
        of_malliavin_floor,
    ),
    "two_rates": (
        "--seeds 2 --assets 3 --fit-paths 4096 --blocks 1 --rule-blocks 1",
        of_two_rates,
    ),
    "picard_check": ("--levels 2 --dim 5 --repeats 4", of_picard_check),
    "many_dimensions": ("--dims 100 --iterations 100 --levels 2", of_many_dimensions),
    "exercise_rule": ("--assets 2 --fit-paths 4096 --blocks 1", of_exercise_rule),
    "serve_load": ("--rounds 6 --clients 2 --contracts 5 --kills 1", of_serve_load),
    "quantlib_peer": ("--parts black-scholes --contracts 20 --repeat 1", of_quantlib_peer),
}


@double
@pytest.mark.parametrize("name", SMOKE)
def test_a_benchmark_runs_and_finds_what_is_known(name, run):
    arguments, check = SMOKE[name]
    check(run(name, arguments))


@pytest.mark.slow
@double
def test_values_of_the_book_under_heston_are_those_of_quantlib():
    """The smallest piece of what the slow test below runs."""
    market, book = quantlib_peer.sample()
    sides = quantlib_heston.Sides.of(market, dax_heston())
    claims = quantlib_heston.only(book, "european", "digital", every=300)
    assert len(claims.rows) == 7
    engine = ql.AnalyticHestonEngine(sides.peer.model)
    theirs = sides.peer.values(sides.peer.terminal(claims.trades, engine))["value"]
    np.testing.assert_allclose(sides.values(claims), theirs, rtol=1e-5, atol=1e-6)
    assert np.all(np.isfinite(sides.direction)) and sides.direction.any()


def test_barriers_on_dates_are_not_set_beside_an_engine_that_watches_all_the_time():
    _, book = quantlib_peer.sample()
    dates = [row.trade.dates for row in book.rows if row.type == "barrier"]
    assert sum(found is not None for found in dates) == 12
    assert len(quantlib_heston.only(book, "barrier").rows) == len(dates) - 12 == 150


@double
@pytest.mark.slow  # the programs of two kinds of trade with all their Greeks
def test_heston_beside_quantlib(run):
    arguments = "--parts heston --every 170 --judged 1 --coarser 10 --repeat 1"
    of_quantlib_heston(run("quantlib_peer", arguments))


@double
@pytest.mark.slow  # the programs of every kind of trade, in three processes
def test_a_book_of_every_kind_is_the_same_on_two_devices(run):
    found = run("large_book", "--trades 200 --devices 2 --repeat 1")
    assert (found["failed"], found["by_monte_carlo"]) == (0, 40)
    assert all(gap < 1e-8 for gap in found["gaps_of_1_and_2_devices"].values())


# --- peers that are not installed -----------------------------------------------------------------------


@double
@pytest.mark.parametrize(
    ("name", "peer"),
    [
        ("noise", "torch"),
        pytest.param("one_step_malliavin", "torch", marks=pytest.mark.slow),
        pytest.param("malliavin_floor", "torch", marks=pytest.mark.slow),
        pytest.param("bermudan", "QuantLib", marks=pytest.mark.slow),
        ("quantlib_peer", "QuantLib"),
    ],
)
def test_a_benchmark_goes_on_without_a_peer_and_says_so(name, peer, run, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, peer, None)  # as if it were not installed
    found = run(name, SMOKE[name][0])
    system = {"torch": "PyTorch", "QuantLib": "QuantLib"}[peer]
    assert [text for text in found["left_out"] if text.startswith(f"{system}: it is not installed")]
    assert f"left out: {system}: it is not installed; pip install" in capsys.readouterr().out
    assert not any(re.search(system, json.dumps(row)) for row in found["rows"])
    assert bool(found["rows"]) == (name != "quantlib_peer")


def test_no_benchmark_needs_a_peer_to_be_imported():
    """In a process of its own: here they have been imported."""
    names = [f"benchmarks.{name}" for name in sorted(with_main())]
    code = f"""
import importlib, sys
sys.modules |= dict.fromkeys(["torch", "QuantLib", "diffrax"])
for name in {names}:
    importlib.import_module(name)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT.parent)


@pytest.mark.parametrize("eager", [True, False])
def test_a_run_says_why_nothing_is_compiled_by_torch(eager, run, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("benchmarks.command.installed", lambda peer: True)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    parser = importlib.import_module("benchmarks.deep_bsde").parser()
    one = Run("deep_bsde", parser, ["--eager"] if eager else [])
    assert not one.compiles()
    why = "--eager was given" if eager else "there is no C++ compiler"
    assert one.left_out == [f"torch.compile: {why}"]
    assert f"left out: torch.compile: {why}" in capsys.readouterr().out


# --- the command line and the list of benchmarks --------------------------------------------------------


def with_main() -> set[str]:
    """The modules of benchmarks/ that are commands."""
    found = set()
    for file in ROOT.glob("*.py"):
        functions = ast.parse(file.read_text(encoding="utf-8")).body
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in functions):
            found.add(file.stem)
    return found


def test_every_benchmark_is_run_tested_and_told_of():
    names = with_main() - TOOLS
    assert names == set(harness.QUICK) == set(SMOKE)
    told = (ROOT / "README.md").read_text(encoding="utf-8")
    assert names | TOOLS == set(re.findall(r"^\| `.*?benchmarks\.(\w+)", told, re.M))


@pytest.mark.parametrize("name", sorted(harness.QUICK))
def test_options_that_make_a_benchmark_quick_are_known_and_change_it(name):
    """And those of the table above, and those that its docstring names."""
    module = importlib.import_module(f"benchmarks.{name}")
    parser = module.parser()
    usual = parser.parse_args([])
    for arguments in (harness.QUICK[name], SMOKE[name][0]):
        assert parser.parse_args(shlex.split(arguments)) != usual
    named = set(re.findall(r"\[--([\w-]+)", module.__doc__.split("`.", 1)[0]))
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    options = {action.option_strings[-1].removeprefix("--") for action in shown}
    assert named == options - {"help"}


def test_a_number_of_nothing_is_refused(capsys):
    with pytest.raises(SystemExit):
        parser_of(None, paths=8).parse_args(["--paths", "0"])
    assert "argument --paths: 0 is below 1" in capsys.readouterr().err
