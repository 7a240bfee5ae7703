"""The docs: Python of pages prints what they say, tutorials find what they claim, commands and files exist."""

import importlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from jaxtape.cli.main import Commands
from pricing.products.trade import TRADE_TYPES

from . import documented
from .documented import ROOT

pytestmark = pytest.mark.repeat

DOCS = ROOT / "docs"
PAGES = (
    "adjoints",
    "how_to_choose",
    "derivations",
    "bermudan",
    "xva",
    "data",
    "trades",
    "pricing",
)
SHORT = (
    *("index", "greeks", "sharp_bits", "troubleshooting", "limitations", "quantlib"),
    *("rates", "glossary"),
)
FIRST = ("fbsde", "programs", "pod")
FIRST_STEPS = tuple(f"walkthroughs/{page.stem}" for page in documented.WALKTHROUGHS)
NAMING = (*documented.PAGES, ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md")
PACKAGES = ("jaxtape", "pricing", "calibration")
JAXTAPE = r"\bjaxtape ([a-z]+)\b([^\"#]*)"
BENCHMARK = r"python -m benchmarks\.(\w+)\b *([^#]*)"
FILE = r"^(?:pytest )?((?:tests|benchmarks|docs|pricing|calibration|jaxtape)/[\w/.-]+)"
HAS_TORCH = importlib.util.find_spec("torch") is not None


def blocks(page: str, language: str) -> list[str]:
    return documented.blocks(DOCS / f"{page}.md", language)


def run(program: str, folder: Path = ROOT, **others: str) -> str:
    """What a program prints in a process of its own, as a user has it; others: of its environment."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=os.environ | others,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return done.stdout


def hook_of(name: str) -> Any:
    """A hook of mkdocs as a module, without mkdocs."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- the Python of the pages --------------------------------------------------------------------------------


def check_printed(found: str, page: str) -> None:
    """Compare the output with the page's: words to the letter, numbers to one in their last digit."""
    said = "".join(blocks(page, "text"))
    number = r"-?\d+(?:\.\d+)?"
    assert re.split(number, found) == re.split(number, said), page
    for one, other in zip(re.findall(number, found), re.findall(number, said), strict=True):
        decimals = len(other.partition(".")[2])
        assert abs(float(one) - float(other)) <= 1.01 * 10.0**-decimals * (decimals > 0), page


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_prints_what_the_page_says(page):
    """All blocks of a page are one program."""
    check_printed(run("\n".join(blocks(page, "python"))), page)


def check_short(pages: tuple[str, ...], **place: Any) -> None:
    """In one process, which starts once; each page has its own names."""
    pages = tuple(page for page in pages if HAS_TORCH or "pytorch" not in page)
    programs = ["\n".join(blocks(page, "python")) for page in pages]
    mark = "-- the next page --\n"
    found = run(
        f"for program in {programs!r}:\n    exec(program, {{}})\n    print({mark!r}, end='')",
        **place,
    )
    for page, printed in zip(pages, found.split(mark)[:-1], strict=True):
        check_printed(printed, page)


def test_the_python_of_short_pages_prints_what_they_say():
    check_short(SHORT)


@pytest.mark.parametrize("page", FIRST)
def test_the_first_python_of_a_page_runs(page, tmp_path):
    """In a folder of its own, to which the program may write; what the page prints below is compared."""
    (tmp_path / "pricing").symlink_to(ROOT / "pricing")
    place = {"PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    printed = run(blocks(page, "python")[0], tmp_path, **place)
    assert blocks(page, "text")[:1] in ([], [printed])


def test_the_first_steps_print_what_they_say_from_the_wheel(tmp_path):
    """In another folder, with the packages of this environment; `make wheel-check` has an empty one."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", tmp_path, ROOT], check=True)
    (wheel,), site = tmp_path.glob("jaxtape-*.whl"), tmp_path / "site"
    subprocess.run([*pip, "install", "--no-deps", "--target", site, wheel], check=True)
    place: dict[str, Any] = {"folder": tmp_path, "PYTHONPATH": str(site)}
    names = ", ".join(PACKAGES)
    found = run(f"import {names}\nfor one in ({names}): print(one.__file__)", **place)
    assert all(Path(line).is_relative_to(site) for line in found.split())
    check_short(FIRST_STEPS, **place)


def test_the_pages_here_are_all_that_have_output_and_no_other_test():
    """A page with Python that says what it prints is run here or by a test of its own."""
    elsewhere = {"tape", "memory", "pytorch", "developers", "serving"}
    shown = {page.stem for page in DOCS.glob("*.md") if blocks(page.stem, "text")}
    assert shown <= {*PAGES, *SHORT, *FIRST} | elsewhere | {
        page for page in shown if not blocks(page, "python")
    }


@pytest.mark.parametrize("page", ["accuracy", "benchmarks"])
def test_the_tables_of_results_hold_figures(page):
    """A block of kind `results` becomes a table when the site is built; here it does so without mkdocs."""
    given = blocks(page, "results")
    module = hook_of("result_tables")
    folder = ROOT / "benchmarks" / "results"
    made = [module.table(yaml.safe_load(block), folder) for block in given]
    assert made and all(len(re.findall(r"^\|.*\d.*\|$", text, re.M)) >= 2 for text in made)
    wrong = yaml.safe_load(given[-1]) | {"columns": {"x": "{no_such_field}"}}
    with pytest.raises(ValueError, match="no row has a value for the column 'x'"):
        module.table(wrong, folder)


@pytest.mark.parametrize("page", NAMING, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page):
    """Subcommands, their options, benchmarks that take theirs, targets of make, files."""
    group: Any = Commands()
    shown = documented.typed(page) + documented.inline(page, "")
    for name, words in [found for code in shown for found in re.findall(JAXTAPE, code)]:
        command = group.get_command(None, name)
        assert command is not None, name
        known = {word for param in command.params for word in param.opts + param.secondary_opts}
        assert set(re.findall(r"--[a-z][a-z-]*", words)) <= known | {"--help"}, (name, words)
    for name, words in [found for code in shown for found in re.findall(BENCHMARK, code)]:
        module = importlib.import_module(f"benchmarks.{name}")
        if hasattr(module, "parser"):  # not where a file is only written or drawn
            module.parser().parse_args(shlex.split(words))
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    for words in [shlex.split(code.split("#")[0]) for code in shown if code.startswith("make ")]:
        assert {word for word in words[1:] if "=" not in word} <= set(targets), words
    for name in [found for code in shown for found in re.findall(FILE, code)]:
        assert (ROOT / name).exists(), name


def test_the_page_of_commands_has_the_options_of_each():
    """The tables are made from `--help`; those of the service and the monitor are on their own page."""
    pages = "command_line", "serving"
    given = [block.strip() for page in pages for block in blocks(page, "options")]
    assert {*given} >= {*Commands().list_commands(None)} - {"cache"}
    made = {name: hook_of("option_tables").table(name) for name in given}
    assert re.search(
        r"^\| `--paths`\{\.whole\} \| Number of paths.* `16384`\. \|$", made["risk"], re.M
    )
    assert "Default: `0`." in made["risk"] and "| `NAMES`{.whole} |" in made["solve"]
    assert "Default: `32`." in made["serve"] and "Default: 2." in made["monitor"]
    assert all(len(text.splitlines()) > 4 for text in made.values())


def test_the_page_of_known_values_has_the_groups():
    assert "| `sabr` | 42 | SABR's implied vols |" in hook_of("option_tables").group_table()


def test_the_page_of_trades_names_every_type_and_column():
    """Those of the package: tests add some of their own."""
    pages = "".join(
        (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("trades", "rates")
    )
    named = set(re.findall(r"`(\w+)`", pages))
    kinds = [kind for kind in TRADE_TYPES.values() if kind.__module__.startswith("pricing.")]
    assert {kind.type for kind in kinds} <= named
    columns = {name for kind in kinds for name in kind.model_fields} - {"line"}
    assert len(columns) > 40 and columns <= named


def test_every_extra_that_is_named_exists():
    """On the pages, and by the messages of the packages."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    sources = [file for name in PACKAGES for file in (ROOT / name).rglob("*.py")]
    text = "".join(file.read_text(encoding="utf-8") for file in (*NAMING, *sources))
    named = set(re.findall(r"""(?:jaxtape|['"]\.)\[([a-z]+)\]""", text))
    assert (
        {"fbsde", "many", "serve", "torch", "cuda", "tpu", "bench"}
        <= named
        <= set(project["optional-dependencies"])
    )


def test_every_page_is_in_the_contents():
    pages = set(
        re.findall(r"[\w/.-]+\.(?:md|py)", (ROOT / "mkdocs.yml").read_text().split("nav:")[1])
    )
    files = [*DOCS.glob("*.md"), *documented.WALKTHROUGHS, *documented.TUTORIALS]
    assert {str(file.relative_to(DOCS)) for file in files} <= pages


@pytest.mark.parametrize("page", [page.stem for page in sorted(DOCS.glob("*.md"))])
def test_a_page_is_short_and_begins_with_code(page):
    """Within its first screen; at most 3,000 words."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 3000
    assert len(text.partition("```")[0].split()) < 200


def test_formulas_become_mathml():
    if importlib.util.find_spec("latex2mathml") is None:
        pytest.skip("make docs installs latex2mathml")
    module = hook_of("mathml")
    page = r'<p><span class="arithmatex">\(a &lt; b\)</span></p><div class="arithmatex">\[\dot x\]</div>'
    found = module.on_page_content(page)
    assert found.count("<math") == 2 and "arithmatex" not in found
    assert '<div class="formula">' in found and "\\" not in found


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{cited["version"]}"' in project
    assert f'license = "{cited["license"]}"' in project
    for field in ("cff-version", "message", "title", "authors", "type"):
        assert cited[field]
    (entry,) = blocks("citing", "bibtex")
    assert cited["version"] in entry and cited["license"] in entry


# --- the tutorials ------------------------------------------------------------------------------------------


def of_tape(found):
    assert abs(found["forward_z"]) < 2.0
    assert abs(found["value"] - found["exact_value"]) < 2.0 * found["value_error"]
    assert abs(found["vega"] - found["exact_vega"]) < 2.0 * found["vega_error"]
    assert found["value_error"] < 0.3 and found["vega_error"] < 2.0
    assert found["largest_gap"] < 1e-12 and found["edit_gap"] < 1e-12
    steps = dict(zip(found["slots"].tolist(), found["steps"].tolist(), strict=True))
    assert (steps[252], steps[8]) == (504, 1041)  # as its text says
    assert found["checked"].max_relative_difference < 1e-6


def of_greeks(found):
    assert set(found["z"]) == set(found["names"]) and len(found["z"]) == 8
    assert all(0.0 < abs(z) < 3.0 for z in found["z"].values())
    assert 0.9 <= found["coverage"] <= 0.99
    assert found["naive_gamma"] == 0.0 < found["our_gamma"]
    assert abs(found["our_gamma"] / float(found["exact"].gamma) - 1.0) < 0.03
    assert "Differentiate once" in found["refusal"]
    assert abs(found["barrier_delta"] / found["barrier_exact"] - 1.0) < 0.03
    assert abs(found["heston_z"]) < 3.0
    assert abs(found["order"] + 0.5) < 0.05
    assert "would work: Fourier, MonteCarlo" in found["no_pair"]


def of_calibration(found):
    assert found["squares"] == pytest.approx(181.5148, abs=1e-3)
    assert (found["count"], found["ended"]) == (104, 32)
    assert abs(found["gap"]) < 1e-8 and found["trip"] < 1e-8
    assert found["by_expiry"].argmax() == 0
    assert found["trust"].summary.startswith("The quotes identify all parameters")
    np.testing.assert_allclose(found["curve"].deviances, found["parabola"], rtol=0.1)
    assert 0.0 < abs(found["bump_gap"]) < 1e-3


def of_fbsde(found):
    assert abs(found["value"] / found["known_value"] - 1.0) < 1e-3
    assert np.abs(found["delta"] - found["known_delta"]).max() < 0.01
    assert abs(found["z"]) < 3.0 and found["error"] < 0.3
    assert abs(found["deep_value"] / found["published"] - 1.0) < 2e-3
    assert abs(found["gap"]) < 4.0 * found["picard_error"] < 2e-3
    assert abs(found["deep_z"]) < 3.0


def of_pytorch(found):
    assert found["value_gap"] < 1e-12 and found["inside_gap"] < 1e-12
    assert found["compared"].max_relative_difference < 1e-10
    gamma, error = float(found["found"].gamma), float(found["found"].std_errors.gamma)
    assert abs(gamma - found["bumped_gamma"]) < 0.05 * gamma + 3.0 * error
    assert abs(found["torch_gamma"]) < 0.2 * gamma  # wrong, and without a word
    assert found["out_gap"] < 1e-12 and found["parted"] is None


TUTORIALS = {
    "tape": of_tape,
    "greeks": of_greeks,
    "heston_calibration": of_calibration,
    "fbsde": of_fbsde,
    "pytorch": of_pytorch,
}
EXECUTE = """
import pickle, runpy, sys
import matplotlib
matplotlib.use("agg")
import tests.test_docs as docs
docs.TUTORIALS[sys.argv[1]](runpy.run_path(f"docs/tutorials/{sys.argv[1]}.py"))
"""


@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_finds_what_it_claims(name):
    """In a process of its own, with the settings that a reader has."""
    if name == "pytorch" and not HAS_TORCH:
        pytest.skip("PyTorch is not installed: pip install 'jaxtape[torch]'")
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert not done.returncode, done.stderr


@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_becomes_a_notebook_of_the_same_statements(name, tmp_path):
    """The hook itself refuses others, so that the notebook runs as the tutorial does."""
    if importlib.util.find_spec("jupytext") is None:
        pytest.skip("make docs installs jupytext")
    module = hook_of("notebooks")
    made = module.notebook(DOCS / "tutorials" / f"{name}.py")
    kinds = [cell.cell_type for cell in made.cells]
    assert kinds[0] == "markdown" and kinds.count("code") > 3
    magic = tmp_path / "magic.py"
    magic.write_text("# %%\nx = 1\n\n# %%\n# !ls\n# %time x\n", encoding="utf-8")
    with pytest.raises((ValueError, SyntaxError)):
        module.notebook(magic)


def test_all_tutorials_are_run_here():
    assert {file.stem for file in (DOCS / "tutorials").glob("*.py")} == set(TUTORIALS)
