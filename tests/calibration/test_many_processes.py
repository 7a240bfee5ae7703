"""The command over many surfaces on several devices and processes: the same bytes, also when it is killed.

Every case starts real processes, which share what is compiled.
"""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from jaxtape.cli.main import TRY_AGAIN

pytestmark = pytest.mark.repeat

EXPIRIES, K = np.array([0.25, 0.5, 1.0, 2.0]), np.linspace(-0.25, 0.25, 8)
RUN = "from jaxtape.cli.main import main; main()"
ROOT = Path(__file__).parents[2]
QUICKLY = "--xla_backend_optimization_level=0"
COUNT = 200


def write_surfaces(path: Path, count: int) -> None:
    """Smiles in log-moneyness with a slope and a curvature of their own, a little rough."""
    dice = np.random.default_rng(20261124)
    level, slope, bend = dice.uniform((0.15, -0.3, 0.1), (0.35, -0.1, 0.6), (count, 3)).T
    shape = count, EXPIRIES.size, K.size
    t, k = EXPIRIES[:, None], K[None, :]
    of_each = lambda x: x[:, None, None]
    vols = of_each(level) + of_each(slope) * k / np.sqrt(t) * 0.3 + of_each(bend) * k**2
    vols = np.maximum(vols + dice.normal(0.0, 1e-3, shape), 0.03)
    names = np.repeat([f"S{i}" for i in range(count)], EXPIRIES.size * K.size)
    columns = {
        "surface": names,
        "spot": np.full(names.size, 100.0),
        "rate": np.full(names.size, 0.02),
        "expiry": np.broadcast_to(t, shape).ravel(),
        "strike": np.broadcast_to(100.0 * np.exp(k), shape).ravel(),
        "vol": vols.ravel(),
    }
    parquet.write_table(pa.table(columns), path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    found = tmp_path_factory.mktemp("many")
    write_surfaces(found / "quotes.parquet", COUNT)
    return found


def begun(
    folder: Path, out: str, *options: str, devices: int = 1, flags: str = QUICKLY
) -> subprocess.Popen:
    env = {
        **os.environ,
        "JAX_NUM_CPU_DEVICES": str(devices),
        "JAXTAPE_CACHE": str(folder / "cache"),
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": flags,
    }
    arguments = ["--market", str(folder / "quotes.parquet"), "--out", str(folder / out)]
    command = [sys.executable, "-c", RUN, "calibrate", *arguments, "--keep-every", "100", *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env=env, cwd=folder, start_new_session=True, **pipes)


def table(folder: Path, out: str) -> bytes:
    return (folder / out / "calibrations.parquet").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(folder) -> bytes:
    said, _ = (process := begun(folder, "one")).communicate(timeout=300)
    assert process.returncode in (0, 1), said
    found = parquet.read_table(folder / "one" / "calibrations.parquet")
    assert found["id"].to_pylist() == [f"S{i}" for i in range(COUNT)]
    assert (
        sum(not status.startswith("failed") for status in found["status"].to_pylist())
        > 0.95 * COUNT
    )
    return table(folder, "one")


@pytest.mark.parametrize(
    ("processes", "devices"),
    [(2, 2), pytest.param(1, 8, marks=pytest.mark.slow)],
    ids=["two processes of two devices", "eight devices"],
)
def test_any_number_of_devices_and_processes_finds_the_same_bytes(
    folder, undisturbed, processes, devices
):
    out = f"{processes} of {devices}"
    process = begun(folder, out, "--processes", str(processes), devices=devices)
    said, _ = process.communicate(timeout=300)
    assert process.returncode in (0, 1), said
    assert table(folder, out) == undisturbed


def children_of(pid: int) -> list[int]:
    """The processes that one has started, in the order in which it has."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sorted(map(int, listed))


def kept(folder: Path, out: str) -> set[str]:
    rounds = folder / out / "rounds"
    return (
        {path.name for path in rounds.iterdir() if path.suffix == ".npz"}
        if rounds.exists()
        else set()
    )


def test_a_process_that_dies_ends_the_job_in_a_minute_and_it_goes_on(folder, undisturbed):
    options = "--processes", "2", "--keep-every", "10"
    process = begun(folder, "killed", *options)
    while not kept(folder, "killed"):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    os.kill(children_of(process.pid)[-1], signal.SIGKILL)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == TRY_AGAIN
    assert "process 1 of 2 was killed by signal 9" in said and "--resume" in said, said
    before = kept(folder, "killed")
    assert 0 < len(before) < 20
    again = begun(folder, "killed", *options, "--resume")
    said, _ = again.communicate(timeout=300)
    assert again.returncode in (0, 1), said
    assert table(folder, "killed") == undisturbed


@pytest.mark.slow
def test_ten_kills_at_random_moments_lose_nothing(folder, undisturbed):
    """Of the command itself or of one of its processes, from the start of it to its end."""
    dice = random.Random(20261124)
    options = "--processes", "2", "--keep-every", "10", "--resume"
    kills = runs = 0
    while kills < 10:
        process = begun(folder, "ten", *options)
        time.sleep(dice.uniform(2.0, 12.0))
        if process.poll() is None:
            victims = [process.pid, *children_of(process.pid)]
            os.kill(dice.choice(victims), signal.SIGKILL)
            kills += 1
        process.communicate(timeout=60)  # the others end too: none holds the pipe
        if process.returncode in (0, 1):  # it was done before: the next kills are of a run anew
            assert table(folder, "ten") == undisturbed
            runs += 1
            (folder / "ten").rename(folder / f"run {runs}")
    last = begun(folder, "ten", *options)
    said, _ = last.communicate(timeout=300)
    assert last.returncode in (0, 1), said
    assert table(folder, "ten") == undisturbed


@pytest.mark.parametrize(
    ("raised", "shown", "hidden"),
    [
        ("ZeroDivisionError('of mine')", "ZeroDivisionError: of mine", None),
        ("typer.Exit(2)", "", "Traceback"),
    ],
)
def test_a_process_that_fails_says_why_before_it_ends(raised, shown, hidden):
    """A process of one, which is joined to none."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    text = (
        "import typer\nfrom calibration.app.processes import joined\n"
        f"with joined(1, {address!r}, 0, cluster=False):\n    raise {raised}"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", text]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2 and shown in ended.stderr
    assert hidden is None or hidden not in ended.stderr


def test_what_cannot_be_done_is_said(folder):
    for options, said in (
        (("--underlying", "DAX"), "is a table or a folder: leave out --underlying"),
        (("--devices", "9"), "--devices 9: there are 1 (cpu)"),
        (("--model", "hull-white"), "no quotes for HullWhite"),
    ):
        process = begun(folder, "refused", *options)
        found, _ = process.communicate(timeout=120)
        assert process.returncode == 2 and said in found, found
        assert "Traceback" not in found
