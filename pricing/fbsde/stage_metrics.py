"""Metrics of training stages, written as JSON lines and TensorBoard events."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from jaxtape.output_folder import local_path

_MAX_LINE = 2**20  # bytes
Metrics = dict[str, np.ndarray]  # one number per key


@contextlib.contextmanager
def metrics_file(path: Path | None) -> Iterator[Callable[[int, Metrics], None] | None]:
    """Append one JSON object per stage to `path`; in a folder, metrics.jsonl and TensorBoard events.

    Raises:
        ValueError: The file holds other data.
    """
    if path is None:
        yield None
        return
    path = local_path(path)
    with contextlib.ExitStack() as open_files:
        board = None
        if path.suffix != ".jsonl":
            path.mkdir(parents=True, exist_ok=True)
            board = open_files.enter_context(_event_writer(path))
            path = path / "metrics.jsonl"
        if path.exists() and not _holds_metrics(path):
            raise ValueError(f"{path} holds no metrics, and is left unchanged: give another path.")
        lines = open_files.enter_context(path.open("a", encoding="utf-8"))

        def listener(stage: int, metrics: Metrics) -> None:
            row = {name: value.tolist() for name, value in metrics.items()}
            lines.write(f"{json.dumps({'stage': stage, **row})}\n")
            lines.flush()
            if board is not None:
                for name, value in metrics.items():
                    board.add_scalar(name, float(np.mean(value)), stage)

        yield listener


def _holds_metrics(path: Path) -> bool:
    """Return True if a file is empty, or its first line is that of a stage."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        first = file.readline(_MAX_LINE)
    return first.startswith(b'{"stage": ') or not first


def _event_writer(folder: Path):
    """Return a writer of TensorBoard events.

    Raises:
        ImportError: tensorboardX is not installed.
    """
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ImportError(
            f"metrics={folder} is a folder, for TensorBoard: pip install 'jaxtape[fbsde]', or name a .jsonl"
        ) from error
    return SummaryWriter(str(folder))
