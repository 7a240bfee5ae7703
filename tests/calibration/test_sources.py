"""Surfaces from tables and folders: read to the last bit, and what cannot be read named with its place."""

import datetime as dt
import json
import re
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from calibration import read_jobs
from pricing import Heston, HullWhite, Market, Sabr
from pricing.ingestion import UnreadableFile
from tests.helpers import desk_market, double

pytestmark = double

ROWS = [  # the second surface's expiries have unequal strikes, and are not in order
    ("A", 100.0, 0.02, 0.5, 90.0, 0.22),
    ("A", 100.0, 0.02, 0.5, 110.0, None),
    ("B", 50.0, 0.01, 1.0, 45.0, 0.3),
    ("B", 50.0, 0.01, 0.25, 40.0, 0.35),
    ("B", 50.0, 0.01, 1.0, 50.0, 0.28),
    ("B", 50.0, 0.01, 1.0, 55.0, 0.27),
]
NAMES = ("surface", "spot", "rate", "expiry", "strike", "vol")


def table(rows=ROWS, names=NAMES) -> pa.Table:
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def write(path: Path, of: pa.Table) -> Path:
    writer = pyarrow.csv.write_csv if path.suffix == ".csv" else pyarrow.parquet.write_table
    writer(of, path)
    return path


@pytest.mark.parametrize("name", ["quotes.csv", "quotes.parquet"])
def test_a_table_is_read_by_surface_and_expiry(tmp_path, name):
    first, second = read_jobs(write(tmp_path / name, table()), Heston)
    assert (first.id, second.id) == ("A", "B")
    assert float(second.model.spot) == 50.0 and float(second.model.rate) == 0.01
    assert second.quotes.expiries.tolist() == [0.25, 1.0]
    np.testing.assert_array_equal(second.quotes.vols, [[0.35, np.nan, np.nan], [0.3, 0.28, 0.27]])
    np.testing.assert_array_equal(second.quotes.weights, [[1, 0, 0], [1, 1, 1]])
    forward = 50.0 * np.exp(0.01)
    np.testing.assert_allclose(
        second.quotes.log_moneyness[1], np.log(forward / np.array([45.0, 50.0, 55.0])), rtol=1e-12
    )
    assert first.counts.tolist() == [[True, False]]
    assert not first.refusal(1) and "it has 1 quotes for 5" in first.refusal(5)


def test_dates_are_counted_from_a_date(tmp_path):
    rows = [("A", 100.0, 0.02, "2025-01-02", 90.0, 0.2, "2024-01-03")]
    (job,) = read_jobs(write(tmp_path / "a.csv", table(rows, (*NAMES, "asof"))), Heston)
    assert job.quotes.expiries.tolist() == [365 / 365]


BAD = {  # what a cell holds -> the line and the column that are named
    (1, "vol"): ("abc", "quotes.csv:3: column 'vol' holds no number; give a number"),
    (3, "strike"): ("", "quotes.csv:5: column 'strike' holds no number"),
    (2, "spot"): ("?", "quotes.csv:4: column 'spot' holds no number"),
    (4, "expiry"): ("soon", "quotes.csv:6: column 'expiry' holds no number; give years"),
}


@pytest.mark.parametrize(("row", "column"), BAD)
def test_a_cell_that_is_no_number_spoils_its_surface_alone(tmp_path, row, column):
    cell, said = BAD[row, column]
    texts = [["" if x is None else str(x) for x in of_row] for of_row in ROWS]
    texts[row][NAMES.index(column)] = cell
    file = tmp_path / "quotes.csv"
    file.write_text("\n".join(",".join(line) for line in [NAMES, *texts]))
    by_name = {job.id: job for job in read_jobs(file, Heston)}
    spoilt = by_name.pop("A" if row < 2 else "B")
    assert said in spoilt.refusal(1)
    (other,) = by_name.values()
    assert not other.refusal(1)


def test_a_table_that_is_none_says_so(tmp_path):
    with pytest.raises(UnreadableFile, match="there is no such file"):
        read_jobs(tmp_path / "none.csv", Heston)
    with pytest.raises(UnreadableFile, match=r"is not a file of \.csv, \.parquet"):
        list(read_jobs(Path(__file__), Heston))
    lacking = write(tmp_path / "lacking.csv", table().drop_columns(["vol", "spot"]))
    with pytest.raises(UnreadableFile, match="has no column spot, vol among surface, rate"):
        list(read_jobs(lacking, Heston))
    for name in ("torn.parquet", "torn.csv"):
        (tmp_path / name).write_bytes(b"\x00\xffno table")
        with pytest.raises(UnreadableFile, match=name):
            list(read_jobs(tmp_path / name, Heston))
    with pytest.raises(TypeError, match="no quotes for HullWhite: give a model of an equity"):
        list(read_jobs(write(tmp_path / "a.csv", table()), HullWhite))
    with pytest.raises(TypeError, match="no quotes for Sabr: give a model of an equity that needs"):
        list(read_jobs(write(tmp_path / "a.csv", table()), Sabr))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnreadableFile, match="has no file of"):
        read_jobs(tmp_path / "empty", Heston)


@pytest.mark.parametrize("head", [b"x\xff,surface", b"x,surfac\xe9"])
def test_a_name_of_a_column_that_is_no_text_is_refused(tmp_path, head):
    (tmp_path / "a.csv").write_bytes(head + b",spot,rate,expiry,strike,vol\n1,A,100,0,1,90,0.2\n")
    with pytest.raises(UnreadableFile, match=r"a\.csv: byte 0x(ff|e9) is not UTF-8 text; save"):
        list(read_jobs(tmp_path / "a.csv", Heston))


@pytest.mark.parametrize("name", NAMES)
def test_a_column_of_lists_is_refused(tmp_path, name):
    columns = table().to_pydict()
    columns[name] = [[value] for value in columns[name]]
    with pytest.raises(UnreadableFile, match=rf"has the column '{name}' of type list<"):
        list(read_jobs(write(tmp_path / "a.parquet", pa.table(columns)), Heston))


def test_dates_may_name_surfaces(tmp_path):
    columns = table().to_pydict()
    days = {
        name: dt.date(2026, 11, n) for n, name in enumerate(dict.fromkeys(columns["surface"]), 1)
    }
    columns["surface"] = [days[name] for name in columns["surface"]]
    jobs = list(read_jobs(write(tmp_path / "a.parquet", pa.table(columns)), Heston))
    assert [job.id for job in jobs] == [str(day) for day in days.values()]


def test_a_column_twice_is_told(tmp_path):
    lines = [",".join((*NAMES, "vol")), "A,100,0.02,0.5,90,0.2,0.3"]
    (tmp_path / "twice.csv").write_text("\n".join(lines))
    twice = pa.Table.from_arrays([*table().columns, table().column("vol")], names=[*NAMES, "vol"])
    write(tmp_path / "twice.parquet", twice)
    for name in ("twice.csv", "twice.parquet"):
        with pytest.raises(UnreadableFile, match=r"has the column '?vol'? twice; keep one"):
            list(read_jobs(tmp_path / name, Heston))


@pytest.mark.parametrize(
    "name", [pytest.param("wide.csv", marks=pytest.mark.costly), "wide.parquet"]
)
def test_a_table_of_a_hundred_thousand_columns_is_read_in_a_moment(tmp_path, name):
    extra = [f"x{i}" for i in range(100_000)]
    if name == "wide.csv":
        lines = [",".join((*NAMES, *extra)), "A,100,0.02,0.5,90,0.2" + ",1" * len(extra)]
        (tmp_path / name).write_text("\n".join(lines))
    else:
        wide = pa.table({**{name: [1.0] for name in extra[:20_000]}, **table(ROWS[:1]).to_pydict()})
        write(tmp_path / name, wide)
    start = time.process_time()
    (job,) = read_jobs(tmp_path / name, Heston)
    assert job.id == "A" and time.process_time() - start < 20.0  # it took hours


@pytest.mark.costly
def test_a_table_that_ends_in_ruin_gives_what_was_before(tmp_path):
    """Rows of a later piece of the file that are no rows: the surfaces before them are fitted all the same."""
    row = "{name},100,0.02,0.5,{strike},0.2\n"
    lines = [row.format(name=f"S{i // 40}", strike=80 + i % 40) for i in range(60_000)]
    text = ",".join(NAMES) + "\n" + "".join(lines) + "S1500,100\n"
    (tmp_path / "long.csv").write_text(text)
    *read, last = read_jobs(tmp_path / "long.csv", Heston)
    assert len(read) > 500 and not any(job.unreadable for job in read)
    assert "long.csv" in last.unreadable and "what follows was not read" in last.unreadable


def test_a_bad_market_is_a_job_whatever_the_model(tmp_path):
    (tmp_path / "2002-07-04.json").write_text("{")
    sample = Path("pricing/samples/dax_2002-07-05.json").read_text(encoding="utf-8")
    (tmp_path / "2002-07-05.json").write_text(sample)
    bad, good = read_jobs(tmp_path, HullWhite)
    assert bad.model is None and "2002-07-04.json" in bad.refusal(2) and not good.refusal(2)


def test_a_folder_is_read_file_by_file(tmp_path):
    sample = Path("pricing/samples/dax_2002-07-05.json").read_text(encoding="utf-8")
    (tmp_path / "2002-07-05.json").write_text(sample, encoding="utf-8")
    damaged = json.loads(sample)
    del damaged["equities"]["DAX"]["spot"]
    (tmp_path / "2002-07-06.json").write_text(json.dumps(damaged), encoding="utf-8")
    (tmp_path / "2002-07-07.json").write_text("{", encoding="utf-8")
    write(tmp_path / "more.parquet", table())
    found = {job.id: job for job in read_jobs(tmp_path, Heston)}
    market = desk_market()
    names = [f"2002-07-05/{name}" for name in sorted(market.equities)]
    assert list(found)[: len(names)] == names and {"A", "B", "2002-07-07.json"} < set(found)
    dax = found["2002-07-05/DAX"]
    np.testing.assert_array_equal(dax.quotes.vols, market.equities["DAX"].surface.vols)
    assert not dax.refusal(5)
    spoilt = [job for name, job in found.items() if name.startswith("2002-07-06/equities.DAX")]
    assert len(spoilt) == 1 and "spot" in spoilt[0].refusal(5)
    assert "2002-07-07.json" in found["2002-07-07.json"].refusal(5)
    (rates,) = read_jobs(tmp_path / "2002-07-05.json", HullWhite)
    assert rates.id == "2002-07-05/EUR" and isinstance(rates.model, HullWhite)
    assert isinstance(Market.from_text(sample), Market)


# --- numbers of another unit ----------------------------------------------------------------------------------

HEADER = (*NAMES, "weight")
PLAIN = [
    ("A", "4468.17", "0.03", expiry, strike, vol, "1")
    for expiry in ("0.25", "0.5")
    for strike, vol in (("4000", "0.25"), ("4400", "0.22"), ("5000", "0.19"))
]


def refusal(tmp_path, header=HEADER, rows=PLAIN, **columns) -> str | None:
    """Why the one surface of a table is refused, with these columns (a function of each cell, or by row)."""
    changed = []
    for place, row in enumerate(rows):
        cells = dict(zip(HEADER, row, strict=True))
        for name, change in columns.items():
            cells[name] = (
                change.get(place, cells[name]) if isinstance(change, dict) else change(cells[name])
            )
        changed.append(",".join(cells.values()))
    file = tmp_path / "q.csv"
    file.write_text("\n".join([",".join(header), *changed]))
    (job,) = read_jobs(file, Heston)
    return job.refusal(5)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, None),
        ({"vol": lambda v: f"{100 * float(v):g}"}, ":2: column 'vol': 25 is larger than 10"),
        ({"vol": lambda v: f"{30 * float(v):g}"}, ":2: column 'vol': 7.5 is 750%, too large for a vol; give a"),
        ({"vol": lambda v: f"{8 * float(v):g}"}, ":2: column 'vol': every vol is 1.52 or more"),
        ({"vol": {3: "9.31"}}, ":5: column 'vol': 9.31 is 931%, too large for a vol; give a decimal: 9.31 %"),
        ({"vol": {3: "2.4"}}, ":5: column 'vol': the vol 2.4 is far from 0."),
        ({"vol": {1: "-0.2"}}, ":3: column 'vol': -0.2 is not a positive number"),
        ({"rate": lambda _: "3.5"}, ":2: column 'rate': 3.5 is larger than 1"),
        ({"expiry": lambda t: "90" if t == "0.25" else "180"}, ":2: column 'expiry': 90 is larger than 30"),
        ({"expiry": lambda t: "7" if t == "0.25" else "14"}, ":2: column 'expiry': expiries of 7 to 14 look"),
        ({"expiry": lambda t: "1" if t == "0.25" else "2"}, None),
        ({"strike": {1: "4000"}}, ":3: the quote of expiry 0.25 at strike 4000 appears twice; keep one"),
        ({"strike": lambda k: f"{float(k) / 4468.17:.4f}"}, ":2: column 'strike': 0.8952 is far from the spot"),
        ({"strike": {2: "4.500"}}, ":4: column 'strike': 4.5 is far from the spot 4468.17"),
        ({"strike": {2: "4.500"}, "spot": lambda _: "4468"}, ":4: column 'strike': 4.500 may be 4.5 or 4,500"),
        ({"strike": lambda k: f"{k[0]}.{k[1:]}", "spot": lambda _: "4.468"}, None),
        ({"weight": {4: "-1"}}, ":6: column 'weight': -1 is not a number >= 0"),
        ({"spot": lambda _: "-1"}, ":2: column 'spot': -1 is not a positive number"),
    ],
)  # fmt: skip
def test_a_number_of_another_unit_is_refused_with_its_place(tmp_path, columns, said):
    found = refusal(tmp_path, **columns)
    assert found is None if said is None else said in found, found


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ((*NAMES, "wieght"), "has a column 'wieght', which is not known; did you mean 'weight'?"),
        ((*NAMES, "Weight"), "did you mean 'weight'?"),
        ((*NAMES, "vol"), "has the column vol twice; keep one of them"),
        ((*NAMES[:-1], "vols", "weight"), "has no column vol among"),
    ],
)
def test_a_slip_in_the_header_is_refused(tmp_path, header, said):
    rows = [row[: len(header)] for row in PLAIN]
    file = tmp_path / "q.csv"
    file.write_text("\n".join([",".join(header), *(",".join(row) for row in rows)]))
    with pytest.raises(UnreadableFile, match=re.escape(said)):
        list(read_jobs(file, Heston))


@pytest.mark.parametrize("name", ["quotes.csv", "quotes.parquet"])
def test_a_surface_without_a_name_is_refused(tmp_path, name):
    rows = [(None if row[0] == "A" else row[0], *row[1:]) for row in ROWS]
    first, second = read_jobs(write(tmp_path / name, table(rows)), Heston)
    assert "column 'surface' is empty; give each surface a name" in first.refusal(1)
    assert second.id == "B" and not second.refusal(1)


def test_a_market_has_the_same_bounds():
    sample = json.loads(Path("pricing/samples/dax_2002-07-05.json").read_text(encoding="utf-8"))

    def said(change) -> str:
        document = json.loads(json.dumps(sample))
        change(document["equities"]["DAX"], document["swaption_vols"])
        return " ".join(map(str, Market.from_text(json.dumps(document)).errors))

    def quotes(equity) -> dict:
        return equity["implied_vols"]

    def scaled(factor):
        return lambda equity, _: quotes(equity).update(
            vols_by_expiry=[[factor * v for v in row] for row in quotes(equity)["vols_by_expiry"]]
        )

    assert not said(lambda *_: None)
    assert "is 530%, too large for a vol; give a decimal: 5.3 % is 0.053" in said(scaled(8.0))
    assert "strikes are from 3.4 to 5.6 and the spot is 4468.17" in said(
        lambda equity, _: quotes(equity).update(
            strikes=[k / 1e3 for k in quotes(equity)["strikes"]]
        )
    )
    for vol, wanted in ((0.85, "0.85 is a normal vol of 8,500 bp"), (85.0, "850,000 bp")):
        assert wanted in said(
            lambda _, vols, v=vol: vols.update(type="normal", vols_by_expiry=[[v] * 5] * 5)
        )
