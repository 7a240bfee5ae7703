"""`jaxtape bench`: what runs, what is kept in a common form, the page of it, and mistakes."""

import importlib.util
import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import beside, harness, pictures
from benchmarks.page import Kept, latest, page
from benchmarks.timing import Timed, Timing, take_turns
from jaxtape.cli.main import app

pytestmark = pytest.mark.repeat

NAMES = list(harness.QUICK)


def bench(*words):
    return CliRunner().invoke(app, ["bench", *map(str, words)])


@pytest.fixture(scope="module")
def kept_page() -> str:
    return page(NAMES, [harness.RESULTS])


def section(text: str, name: str) -> str:
    (found,) = re.findall(rf'<h2 id="{name}">(.*?)(?=<h2 id=|</main>)', text, re.S)
    return found


def write(folder, name: str, **figures) -> None:
    (folder / name).write_text(json.dumps(figures), encoding="utf-8")


# --- the page of what is kept -----------------------------------------------------------------------------


def test_the_page_has_every_benchmark_and_its_latest_result(kept_page):
    results = latest([harness.RESULTS])
    assert len(results.keys() & set(NAMES)) > 20
    for name in NAMES:
        told = section(kept_page, name)
        assert re.search(r"<p>\w.{20,}</p>", told, re.S), name  # what it measures
        for kept in results.get(name, []):
            for text in (kept.file.name, kept.day, kept.figures["machine"]):
                assert text in told
        assert ("No result is kept" in told) == (name not in results)


def test_of_results_of_one_benchmark_the_latest_is_shown(kept_page):
    assert "2026-11-25-deep-bsde-2-cores-cpu.json" in kept_page
    assert "2026-11-22-deep-bsde-2-cores-cpu.json" not in kept_page


def test_the_page_stands_alone(kept_page):
    assert kept_page.count("<svg") == 2
    assert not re.search(r"<script|<link|<img|@import|(?:href|src)=\"http", kept_page)
    assert "jaxtape solve all" in section(kept_page, "published")  # no benchmark, but kept


def test_ratios_of_older_files_are_what_their_rows_say():
    """By hand, from the rows of three files of different forms."""
    older = "2026-11-22-{}-2-cores-cpu.json".format
    read = lambda name: Kept.read(harness.RESULTS / older(name))
    kept = read("heston-gradient")
    rows = {row["way"]: row for row in kept.figures["rows"]}
    peers = {row.peer: row for row in kept.comparisons}
    assert set(peers) == {name for name in rows if name.startswith("PyTorch")}
    for name, row in peers.items():
        assert row.speed.median == pytest.approx(rows[name]["speed_of_ours"])
        assert row.memory == pytest.approx(rows[name]["memory_of_ours"])
        assert row.speed.low is None or row.speed.rounds
    kept = read("equal-accuracy")
    ratios = [row["ratio"] for row in kept.figures["rows"]]
    assert [row.speed.median for row in kept.comparisons] == pytest.approx(ratios)
    kept = read("early-exercise")
    for found, row in zip(kept.answers[::2], kept.figures["rows"], strict=True):
        assert (found.known, found.found) == (row["answer"], row["lower"])
        assert found.std_error == row["lower_error"]
        assert found.error == pytest.approx(row["lower"] / row["answer"] - 1.0)


def test_labels_of_the_pictures_are_whole_and_axes_have_numbers(tmp_path):
    """A long task stands over its peers, and an axis of less than a decade is still labelled."""
    task, peer = "a task of very many words " * 6, "a peer of many words " * 4
    rows = [{"task": task.strip(), "ours": "jaxtape", "peer": peer.strip(), "speed": 3.0}]
    bars_of = [pictures.Bar(f"noise: {row['task']}", row["peer"], 3.0, 2.5, 3.4) for row in rows]
    texts = re.findall("<text[^>]*>([^<]*)</text>", pictures.bars(bars_of, "title", "axis"))
    assert f"noise: {task.strip()}" in texts and peer.strip() in texts
    assert {"1", "2", "axis"} <= set(texts)


def test_results_of_a_gpu_stand_beside_those_of_a_cpu(tmp_path):
    rows = [{"way": "jaxtape", "seconds": 1.0}, {"way": "PyTorch", "seconds": 3.0}]
    for backend in ("cpu", "gpu"):
        name = f"2026-11-20-noise-2-cores-{backend}.json"
        write(tmp_path, name, command="python -m benchmarks.noise", backend=backend, rows=rows)
    write(tmp_path, "2026-11-21-noise-2-cores-cpu.json", backend="cpu", rows=rows[:1])
    text = page(["noise"], [tmp_path])
    (picture,) = re.findall("<svg.*?</svg>", text, re.S)
    texts = re.findall("<text[^>]*>([^<]*)</text>", picture)
    assert texts.count("noise (gpu)") == texts.count("beside PyTorch") == 1
    days = {kept.platform: kept.day for kept in latest([tmp_path])["noise"]}
    assert days == {"cpu": "2026-11-21", "gpu": "2026-11-20"}


def test_what_is_no_result_is_passed_over(tmp_path):
    write(tmp_path, "notes.json", rows=[])
    (tmp_path / "2026-11-20-noise-2-cores-cpu.json").write_text("{cut", encoding="utf-8")
    (tmp_path / "2026-11-20-floors-2-cores-cpu.json").write_text("[1]", encoding="utf-8")
    assert latest([tmp_path]) == {}
    assert page(["noise"], [tmp_path]).count("No result is kept") == 1


def test_a_name_with_markup_is_shown_as_it_is(tmp_path):
    rows = [{"way": "ours", "seconds": 1.0}, {"way": "<b>&", "seconds": 2.0}]
    write(tmp_path, "2026-11-20-noise-2-cores-cpu.json", rows=rows)
    text = page(["noise"], [tmp_path])
    assert "<b>" not in text and "&lt;b&gt;&amp;" in text


# --- ratios and their spread --------------------------------------------------------------------------------


def test_the_spread_is_of_the_ratios_of_rounds():
    """A machine that is slow in some rounds slows both, and the ratio is as it was."""
    slow = np.array([1.0, 5.0, 1.0, 9.0, 2.0])
    ours, theirs = Timing.of(7.0, *slow), Timing.of(7.0, *(2.0 * slow))
    (found,) = beside.comparisons("", {"ours": ours, "theirs": theirs})
    assert (found.speed.low, found.speed.median, found.speed.high) == (2.0, 2.0, 2.0)
    assert found.speed.rounds == 5
    spread = beside.spread(dict(enumerate([1.0] * 5)), dict(enumerate([1.0, 2.0, 3.0, 4.0, 9.0])))
    assert (spread.low, spread.median, spread.high) == (2.0, 3.0, 4.0)


def test_a_way_that_sits_rounds_out_is_compared_in_those_that_it_ran():
    quick, slow = Timed(lambda: 0), Timed(lambda: 0)
    take_turns([quick], repeat=6)
    take_turns([slow], repeat=6, budget=0.0)  # two rounds
    assert list(quick.by_turn) == [0, 1, 2, 3, 4, 5]
    assert list(slow.by_turn) == [2, 5]
    assert beside.spread(quick.by_turn, slow.by_turn).rounds == 2


def test_other_rows_of_ours_are_no_peers():
    ways = {name: Timing.of(1.0, 1.0) for name in ("jaxtape", "jaxtape, wide", "PyTorch")}
    found = beside.comparisons("task", ways, {"jaxtape": 2.0, "PyTorch": 8.0})
    assert [(row.peer, row.memory) for row in found] == [("PyTorch", 0.25)]


# --- runs -----------------------------------------------------------------------------------------------------


def test_benchmarks_end_with_a_table_and_a_page_that_are_kept(tmp_path, monkeypatch, capfd):
    """One that goes well and one that fails: the table says which, and so does the exit status."""
    monkeypatch.setitem(harness.QUICK, "edits", "--nodes 8 --planned 1000")
    monkeypatch.setitem(harness.QUICK, "noise", "--rows 0")
    out, html = tmp_path / "out", tmp_path / "page.html"
    outcome = bench("edits", "noise", "--quick", "--repeat", 1, "--out", out, "--page", html)
    assert outcome.exit_code == 1
    (kept,) = out.glob("*-quick-*-cores-cpu.json")
    found = json.loads(kept.read_text(encoding="utf-8"))
    assert found["command"] == "jaxtape bench edits noise --quick --repeat 1"
    assert [(row["benchmark"], row["status"]) for row in found["rows"]] == [
        ("edits", "ok"),
        ("noise", "failed, exit status 2"),
    ]
    assert found["rows"][0]["headline"].startswith("a plan of 1,000 nodes")
    text = kept.with_suffix(".txt").read_text(encoding="utf-8")
    for shown in (text, outcome.stdout + capfd.readouterr().out):
        assert re.search(r"edits +│ ok +│ a plan of 1,000 nodes", shown)
        assert re.search(r"noise +│ failed, exit status 2", shown)
    (figures,) = map(Kept.read, out.glob("*-edits-*.json"))
    assert figures.of == "edits" and figures.figures["options"]["repeat"] == 1
    assert figures.file.name in section(html.read_text(encoding="utf-8"), "edits")


def test_a_run_that_fails_has_no_figures_of_another(tmp_path):
    """Of one that has no figures the file of an earlier run is left as it was."""
    write(tmp_path, "noise.json", headline="of an earlier run", left_out=["PyTorch: not there"])
    failed = harness.ended("noise", ["--rows", "0"], tmp_path / "noise.json")
    assert (failed.status, failed.headline, failed.left_out) == ("failed, exit status 2", "", [])
    (kept,) = tmp_path.iterdir()
    assert "of an earlier run" in kept.read_text(encoding="utf-8")


def test_rounds_are_given_to_those_that_have_them():
    assert harness.options_of("noise", False, 3) == ["--repeat", "3"]
    assert harness.options_of("deep_bsde", False, 3) == ["--seeds", "3"]
    assert harness.options_of("picard_check", False, 3) == []
    assert harness.options_of("noise", True, None)[:2] == ["--rows", "64"]


def test_the_list_is_of_all_benchmarks():
    assert bench("--list").stdout.split() == NAMES


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nosuch", "edits"], "nosuch: no such benchmark; give all, or some of pareto, floors"),
        (["all", "edits"], "all: no such benchmark"),
        ([], "nothing to do"),
        (["--repeat", "0", "edits"], "greater than or equal to 1"),
        (["--page", "."], "is a folder"),
        (["edits", "--out", __file__], "is not a folder"),
    ],
)
def test_a_mistake_ends_with_status_2_and_says_what_to_give(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(harness, "run", pytest.fail)
    outcome = bench(*words)
    assert outcome.exit_code == 2 and said in outcome.stderr
    assert not any(tmp_path.iterdir())


def test_without_a_checkout_the_command_says_how_to_get_one(monkeypatch):
    find = importlib.util.find_spec

    def absent(name, package=None):
        if name.partition(".")[0] == "benchmarks":
            raise ModuleNotFoundError(name)
        return find(name, package)

    monkeypatch.setattr("importlib.util.find_spec", absent)
    outcome = bench("--list")
    assert outcome.exit_code == 2
    assert "in a checkout of jaxtape, pip install -e '.[bench]'" in outcome.stderr
