"""The checker of plain English finds what it refuses, and finds nothing in the repository."""

import pytest

from tests import plain_english


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ('"""Return how many slots there are."""', "Return how"),
        ('"""What is a product worth?"""', "What "),
        ('"""Fit.\n\nArgs:\n    seed: Of the inputs.\n"""', "Of"),
        ('def f():\n    raise ValueError("the rest goes on without it")', "goes on"),
        ('x = "an error that nobody is told"', "told"),
    ],
)
def test_what_a_reader_has_to_decode_is_refused(tmp_path, capsys, text, phrase):
    path = tmp_path / "module.py"
    path.write_text(text, encoding="utf-8")
    assert plain_english.main([str(path)]) == 1
    assert repr(phrase) in capsys.readouterr().out


@pytest.mark.parametrize("name", ["module.py", "page.md"])
def test_code_and_plain_sentences_are_not(tmp_path, name):
    text = '"""Return the number of slots.\n\nExamples:\n    >>> told = 1\n"""'
    path = tmp_path / name
    path.write_text(
        text if name.endswith(".py") else "```\ntold = 1\n```\nIt is a page.", encoding="utf-8"
    )
    assert plain_english.main([str(path)]) == 0
