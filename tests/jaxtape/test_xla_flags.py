"""Flags for the compiler, where it knows them."""

import pytest

from jaxtape import command_line, xla_flags
from jaxtape.command_line import Precision, configure

_KNOWN = ((0, 10, 0), (0, 11))


@pytest.mark.parametrize(
    ("flags", "version", "expected"),
    [
        ("", (0, 10, 2), "--quick=false"),
        ("--other=1", (0, 10, 0), "--other=1 --quick=false"),
        ("--quick=true", (0, 10, 2), "--quick=true"),
        ("--other=1", (0, 9, 9), "--other=1"),
        ("--other=1", (0, 11, 0), "--other=1"),
    ],
    ids=["none", "another", "the user's own", "too old", "too new"],
)
def test_a_flag_is_added_where_it_is_known_and_not_given(monkeypatch, flags, version, expected):
    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.setattr(xla_flags, "jaxlib_version", version)
    assert xla_flags.add_flag("--quick", "false", _KNOWN) == (flags != expected)
    assert xla_flags.os.environ["XLA_FLAGS"] == expected


def test_a_command_asks_for_quick_compilation(monkeypatch):
    asked = []
    monkeypatch.setattr(command_line, "add_flag", lambda *flag: asked.append(flag))
    monkeypatch.setattr(command_line.jax.config, "update", lambda *setting: None)
    configure(Precision.double)
    assert [flag[:2] for flag in asked] == [("--xla_cpu_use_fusion_emitters", "false")]
