"""Importing the library keeps XLA from fusions that give wrong numbers."""

import os
import subprocess
import sys

import pytest

_FLAG = "--xla_cpu_experimental_ynn_fusion_type"


def flags_after(program: str, flags: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "XLA_FLAGS": flags}
    command = [
        sys.executable,
        "-W",
        "error",
        "-c",
        f"{program}; import os; print(os.environ['XLA_FLAGS'])",
    ]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


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
def test_the_flag_is_set_unless_the_user_did(flags, expected):
    assert flags_after("import jaxtape", flags).stdout.strip() == expected


def test_a_late_import_warns():
    found = flags_after("import jax; jax.devices(); import jaxtape", "")
    assert "import jaxtape first" in found.stderr
    assert flags_after("import jax; jax.devices(); import jaxtape", f"{_FLAG}=").returncode == 0
