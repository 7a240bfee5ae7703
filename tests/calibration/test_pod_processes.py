"""Pod jobs in processes of their own: killed and resumed, sharded and put together, over S3's protocol."""

import functools
import importlib.util
import json
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.fs
import pyarrow.parquet as parquet
import pytest

from .test_many_processes import begun, table, write_surfaces

pytestmark = pytest.mark.repeat


def write_lake(folder: Path, count: int) -> None:
    """`count` surfaces as Parquet, as CSV and as markets (JSON), in folders of their own; some broken."""
    folder.mkdir()
    write_surfaces(folder / "all.parquet", count)
    quotes = parquet.read_table(folder / "all.parquet")
    (folder / "all.parquet").unlink()
    size, third = len(quotes) // count, count // 3
    of = lambda begin, end: quotes.slice(begin * size, (end - begin) * size)
    for name in ("date=2002-07-05", "date=2002-07-08", "markets/eu"):
        (folder / name).mkdir(parents=True)
    half = third // 2
    parquet.write_table(of(0, half), folder / "date=2002-07-05" / "part-0.parquet")
    parquet.write_table(of(half, third), folder / "date=2002-07-05" / "part-1.parquet")
    cells = of(third, 2 * third).to_pydict()
    cells["vol"] = [str(vol) for vol in cells["vol"]]
    for broken in range(0, third, 9):
        cells["vol"][broken * size + 5] = "n/a"
    pyarrow.csv.write_csv(pa.table(cells), folder / "date=2002-07-08" / "part-0.csv")
    for number in range(2 * third, count):
        one = of(number, number + 1).to_pydict()
        grid = np.array(one["vol"]).reshape(-1, 8)
        days = [round(365 * t) for t in sorted(set(one["expiry"]))]
        vols = {"days": days, "strikes": one["strike"][:8], "vols_by_expiry": grid.tolist()}
        if number % 9 == 0:
            vols["vols_by_expiry"][0][0] = -1.0
        equity = {"curve": "EUR", "spot": 100.0, "dividend_yield": 0.0, "implied_vols": vols}
        market = {
            "asof": "2002-07-05",
            "currency": "EUR",
            "curves": {"EUR": {"zero_rate": 0.02}},
            "equities": {f"S{number}": equity},
        }
        (folder / "markets" / "eu" / f"m{number}.json").write_text(json.dumps(market))
    (folder / "torn.parquet").write_bytes(b"no table")
    (folder / "markets" / "torn.json").write_text('{"asof": ')


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder whose cache of programs the tests share."""
    return tmp_path_factory.mktemp("pod")


def ended(process: subprocess.Popen) -> str:
    said, _ = process.communicate(timeout=300)
    assert process.returncode in (0, 1), said
    return said


@pytest.mark.slow
def test_a_lake_killed_ten_times_and_sharded_in_four_has_the_same_bytes(tmp_path):
    """By SIGKILL and by SIGTERM at random moments: nothing is lost, and nothing differs."""
    write_lake(tmp_path / "lake", 300)
    lake = "--market", str(tmp_path / "lake"), "--keep-every", "15", "--starts", "2"
    begin = functools.partial(
        begun, tmp_path, flags=""
    )  # the usual ones, by which all blocks round alike
    ended(begin("one", *lake))
    found = parquet.read_table(tmp_path / "one" / "calibrations.parquet")
    failed = [text for text in found["status"].to_pylist() if text.startswith("failed")]
    assert len(found) == 302 and 24 <= len(failed) <= 40, len(failed)
    dice = random.Random(20261127)
    statuses = []
    while len(statuses) < 10:
        process = begin("ten", *lake, "--resume")
        time.sleep(dice.uniform(4.0, 9.0))
        if process.poll() is None:
            sent = (signal.SIGKILL, signal.SIGTERM)[len(statuses) % 2]
            process.send_signal(sent)
            said, _ = process.communicate(timeout=120)
            if process.returncode in (75, -signal.SIGTERM, -signal.SIGKILL):
                statuses.append(process.returncode)
                continue
        said, _ = process.communicate()
        assert process.returncode in (0, 1), said  # it was done before
        assert table(tmp_path, "ten") == table(tmp_path, "one")
        (tmp_path / "ten").rename(tmp_path / f"done {len(statuses)} {time.time()}")
    assert statuses.count(-signal.SIGKILL) == 5 and 75 in statuses, statuses
    ended(begin("ten", *lake, "--resume"))
    assert table(tmp_path, "ten") == table(tmp_path, "one")
    for index in (2, 0, 3, 1):
        ended(begin("four", *lake, "--shard", f"{index}/4"))
    assert table(tmp_path, "four") == table(tmp_path, "one")


@pytest.mark.slow
def test_sigterm_ends_all_processes_after_a_round_and_asks_for_another_try(tmp_path):
    write_surfaces(tmp_path / "quotes.parquet", 80)
    options = "--keep-every", "8", "--processes", "2"
    process = begun(tmp_path, "out", *options)
    rounds = tmp_path / "out" / "rounds"
    while not (rounds.exists() and any(rounds.glob("*.npz"))):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 75 and "the run was terminated" in said, said
    kept = len(list(rounds.glob("*.npz")))
    assert 0 < kept < 10 and "Traceback" not in said
    said = ended(begun(tmp_path, "out", *options, "--resume"))
    assert '"done": 80' in said and len(list(rounds.glob("*.npz"))) == 10


# --- S3's protocol ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """A server of moto with a bucket, and the environment by which it is reached."""
    if importlib.util.find_spec("moto") is None:
        pytest.skip("moto is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("moto") / "log"
    environment = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("w") as said, subprocess.Popen(command, stdout=said, stderr=said) as server:
        try:
            for _ in range(300):
                try:
                    urllib.request.urlopen(environment["AWS_ENDPOINT_URL"], timeout=1).close()
                    break
                except OSError:
                    assert server.poll() is None, log.read_text()
                    time.sleep(0.1)
            with pytest.MonkeyPatch.context() as patch:
                for name, value in environment.items():
                    patch.setenv(name, value)
                store = pyarrow.fs.S3FileSystem(
                    access_key="key",
                    secret_key="secret",
                    region="us-east-1",
                    scheme="http",
                    endpoint_override=f"127.0.0.1:{port}",
                    allow_bucket_creation=True,
                )
                store.create_dir("bucket")
                yield store, server
        finally:
            server.kill()


def test_a_run_over_s3_has_the_bytes_of_a_local_one(bucket, folder):
    store, _ = bucket
    write_surfaces(folder / "quotes.parquet", 24)
    ended(begun(folder, "local", "--keep-every", "8"))
    with store.open_output_stream("bucket/quotes.parquet") as stream:
        stream.write((folder / "quotes.parquet").read_bytes())
    words = (
        "--market",
        "s3://bucket/quotes.parquet",
        "--out",
        "s3://bucket/out",
        "--keep-every",
        "8",
    )
    said = ended(begun(folder, "none", *words, "--resume"))
    assert "wrote s3://bucket/out" in said and not (folder / "none").exists()
    names = [
        info.path
        for info in store.get_file_info(pyarrow.fs.FileSelector("bucket/out", recursive=True))
    ]
    assert {"bucket/out/run.json", "bucket/out/rounds/8.npz", "bucket/out/rounds/24.npz"} <= set(
        names
    )
    assert not [name for name in names if "staging" in name]
    read = lambda: store.open_input_stream("bucket/out/calibrations.parquet").read()
    assert read() == table(folder, "local")
    said = ended(begun(folder, "none", *words, "--resume"))
    assert '"surfaces_per_second": 0.0' in said and read() == table(folder, "local")


@pytest.mark.slow
def test_a_bucket_that_is_none_is_a_mistake_and_a_server_that_is_gone_is_not(bucket, folder):
    _, server = bucket
    market = "--market", "s3://bucket/quotes.parquet"
    process = begun(folder, "none", *market, "--out", "s3://none/out")
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 2 and "NO_SUCH_BUCKET" in said and "Traceback" not in said, said
    server.kill()
    server.wait()
    process = begun(folder, "none", *market)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 75 and "Traceback" not in said, said
    assert "again with --resume" in said
