"""What docs/serving.md tells to type, on a tiny book: a process that serves is killed, and has lost nothing."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from calibration.app.serve.database import Store
from calibration.app.serve.limits import ServiceLimits
from calibration.app.serve.session import Session
from jaxtape.cli.main import app
from tests.calibration.test_monitoring import run as nightly
from tests.calibration.test_serving import BOOK, MARKET, SPOT

pytestmark = pytest.mark.repeat

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
MAIN = "from jaxtape.cli.main import main; main()"


def words_of(command: str, **places: object) -> list[str]:
    """The words of a command of the page, with other places for those that it names."""
    (line,) = re.findall(rf"^jaxtape {command} .*$", PAGE, re.M)
    words = shlex.split(line)[1:]
    for option, place in places.items():
        words[words.index(f"--{option}") + 1] = str(place)
    return words


def test_a_service_that_has_just_begun_stops_when_it_is_told_to(tmp_path):
    market = tmp_path / "market.json"
    market.write_text(json.dumps(MARKET))
    words = "serve", "--market", str(market), "--state", str(tmp_path / "serve"), "--port", "0"
    command = [sys.executable, "-c", MAIN, *words]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=ROOT, text=True, **output) as process:
        try:
            assert process.stdout.readline().startswith("jaxtape serve: ")
            process.terminate()
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()


def test_a_service_is_started_asked_and_killed_and_has_lost_nothing(tmp_path, capsys):
    market, trades, state = tmp_path / "market.json", tmp_path / "first.csv", tmp_path / "serve"
    market.write_text(json.dumps(MARKET))
    trades.write_text(BOOK)
    words = words_of("serve", market=market, trades=trades, state=state)
    options = "--model", "black-scholes", "--port", "0"
    command = [sys.executable, "-c", MAIN, *words, *options]
    cache = {"JAXTAPE_CACHE": os.environ.get("JAXTAPE_CACHE") or str(ROOT / ".jax_cache")}
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | cache,
    ) as process:
        try:
            told = process.stdout.readline()
            url, place = re.fullmatch(r"jaxtape serve: (\S+), token in (.*)\n", told).groups()
            assert place == str(state / "token")
            program, writing = re.findall(r"```python\n(.*?)```", PAGE, re.S)
            exec(writing, {})  # a function, whose twin test_serving.py calls
            program = program.replace("http://127.0.0.1:8117", url)
            exec(program.replace("out/serve/token", place), {})
        finally:
            process.kill()
    value, delta = map(float, capsys.readouterr().out.split())
    assert value > 0.0 and 0.0 < delta < 1.0
    kept = Session(Store(state), market, ServiceLimits())
    assert kept.market.moves == {SPOT: 4500.0}
    assert (
        set(kept.books) == {"first", "desk"}
        and "E1,european,DAX,call,4500" in kept.books["desk"].text
    )


def test_two_runs_are_monitored(tmp_path):
    today, yesterday = nightly(tmp_path / "2026-11-25"), nightly(tmp_path / "2026-11-24")
    words = words_of("monitor", yesterday=yesterday, out=tmp_path / "alarms.json")
    words[words.index("out/2026-11-25")] = str(today)
    outcome = CliRunner().invoke(app, words)
    assert outcome.exit_code == 0, outcome.output
    assert json.loads((tmp_path / "alarms.json").read_text())["alarms"] == []
