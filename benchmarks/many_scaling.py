"""Many surfaces on 1, 2, 4 and 8 virtual devices: strong scaling (fixed job) and weak scaling (fixed share).

Run `python -m benchmarks.many_scaling [--most-devices 8] [--surfaces 1024] [--a-device 256] [--repeat 2] [--out
FILE]`. Surfaces are those of `benchmarks.many_surfaces`. Each number of devices runs in a separate process
(JAX_NUM_CPU_DEVICES), warmed up; processes share JAX's cache of compiled programs. Devices share the cores of
the machine, whose number limits the speed-up. Every process must give the same parameters, to the bit.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from calibration import Calibrations, calibrate_many

from .command import Run, parser_of, table_of
from .many_surfaces import jobs_of, sample, vols_of


def digest_of(found: Calibrations) -> str:
    """Return a digest of the parameters, their errors and the losses."""
    columns = [column for column in found.columns.values() if column.dtype != object]
    return hashlib.sha256(np.stack(columns).tobytes()).hexdigest()


def measured(devices: int, surfaces: int, a_device: int, repeat: int) -> dict[str, Any]:
    """Return the seconds of the strong and the weak case in this process, and a digest of the results."""
    market = sample()
    jobs = jobs_of(market, vols_of(market, max(surfaces, devices * a_device)))
    mesh = Mesh(np.array(jax.devices()[:devices]), ("surfaces",))
    calibrate_many(jobs[:surfaces], mesh=mesh)  # compiles
    found: dict[str, Any] = {"devices": devices}
    for name, count in (("strong", surfaces), ("weak", devices * a_device)):
        seconds = []
        for _ in range(repeat):
            start = time.perf_counter()
            result = calibrate_many(jobs[:count], mesh=mesh)
            seconds.append(time.perf_counter() - start)
        found[name] = min(seconds)
        if name == "strong":
            found["digest"] = digest_of(result)
    return found


def of_process(devices: int, run: Run, cache: str) -> dict[str, Any]:
    """Return the figures of a process with `devices` devices."""
    options = run.options
    env = {
        **os.environ,
        "JAX_NUM_CPU_DEVICES": str(devices),
        "JAX_COMPILATION_CACHE_DIR": cache,
    }
    counts = map(str, (devices, options.surfaces, options.a_device, options.repeat))
    command = [sys.executable, "-m", "benchmarks.many_scaling", "--child", *counts]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def parser() -> argparse.ArgumentParser:
    found = parser_of(__doc__, most_devices=8, surfaces=1024, a_device=256, repeat=2)
    found.add_argument("--child", nargs=4, type=int, help=argparse.SUPPRESS)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    if options.child:
        jax.config.update("jax_enable_x64", True)
        print(json.dumps(measured(*options.child)))
        return 0
    run = Run("many_scaling", parser(), argv)
    numbers = [2**i for i in range(run.options.most_devices.bit_length())]
    with tempfile.TemporaryDirectory() as cache:
        rows = [of_process(devices, run, cache) for devices in numbers]
    title = f"calibrate_many, Heston, {os.cpu_count()} cores"
    table = table_of(title, "devices", "strong, s", "speed-up", "weak, s", "efficiency", left=0)
    for row in rows:
        row["speed_up"] = rows[0]["strong"] / row["strong"]
        row["efficiency"] = rows[0]["weak"] / row["weak"]
        cells = (f"{row[name]:.2f}" for name in ("strong", "speed_up", "weak", "efficiency"))
        table.add_row(str(row["devices"]), *cells)
    run.console.print(table)
    same = len({row["digest"] for row in rows}) == 1
    run.console.print(f"the same parameters to the bit: {same}")
    run.keep({"rows": rows, "same_bits": same}, f"{rows[-1]['speed_up']:.1f} x on {numbers[-1]}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
