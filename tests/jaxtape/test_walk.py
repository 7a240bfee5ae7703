"""The files of `jaxtape` that one gradient through a tape enters."""

import functools
import pathlib
import re
import sys

import equinox as eqx
import jax.numpy as jnp
import pytest

import jaxtape as jt

from ..helpers_tape import all_schedules
from .test_tape import first_example

HOUSE = pathlib.Path(jt.__file__).parent
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "inside-the-tape.md"


@functools.cache
def file_in_house(name):
    """The file within `jaxtape`, or an empty text."""
    path = pathlib.Path(name)
    return path.relative_to(HOUSE).as_posix() if path.is_relative_to(HOUSE) else ""


def files_entered(run):
    """The files of `jaxtape` whose functions run, in the order in which they are entered first."""
    files = {}

    def on_event(frame, event, _):
        if event == "call" and (file := file_in_house(frame.f_code.co_filename)):
            files[file] = None

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        run()
    finally:
        sys.setprofile(before)
    return list(files)


def files_of_gradient(schedule, edit=lambda tape: tape):
    """Those of a gradient through nodes that share a value; its step is new, so it is traced anew."""
    speed, x = jnp.float64(0.7), jnp.ones(5)
    tape = jt.Tape().append(lambda p, state: jnp.sin(speed * state) * p, jnp.linspace(0.5, 1.0, 47))
    tape = edit(tape.with_schedule(schedule))
    gradient = eqx.filter_grad(lambda tape: jnp.sum(tape(x)))
    return files_entered(lambda: eqx.filter_make_jaxpr(gradient)(tape))


@pytest.mark.parametrize("schedule", all_schedules, ids=str)
def test_a_gradient_enters_at_most_eight_files(schedule):
    files = files_of_gradient(schedule)
    assert len(files) == (3 if schedule.keeps_residuals else 8), files


def test_a_gradient_of_an_edited_tape_enters_at_most_eight_files():
    files = files_of_gradient(jt.Revolve(5), lambda tape: tape.erase(3, 9).mark(20))
    assert "sweeps/edited.py" in files and len(files) <= 8, files


def test_the_page_names_the_files_that_are_entered():
    named = re.findall(r"^\d\. \*\*`jaxtape/(.*?)`\*\*", PAGE.read_text(), re.MULTILINE)
    assert set(named) == set(files_of_gradient(jt.Revolve(5)))
    of_budget = set(files_of_gradient(jt.Budget(bytes=2**14)))
    assert of_budget - set(named) == {"sweeps/footprint.py"}
    assert set(named) - of_budget == {"schedules/schedule.py"}


def test_the_example_of_the_page_prints_what_it_says():
    printed, said = first_example("inside-the-tape.md")
    assert printed == said
