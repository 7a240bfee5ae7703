"""A plan to look at: as a table of text, and as a picture of what is advanced and kept when."""

import io
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table as TextTable

if TYPE_CHECKING:
    from .plan import Plan

_MOST = 100_000  # evaluations that a picture shows


def as_text(plan: "Plan") -> str:
    """One line a segment, and the sums."""
    table = TextTable(
        title=f"{sum(part.nodes for part in plan.parts):,} nodes", title_justify="left"
    )
    for column in (
        "segment",
        "nodes",
        "schedule",
        "advanced",
        "taped",
        "busiest",
        "slots",
        "bytes each",
        "work",
    ):
        table.add_column(column, justify="left" if column in ("segment", "schedule") else "right")
    for part in plan.parts:
        numbers = part.advanced, part.taped, part.repetition, part.slots, *reversed(part.footprint)
        named = part.operation, f"{part.nodes:,}", repr(part.schedule)
        table.add_row(*named, *(f"{number:,}" for number in numbers))
    text = io.StringIO()
    Console(file=text, width=120).print(table)
    host = f", and {plan.host_bytes:,} bytes on the host" if plan.host_bytes else ""
    return (
        f"{text.getvalue()}{plan.evaluations:,} evaluations of a step: {plan.advanced:,} advanced (the busiest "
        f"{plan.repetition} times), {plan.taped:,} taped\npeak of {plan.peak_bytes:,} bytes{host}"
    )
