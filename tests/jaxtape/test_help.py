"""`--help` of every command: sentences for who types it, and no section of a Python docstring."""

import re
from importlib.metadata import entry_points

import pytest
import typer
from typer.testing import CliRunner

from jaxtape.cli.main import app
from tests.plain_english import ARGUMENTS, PHRASES

COMMANDS = sorted(found.name for found in entry_points(group="jaxtape.commands"))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_in_sentences(name):
    if name == "serve":
        pytest.importorskip("fastapi")
    shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0 and "Exit status" in shown.output
    assert not re.search(r"\b(Args|Raises|Returns|Examples|Exit):", shown.output)
    command = typer.main.get_command(app).get_command(None, name)
    for option in command.params:
        text = getattr(option, "help", None)
        assert text, option.name
        assert text[0].isupper() or text[0].isdigit(), text
        for pattern in (*ARGUMENTS, *PHRASES):
            assert not re.match(pattern, text) and text.endswith((".", ")")), text
