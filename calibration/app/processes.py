"""Run a command in several processes, started here or elsewhere, on JAX's distributed runtime.

Processes started here are children of this one, which supervises them: when one fails, it reports that and ends
the others. Children end when their parent does.
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

_DONE = 0, SOME_FAILED, TOO_MANY_FAILED  # statuses of a process that ended normally
_GRACE = 10.0  # seconds for the other processes to report their errors
_POLL = 0.05
_PARENT = "JAXTAPE_PARENT"  # the environment variable of a process that `started` started
_RUN = "from jaxtape.cli.main import main; main()"


def started(count: int) -> NoReturn:
    """Run this command in `count` processes of this machine, and exit with their status.

    Raises:
        Exit: Always: with the largest status if all processes end normally, with 75 if one was lost, with 2 if
            one refuses.
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
    """Wait for all processes or, once one fails, briefly for the others; a status is None if one still runs."""
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
    """Return the index and the status of the process that failed first.

    A process that loses the others ends with 75 or by SIGABRT, sometimes before the lost one is reaped: such a
    status is the cause only if there is no other.
    """
    failed = [(i, status) for i, status in enumerate(statuses) if status not in (None, *_DONE)]
    return min(failed, key=lambda one: one[1] in (TRY_AGAIN, -signal.SIGABRT))


def _terminate(children: Sequence[subprocess.Popen]) -> None:
    """Make all processes end after the current round."""
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
    """Within the block, join the other processes of the command.

    A process that fails reports the reason and ends at once, without waiting for the others.

    Args:
        count: The number of processes.
        coordinator: HOST:PORT of the first process; None with `cluster`, whose environment names it.
        process_id: The index of this process, from 0.
        cluster: Whether JAX finds the others by itself (TPU pods, SLURM, Open MPI, Kubernetes).
        join_timeout: Seconds in which the processes must find one another.
        heartbeat: Seconds after which a silent process counts as lost.
    """
    if coordinator is None and not cluster:
        yield
        return
    _end_with_parent()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # for devices that are CPUs
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
            if not isinstance(error, typer.Exit):  # its reason has been printed
                traceback.print_exception(error)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)  # do not wait for the others
        raise


def _end_with_parent() -> None:
    """End this process when its parent is gone."""
    parent = os.environ.get(_PARENT)

    def watch() -> None:
        while str(os.getppid()) == parent:
            time.sleep(1.0)
        os._exit(UNUSABLE)

    if parent is not None:
        threading.Thread(target=watch, daemon=True).start()
