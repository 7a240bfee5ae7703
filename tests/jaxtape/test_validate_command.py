"""`jaxtape validate`: the whole of it, planted errors, mistakes, and its three views of one list."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from jaxtape.cli.check import Check, Group, Source
from jaxtape.cli.check_report import GroupResult, as_json
from jaxtape.cli.main import app
from jaxtape.cli.reference_tables import read_tables
from pricing.validation import price_checks
from pricing.validation.price_tables import barriers
from tests.helpers import double

pytestmark = double

TABLE = """
[[table]]
name = "two calls"
source = "a test"
product = "European"
model = "BlackScholes"
constants = {{ spot = 100, rate = 0.05, vol = 0.2, expiry = 1 }}
rows = '''
option  strike  value     delta
call    100     {value}   0.6368307
put     100     5.573526  -
'''
"""
GROUP = """
from pathlib import Path
from pricing.validation import of_tables
mine = of_tables("Mine", Path(__file__).with_name("mine.toml"))
number = 1.0
"""


@pytest.fixture
def mine(tmp_path):
    """Writes a group of one's own, whose first value is as given, and returns its place."""

    def written(value="10.450584", table=TABLE):
        (tmp_path / "mine.toml").write_text(table.format(value=value))
        (tmp_path / "own_group.py").write_text(GROUP)
        return f"{tmp_path / 'own_group.py'}:mine"

    return written


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    """Programs that the commands keep are apart from the user's."""
    monkeypatch.setenv("JAXTAPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("jaxtape.cli.validate.configure", lambda precision: None)


def run(*words):
    return CliRunner().invoke(app, ["validate", *map(str, words)])


class Cells(HTMLParser):
    """The rows of the tables of a page, and what it asks for from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.outside, self._in_cell = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.outside += [x for name, x in attrs if name in ("src", "href") and x[0] != "#"]
        if tag == "tr":
            self.rows.append([])
        self._in_cell = tag == "td"
        if self._in_cell:
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        self._in_cell = self._in_cell and tag != "td"

    def handle_data(self, data):
        if self._in_cell:
            self.rows[-1][-1] += data


def assert_views_agree(output, page, data):
    """The table on the console, the page and the JSON say the same of every value."""
    rows = [row for row in Cells(page).rows if row]
    values = data["values"]
    assert len(rows) == len(values)
    assert not Cells(page).outside and "<script" not in page and "prefers-color-scheme" in page
    for row, value in zip(rows, values, strict=True):
        known, found = f"{value['known']:.10g}", f"{value['found']:.10g}"
        held = "yes" if value["holds"] else "NO"
        figure = value["figure"].replace("_", " ")
        assert row[:5] == [value["of"], figure, value["method"], known, found]
        assert row[8] == held
        shown = rf"{re.escape(known)}\s*│\s*{re.escape(found)}.*{held}"
        assert re.search(shown, output), value


# --- the whole command --------------------------------------------------------------------------------


def test_there_are_at_least_250_values_and_every_one_has_a_source():
    done = run("--list")
    assert done.exit_code == 0, done.output
    counts = {name: int(count) for name, count in re.findall(r"│ (\w+) .*?(\d+) │", done.stdout)}
    assert counts.pop("all") == sum(counts.values()) >= 250
    assert counts.keys() >= {"european", "barriers", "american", "heston", "sabr", "calibration"}
    assert min(counts.values()) >= 5
    page = (Path(__file__).parents[2] / "docs" / "validation.md").read_text(encoding="utf-8")
    published, everything = re.search(r"^(\d+) of the (\d+) are published", page, re.M).groups()
    assert "```groups" in page and int(everything) == sum(counts.values())
    known = [
        each for found in entry_points(group="jaxtape.validated") for each in found.load().checks()
    ]
    assert int(published) == sum(each.source.is_published for each in known)
    assert all(each.tolerance > 0.0 for each in known)


@pytest.mark.slow
def test_all_values_hold(tmp_path):
    page, data = tmp_path / "page.html", tmp_path / "data.json"
    done = run("--html", page, "--out", data)
    found = json.loads(data.read_text())
    faults = [(x["table"], x["of"], x["figure"], x["fault"]) for x in found["values"] if x["fault"]]
    assert done.exit_code == 0 and not faults
    assert found["holds"] and len(found["values"]) >= 250
    assert all(x["source"] and x["method"] and x["tolerance"] > 0.0 for x in found["values"])
    assert_views_agree(done.stdout, page.read_text(), found)


def test_a_group_by_name(tmp_path):
    page, data = tmp_path / "new" / "page.html", tmp_path / "data.json"
    done = run("sabr", "--html", page, "--out", data)
    assert done.exit_code == 0, done.output
    found = json.loads(data.read_text())
    assert {x["group"] for x in found["values"]} == {"sabr"} == found["seconds"].keys()
    assert_views_agree(done.stdout, page.read_text(), found)
    briefly = run("sabr", "--no-values")
    assert briefly.exit_code == 0 and "Antonov" in done.stdout and "Antonov" not in briefly.stdout


# --- what is wrong ------------------------------------------------------------------------------------


def test_a_group_of_ones_own_and_a_planted_error(mine, tmp_path):
    page, data = tmp_path / "page.html", tmp_path / "data.json"
    right = run(mine())
    assert right.exit_code == 0, right.output
    wrong = run(mine("10.450586"), "--html", page, "--out", data)
    assert wrong.exit_code == 1
    found = json.loads(data.read_text())
    assert not found["holds"]
    assert [x["holds"] for x in found["values"]] == [False, True, True]
    told = "two calls: the value (option call, strike 100), known as 10.450586, is 2e-06 away"
    assert told in wrong.stdout
    assert_views_agree(wrong.stdout, page.read_text(), found)
    assert (
        page.read_text().count('class="beyond"') == 1
        and "Beyond their tolerance" in page.read_text()
    )


def test_what_cannot_be_asked_is_told_with_status_2(mine, tmp_path):
    place = mine()
    (tmp_path / "file").write_text("")
    for words, told in (
        (["sabre"], "sabre: no such group. There are: american"),
        ([f"{place[:-4]}number"], "is a float; give a jaxtape.cli.check.Group"),
        ([f"{place}s"], "cannot be read"),
        ([place, "--out", tmp_path], "it is a folder"),
        ([place, "--html", tmp_path / "file" / "page.html"], "cannot be written"),
        ([place, "--html", "one", "--out", "one"], "give two files"),
        ([place, "--out", ""], "is not a path"),
    ):
        done = run(*words)
        assert done.exit_code == 2, words
        assert told in re.sub(r"\s+", " ", re.sub("[│╭╮╰╯─]", " ", done.output)), words
        assert "two calls" not in done.stdout


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("10.45", "ten", "value is 'ten0584': give a number"),
        ("100     5", "5", "put 5.573526 -: has 3 words for 4 columns"),
        ("value     delta", "price     slope", "has no column of figures"),
        ("value     delta", "value     value", "has the column value twice"),
        ("option  strike", "strike  strike", "has the column strike twice"),
        ('source = "a test"', "", "has no source"),
        ("rows", "tolerance = 1.0\nrows", "tolerance and because belong together"),
        ("[[table]]", "[[table", "is not TOML"),
    ],
)
def test_mistakes_in_a_table_are_told_with_status_2(mine, old, new, told):
    text = TABLE.format(value="10.450584").replace(old, new)
    done = run(mine(table=text.replace("{", "{{").replace("}", "}}")))
    assert done.exit_code == 2
    assert told in done.stderr.replace("\n", " ") and "mine.toml" in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("expiry = 1", "expiry = 1, maturity = 2", "no argument is named maturity"),
        ('"BlackScholes"', '"Black"', "no model is called 'Black'"),
        ("spot = 100", "spot = -1", "spot must be a finite number above 0"),
    ],
)
def test_a_contract_that_cannot_be_made_does_not_hold(mine, old, new, told):
    """Its values are not found, which is told; the other rows and groups go on."""
    text = TABLE.format(value="10.450584").replace(old, new)
    done = run(mine(table=text.replace("{", "{{").replace("}", "}}")), "sabr", "--no-values")
    assert done.exit_code == 1
    assert told in done.stdout.replace("\n", " ")
    assert re.search(r"sabr .* 42 │ *0 │", done.stdout)


def test_a_row_that_cannot_be_priced_leaves_the_others(mine):
    text = TABLE.replace("put     100", "calls   100")
    done = run(mine(table=text))
    assert done.exit_code == 1
    assert "must be one of 'call', 'put', got 'calls'" in done.stdout.replace("\n", " ")
    assert done.stdout.count("yes") == 2 and done.stdout.count("NO") == 1


def test_a_group_that_fails_does_not_hold(tmp_path):
    (tmp_path / "broken.py").write_text(
        "from jaxtape.cli.check import Check, Group, Source\n"
        "known = [Check('a', 'value', 1.0, 0.1, Source('t', 'a test'))]\n"
        "group = Group('Broken', lambda: known, lambda known: 1 / 0)\n"
    )
    out = tmp_path / "out.json"
    done = run(f"{tmp_path / 'broken.py'}:group", "sabr", "--no-values", "--out", out)
    assert done.exit_code == 1
    assert "is not found: ZeroDivisionError: division by zero" in done.stdout
    values = json.loads(out.read_text())["values"]
    assert [x["found"] for x in values if not x["holds"]] == [None] and len(values) == 43


# --- references, checks -------------------------------------------------------------------------------


def test_the_tolerance_is_half_a_unit_of_the_last_printed_digit(tmp_path):
    (tmp_path / "digits.toml").write_text(
        "[[table]]\nname='digits'\nsource='a test'\nmethods=['', 'other']\n"
        "rows='''\nof  value    gamma\na   10.4500  -1.2e-3\nb   12       -\n'''"
    )
    found = read_tables(tmp_path / "digits.toml", {"value", "gamma"})
    tolerances = [(known.name, known.figure, round(known.tolerance, 6)) for known in found]
    assert tolerances[:4] == [
        ("of a", "value", 5e-5),
        ("of a", "gamma", 5e-5),
        ("of a", "value", 5e-5),
        ("of a", "gamma", 5e-5),
    ]
    assert tolerances[4:] == 2 * [("of b", "value", 0.5)]
    assert [known.method for known in found] == ["", "", "other", "other", "", "other"]


_HEAD = "[[table]]\nname='t'\nsource='s'\n"
_ROWS = "rows='''\nof value\na 1.0\n'''\n"
WRONG_TOMLS = {
    "": "has no tables: begin each with",
    "table = 3": "has no tables",
    "table = [1, 2]": "has no tables",
    "[table]\nname='t'": "has no tables",
    "a = " + "[" * 5000: "nested too deeply|is not readable TOML",
    _HEAD: "has no rows: give one",
    _HEAD + "rows = 3": "rows is '3': give text",
    _HEAD + "rows = ['of value']": "give text",
    f"{_HEAD}methods = 'a'\n{_ROWS}": "methods is 'a': give a list of at least one name",
    f"{_HEAD}methods = []\n{_ROWS}": "give a list of at least one name",
    f"{_HEAD}methods = [3]\n{_ROWS}": "give a list of at least one name",
    f"{_HEAD}constants = 3\n{_ROWS}": "constants is '3': give a table",
    f"{_HEAD}constants = {{a = [1]}}\n{_ROWS}": "give a table of numbers and words",
    f"{_HEAD}because='b'\ntolerance = 'x'\n{_ROWS}": "tolerance is 'x': give a number",
    f"{_HEAD}because='b'\ntolerance = {{value = [1]}}\n{_ROWS}": "give a number",
    f"{_HEAD}because=3\ntolerance=1\n{_ROWS}": "because is '3': give text",
    f"{_HEAD}left_out=3\n{_ROWS}": "left_out is '3': give text",
    f"{_HEAD}kind=3\n{_ROWS}": "kind is '3': give text",
    _ROWS.join(("[[table]]\nname=3\nsource='s'\n", "")): "name is '3': give text",
    _HEAD + _ROWS.replace("1.0", "1e400"): "value is '1e400': give a number",
    _HEAD + _ROWS.replace("1.0", "nan"): "value is 'nan': give a number",
}


@pytest.mark.parametrize("text", WRONG_TOMLS, ids=range(len(WRONG_TOMLS)))
def test_a_wrong_table_is_told_with_its_file(tmp_path, text):
    (tmp_path / "wrong.toml").write_text(text)
    with pytest.raises(ValueError, match=f"wrong.toml.*({WRONG_TOMLS[text]})"):
        read_tables(tmp_path / "wrong.toml", {"value"})


@pytest.mark.parametrize(
    ("references", "find", "told"),
    [
        ("lambda: 1 / 0", "list", "its references cannot be read: ZeroDivisionError"),
        ("lambda: [][3]", "list", "IndexError"),
        ("lambda: known", "lambda _: []", "its figures cannot be used: ValueError"),
        ("lambda: known", "lambda _: [3]", "its figures cannot be used: "),
    ],
)
def test_a_group_of_ones_own_that_breaks_is_told(tmp_path, references, find, told):
    (tmp_path / "broken.py").write_text(
        "from jaxtape.cli.check import Check, Group, Source\n"
        "known = [Check('a', 'value', 1.0, 0.1, Source('t', 'a test'))]\n"
        f"group = Group('Broken', {references}, {find})\n"
    )
    done = run(f"{tmp_path / 'broken.py'}:group")
    assert done.exit_code == 2 and told in done.stderr and done.stderr.count("\n") == 1


CHECK = Check("a", "value", 10.0, 0.01, Source("t", "a test"))


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (CHECK.found(10.009, "m"), ""),
        (CHECK.found(10.011, "m"), "is 1e-02 away, and 1e-02 is allowed"),
        (CHECK.found(10.05, "m", 0.0101), "has a standard error of 1e-02"),
        (CHECK.found(10.045, "m", 0.009), ""),
        (CHECK.found(10.055, "m", 0.009), "is 5e-02 away"),
        (CHECK.found(float("nan"), "m"), "not finite"),
        (CHECK.found(10.0, "m", float("inf")), "not finite"),
        (CHECK.not_found("OSError: gone"), "is not found: OSError: gone"),
    ],
)
def test_verdicts(found, told):
    assert found.holds == (not told)
    assert told in found.fault


@pytest.mark.parametrize(
    ("value", "tolerance"),
    [(float("nan"), 0.01), (float("inf"), 0.01), (10.0, float("nan")), (10.0, float("inf"))],
)
def test_what_is_known_with_no_finite_number_does_not_hold(value, tolerance):
    known = Check("a", "value", value, tolerance, Source("t", "a test"))
    group = Group("g", lambda: [known], lambda checks: [check.found(10.0, "m") for check in checks])
    (check,) = group.results()
    assert not check.holds and f"{value} with a tolerance of {tolerance}" in check.fault
    results = [GroupResult("g", "G", [check], 0.0)]
    data = json.loads(as_json(results), parse_constant=pytest.fail)
    assert (data["holds"], len(data["values"])) == (False, 1)


def test_the_error_of_a_grid_allows_its_figure_no_more(monkeypatch):
    """That of paths allows four standard errors."""
    (known,) = (each for each in barriers.checks() if "under Heston" in each.source.name)

    def priced(contracts, figures, key):
        return {name: (np.array([9.17]), np.array([0.005])) for name in figures}

    monkeypatch.setattr(price_checks, "_priced", priced)
    for method, holds in ((known.method, False), ("MonteCarlo", True)):
        asked = replace(known, method=method)
        (found,) = price_checks.find([asked])
        assert found.holds is holds, found


def test_nothing_found_for_something_known_is_an_error():
    known = [Check("a", "value", 10.0, 0.01, Source("t", "a test"))]
    group = Group("g", lambda: known, lambda checks: [])
    with pytest.raises(ValueError, match="0 results for 1 checks"):
        group.results()
