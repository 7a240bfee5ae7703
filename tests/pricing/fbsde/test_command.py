"""`jaxtape solve`: a published problem beside what is known of it."""

import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing.fbsde import CATALOGUE


def python(code: str, *arguments: str, cache) -> subprocess.CompletedProcess:
    environment = os.environ | {"JAXTAPE_CACHE": str(cache)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def run(*arguments: str, cache) -> subprocess.CompletedProcess:
    code = "from jaxtape.cli.main import main; main()"
    return python(code, "solve", *arguments, cache=cache)


SEVERAL = """
import json, sys
from jaxtape.cli.main import main
sys.stderr = sys.stdout
for words in json.loads(sys.argv[1]):
    sys.argv = ["jaxtape", "solve", *words]
    try:
        main()
    except SystemExit as end:
        print("exit status", end.code, end=chr(0))
"""


def refused(*commands: tuple[str, ...], cache) -> list[str]:
    """What each command prints before it ends with status 2, all in one process."""
    done = python(SEVERAL, json.dumps(commands), cache=cache)
    assert done.returncode == 0 and "Traceback" not in done.stdout, done.stderr
    *told, rest = done.stdout.split(chr(0))
    assert len(told) == len(commands) and not rest
    assert all(text.endswith("exit status 2") for text in told)
    return told


@pytest.mark.repeat
def test_what_cannot_be_done_is_told_before_anything_is_solved(tmp_path):
    """A name that is not known, and a table that cannot be written."""
    (tmp_path / "file").write_text("")
    outs = tmp_path, tmp_path / "file" / "table.json"
    tables = (("down-and-out-90", "--out", str(out)) for out in outs)
    (tmp_path / "mine.py").write_text("number = 3\ndef broken():\n    return 1 / 0\n")
    own = [(f"{tmp_path}/mine.py:{wanted}",) for wanted in ("missing", "number", "broken")]
    *errors, name = refused(*own, *tables, ("allan-cahn",), cache=tmp_path / "cache")
    missing, number, broken, *unwritten = errors
    assert "allan-cahn: no such problem" in name
    assert "allen-cahn" in name
    assert "cannot be read" in missing and "give FILE.py:NAME" in missing
    assert "is a int; give a Problem, or a function that returns one" in number
    assert "ZeroDivisionError" in broken and "mine.py, line 3" in broken
    for error in unwritten:
        assert "cannot be written" in error and "mean and spread" not in error


@pytest.mark.repeat
def test_figures_stand_beside_what_is_known(tmp_path):
    out, metrics = tmp_path / "table.json", tmp_path / "metrics"
    options = ("--seeds", "2", "--no-progress", "--out", str(out), "--metrics", str(metrics))
    done = run("down-and-out-90", *options, cache=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = {row["figure"]: row for row in json.loads(out.read_text())}
    assert set(rows) == {"value", "delta", "gamma"}
    known = CATALOGUE["down-and-out-90"]
    assert rows["value"]["known"] == known.value
    assert abs(rows["value"]["mean"] / known.value - 1.0) < 3e-3
    assert rows["value"]["apart"] < 3e-3
    assert rows["value"]["spread"] > 0.0
    assert "down-and-out-90" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} >= {"table.json", "metrics"}
    assert not (tmp_path / "run.json").exists()
    lines = (metrics / "down-and-out-90" / "1" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 50


@pytest.mark.repeat
def test_error_bars_are_of_fresh_paths(tmp_path):
    out = tmp_path / "table.json"
    options = ("--seeds", "1", "--no-progress", "--out", str(out), "--certify", "4096")
    done = run("different-rates-call", *options, cache=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "std error" in done.stdout
    for row in json.loads(out.read_text()):
        assert 0.0 < row["std_error"] < 0.1 * abs(row["known"])
        assert abs(row["certified"] - row["known"]) < 4.0 * row["std_error"]


OWN = """
import jax.numpy as jnp
from pricing.fbsde import Problem

def problem(rate=0.05):
    return Problem(
        1, 1.0, 100.0, num_steps=4,
        drift=lambda t, x: rate * x,
        diffusion=lambda t, x: 0.2 * x,
        driver=lambda t, x, y, z: -rate * y,
        terminal=lambda x: jnp.maximum(x[0] - 100.0, 0.0),
        step=lambda t, dt, x, dw: x * jnp.exp((rate - 0.02) * dt + 0.2 * dw),
    )
"""


@pytest.mark.repeat
def test_a_problem_of_ones_own_has_all_that_a_published_one_has(tmp_path):
    """Black-Scholes: 10.4506, .63683, .018762."""
    (tmp_path / "mine.py").write_text(OWN)
    out, folder = tmp_path / "table.json", tmp_path / "kept"
    files = "--out", str(out), "--resume", str(folder), "--metrics", str(tmp_path / "metrics")
    options = "--seeds", "1", "--no-progress", "--certify", "4096", "--pictures", str(tmp_path)
    done = run(f"{tmp_path}/mine.py:problem", *files, *options, cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    assert "mine.problem" in done.stdout and "GridQuadrature" in done.stdout
    rows = {row["figure"]: row for row in json.loads(out.read_text())}
    for figure, known in (("value", 10.4506), ("delta", 0.63683), ("gamma", 0.018762)):
        row = rows[figure]
        assert row["known"] is None and abs(row["mean"] / known - 1.0) < 5e-3
        assert abs(row["certified"] - known) < 4.0 * row["std_error"] + 2e-3 * known
    assert "<svg" in (tmp_path / "mine.problem.svg").read_text()
    assert (folder / "mine.problem" / "0" / "run.json").exists()
    lines = (tmp_path / "metrics" / "mine.problem" / "0" / "metrics.jsonl").read_text()
    assert len(lines.splitlines()) == 4


@pytest.mark.parametrize(
    ("name", "solution"),
    [
        ("bounded-5", lambda x: jnp.exp(0.5) * jnp.cos(jnp.sum(x))),
        ("burgers", lambda x: jax.nn.sigmoid(jnp.mean(x))),
        ("bounded-10-networks", lambda x: jnp.exp(0.5) * jnp.cos(jnp.sum(x))),
        ("hjb-riccati-gamma", lambda x: 0.2 * jnp.sum(x**2) + 50.0 * jnp.log(5.0)),
        ("black-scholes-barenblatt-gamma", lambda x: jnp.exp(0.21) * jnp.sum(x**2)),
    ],
)
def test_figures_of_the_catalogue_are_those_of_closed_forms(name, solution):
    entry = CATALOGUE[name]
    problem = entry.problem()
    figures, x0 = entry.figures(problem), problem.x0
    hessian = jax.hessian(solution)(x0)
    np.testing.assert_allclose(figures["value"], solution(x0), rtol=1e-6)
    np.testing.assert_allclose(figures.get("delta", 0.0 * x0), jax.grad(solution)(x0), rtol=1e-6)
    np.testing.assert_allclose(figures.get("gamma", 0.0), hessian, rtol=1e-6, atol=1e-12)
    if "cross gamma" in figures:
        assert figures["cross gamma"].shape == (problem.dim * (problem.dim - 1),)
        np.testing.assert_allclose(figures["cross gamma"], hessian[0, 1], rtol=1e-6)
