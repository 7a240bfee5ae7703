"""Many surfaces as an operator runs them: object stores, folders of a lake, shards, ends that are early."""

import itertools
import json
import os
import signal
import sys
import time
import types
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.fs
import pyarrow.parquet
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from typer.testing import CliRunner

from calibration import Calibrations, calibrate_many, calibrate_table, merge_shards, read_jobs
from calibration.app import rounds_watch
from calibration.app.calibrate import calibrate  # the module of the command
from calibration.app.processes import _DONE, _cause
from calibration.many import rounds
from jaxtape import object_store
from jaxtape.cli.main import app
from jaxtape.object_store import StoredPath, local_copy, place_of
from jaxtape.output_folder import AtomicOutput, mismatched_files
from pricing import Heston, Market
from pricing.ingestion.errors import UnreadableFile
from tests.helpers import double

pytestmark = double

SAMPLES = Path(__file__).parents[2] / "pricing" / "samples"
EXPIRIES, K = np.array([0.25, 1.0]), np.linspace(-0.2, 0.2, 4)


def quotes(names: str) -> pa.Table:
    """A smile a name, each of its own level; the name X has a vol that is no number, Y too few quotes."""
    rows = []
    for number, name in enumerate(names):
        for t in EXPIRIES:
            for k in K:
                vol = 0.2 + 0.01 * number - 0.1 * k / np.sqrt(t) + 0.3 * k**2
                text = "?" if name == "X" else "" if name == "Y" and k > -0.1 else f"{vol:.12f}"
                rows.append((name, 100.0, 0.02, t, 100.0 * np.exp(k), text))
    columns = "surface", "spot", "rate", "expiry", "strike", "vol"
    return pa.table(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True)))


def write(path: Path, table: pa.Table) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = pyarrow.csv.write_csv if path.suffix == ".csv" else pyarrow.parquet.write_table
    writer(table, path)
    return path


@pytest.fixture
def store(monkeypatch):
    """A store in memory, in place of S3's and Google's."""
    files = MemoryFileSystem()
    files.store.clear()
    found = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(files))
    monkeypatch.setattr(object_store, "_file_system", lambda scheme, bucket, options: found)
    yield files
    files.store.clear()


# --- Object stores ---------------------------------------------------------------------------------------


def test_a_path_stays_as_it_is_and_a_url_of_a_store_is_a_place():
    assert place_of("out/a") == Path("out/a") and place_of(Path("C:/out")) == Path("C:/out")
    place = place_of("s3://bucket/out/quotes.parquet?endpoint_override=localhost:9000&scheme=http")
    assert str(place) == os.fspath(place) == "s3://bucket/out/quotes.parquet"
    assert (place.name, place.stem, place.suffix) == ("quotes.parquet", "quotes", ".parquet")
    assert str(place_of(Path("gs://bucket/out/")) / "run.json") == "gs://bucket/out/run.json"
    assert place_of(place) is place
    public = place_of("gs://anonymous@bucket/a")
    assert str(public) == "gs://bucket/a" and public.user == "anonymous" == (public / "b").user


@pytest.mark.parametrize("url", ["file:///tmp/out", "http://host/a", "s3://", "gs:/"])
def test_another_url_is_refused(url):
    with pytest.raises(ValueError, match="is a URL; give a local path, gs://BUCKET"):
        place_of(url)


def test_a_password_in_a_url_is_refused_and_not_shown():
    with pytest.raises(ValueError, match="contains a password") as refused:
        place_of("s3://me:secret@bucket/out")
    assert "secret" not in str(refused.value)


def test_files_of_a_run_appear_in_a_store_and_others_stay(store):
    place = place_of("s3://bucket/out")
    assert not place.exists()
    for texts in ({"a.csv": "1", "b.csv": "2"}, {"a.csv": "3"}):
        with AtomicOutput(place, "jaxtape test", ("a.csv", "b.csv")).written() as folder:
            for name, text in texts.items():
                (folder / name).write_text(text)
    assert {file.name for file in place.files()} == {"a.csv", "run.json"} and place.is_dir()
    assert (place / "a.csv").read_bytes() == b"3" and not mismatched_files(place)
    (place / "mine.csv").write_bytes(b"mine")
    (place / "a.csv").write_bytes(b"changed")
    assert mismatched_files("s3://bucket/out") == ["a.csv"]
    with pytest.raises(FileExistsError, match="no earlier run of jaxtape wrote it"):
        AtomicOutput(place, "jaxtape test", ("mine.csv",))
    with pytest.raises(FileExistsError, match="it is an input of this command"):
        AtomicOutput(place, "jaxtape test", ("a.csv",), inputs=[place / "a.csv"])


@pytest.mark.parametrize(
    ("said", "raised"),
    [
        ("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7", ConnectionError),
        ("AWS Error SLOW_DOWN during PutObject operation", ConnectionError),
        ("AWS Error ACCESS_DENIED during HeadObject operation", PermissionError),
        ("AWS Error NO_SUCH_BUCKET during CreateMultipartUpload operation", PermissionError),
    ],
)
def test_a_failure_of_a_store_is_known_from_a_mistake(store, monkeypatch, said, raised):
    def fails(*_, **__):
        raise OSError(said)

    monkeypatch.setattr(object_store, "_file_system", fails)
    place = place_of("s3://bucket/quotes.parquet")
    for reading in (place.exists, place.read_bytes, lambda: local_copy(place).__enter__()):
        with pytest.raises(raised, match=said) as error:
            reading()
        assert error.value.filename == str(place)
    kind = OSError if raised is PermissionError else ConnectionError
    with pytest.raises(kind, match=said):
        list(read_jobs(place, Heston))


# --- Folders as a data lake writes them ------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path) -> Path:
    """Tables in three formats and folders, a market among them; some broken, some that no engine reads."""
    folder = tmp_path / "lake"
    write(folder / "top.parquet", quotes("AXB"))
    write(folder / "date=2002-07-05" / "part-0.csv", quotes("AY"))
    write(folder / "date=2002-07-08" / "part-0.parquet", quotes("A"))
    plain = quotes("CD").drop_columns(["surface"])
    write(folder / "surface=C%20D" / "x.parquet", plain.slice(0, EXPIRIES.size * K.size))
    (folder / "markets").mkdir()
    (folder / "markets" / "torn.json").write_text("{")
    (folder / "torn.csv").write_bytes(b"\x00no table")
    for name in ("_temporary/0/part.parquet", ".part-0.csv", "_delta_log/0.json", "notes.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("not for you")
    return folder


LAKE = [
    "date=2002-07-05/A",
    "date=2002-07-05/Y",
    "date=2002-07-08/A",
    "markets/torn.json",
    "C D",
    "A",
    "X",
    "B",
    "torn.csv",
]


def test_a_lake_is_read_with_its_folders_before_the_names(lake):
    jobs = {job.id: job for job in read_jobs(lake, Heston)}
    assert list(jobs) == LAKE
    reasons = {name: job.refusal(5) for name, job in jobs.items() if job.refusal(5)}
    assert set(reasons) == {"date=2002-07-05/Y", "markets/torn.json", "X", "torn.csv"}
    assert reasons["X"].startswith(f"{lake / 'top.parquet'}:9: column 'vol' holds no number")


def test_a_folder_gives_a_date_to_tables_that_lack_it(tmp_path):
    table = quotes("A").slice(0, K.size).set_column(3, "expiry", [["2003-01-05"] * K.size])
    write(tmp_path / "asof=2002-07-05" / "a.csv", table)
    (job,) = read_jobs(tmp_path, Heston)
    assert job.id == "asof=2002-07-05/A" and job.quotes.expiries.tolist() == [184 / 365]
    write(
        tmp_path / "asof=2002-07-05" / "a.csv",
        table.append_column("asof", [["2002-01-05"] * K.size]),
    )
    (job,) = read_jobs(tmp_path, Heston)
    assert (
        job.quotes.expiries.tolist() == [1.0] and not job.unreadable
    )  # the file's own column counts


def copied(lake: Path, store) -> None:
    for file in filter(Path.is_file, lake.rglob("*")):
        place = place_of(f"s3://bucket/lake/{file.relative_to(lake).as_posix()}")
        place.write_bytes(file.read_bytes())


def test_a_store_holds_the_jobs_of_the_same_folder(lake, store):
    copied(lake, store)
    for of_store, local in zip(
        read_jobs("s3://bucket/lake", Heston), read_jobs(lake, Heston), strict=True
    ):
        assert of_store.id == local.id
        assert str(of_store.quotes.vols) == str(local.quotes.vols)
        assert of_store.place.replace("s3://bucket/lake", str(lake)) == local.place
    (place_of("gs://bucket/m.json")).write_bytes((SAMPLES / "dax_2002-07-05.json").read_bytes())
    market = Market.read("gs://bucket/m.json")
    assert market.asof == Market.read(SAMPLES / "dax_2002-07-05.json").asof and not market.errors
    one = read_jobs("s3://bucket/lake/date=2002-07-08/part-0.parquet", Heston)
    assert [job.id for job in one] == ["A"]
    with pytest.raises(UnreadableFile, match=r"s3://bucket/none\.csv: there is no such file"):
        read_jobs("s3://bucket/none.csv", Heston)


# --- Shards ----------------------------------------------------------------------------------------------


def fitted(source, **settings) -> Calibrations:
    return calibrate_many(read_jobs(source, Heston), **settings)


@pytest.fixture
def whole(lake, tmp_path) -> bytes:
    return bytes_of(fitted(lake), tmp_path)


def bytes_of(found: Calibrations, folder: Path) -> bytes:
    found.write_parquet(folder / "found.parquet")
    return (folder / "found.parquet").read_bytes()


@pytest.mark.repeat
@pytest.mark.parametrize("count", [4, 40])
def test_shards_put_together_are_the_run_without_shards(lake, whole, tmp_path, count):
    (lake / "z.csv").write_bytes((lake / "date=2002-07-05" / "part-0.csv").read_bytes())  # A again
    parts = []
    for index in reversed(range(count)):
        fitted(lake, shard=(index, count)).write_parquet(tmp_path / f"{index}.parquet")
        parts.append(Calibrations.read_parquet(tmp_path / f"{index}.parquet"))
    assert sum(len(part.ids) for part in parts) == len(LAKE) + 2
    again = fitted(lake)
    assert [name for name in again.failed if "(2)" in name] == ["A (2)"] and "A" in again.failed
    assert bytes_of(merge_shards(parts), tmp_path) == bytes_of(again, tmp_path) != whole
    if count == 4:
        with pytest.raises(ValueError, match="a shard is missing, or given twice"):
            merge_shards(parts[1:])
        with pytest.raises(ValueError, match="a shard is missing, or given twice"):
            merge_shards([*parts, parts[0]])
        with pytest.raises(ValueError, match="are of several runs"):
            merge_shards([*parts[1:], again])
        (lake / "z.csv").unlink()
        other = [fitted(lake, shard=(3, 4)), *parts[1:]]
        with pytest.raises(ValueError, match="are of several runs"):
            merge_shards(other)


@pytest.mark.repeat
def test_an_id_is_of_the_same_shard_whatever_stands_beside_it(lake):
    first = {name: x for x in range(3) for name in fitted(lake, shard=(x, 3)).ids}
    (lake / "top.parquet").unlink()
    later = {name: x for x in range(3) for name in fitted(lake, shard=(x, 3)).ids}
    assert later == {name: first[name] for name in LAKE if name not in ("A", "X", "B")}


def test_a_shard_that_is_none_is_refused(lake, tmp_path):
    for shard in ((4, 4), (-1, 4), (0, 0)):
        with pytest.raises(ValueError, match="shard"):
            fitted(lake, shard=shard)
    write(tmp_path / "other.parquet", quotes("A"))
    with pytest.raises(ValueError, match="contains no calibrations"):
        Calibrations.read_parquet(tmp_path / "other.parquet")


# --- A function of tables --------------------------------------------------------------------------------


@pytest.mark.repeat
def test_a_table_of_quotes_becomes_the_table_of_the_file(tmp_path):
    table = quotes("ABXYC")
    write(file := tmp_path / "quotes.parquet", table)
    found = calibrate_table(table, Heston, source=str(file))
    pyarrow.parquet.write_table(found, tmp_path / "table.parquet")
    assert (tmp_path / "table.parquet").read_bytes() == bytes_of(fitted(file), tmp_path)
    (batch,) = table.to_batches()
    anonymous = calibrate_table(batch, Heston)
    assert (
        anonymous.drop_columns("status").to_pylist()[0]
        == found.drop_columns("status").to_pylist()[0]
    )
    said = anonymous["status"].to_pylist()
    assert said[2].startswith("failed: row 17: column 'vol' holds no number")
    assert said[3].startswith("failed: row 25: it has 2 quotes for 5 parameters")
    for names, status in (("", []), ("X", ["failed: row 1: column"])):
        few = calibrate_table(quotes("AX").slice(0, 0) if not names else quotes(names), Heston)
        assert few.schema == found.schema
        assert [
            text[: len("failed: row 1: column")] for text in few["status"].to_pylist()
        ] == status
    with pytest.raises(UnreadableFile, match="the table: has no column vol"):
        calibrate_table(table.drop_columns(["vol"]), Heston)


# --- The command -----------------------------------------------------------------------------------------


@pytest.fixture
def calibrated(lake, monkeypatch):
    """Run the command on the lake; its exit status and output."""
    module = sys.modules[calibrate.__module__]
    monkeypatch.setattr(module, "configure", lambda precision: None)
    words = "calibrate", "--market", str(lake), "--keep-every", "3"

    def run(*more: str):
        result = CliRunner().invoke(app, [*words, *more])
        assert result.exception is None or isinstance(result.exception, SystemExit), result
        return result.exit_code, result.output

    return run


def table(folder: Path) -> bytes:
    return (folder / "calibrations.parquet").read_bytes()


def test_shards_of_the_command_write_the_whole(calibrated, whole, tmp_path):
    out = tmp_path / "out"
    for index in (1, 0):
        status, said = calibrated("--out", str(out), "--shard", f"{index}/2")
        assert status == bool((out / f"shard-{index}-of-2" / "errors.txt").exists()), said
        assert ("1 of 2 shards are complete" in said) == (index == 1)
    assert table(out) == whole and not mismatched_files(out)
    assert (out / "errors.txt").read_text().count("\n") == 4
    status, said = calibrated("--out", str(out), "--shard", "1/2", "--max-steps", "50")
    assert status < 2 and "the shards cannot be merged: the parts are of several runs" in said
    assert table(out) == whole
    for text in ("2/2", "x", "1", "1/0", "-1/2"):
        status, said = calibrated("--out", str(out), "--shard", text)
        assert status == 2 and "is not a shard" in said


def test_the_command_runs_in_a_store(calibrated, lake, whole, store):
    copied(lake, store)
    words = "--market", "s3://bucket/lake", "--out", "s3://bucket/out"
    status, said = calibrated(*words)
    out = place_of("s3://bucket/out")
    local = whole.replace(str(lake).encode(), b"s3://bucket/lake")
    assert status == 1 and "wrote s3://bucket/out" in said, said
    found = Calibrations.read_parquet(out / "calibrations.parquet")
    assert found.ids == tuple(LAKE) and not mismatched_files(out)
    assert {file.name for file in (out / "rounds").files()} == {"3.npz", "6.npz", "9.npz"}
    first = (out / "calibrations.parquet").read_bytes()
    assert len(first) > 1000 and local != first  # Parquet holds the length of a text
    status, said = calibrated(*words, "--resume")
    assert status == 1 and (out / "calibrations.parquet").read_bytes() == first
    before = {str(file): file.read_bytes() for file in out.files()}
    status, said = calibrated(*words, "--resume", "--max-steps", "50")
    assert status == 2 and "holds another run (other: settings)" in said
    assert {str(file): file.read_bytes() for file in out.files()} == before
    status, said = calibrated(*words, "--max-steps", "50")  # afresh: its results are in a file
    assert status == 1 and len((out / "rounds").files()) == 3


def lines(said: str) -> list[dict]:
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def test_a_line_a_round_and_metrics(calibrated, tmp_path, monkeypatch):
    clock = types.SimpleNamespace(perf_counter=itertools.count(0.0, 10.0).__next__, time=time.time)
    monkeypatch.setattr(rounds_watch, "time", clock)
    metrics = tmp_path / "jaxtape.prom"
    status, said = calibrated("--out", str(tmp_path / "a"), "--metrics-file", str(metrics))
    assert status == 1
    assert [(line["done"], line["failed"]) for line in lines(said)] == [(3, 1), (6, 2), (9, 4)]
    assert all(line["event"] == "round" and line["shard"] == "0/1" for line in lines(said))
    left = [line["seconds_left"] for line in lines(said)]
    assert left[0] > left[2] > 0.0  # the last file is in reading
    text = metrics.read_text()
    assert 'jaxtape_calibrate_failed_surfaces{shard="0/1"} 4.0' in text
    assert os.listdir(tmp_path).count("jaxtape.prom") == 1
    status, said = calibrated("--out", str(tmp_path / "b"), "--log", "text")
    assert "9 surfaces, 4 failed, " in said and " s left" in said and not lines(said)


@pytest.mark.parametrize(("most", "expected"), [(0, 3), (4, 0)])
def test_more_failures_than_allowed_end_the_run(calibrated, whole, tmp_path, most, expected):
    out = tmp_path / "out"
    status, said = calibrated("--out", str(out), "--max-failed", str(most))
    assert status == expected, said
    assert len(os.listdir(out / "rounds")) == (1 if most == 0 else 3)
    if expected:
        assert f"more than --max-failed {most}; the first is date=2002-07-05/Y: " in said
        status, said = calibrated("--out", str(out), "--resume", "--max-failed", "4")
    assert status == 0 and table(out) == whole and (out / "errors.txt").exists()


def test_sigterm_ends_the_run_after_the_round_that_is_kept(
    calibrated, whole, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        fitted_round = rounds._fitted

        def terminated(*args):
            os.kill(os.getpid(), signal.SIGTERM)
            return fitted_round(*args)

        patch.setattr(rounds, "_fitted", terminated)
        for kept in (1, 2):
            status, said = calibrated("--out", str(out), "--resume")
            assert status == 75 and "the run was terminated; " in said and "--resume" in said
            assert len(os.listdir(out / "rounds")) == kept and not (out / "report.html").exists()
    status, said = calibrated("--out", str(out), "--resume", "--time-limit", "0")
    assert status == 75 and "the run ran for 0 seconds" in said
    status, said = calibrated("--out", str(out), "--resume")
    assert status == 1 and table(out) == whole
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_store_that_is_lost_asks_for_another_try(calibrated, store, monkeypatch):
    def lost(self, content):
        if "rounds/6.npz" in str(self):
            raise ConnectionError(5, "SLOW_DOWN", str(self))
        write_bytes(self, content)

    write_bytes = StoredPath.write_bytes
    monkeypatch.setattr(StoredPath, "write_bytes", lost)
    status, said = calibrated("--out", "gs://bucket/out")
    assert status == 75 and "SLOW_DOWN" in said and "again with --resume" in said
    monkeypatch.undo()


def test_statuses_of_processes_that_are_done():
    assert _DONE == (0, 1, 3)


@pytest.mark.parametrize(
    ("statuses", "cause"),
    [
        ([75, -9], (1, -9)),  # the killed process was reaped last
        ([-6, 0, -11], (2, -11)),
        ([2, -6], (0, 2)),
        ([0, 75, None], (1, 75)),
        ([-6, 75], (0, -6)),
    ],
)
def test_the_process_that_failed_first_is_named(statuses, cause):
    assert _cause(statuses) == cause
