"""The files of docs/deploy: their commands run, their numbers fit one another, what they name exists."""

import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from jaxtape.cli.main import TOO_MANY_FAILED, TRY_AGAIN, UNUSABLE

from .calibration.test_many_processes import QUICKLY, table, write_surfaces
from .documented import ROOT

pytestmark = pytest.mark.repeat

DEPLOY = ROOT / "docs" / "deploy"
JAXTAPE = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "from jaxtape.cli.main import main; main()" "$@"\n'
SRUN = """#!/bin/bash
# As srun on one node: without its own options, and without a cluster.
words=()
for word in "$@"; do
    case "$word" in --cluster | --kill-on-bad-exit=*) ;; *) words+=("$word") ;; esac
done
"${words[@]}" --time-limit "${LIMIT:-1000}"
"""
SCONTROL = '#!/bin/sh\necho "$@" >> "$REQUEUED"\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("deploy")


@pytest.fixture(scope="module")
def machine(folder) -> dict[str, str]:
    """The environment of a machine with `jaxtape`, `srun` and `scontrol`; a folder with quotes, and a cache."""
    write_surfaces(folder / "quotes.parquet", 20)
    (folder / "bin").mkdir()
    for name, text in (("jaxtape", JAXTAPE), ("srun", SRUN), ("scontrol", SCONTROL)):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    return os.environ | {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "JAXTAPE_CACHE": str(folder / "cache"),
        "XLA_FLAGS": QUICKLY,
        "MARKET": "quotes.parquet",
        "OUT": "out",
        "REQUEUED": str(folder / "requeued"),
        "SLURM_ARRAY_TASK_COUNT": "2",
        "SLURM_ARRAY_JOB_ID": "17",
    }


def run(words: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    options = {"capture_output": True, "text": True, "timeout": 300, "check": False}
    done = subprocess.run(words, cwd=folder, env=environment, **options)
    return done.returncode, done.stderr


def test_the_batch_of_slurm_runs_its_shards_and_asks_for_another_try(machine, folder):
    batch = ["bash", str(DEPLOY / "calibrate.sbatch")]
    assert run(["bash", "-n", batch[1]], folder, machine) == (0, "")
    first = machine | {"SLURM_ARRAY_TASK_ID": "0"}
    status, said = run(batch, folder, first | {"LIMIT": "0"})
    assert status == TRY_AGAIN, said
    assert (folder / "requeued").read_text() == "requeue 17_0\n"
    assert run(batch, folder, first)[0] == 0
    status, said = run(batch, folder, machine | {"SLURM_ARRAY_TASK_ID": "1"})
    assert status == 0 and "wrote out " in said, said
    assert (folder / "requeued").read_text() == "requeue 17_0\n"
    assert table(folder, "out")


def test_the_jobset_is_a_pod_of_256_chips_and_its_command_runs(machine, folder):
    found = yaml.safe_load((DEPLOY / "jobset.yaml").read_text(encoding="utf-8"))
    (replicated,) = found["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    rows, columns = map(int, pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"].split("x"))
    chips = container["resources"]["limits"]["google.com/tpu"]
    assert job["parallelism"] == job["completions"] == rows * columns // chips
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob" and pod["restartPolicy"] == "Never"
    codes = rule["onExitCodes"]
    assert codes["containerName"] == container["name"]
    assert codes["values"] == [UNUSABLE, TOO_MANY_FAILED] and TRY_AGAIN not in codes["values"]
    local = {"gs://BUCKET/quotes": "quotes.parquet", "gs://BUCKET/out": "pod"}
    words = [word for word in container["args"] if word != "--cluster"]
    for url, path in local.items():
        words = [word.replace(url, path) for word in words]
    assert run(["jaxtape", *words], folder, machine)[0] == 0
    assert table(folder, "pod")


def test_the_image_copies_what_exists_and_starts_the_command_itself():
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and line[0] != "#"]
    known = {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "USER", "ENV", "ENTRYPOINT", "CMD"}
    assert lines[0][0] == "FROM" and {name for name, _ in lines} <= known
    for sources in [rest.split()[:-1] for name, rest in lines if name == "COPY"]:
        assert all((ROOT / source).exists() for source in sources)
    (entry,) = [json.loads(rest) for name, rest in lines if name == "ENTRYPOINT"]
    assert entry == ["jaxtape"]  # as a list, so that no shell stands between it and SIGTERM
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"many", "tpu", "cuda"} <= set(project["optional-dependencies"])
    assert set(project["scripts"]) >= set(entry)
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    copied = {rest.split()[0] for name, rest in lines if name == "COPY"}
    assert set(packaged["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= copied


@pytest.mark.slow
def test_the_functions_of_engines_take_a_table_to_a_table(machine, folder):
    """With stand-ins for the engines, which are not here: `fitted` is what they call."""
    program = f"""
import sys
from unittest import mock
for name in ("ray", "pyspark", *("pyspark.sql" + x for x in ("", ".functions", ".pandas", ".pandas.types"))):
    sys.modules[name] = mock.MagicMock()
sys.path.insert(0, {str(DEPLOY)!r})
import pickle, pyarrow.parquet, ray_data, spark
quotes = pyarrow.parquet.read_table({str(folder / "quotes.parquet")!r})
for fitted in (ray_data.fitted, spark.fitted):
    found = pickle.loads(pickle.dumps(fitted))(quotes)
    assert sorted(found["id"].to_pylist()) == sorted(f"S{{n}}" for n in range(20)), found
    assert fitted(quotes.slice(0, 0)).schema == found.schema
"""
    environment = machine | {"JAX_ENABLE_X64": "1"}
    status, said = run([sys.executable, "-c", program], folder, environment)
    assert status == 0, said
