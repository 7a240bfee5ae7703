"""Whatever the surroundings of the command's process are, it ends in one line and not in a traceback."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import pytest

from jaxtape.cli import cache

pytestmark = pytest.mark.repeat

ROOT = Path(__file__).parent.parent
RUN = "from jaxtape.cli.main import main; main()"
NOBODY = """
import os, pwd
def none(*_):
    raise KeyError("uid not found")
pwd.getpwuid = pwd.getpwnam = none
for name in ("HOME", "JAXTAPE_CACHE", "XDG_CACHE_HOME", "XDG_STATE_HOME", "USER", "LOGNAME"):
    os.environ.pop(name, None)
"""
"""What `docker run -u` makes of a user: no entry in passwd, and no home."""
INTERRUPTED = 130
GUARDED = """
import signal, sys
set_handler = signal.signal
set_handler(signal.SIGINT, signal.default_int_handler)
def says_so(*arguments):
    before = set_handler(*arguments)
    print("begun", file=sys.stderr, flush=True)
    signal.signal = set_handler
    return before
signal.signal = says_so
"""
"""Says when the command first heeds interrupts; what runs in the background of a shell ignores them."""


def begun(*words, program=RUN, stdout=subprocess.PIPE, folder=".", **env):
    given = {"PYTHONPATH": str(ROOT), "JAXTAPE_CACHE": "cache", **env}
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, **{name: str(x) for name, x in given.items()}},
    )


def ended(*words, **settings) -> tuple[int, str]:
    """The exit status of a command and what it says on stderr, which has no traceback."""
    process = begun(*words, **settings)
    _, said = process.communicate(timeout=120)
    assert "Traceback" not in said and "Exception ignored" not in said, said
    return process.returncode, said


SETTINGS = {
    "JAX_ENABLE_X64": ("maybe", "JAX_ENABLE_X64=maybe"),
    "JAXTAPE_XLA_FLAGS": ("yes", "give 0 to leave XLA_FLAGS as it is, or 1"),
    "JAX_PLATFORMS": ("abacus", "JAX_PLATFORMS=abacus); set it to cpu, or unset it"),
    "JAX_NUM_CPU_DEVICES": ("x", "JAX_NUM_CPU_DEVICES=x"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_jax_refuses_is_named(name, tmp_path):
    given, told = SETTINGS[name]
    status, said = ended("solve", "no-such", folder=tmp_path, **{name: given})
    assert status == 2 and said.count("\n") == 1 and told in said, said


def test_a_fault_within_a_command_keeps_its_traceback(tmp_path):
    """It was reported as "cannot start", with the environment as the cause."""
    start, broken = "from jaxtape.cli.main import main", "import jaxtape.cli.cache as it"
    program = f"{start}; {broken}; it.stored_files = None; main()"
    process = begun("cache", program=program, folder=tmp_path)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2 and "cannot start" not in said
    assert said.startswith("Traceback") and "in cache" in said and "not callable" in said


def test_a_module_of_the_user_that_hides_a_package_is_named_and_not_run(tmp_path):
    (tmp_path / "pricing.py").write_text("open('was run', 'w')")
    paths = os.pathsep.join((str(tmp_path), str(ROOT)))
    status, said = ended("risk", "--help", folder=tmp_path, PYTHONPATH=paths)
    assert status == 2 and said.count("\n") == 1
    assert f"{tmp_path / 'pricing.py'}: shadows the package pricing of jaxtape; rename it" in said
    assert not (tmp_path / "was run").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["cache"], "this user has no home folder; set HOME or JAXTAPE_CACHE"),
        (["solve", "no-such"], "no compilation cache: this user has no home folder"),
        (["serve", "--market", "m.json"], "this user has no home folder; set HOME or --state"),
    ],
    ids=["cache", "solve", "serve"],
)
def test_a_user_without_a_home_is_told_what_to_set(words, told, tmp_path):
    status, said = ended(*words, program=NOBODY + RUN, folder=tmp_path)
    assert status == 2 and told in said, said


def test_a_backend_of_matplotlib_is_not_asked_for(tmp_path):
    """Its name is read when matplotlib is imported, and pictures are files."""
    program = (
        "from jaxtape.cli.main import Precision, configure\nconfigure(Precision.double)\n"
        "import pricing.reporting.page"
    )
    assert ended(program=program, folder=tmp_path, MPLBACKEND="abacus") == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a system with a full device")
@pytest.mark.parametrize("words", [["cache"], ["risk", "--help"]], ids=" ".join)
def test_a_full_disk_behind_stdout_is_told(words, tmp_path):
    with open("/dev/full", "w") as full:
        status, said = ended(*words, stdout=full, folder=tmp_path)
    assert (status, said) == (2, "jaxtape: standard output: No space left on device\n")


def test_a_reader_that_has_gone_and_a_stream_that_is_closed_end_quietly(tmp_path):
    read, write = os.pipe()
    os.close(read)
    try:
        assert ended("cache", stdout=write, folder=tmp_path) == (1, "")
    finally:
        os.close(write)
    closed = "import os, sys\nos.close(1)\nsys.stdout = None\n"
    assert ended("cache", program=closed + RUN, folder=tmp_path) == (0, "")


def test_an_interrupt_in_the_first_seconds_ends_the_command_without_a_word(tmp_path):
    """From the moment that its packages are imported, whatever is imported, read or compiled then."""
    market = ROOT / "pricing" / "samples" / "dax_2002-07-05.json"
    words = "risk", "--trades", market.with_name("dax_book.csv"), "--market", market, "--out", "out"
    for seconds in (0.0, 0.3, 0.8, 1.5):
        process = begun(*words, program=f"{GUARDED}# jaxtape.cli.main\n{RUN}", folder=tmp_path)
        assert process.stderr is not None and process.stderr.readline() == "begun\n"
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate(timeout=60)
        assert (process.returncode, printed, said) == (INTERRUPTED, "", ""), seconds


def test_a_cache_that_cannot_be_written_or_read_is_told(tmp_path, monkeypatch, capsys):
    def refused(*_, **__):
        raise PermissionError(13, "Permission denied", str(tmp_path))

    before = jax.config.values["jax_compilation_cache_dir"]
    monkeypatch.setenv("JAXTAPE_CACHE", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "TemporaryFile", refused)
        cache.use_cache("risk")()
    assert (
        capsys.readouterr().err == f"jaxtape: no compilation cache: {tmp_path}: Permission denied\n"
    )
    assert jax.config.values["jax_compilation_cache_dir"] == before
    monkeypatch.setenv("JAXTAPE_CACHE", "gs://bucket/cache")
    cache.use_cache("risk")()
    assert "gs://bucket/cache: is a URL" in capsys.readouterr().err
    monkeypatch.setenv("JAXTAPE_CACHE", "on")
    cache.use_cache("risk")()
    assert 'JAXTAPE_CACHE=on: give a folder, "off", or nothing' in capsys.readouterr().err
