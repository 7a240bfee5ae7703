"""What the verbs find of an earlier process: the same bits, nothing traced, nothing compiled."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest
from jax import monitoring

import jaxtape as jt
from calibration import calibrate, fit
from pricing import HullWhite, risk
from pricing.fbsde import GradientRegression, problems, solve
from pricing.market import SwaptionVols
from pricing.models.surface_models import black_scholes
from tests.helpers import SAMPLES, dax, dax_book, double, sample_market

pytestmark = pytest.mark.repeat

ROOT = Path(__file__).parents[1]


def traced(run) -> list[str]:
    """Return the names of the functions that JAX traces meanwhile."""
    names = []

    def listener(event, seconds, **about):
        if event.endswith("jaxpr_trace_duration"):
            names.append(about.get("fun_name"))

    monitoring.register_event_duration_secs_listener(listener)
    try:
        run()
    finally:
        monitoring.unregister_event_duration_listener(listener)
    return names


def same_bits(a, b) -> bool:
    a, b = (jax.tree.leaves(eqx.filter(tree, eqx.is_array_like)) for tree in (a, b))
    return len(a) == len(b) > 0 and all(
        np.array_equal(x, y, equal_nan=True) for x, y in zip(a, b, strict=True)
    )


def value_a_book():
    rows = [row for row in dax_book().rows if row.type in ("european", "digital")][::300]
    found = risk(dataclasses.replace(dax_book(), rows=tuple(rows)), dax(), black_scholes)
    assert not found.failed
    return [vars(trade.figures) for trade in found.trades], found.gradient


def calibrate_a_curve():
    vols = SwaptionVols([1.0, 2.0, 5.0], [5.0, 10.0], [[0.2, 0.19], [0.19, 0.18], [0.17, 0.17]])
    model = HullWhite(0.03, 0.05, 0.01)
    return [calibrate(vols, model), calibrate(vols, model, progress=lambda *told: None)]


def fit_a_curve():
    return fit(HullWhite(0.03, 0.05, 0.01))(sample_market())


def solve_an_equation():
    return solve(
        problems.hjb(2, 4), GradientRegression(256, block=256), key=jax.random.key(0)
    ).value(0.0, problems.hjb(2, 4).x0)


VERBS = {
    value_a_book: {"tile_sweep"},
    calibrate_a_curve: {"solved", "_init", "_run", "_postprocess"},
    fit_a_curve: {"_polished"},
    solve_an_equation: {"init", "step"},
}


def check(folder: str, *names: str) -> None:
    """Call verbs without a store, with one that knows nothing of them, and with what that has left."""
    for name in names:
        verb, programs = next((verb, VERBS[verb]) for verb in VERBS if verb.__name__ == name)
        jt.set_program_store(None)
        without = verb()
        for again in (False, True):
            jt.set_program_store(None)
            jt.set_program_store(folder)  # as in another process, only the folder is known
            found: list = []
            names_traced = programs & set(traced(lambda: found.append(verb())))  # noqa: B023
            assert same_bits(found, [without]), (name, again)
            assert names_traced == (set() if again else programs), (name, again, names_traced)


@double
@pytest.mark.parametrize(
    "names",
    [
        ("value_a_book", "solve_an_equation"),
        pytest.param(("calibrate_a_curve", "fit_a_curve"), marks=pytest.mark.slow),
    ],
)
def test_another_process_finds_the_same_bits_and_traces_nothing(tmp_path, names):
    """Without checks of types, which wrap functions in what has no name."""
    code = f"from {__name__} import check; check({str(tmp_path)!r}, *{names!r})"
    done = in_python(code, JAX_COMPILATION_CACHE_DIR=jax.config.values["jax_compilation_cache_dir"])
    assert not done.returncode, done.stderr


def in_python(code: str, **settings: str) -> subprocess.CompletedProcess[str]:
    child = [sys.executable, "-c", code]
    here = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_ENABLE_X64": "1", **settings}
    return subprocess.run(child, env=here, cwd=ROOT, capture_output=True, text=True, check=False)


FIRST_PRICE = """
import jax, jax.numpy as jnp
from pricing import BlackScholes, European, price
jnp.ones(2) + 1  # JAX has decided about its own cache
names, requests = [], []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **about: names.append(about.get("fun_name"))
)
jax.monitoring.register_event_listener(lambda event, **about: requests.append(event.split("/")[-1]))
print(price(European(100.0, 1.0), BlackScholes(100.0, 0.05, 0.2)).value)
print("traced", "_value" in names, "compiled", requests.count("cache_misses"))
"""


def test_a_script_keeps_its_programs_by_default_and_says_so_once(tmp_path):
    def run(cache: str) -> tuple[list[str], str]:
        nowhere = {"JAX_COMPILATION_CACHE_DIR": "", "XDG_CACHE_HOME": "", "HOME": str(tmp_path)}
        done = in_python(FIRST_PRICE, **nowhere, JAXTAPE_CACHE=cache)
        assert not done.returncode, done.stderr
        return done.stdout.splitlines(), done.stderr

    folder = tmp_path / ".cache/jaxtape"
    (value, off), said = run("off")
    assert (off, said, folder.exists()) == ("traced True compiled 0", "", False)
    first, said = run("")
    assert first == [value, "traced True compiled 1"]
    assert said.startswith(f"jaxtape: programs are kept in {folder}, ") and said.count("\n") == 1
    assert run("") == ([value, "traced False compiled 0"], "")


A_FOLDER_FOR_JAX = """
import pathlib, jax, jax.numpy as jnp, jaxtape as jt
from pricing import BlackScholes, European, price
value = lambda: price(European(100.0, 1.0), BlackScholes(100.0, 0.05, 0.2)).value
value()
jax.config.update("jax_compilation_cache_dir", "mine")
value()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.jit(lambda x: 2.5 * x + 1.0)(jnp.ones(3))
print(any(name.name.endswith("-cache") for name in pathlib.Path("mine").iterdir()))
"""


def test_jax_keeps_what_it_compiles_in_the_folder_that_its_user_names_later(tmp_path):
    script = f"import os; os.chdir({str(tmp_path)!r})\n{A_FOLDER_FOR_JAX}"
    nowhere = {"JAX_COMPILATION_CACHE_DIR": "", "XDG_CACHE_HOME": str(tmp_path)}
    done = in_python(script, **nowhere, JAXTAPE_CACHE="", PYTHONPATH=str(ROOT))
    assert done.stdout == "True\n", done.stderr


COUNTED = """
import collections
from jax import monitoring
from jaxtape.cli.main import app
counts = collections.Counter()
monitoring.register_event_listener(lambda event, **about: counts.update([event.split("/")[-1]]))
app({arguments!r}, standalone_mode=False)
print("compiled", counts["cache_misses"], "of", counts["compile_requests_use_cache"])
"""


@pytest.mark.slow
def test_a_second_command_compiles_nothing_and_writes_the_same(tmp_path):
    (tmp_path / "book.csv").write_text(
        "\n".join((SAMPLES / "dax_book.csv").read_text("utf-8").splitlines()[:40]), "utf-8"
    )
    files = [tmp_path / "book.csv", SAMPLES / "dax_2002-07-05.json", tmp_path / "out"]
    told = []
    for _ in range(2):
        options = zip(("--trades", "--market", "--out"), map(str, files), strict=True)
        code = COUNTED.format(arguments=["risk", *(word for pair in options for word in pair)])
        settings = {"JAX_COMPILATION_CACHE_DIR": "", "JAXTAPE_CACHE": str(tmp_path / "cache")}
        done = in_python(code, **settings)
        assert not done.returncode, done.stderr
        numbers = [(files[2] / name).read_bytes() for name in ("npv.csv", "sensitivity.csv")]
        told.append((done.stdout.rpartition("compiled")[2].split(), numbers))
    (first, numbers), (second, again) = told
    assert int(first[0]) > 0 and second[0] == "0" and int(second[2]) > 0
    assert numbers == again
