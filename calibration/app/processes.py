"""Several processes for one command: started here, or elsewhere and joined, on JAX's own runtime.

Processes started here are children of this one, which looks after them: when one ends badly, it says so and
ends the others. Children end when it is gone.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import NoReturn

import jax
import typer

from jaxtape.cli.main import SOME_FAILED, TOO_MANY_FAILED, TRY_AGAIN, UNUSABLE, refuse

_DONE = 0, SOME_FAILED, TOO_MANY_FAILED  # statuses of a process that no other one waits for
_GRACE = 10.0  # seconds in which the other processes can report what they saw
_POLL = 0.05
_PARENT = "JAXTAPE_PARENT"  # of a process that `started` has started
_RUN = "from jaxtape.cli.main import main; main()"


def started(count: int) -> NoReturn:
    """Run this command in `count` processes of this machine, and exit with their status.

    Raises:
        Exit: Always: with the largest status where all processes end by themselves. Where one was lost, 75;
            where one refuses, 2.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-c", _RUN, *sys.argv[1:], "--coordinator", address]
    env = {**os.environ, _PARENT: str(os.getpid())}
    children = [
        subprocess.Popen([*command, "--process-id", str(index)], env=env, start_new_session=True)
        for index in range(count)
    ]
    signal.signal(signal.SIGTERM, lambda *_: _terminate(children))
    signal.signal(signal.SIGINT, lambda *_: _end(children))
    statuses = _statuses(children)
    if all(status in _DONE for status in statuses):
        raise typer.Exit(max(status for status in statuses if status is not None))
    index, status = _cause(statuses)
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    refuse(
        f"process {index} of {count} {how}, and the others were ended; run the same command with --resume to "
        "resume from what was kept",
        UNUSABLE if status == UNUSABLE else TRY_AGAIN,
    )


def _statuses(children: Sequence[subprocess.Popen]) -> list[int | None]:
    """Wait for all processes, or for one that fails and a little for the others; None where one still runs."""
    while True:
        statuses = [child.poll() for child in children]
        if None not in statuses:
            return statuses
        if any(status not in (None, *_DONE) for status in statuses):
            break
        time.sleep(_POLL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        end = time.monotonic() + _GRACE
        for child in children:
            child.wait(max(0.0, end - time.monotonic()))
    statuses = [child.poll() for child in children]
    _end(children)
    return statuses


def _cause(statuses: Sequence[int | None]) -> tuple[int, int]:
    """Return the index and the status of the process that failed first of all.

    A process that loses the others ends with 75 or by SIGABRT, sometimes before the lost one is reaped: such
    statuses are causes only where there is no other.
    """
    failed = [(i, status) for i, status in enumerate(statuses) if status not in (None, *_DONE)]
    return min(failed, key=lambda one: one[1] in (TRY_AGAIN, -signal.SIGABRT))


def _terminate(children: Sequence[subprocess.Popen]) -> None:
    """Have all processes end after the current round."""
    for child in children:
        child.terminate()


def _end(children: Sequence[subprocess.Popen]) -> None:
    for child in children:
        child.kill()
    for child in children:
        child.wait()


@contextlib.contextmanager
def joined(
    count: int,
    coordinator: str | None,
    process_id: int | None,
    *,
    cluster: bool,
    join_timeout: int = 60,
    heartbeat: int = 30,
) -> Iterator[None]:
    """Be one of the processes of the command while the block runs.

    A process that fails reports the reason and ends at once, without waiting for the others.

    Args:
        count: The number of processes.
        coordinator: HOST:PORT of the first one; None with `cluster`: as the cluster's environment says.
        process_id: The index of this process, from 0.
        cluster: Whether JAX finds the others by itself (TPU pods, SLURM, Open MPI, Kubernetes).
        join_timeout: Seconds that the processes have to find one another.
        heartbeat: Seconds after which a silent process counts as lost.
    """
    if coordinator is None and not cluster:
        yield
        return
    _end_with_parent()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # where the devices are CPUs
    where = {} if coordinator is None else {"num_processes": count, "process_id": process_id}
    try:
        jax.distributed.initialize(
            coordinator,
            **where,
            heartbeat_timeout_seconds=heartbeat,
            initialization_timeout=join_timeout,
        )
    except RuntimeError as error:
        refuse(f"the processes could not be joined: {error}", TRY_AGAIN)
    except ValueError as error:
        refuse(f"the processes could not be joined: {error}")
    try:
        yield
    except BaseException as error:
        status = getattr(error, "exit_code", UNUSABLE)
        if status not in _DONE:
            if not isinstance(error, typer.Exit):  # which has said why
                traceback.print_exception(error)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)  # the others are not waited for
        raise


def _end_with_parent() -> None:
    """End this process when the one that started it is gone."""
    parent = os.environ.get(_PARENT)

    def watch() -> None:
        while str(os.getppid()) == parent:
            time.sleep(1.0)
        os._exit(UNUSABLE)

    if parent is not None:
        threading.Thread(target=watch, daemon=True).start()
