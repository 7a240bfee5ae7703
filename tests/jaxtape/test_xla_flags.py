"""Flags for the compiler, where it knows them, the user has not given them and does not refuse them."""

import os
import subprocess
import sys

import pytest

from jaxtape.cli import main as command_line
from jaxtape.cli.main import Precision, configure
from jaxtape.jax_private import JAXLIB_VERSION
from jaxtape.jax_settings import xla_flags
from jaxtape.jax_settings.xla_flags import WITHOUT_YNN_FUSIONS

_KNOWN = ((0, 10, 0), (0, 11))
_FLAG, _, (_FIRST, _END) = WITHOUT_YNN_FUSIONS
_LATE = "import jax; jax.devices(); import jaxtape"

racing = pytest.mark.skipif(
    not _FIRST <= JAXLIB_VERSION < _END, reason="a jaxlib without the fusions that race"
)


@pytest.mark.parametrize(
    ("flags", "version", "expected"),
    [
        ("", (0, 10, 2), "--quick=false"),
        ("--other=1", (0, 10, 0), "--other=1 --quick=false"),
        ("--quicker=1", (0, 10, 0), "--quicker=1 --quick=false"),
        ("--quick=true", (0, 10, 2), "--quick=true"),
        ("--other --quick", (0, 10, 2), "--other --quick"),
        ("--other=1", (0, 9, 9), "--other=1"),
        ("--other=1", (0, 11, 0), "--other=1"),
        ("flags.txt", (0, 10, 2), "flags.txt"),
    ],
    ids=[
        *("none", "another", "one of a longer name", "the user's own", "without a value"),
        *("too old", "too new", "a file"),
    ],
)
def test_a_flag_is_added_where_it_is_known_and_not_given(monkeypatch, flags, version, expected):
    monkeypatch.delenv("JAXTAPE_XLA_FLAGS", raising=False)
    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.setattr(xla_flags, "JAXLIB_VERSION", version)
    assert xla_flags.add_flag("--quick", "false", _KNOWN) == (flags != expected)
    assert xla_flags.os.environ["XLA_FLAGS"] == expected


_EMITTERS, _LEVEL = "xla_cpu_use_fusion_emitters", "xla_backend_optimization_level"
_BOTH = ["quick_to_compile", "runs_briefly"]


@pytest.mark.parametrize(
    ("flags", "backend", "kinds", "expected"),
    [
        ("", "cpu", ["quick_to_compile"], {_EMITTERS: False}),
        ("", "cpu", ["runs_briefly"], {_LEVEL: 0}),
        ("", "cpu", _BOTH, {_EMITTERS: False, _LEVEL: 0}),
        ("", "gpu", _BOTH, {}),
        (f"--{_EMITTERS}=true", "cpu", _BOTH, {_LEVEL: 0}),
        (f"--{_LEVEL}=1", "cpu", ["runs_briefly"], {}),
    ],
    ids=["quick", "brief", "both", "another backend", "the user's emitters", "the user's level"],
)
def test_one_program_is_compiled_as_it_asks_where_no_flag_says_how(
    monkeypatch, flags, backend, kinds, expected
):
    monkeypatch.delenv("JAXTAPE_XLA_FLAGS", raising=False)
    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.setattr(xla_flags, "JAXLIB_VERSION", (0, 10, 2))
    monkeypatch.setattr(xla_flags.jax, "default_backend", lambda: backend)
    assert xla_flags.compiler_options(kinds) == expected


@pytest.mark.parametrize(("switch", "expected"), [("", True), ("1", True), ("0", False)])
def test_flags_are_added_unless_the_user_wants_none(monkeypatch, switch, expected):
    monkeypatch.setenv("JAXTAPE_XLA_FLAGS", switch)
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setattr(xla_flags, "JAXLIB_VERSION", (0, 10, 2))
    assert xla_flags.add_flag("--quick", "false", _KNOWN) == expected


def test_a_switch_that_says_neither_is_refused(monkeypatch):
    monkeypatch.setenv("JAXTAPE_XLA_FLAGS", "--quick=false")
    with pytest.raises(ValueError, match=r"JAXTAPE_XLA_FLAGS='--quick=false': give 0 to leave"):
        xla_flags.add_flag("--quick", "false", _KNOWN)


def test_a_command_asks_for_quick_compilation(monkeypatch):
    asked = []
    monkeypatch.setattr(command_line, "add_flag", lambda *flag: asked.append(flag))
    monkeypatch.setattr(command_line.jax.config, "update", lambda *setting: None)
    configure(Precision.double)
    assert asked == [xla_flags.WITHOUT_FUSION_EMITTERS, xla_flags.WITHOUT_COSTLY_PASSES]


# --- what importing the library does ------------------------------------------------------------------


def flags_after(program: str, flags: str, switch: str = "") -> subprocess.CompletedProcess:
    environment = {**os.environ, "XLA_FLAGS": flags, "JAXTAPE_XLA_FLAGS": switch}
    program = f"{program}; import os; print(os.environ['XLA_FLAGS'])"
    command = [sys.executable, "-W", "error", "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.repeat
@racing
@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", f"{_FLAG}="),
        (
            "--xla_force_host_platform_device_count=2",
            f"--xla_force_host_platform_device_count=2 {_FLAG}=",
        ),
        (f"{_FLAG}=-reduce", f"{_FLAG}=-reduce"),
    ],
    ids=["none", "another", "the user's own"],
)
def test_an_import_sets_the_flag_unless_the_user_did(flags, expected):
    done = flags_after("import jaxtape, jax; jax.devices()", flags)
    assert done.stdout.strip() == expected, done.stderr


@pytest.mark.repeat
@pytest.mark.parametrize("program", ["import jaxtape", _LATE])
def test_an_import_leaves_the_flags_of_a_user_who_wants_that(program):
    done = flags_after(program, "", switch="0")
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


@pytest.mark.repeat
@racing
def test_a_late_import_warns_and_says_what_to_do():
    done = flags_after(_LATE, "")
    for words in ("import jaxtape first", f"or set XLA_FLAGS={_FLAG}=", "JAXTAPE_XLA_FLAGS=0"):
        assert words in done.stderr
    assert flags_after(_LATE, f"{_FLAG}=").returncode == 0


@pytest.mark.repeat
@racing
def test_a_file_of_flags_is_read_and_stays_in_use(tmp_path):
    """XLA takes an XLA_FLAGS that does not begin with a dash as the name of a file."""
    file = tmp_path / "flags.txt"
    file.write_text("--xla_force_host_platform_device_count=3\n")
    devices = "import jaxtape, jax; assert len(jax.devices('cpu')) == 3"
    done = flags_after(devices, str(file))
    assert (
        f"XLA_FLAGS names the file {file}" in done.stderr and f"add {_FLAG}= to it" in done.stderr
    )
    file.write_text(f"{file.read_text()}{_FLAG}=\n")
    done = flags_after(devices, str(file))
    assert (done.returncode, done.stdout) == (0, f"{file}\n"), done.stderr
