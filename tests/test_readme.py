"""The Python of the README does and prints what the README says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST, SECOND = re.findall(r"```python\n(.*?)```", TEXT, re.S)


def run(program: str) -> str:
    """Return what a program prints in a process of its own, as a user has it."""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    return done.stdout


def test_prices_and_greeks():
    (printed,) = re.findall(r"```text\n(.*?)```", TEXT, re.S)
    said, found = (re.split(r"(\d+\.\d+)", text) for text in (printed, run(FIRST)))
    assert found[::2] == said[::2]
    for one, other in zip(map(float, found[1::2]), map(float, said[1::2]), strict=True):
        assert one == pytest.approx(other, abs=2e-6)


@pytest.mark.slow
def test_a_calibration_and_the_risk_of_a_book():
    """In one program after the first block, which sets float64."""
    (quote,) = re.findall(r'sensitivities\["(.*?)"\]', SECOND)
    told = run(f"{FIRST}\n{SECOND}\nprint(len(result.trades), result.sensitivities[{quote!r}])")
    trades, sensitivity = told.splitlines()[-1].split()
    assert (trades, abs(float(sensitivity)) > 0.0) == ("2096", True)
