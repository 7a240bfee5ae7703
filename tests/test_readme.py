"""The Python of the README does and prints what the README says."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from .documented import ROOT, blocks

pytestmark = pytest.mark.repeat

README = ROOT / "README.md"
FIRST, SECOND = blocks(README, "python")


def run(program: str, python: str = sys.executable, **options) -> str:
    """Return what a program prints in a process of its own, as a user has it."""
    options = {"cwd": ROOT, "capture_output": True, "text": True, **options}
    done = subprocess.run([python, "-c", program], check=False, **options)
    assert not done.returncode, done.stderr
    return done.stdout


def check_first(found: str) -> None:
    """It prints what the README says."""
    (printed,) = blocks(README, "text")
    said, told = (re.split(r"(\d+\.\d+)", text) for text in (printed, found))
    assert told[::2] == said[::2]
    for one, other in zip(map(float, told[1::2]), map(float, said[1::2]), strict=True):
        assert one == pytest.approx(other, abs=2e-6)


def check_second(run_it) -> None:
    """The book is valued, and its value has a derivative to the quote that the README asks for."""
    (quote,) = re.findall(r'sensitivities\["(.*?)"\]', README.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        program = SECOND.replace('"report.html"', repr(str(page)))
        shown = run_it(f"{program}\nprint(len(result.trades), result.sensitivities[{quote!r}])")
        assert page.stat().st_size > 10_000
    trades, sensitivity = shown.splitlines()[-1].split()
    assert (trades, abs(float(sensitivity)) > 0.0) == ("2112", True)


def test_prices_and_greeks():
    check_first(run(FIRST))


@pytest.mark.slow
def test_the_main_job_from_files_to_a_report():
    check_second(run)
