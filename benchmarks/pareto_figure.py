"""Plot time against temporary bytes, one panel per case.

Run `python -m benchmarks.pareto_figure FIGURES PICTURE` to redraw the figures of an earlier run.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from .pareto_points import OURS, Case, Point

IN_KERNELS = f"{OURS}, kernels"
COLOURS = {
    OURS: "#c2410c",
    IN_KERNELS: "#be185d",
    "lax.scan": "#6b7280",
    "jax.checkpoint": "#1d4ed8",
    "equinox": "#15803d",
    "diffrax": "#7e22ce",
    "PyTorch": "#a16207",
    "Triton": "#0f766e",
}
BELOW = {
    OURS,
    IN_KERNELS,
    "equinox",
}  # the position of a system's labels, so that neighbours do not overlap
SHORT = {
    "lax.scan + checkpoint on the body": "on the body",
    "no checkpoint": "",
    "both sweeps by hand": "by hand",
    "autograd.Function over segments": "by hand",
    "autograd.Function over segments, torch.compile": "torch.compile",
}


def draw(cases: list[Case], file: Path) -> None:
    """Draw all cases in one figure."""
    matplotlib.rcParams.update({"svg.hashsalt": "jaxtape", "font.size": 8})
    columns = min(2, len(cases))
    rows = -(-len(cases) // columns)
    figure = Figure(figsize=(5.6 * columns, 4.6 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flat
    for axis, case in zip(axes, cases, strict=False):
        _panel(axis, case)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None, dpi=150)


def _panel(axis, case: Case) -> None:
    """Draw one case: a line through the rows of a system that differ only in a number."""
    axis.set(xscale="log", yscale="log", title=case.title)
    axis.set(xlabel="temporary memory, MB", ylabel="time of a gradient, ms")
    for scale in (axis.xaxis, axis.yaxis):
        scale.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        scale.set_minor_locator(NullLocator())
    axis.grid(color="#eef0f2", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.margins(0.12)
    axis.text(
        0.98,
        0.02,
        "squares: paths on all cores, as devices",
        transform=axis.transAxes,
        ha="right",
        fontsize=7,
    )
    for system, colour in COLOURS.items():
        points = [point for point in case.points if _group(point) == system]
        if points:
            _system(axis, system, colour, points)


def _system(axis, system: str, colour: str, points: list[Point]) -> None:
    """Draw a system's points and name: hollow without a number of slots, squares on several devices."""
    style = {"textcoords": "offset points", "color": colour}
    for point in points:
        fill, mark = colour if point.slots else "white", "s" if _is_spread(point) else "o"
        axis.plot(*_place(point), mark, color=colour, markerfacecolor=fill, markersize=4)
        axis.annotate(_short(point), _place(point), **style, **_beside(point), fontsize=6.5)
    line = sorted((point for point in points if point.slots), key=lambda point: point.temp_bytes)
    if line:
        axis.plot(*zip(*map(_place, line), strict=True), color=colour, linewidth=1)
        named = line[-1] if system == "equinox" else line[0]
    else:
        named = max(points, key=lambda point: point.seconds)
    where = {"xytext": (7, 0), "va": "center"} if system == "equinox" else {"xytext": (-4, 10)}
    text = axis.annotate(system, _place(named), **style, **where, fontsize=9, fontweight="bold")
    text.set_path_effects([withStroke(linewidth=2.5, foreground="white")])


def _beside(point: Point) -> dict:
    """Return the position of a point's label: below it for ours and equinox's, so that none overlap."""
    if point.system in BELOW and (point.slots or point.label == "StoreAll()"):
        return {"xytext": (-2, -3), "ha": "right", "va": "top"}
    return {"xytext": (-2, 3), "ha": "right"} if point.system in BELOW else {"xytext": (3, 2)}


def _group(point: Point) -> str:
    """Return the group that shares a color and a name: the rows of a system, with ours in kernels separate."""
    return IN_KERNELS if point.label.endswith(", kernels") else point.system


def _is_spread(point: Point) -> bool:
    return point.label.endswith("devices")


def _place(point: Point) -> tuple[float, float]:
    return point.temp_bytes / 1e6, 1e3 * point.seconds


def _short(point: Point) -> str:
    """Return a short label that distinguishes a row from the others of its system."""
    label = point.label.partition(", paths on")[0]
    if point.slots or label.startswith("Revolve") or label.endswith("checkpoints"):
        return "".join(filter(str.isdigit, label))
    if label in SHORT:
        return SHORT[label]
    if label.startswith("MultiStage"):  # the number of slots in the host's memory
        return f"host {label.rpartition('=')[2].removesuffix(')')}"
    if "levels of scan" in label:
        return label[:1] + (" levels" if "checkpointed" in label else " levels, plain")
    name, _, number = label.partition("(")
    number = number.rpartition("=")[2].removesuffix(")")
    return f"{name} {number}".strip().removeprefix("checkpoint_sequential, ")


def read(file: Path) -> list[Case]:
    """Read the cases saved by `benchmarks.pareto`."""
    cases = json.loads(file.read_text(encoding="utf-8"))["cases"]
    for case in cases:
        del case["summary"]
        case["points"] = [Point(**point) for point in case["points"]]
    return [Case(**case) for case in cases]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args(argv)
    draw(read(options.figures), options.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
