"""`jaxtape solve`: a published problem beside what is known of it."""

import json
import os
import subprocess
import sys

from pricing.fbsde.catalogue import CATALOGUE


def run(*arguments: str, cache) -> subprocess.CompletedProcess:
    environment = os.environ | {"JAXTAPE_CACHE": str(cache)}
    command = [
        sys.executable,
        "-c",
        "from jaxtape.command_line import main; main()",
        "solve",
        *arguments,
    ]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_name_that_is_not_known_is_told(tmp_path):
    done = run("allan-cahn", cache=tmp_path)
    assert done.returncode == 2
    assert "allan-cahn: no such problem" in done.stdout
    assert "allen-cahn" in done.stdout


def test_figures_stand_beside_what_is_known(tmp_path):
    out, news = tmp_path / "table.json", tmp_path / "news"
    options = ("--seeds", "2", "--no-progress", "--out", str(out), "--metrics", str(news))
    done = run("down-and-out-90", *options, cache=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = {row["figure"]: row for row in json.loads(out.read_text())}
    assert set(rows) == {"value", "delta", "gamma"}
    known = CATALOGUE["down-and-out-90"]
    assert rows["value"]["known"] == known.value
    assert abs(rows["value"]["mean"] / known.value - 1.0) < 3e-3
    assert rows["value"]["spread"] > 0.0
    assert "down-and-out-90" in done.stdout
    lines = (news / "down-and-out-90" / "1" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 50
