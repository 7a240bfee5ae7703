"""A file that no manifest of ours names stays: each command refuses, names it and asks for another place."""

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
from pathlib import Path

import jax
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from calibration import calibrate_many
from calibration.app.serve.auth import kept_token
from calibration.app.serve.database import KeptQuotes, Store, Unusable
from calibration.many import finish, forget
from jaxtape import set_program_store
from jaxtape.cli.cache import cache
from jaxtape.cli.main import app
from jaxtape.programs import store
from pricing.fbsde import DeepBSDE, problems
from pricing.fbsde.stage_metrics import metrics_file
from pricing.fbsde.stages import StageCheckpoints
from tests.calibration.test_monitoring import run as write_run

SAMPLES = Path(__file__).parent.parent / "pricing" / "samples"
MARKET, BOOK = SAMPLES / "dax_2002-07-05.json", SAMPLES / "dax_book.csv"
RISK = "risk", "--trades", BOOK, "--market", MARKET
EXPLAIN = "explain", "--trades", BOOK, "--before", MARKET, "--after", MARKET
CALIBRATE = "calibrate", "--market", MARKET, "--underlying", "DAX"
ALLEN_CAHN = problems.allen_cahn(2)
TABLE = "surface,spot,rate,expiry,strike,vol\nA,100,0.02,0.5,90,0.22\nA,100,0.02,0.5,110,0.2\n"


@pytest.fixture(autouse=True)
def _same_precision_after():
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAXTAPE_CACHE", str(tmp_path / "cache"))


def contents(folder):
    """Every file under a folder, but what commands keep for themselves."""
    files = (path for path in Path(folder).rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in files if "cache" not in path.parts}


def refused(*words) -> str:
    """What a command says that ends with status 2, and leaves every file as it was."""
    before = contents(".")
    outcome = CliRunner().invoke(app, [str(word) for word in words])
    assert outcome.exit_code == 2, (outcome.output, outcome.exception)
    assert contents(".") == before
    assert outcome.stderr.count("\n") == 1 or outcome.stderr.startswith("Usage:")
    return outcome.stderr


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (RISK, ("npv.csv", "sensitivity.csv", "errors.txt", "scenarios.csv", "report.html", "run.json")),
        (EXPLAIN, ("explain.csv", "explain.json", "errors.txt", "report.html")),
        (CALIBRATE, ("calibration.json", "errors.txt", "report.html", "run.json")),
    ],
    ids=["risk", "explain", "calibrate"],
)  # fmt: skip
def test_a_file_in_a_folder_that_is_not_ours_stays(command, names):
    for name in names:
        Path("out").mkdir()
        Path("out", name).write_text("mine")
        said = refused(*command, "--out", "out")
        assert f"out/{name}: cannot be written: it is there, and no earlier run" in said
        assert "give another --out" in said
        shutil.rmtree("out")


@pytest.mark.parametrize("name", ["calibration.json", "npv.csv", "scenarios.csv", "report.html"])
def test_an_input_in_the_folder_that_is_written_stays(name):
    shutil.copy(MARKET if name.endswith("json") else BOOK, name)
    kind = "--market" if name.endswith("json") else "--trades"
    assert f"{name}: cannot be written: it is" in refused(*RISK, kind, name, "--out", ".")
    if name == "calibration.json":
        assert name in refused("calibrate", "--market", name, "--underlying", "DAX", "--out", ".")


def test_an_input_that_a_run_has_written_stays():
    write_run(Path("out"))
    said = refused(*RISK, "--trades", "out/npv.csv", "--out", "out")
    assert "out/npv.csv: cannot be written: it is an input of this command" in said


def test_a_file_of_a_run_is_no_place_for_the_alarms_of_a_monitor():
    write_run(Path("out"))
    for name in ("npv.csv", "run.json", "calibration.json"):
        said = refused("monitor", "out", "--out", f"out/{name}")
        assert f"out/{name}: cannot be written: it is an input" in said and "another path" in said


def test_a_single_file_is_replaced_if_the_command_has_written_it_and_otherwise_stays():
    write_run(Path("out"))
    Path("mine.json").write_text("[1]")
    assert "mine.json: cannot be written: it is there" in refused(
        "monitor", "out", "--out", "mine.json"
    )
    for _ in range(2):
        outcome = CliRunner().invoke(app, ["monitor", "out", "--out", "alarms.json"])
        assert (
            outcome.exit_code == 0 and json.loads(Path("alarms.json").read_text())["alarms"] == []
        )
    assert sorted(os.listdir()) == [".alarms.json.jaxtape", "alarms.json", "mine.json", "out"]
    for words in (
        ("solve", "allen-cahn", "--out"),
        ("validate", "--out"),
        ("validate", "--html"),
        ("compare", "--jax", "a.py:f", "--torch", "a.py:f", "--inputs", "a.py:x", "--out"),
    ):
        assert "mine.json: cannot be written: it is there" in refused(*words, "mine.json")
    assert "page.html: give two files" in refused(
        "validate", "--html", "page.html", "--out", "./out/../page.html"
    )


@pytest.mark.parametrize("url", ["gs://bucket/out", "s3://bucket/out", "file:///tmp/out.json"])
@pytest.mark.parametrize(
    "words",
    [
        (*RISK, "--out"),
        (*EXPLAIN, "--out"),
        (*CALIBRATE, "--metrics-file"),
        ("monitor", "out", "--out"),
        ("solve", "all", "--out"),
        ("solve", "all", "--resume"),
        ("solve", "all", "--metrics"),
        ("validate", "--html"),
        ("compare", "--out"),
        ("bench", "--page"),
        ("serve", "--market", MARKET, "--state"),
    ],
    ids=lambda words: " ".join((words[0], words[-1])),
)
def test_a_url_is_refused(words, url):
    said = refused(*words, url).replace("│", "")
    assert "is a URL; give a local path" in " ".join(said.split())


def test_a_url_of_no_object_store_is_refused_where_others_are_taken():
    for option in ("--out", "--market"):
        said = refused(*CALIBRATE, option, "file:///tmp/out").replace("│", "")
        assert "give a local path, gs://BUCKET/NAME or s3://" in " ".join(said.split())


def test_a_url_is_refused_in_python():
    for refusing in (
        lambda: calibrate_many([], resume="http://b/runs"),
        lambda: StageCheckpoints(Path("gs://b"), ALLEN_CAHN, DeepBSDE(), key=jax.random.key(0)),
        lambda: set_program_store("gs://b/programs"),
        lambda: metrics_file(Path("gs://b/news")).__enter__(),
    ):
        with pytest.raises(ValueError, match="is a URL; give a local path"):
            refusing()
    assert not os.listdir()


# --- Kept rounds -----------------------------------------------------------------------------------------


@pytest.fixture
def kept():
    """A folder in which an earlier run has kept a round, and no results."""
    Path("out/rounds").mkdir(parents=True)
    Path("out/rounds/1024.npz").write_text("hours of work")
    Path("out/calibration-run.json").write_text('{"settings": "abc", "round": 1024}')
    Path("quotes.csv").write_text(TABLE)


@pytest.mark.parametrize("market", ["qoutes.csv", "no/such/folder", "quotes.csv"])
def test_kept_rounds_survive_a_slip_and_a_restart_without_resume(kept, market):
    said = refused("calibrate", "--market", market, "--out", "out")
    assert (
        ("no such file" in said)
        or ("give --market" in said)
        or "--resume" in said
        or market in said
    )
    if market == "quotes.csv":
        assert "holds 1 rounds of an unfinished run: give --resume" in said


@pytest.mark.parametrize("resume", [[], ["--resume"]])
@pytest.mark.parametrize("labelled", [False, True])
def test_a_folder_of_the_users_that_is_named_rounds_stays(kept, resume, labelled):
    Path("out/rounds/1024.npz").unlink()
    Path("out/rounds/of beer").write_text("2")
    if not labelled:
        Path("out/calibration-run.json").unlink()
    if resume and labelled:
        return
    said = refused("calibrate", "--market", "quotes.csv", "--out", "out", *resume)
    assert "out/rounds: exists, and was not made by a run of jaxtape" in said


@pytest.mark.parametrize("text", ["[]", "{", '{"name": "mine"}', "[" * 100_000])
def test_a_label_that_is_the_users_stays(kept, text):
    Path("out/calibration-run.json").write_text(text)
    for resume in ([], ["--resume"]):
        assert "calibration-run.json" in refused(
            "calibrate", "--market", "quotes.csv", "--out", "out", *resume
        )


def test_rounds_whose_results_are_in_a_file_make_room_for_the_next_run(kept):
    folder, results = Path("out"), Path("out/calibrations.parquet")
    results.write_bytes(b"all of it")
    with pytest.raises(ValueError, match="give --resume"):
        forget(folder, results)
    finish(folder, results)
    digest = hashlib.sha256(b"all of it").hexdigest()
    assert json.loads(Path("out/calibration-run.json").read_text())["results"] == digest
    results.write_bytes(b"something else")
    with pytest.raises(ValueError, match="give --resume"):
        forget(folder, results)
    results.write_bytes(b"all of it")
    forget(folder, results)
    assert sorted(os.listdir("out")) == ["calibrations.parquet"]


# --- Solutions, checkpoints, metrics, programs, a service -------------------------------------------------


def test_a_folder_of_the_users_is_no_place_for_checkpoints(tmp_path):
    (tmp_path / "stages" / "1").mkdir(parents=True)
    with pytest.raises(ValueError, match="stages does not belong to a run of this library"):
        StageCheckpoints(tmp_path, ALLEN_CAHN, DeepBSDE(), key=jax.random.key(0))
    (tmp_path / "run.json").write_text("[1]")
    with pytest.raises(ValueError, match="holds another run"):
        StageCheckpoints(tmp_path, ALLEN_CAHN, DeepBSDE(), key=jax.random.key(0))
    assert (tmp_path / "run.json").read_text() == "[1]" and (tmp_path / "stages" / "1").is_dir()


def test_metrics_are_appended_to_metrics_alone(tmp_path):
    for _ in range(2):
        with metrics_file(tmp_path / "m.jsonl") as note:
            note(3, {"loss": np.ones(2)})
    assert (tmp_path / "m.jsonl").read_text() == '{"stage": 3, "loss": [1.0, 1.0]}\n' * 2
    (tmp_path / "mine.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(ValueError, match="holds no metrics"), metrics_file(tmp_path / "mine.jsonl"):
        pass
    assert (tmp_path / "mine.jsonl").read_text() == '{"id": 1}\n'


def test_what_the_user_has_beside_programs_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXTAPE_CACHE", str(tmp_path))
    ours = f"jit_f-{'0a' * 32}-cache", f"programs/{'b1' * 32}.jaxtape", "programs/risk.jaxtape-last"
    mine = "browser-cache", "jit_notes-cache", "programs/call.jaxtape", "programs/my.jaxtape.bak"
    (tmp_path / "programs" / "sub.jaxtape").mkdir(parents=True)
    for name in (*ours, *mine):
        (tmp_path / name).write_bytes(b"0" * 100)
    store.trim(tmp_path / "programs", 0)
    command = typer.Typer()
    command.command()(cache)
    assert CliRunner().invoke(command, ["--clear"]).exit_code == 0
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {*mine}


def test_what_the_user_has_in_the_folder_of_a_service_stays(tmp_path):
    (tmp_path / "token.new").write_text("mine")
    kept_token(tmp_path / "token")
    assert (tmp_path / "token.new").read_text() == "mine"
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    with contextlib.closing(sqlite3.connect(tmp_path / "state.sqlite")) as mine:
        mine.execute("CREATE TABLE quotes (id TEXT)")
    with pytest.raises(Unusable, match="is not what a service writes"):
        Store(tmp_path)
    (tmp_path / "state.sqlite").unlink()
    Store(tmp_path).keep_quotes(KeptQuotes(version=3))
    assert Store(tmp_path).quotes().version == 3
