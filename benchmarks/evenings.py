"""A living book: `jaxtape risk` and `jaxtape explain` on every evening, while trades expire.

Run `python -m benchmarks.evenings [--trades 300] [--evenings 60] [--paths 16384]
[--kinds KIND ...] [--model heston] [--minutes MOST] [--out FILE]`.

The book is written once, with every kind of trade on five equities in five currencies, and never edited. Each
evening has a new market, and one more row of fixings for each name: spots move by 1 % a day, vols by .2 points,
rates by 2 bp, FX rates by .5 %. Both commands run in this process as typed, `explain` with its full
revaluation. An evening counts as right if both exit with 0, every row of the book is in the table, none has
failed, and the change that `explain` leaves unexplained is below 1 % of the absolute P&L, the sum over trades;
the higher-order part is reported with it. The seconds of the first two evenings include tracing, and
compilation unless the programs are stored.
"""

import csv
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from jaxtape.cli.main import app
from pricing import Market

from .command import Run, parser_of, table_of
from .evening_book import Writer
from .evening_world import World, rate_fixings


class Desk:
    """A folder with the book, in which the commands of every evening run."""

    def __init__(self, folder: Path, world: World, text: str, options: Any):
        self.folder, self.world, self.options = folder, world, options
        self.rates = world.past_rates()
        self.worth: dict[str, float] = {}
        self.exits: list[int] = []
        (folder / "book.csv").write_text(text, encoding="utf-8")

    def write(self, day: date) -> None:
        """Write the market and the fixings of a day."""
        market = self.world.market(day)
        (self.folder / f"{day}.json").write_text(json.dumps(market), encoding="utf-8")
        self.rates += rate_fixings(Market.from_text(json.dumps(market)))
        rows = [*self.world.fixings(day), *self.rates]
        lines = [f"{name},{fixed},{value!r}" for name, fixed, value in rows]
        (self.folder / "fixings.csv").write_text(
            "\n".join(["name,date,value", *lines]), encoding="utf-8"
        )

    def run(self, command: str, *words: str) -> float:
        """Run a command on the book, and return its seconds; its exit status is added to `self.exits`.

        Raises:
            RuntimeError: If the command could do nothing.
        """
        where = str(self.folder / command)
        common = [
            "--trades",
            str(self.folder / "book.csv"),
            "--fixings",
            str(self.folder / "fixings.csv"),
        ]
        common += ["--out", where, "--model", self.options.model]
        common += ["--paths", str(self.options.paths)]
        begun = time.perf_counter()
        outcome = CliRunner().invoke(app, [command, *common, *words])
        self.exits.append(outcome.exit_code)
        if outcome.exit_code not in (0, 1) or not isinstance(outcome.exception, SystemExit | None):
            raise RuntimeError(
                f"{command} {' '.join(words)}: exit status {outcome.exit_code}: {outcome.output}"
            ) from outcome.exception
        return time.perf_counter() - begun

    def evening(self, day: date, before: date | None) -> dict[str, Any]:
        """Return the figures of an evening: seconds, trades by status, and the unexplained share."""
        self.write(day)
        self.exits.clear()
        market = lambda day: str(self.folder / f"{day}.json")
        seconds = {"risk": self.run("risk", "--market", market(day))}
        with (self.folder / "risk" / "npv.csv").open(encoding="utf-8") as table:
            rows = list(csv.DictReader(table))
        status = Counter(row["status"].partition(":")[0] for row in rows)
        reasons = {row["id"]: row["status"] for row in rows if row["status"].startswith("failed")}
        found = {"day": str(day), "seconds": seconds, "status": dict(status), "failed": reasons}
        worth = {row["id"]: self._worth(row, day) for row in rows}
        found["moved"] = sum(abs(worth[name] - old) for name, old in self.worth.items())
        self.worth = worth
        if before is not None:
            markets = ("--before", market(before), "--after", market(day))
            seconds["explain"] = self.run("explain", *markets, "--full-revaluation")
            said = json.loads(
                (self.folder / "explain" / "explain.json").read_text(encoding="utf-8")
            )
            found |= self._explained(said, day)
            for part in ("residual", "higher_order"):
                found[f"{part}_share"] = abs(found[part]) / found["moved"]
        return found | {"exits": [*self.exits]}

    def _worth(self, row: dict[str, str], day: date) -> float:
        """Return the value of a trade in euros, or the last payment of one that has ended."""
        own = float(row["value"] or 0.0) + float(row.get("settled") or 0.0)
        return own / self._per_euro(row["currency"], day)

    def _per_euro(self, currency: str, day: date) -> float:
        return 1.0 if currency == "EUR" else self.world.fx[f"EUR{currency}"][day]

    def _explained(self, said: dict[str, Any], day: date) -> dict[str, Any]:
        """Return the parts of the change and the remainder, in euros."""
        total: Counter[str] = Counter()
        for currency, own in said["by_currency"].items():
            rate = self._per_euro(currency, day)
            total.update({part: x / rate for part, x in own["parts"].items()})
        own = {part: total.pop(part) for part in ("residual", "higher_order")}
        return {"parts": dict(total), **own}


def parser() -> Any:
    made = parser_of(__doc__, trades=300, evenings=60, paths=16384)
    models = "black-scholes", "heston"
    made.add_argument("--model", default=models[0], choices=models, help="model of equities")
    said = "start no evening after this many minutes; finished ones are kept"
    made.add_argument("--minutes", type=float, default=1440.0, help=said)
    made.add_argument("--kinds", nargs="+", default=[], choices=list(Writer(World(1)).kinds))
    return made


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("evenings", parser(), argv)
    options = run.options
    world, found = World(options.evenings), []
    with tempfile.TemporaryDirectory() as folder:
        text = Writer(world).book(options.trades, options.kinds)
        desk = Desk(Path(folder), world, text, options)
        last = time.perf_counter() + 60.0 * options.minutes
        for before, day in zip([None, *world.evenings], world.evenings, strict=False):
            if time.perf_counter() > last:
                break
            found.append(desk.evening(day, before))
            run.console.print(_line(found[-1]), soft_wrap=True)
    lost = [own["day"] for own in found if sum(own["status"].values()) != options.trades]
    failed = [own["day"] for own in found if any(own["exits"])]
    shares = {
        part: max((own[f"{part}_share"] for own in found[1:]), default=0.0)
        for part in ("residual", "higher_order")
    }
    later = [sum(own["seconds"].values()) for own in found[1:]]
    rows = [
        ("evenings", len(found)),
        ("evenings that lost a trade", len(lost)),
        ("evenings with an exit status other than 0", len(failed)),
        ("largest share not explained, %", f"{100.0 * shares['residual']:.6f}"),
        ("largest share of higher order, %", f"{100.0 * shares['higher_order']:.3f}"),
        ("second evening, s", f"{later[0]:.1f}" if later else ""),
        ("slowest later evening, s", f"{max(later[1:], default=0.0):.1f}"),
        ("trades at the end", str(found[-1]["status"])),
    ]
    table = table_of("a book that lives", "figure", "")
    for name, figure in rows:
        table.add_row(name, str(figure))
    run.console.print(table)
    run.keep({"evenings": found, "largest_shares": shares})
    return int(bool(lost or failed))


def _line(found: dict[str, Any]) -> str:
    seconds = ", ".join(f"{name} {spent:.1f} s" for name, spent in found["seconds"].items())
    names = {"residual": "not explained", "higher_order": "of higher order"}
    shares = (
        f", {100.0 * found[f'{part}_share']:.3f} % {name}"
        for part, name in names.items()
        if f"{part}_share" in found
    )
    return f"{found['day']}: {seconds}{''.join(shares)}, {found['status']}"


if __name__ == "__main__":
    sys.exit(main())
