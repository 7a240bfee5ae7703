"""Commands that are interrupted: nothing half-written, the usual exit status, and no wall of a traceback."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxtape.output_folder import AtomicOutput, mismatched_files

pytestmark = pytest.mark.repeat

ROOT = Path(__file__).parent.parent
SAMPLES = ROOT / "pricing" / "samples"
MARKET = "--market", SAMPLES / "dax_2002-07-05.json"
COMMANDS = {
    "risk": ("risk", "--trades", SAMPLES / "dax_book.csv", *MARKET, "--model", "black-scholes"),
    "calibrate": ("calibrate", *MARKET, "--underlying", "DAX", "--starts", "8"),
}
BEGUN = {"risk": "read ", "calibrate": "begun"}  # the line after which a command is at work
BEFORE = "what an earlier run left\n"
HEED = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
"""What runs in the background of a shell ignores Ctrl-C, and so would all that it starts."""
MAIN = """
import sys
from jaxtape.cli.main import main
import {module}
print("begun", file=sys.stderr, flush=True)
main()
"""
STATUS = {signal.SIGINT: 130, signal.SIGTERM: -signal.SIGTERM}  # which a shell calls 130 and 143


@pytest.mark.parametrize("sent", STATUS)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_interrupted_command_leaves_what_was_there(command, sent, tmp_path):
    out = tmp_path / "out"
    with AtomicOutput(out, "jaxtape risk").written() as folder:
        (folder / "report.html").write_text(BEFORE)
    words = [*map(str, COMMANDS[command]), "--out", str(out)]
    program = HEED + MAIN.format(module=f"calibration.app.{command}")
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"JAXTAPE_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(BEGUN[command]):
            break
    time.sleep(1.5)  # into tracing and compiling, of risk in several threads
    assert process.poll() is None
    process.send_signal(sent)
    try:
        printed, said = process.communicate(timeout=90)
    finally:
        process.kill()
    assert process.returncode == STATUS[sent], said
    assert "Traceback" not in said and len(said.splitlines()) < 10, said
    assert not printed
    shown = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert shown == {"report.html", "run.json"} and not mismatched_files(out)
    assert (out / "report.html").read_text() == BEFORE


@pytest.mark.parametrize("sent", STATUS)
def test_an_interrupted_write_leaves_the_last_run_whole(sent, tmp_path):
    """While files are made; what is left of a killed run is hidden, and the next one clears it."""
    program = """
import time
from pathlib import Path
from jaxtape.output_folder import AtomicOutput
import sys, typer
app = typer.Typer(pretty_exceptions_enable=False)
@app.command()
def write(text: str, wait: float):
    with AtomicOutput(Path("out"), "a test").written() as folder:
        (folder / "a.txt").write_text(text)
        print("half", flush=True)
        time.sleep(wait)
        (folder / "b.txt").write_text(text)
app()
"""
    command = [sys.executable, "-c", HEED + program]
    subprocess.run([*command, "first", "0"], cwd=tmp_path, check=True)
    process = subprocess.Popen(
        [*command, "second", "60"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stdout.readline() == b"half\n"
    process.send_signal(sent)
    _, said = process.communicate(timeout=60)
    assert process.returncode == STATUS[sent] and b"Traceback" not in said
    out = tmp_path / "out"
    assert mismatched_files(out) == []
    assert {(out / name).read_text() for name in ("a.txt", "b.txt")} == {"first"}
    shown = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert shown == {"a.txt", "b.txt", "run.json"}
    subprocess.run([*command, "third", "0"], cwd=tmp_path, check=True)
    assert {path.name for path in out.iterdir()} == shown
