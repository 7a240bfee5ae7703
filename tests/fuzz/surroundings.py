"""The command in a process of its own, whose environment, folders and streams are odd: it says so in a line."""

import os
import random
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
EVERY = 500  # command lines, of which one has surroundings of its own: a process takes seconds
RUN = "from jaxtape.cli.main import main; main()"
NOBODY = """
import os, pwd
def none(*_):
    raise KeyError("uid not found")
pwd.getpwuid = pwd.getpwnam = none
os.environ.pop("HOME", None)
"""
VARIABLES = {
    "JAX_PLATFORMS": ("abacus", "cpu", "", "cpu,abacus"),
    "JAX_ENABLE_X64": ("maybe", "1", "yes", ""),
    "JAX_NUM_CPU_DEVICES": ("x", "2", "-3", ""),
    "JAX_COMPILATION_CACHE_DIR": ("/dev/null/x", "gs://bucket", ""),
    "JAXTAPE_XLA_FLAGS": ("yes", "0", "1", "2"),
    "JAXTAPE_CACHE": ("gs://bucket/x", "/dev/null/x", "a" * 300, "cache", "m.json", "\n"),
    "XDG_CACHE_HOME": ("s3://b", "/dev/null", "relative"),
    "XDG_STATE_HOME": ("s3://b", "/dev/null/x", "m.json"),
    "MPLBACKEND": ("abacus", "agg", ""),
    "XLA_FLAGS": ("no/such/file", "m.json", ""),
    "PYTHONIOENCODING": ("ascii", "utf-16", "latin-1:strict"),
    "LC_ALL": ("C", "POSIX", "no_SUCH"),
    "TERM": ("dumb", "", "xterm"),
    "COLUMNS": ("0", "-1", "x", "9999"),
    "TMPDIR": ("/dev/null", "no/such"),
    "HOME": ("", "/dev/null", "no/such"),
}
WORDS = (
    ("cache",),
    ("solve", "no-such"),
    ("monitor", "m.json"),
    ("risk", "--trades", "t.csv", "--market", "no-such.json", "--out", "fresh"),
    ("serve", "--market", "no-such.json"),
    ("validate", "--list"),
    ("--version",),
)


def fuzzed(folder: Path, chance: random.Random) -> str:
    """Run the command in surroundings of one's own, and say how it ended."""
    names = chance.sample([*VARIABLES], chance.choice((1, 1, 2, 3)))
    given = {name: chance.choice(VARIABLES[name]) for name in names}
    words, program = chance.choice(WORDS), chance.choice((RUN, RUN, NOBODY + RUN))
    stdout = chance.choice(("pipe", "pipe", "full", "closed"))
    if chance.random() < 0.2:
        (folder / "hides").mkdir(exist_ok=True)
        (folder / "hides" / "pricing.py").write_text("raise SystemExit(77)")
        given["PYTHONPATH"] = os.pathsep.join((str(folder / "hides"), str(ROOT)))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **given}
    redirected = {"full": "1>/dev/full", "closed": "1>&-", "pipe": ""}[stdout]
    command = ["sh", "-c", f'exec "$@" {redirected}', "sh", sys.executable, "-c", program, *words]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, timeout=120, check=False
    )
    said, told = done.stderr.decode(errors="replace"), (given, words, stdout, program is RUN)
    assert done.returncode in (0, 1, 2), (told, done.returncode, said)
    assert "Traceback" not in said and "Exception ignored" not in said, (told, said)
    assert done.returncode != 2 or said.strip(), told
    return f"exit status {done.returncode}"
