"""News from inside a running program: a progress bar, a file of metrics, TensorBoard."""

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from rich.progress import Progress

News = Callable[[int, dict[str, np.ndarray]], None]

_listeners: dict[
    int, News
] = {}  # programs know a number, so that who listens does not compile them anew
_numbers = itertools.count()


def told(watch: Array | None, stage: Array, metrics: dict[str, Array]) -> None:
    """Tell whoever listens under the number `watch`, once this point of the program is reached."""
    if watch is not None:
        jax.debug.callback(_dispatch, watch, stage, metrics)


def _dispatch(watch, stage, metrics: dict[str, Any]) -> None:
    listener = _listeners.get(int(watch))
    if listener is not None:
        listener(int(stage), {name: np.asarray(value) for name, value in metrics.items()})


@contextlib.contextmanager
def listening(*listeners: News | None) -> Iterator[Array | None]:
    """The number under which a program reaches all of these; None if there are none."""
    present = [listener for listener in listeners if listener is not None]
    if not present:
        yield None
        return

    def all_of_them(stage, metrics):
        for listener in present:
            listener(stage, metrics)

    number = next(_numbers)
    _listeners[number] = all_of_them
    try:
        yield jnp.asarray(number, jnp.int32)
        jax.effects_barrier()
    finally:
        del _listeners[number]


@contextlib.contextmanager
def progress_bar(name: str, total: int, shown: bool) -> Iterator[News | None]:
    """A bar of stages with the latest loss."""
    if not shown:
        yield None
        return
    with Progress() as bar:
        task = bar.add_task(name, total=total)

        def news(stage, metrics):
            text = f"{name}, loss {float(np.mean(metrics['loss'])):.3g}"
            bar.update(task, completed=stage + 1, description=text)

        yield news


@contextlib.contextmanager
def metrics_file(path: Path | None) -> Iterator[News | None]:
    """One JSON object a stage, appended to `path`; in a folder: metrics.jsonl and events for TensorBoard."""
    if path is None:
        yield None
        return
    path = Path(path)
    with contextlib.ExitStack() as open_files:
        board = None
        if path.suffix != ".jsonl":
            path.mkdir(parents=True, exist_ok=True)
            board = open_files.enter_context(_event_writer(path))
            path = path / "metrics.jsonl"
        lines = open_files.enter_context(path.open("a", encoding="utf-8"))

        def news(stage, metrics):
            row = {name: value.tolist() for name, value in metrics.items()}
            lines.write(f"{json.dumps({'stage': stage, **row})}\n")
            lines.flush()
            if board is not None:
                for name, value in metrics.items():
                    board.add_scalar(name, float(np.mean(value)), stage)

        yield news


def _event_writer(folder: Path):
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ImportError(
            f"metrics={folder} is a folder, for TensorBoard: pip install 'jaxtape[fbsde]', or name a .jsonl"
        ) from error
    return SummaryWriter(str(folder))
