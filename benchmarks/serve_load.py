"""A service under load, under attack, and after crashes: latency, refusals, and lost data.

Run `python -m benchmarks.serve_load [--rounds 2000] [--clients 16] [--contracts 100] [--kills 5] [--model
black_scholes] [--out FILE]`. `jaxtape serve` runs as a separate process on this machine; the clients are
threads of this one, each with its own connection and its own book, and each waits for an answer before its next
request. A round values one book of `--contracts` contracts, with all Greeks and its derivative with respect to
every quote:

- 70 % submit a new book in place of the last one, which the service writes to disk, and value it;
- 10 % move a quote (the spot, a vol or a zero rate, which moves every book), and value the book again;
- 20 % value the book again: recomputed if a client has moved a quote since, otherwise from the cache.

Latency is that of requests, from the client's call to its parsed answer. Afterwards each client's book is
compared with `pricing.risk` in the market with the current quotes. Then come requests that must be refused, and
crashes: while two threads submit books and move quotes, the process is killed (SIGKILL) and restarted, and
everything that it accepted must be there.
"""

import csv
import io
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

from calibration.app.serve.client import RiskClient
from pricing import Book, Market, risk

from .command import Run, parser_of, table_of
from .large_book import SAMPLES, book
from .live_session import KINDS, MODELS
from .serve_crashes import crashed
from .serve_process import Served
from .serve_refusals import refusals

MARKET = SAMPLES / "dax_2002-07-05.json"
MAX_BODY, BODY_SECONDS = 2**18, 2.0
MIXTURE = {"submit and value": 0.7, "move and value": 0.1, "value again": 0.2}
MOVED = {
    "EQUITY/PRICE/DAX": 4468.17,
    "EQUITY_OPTION/RATE_LNVOL/DAX/2002-12-17/4400": 0.2781,
    "ZERO/RATE/EUR/2003-03-18": 0.0368,
}
"""Quotes that clients move, with approximate values."""

NewText = Callable[[np.random.Generator], str]


@dataclass
class Load:
    """The clients' observations: seconds of requests by kind, and errors."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    rounds: Counter = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    def timed(self, kind: str, call: Callable[[], Any]) -> Any:
        """Return the result of a request, and record its seconds."""
        start = time.perf_counter()
        found = call()
        self.seconds.setdefault(kind, []).append(time.perf_counter() - start)
        return found


def texts(contracts: int, kinds: Sequence[str]) -> NewText:
    """Return a function that returns a new book of randomly drawn contracts and quantities."""
    rows = [row.raw.values for row in book(max(4000, contracts), kinds).rows]
    columns = list(dict.fromkeys(name for row in rows for name in row))

    def text(dice: np.random.Generator) -> str:
        page = io.StringIO()
        writer = csv.DictWriter(page, columns)
        writer.writeheader()
        for place in dice.choice(len(rows), contracts, replace=False):
            writer.writerow({**rows[place], "quantity": int(dice.integers(1, 500))})
        return page.getvalue()

    return text


def client_rounds(
    served: Served, number: int, count: int, options, new_text: NewText, load: Load
) -> None:
    """Run the rounds of one client."""
    dice = np.random.default_rng(number)
    name, kinds = f"desk-{number}", list(MIXTURE)
    with served.client() as client:
        client.submit(name, new_text(dice))
        for _ in range(count):
            kind = str(dice.choice(kinds, p=list(MIXTURE.values())))
            load.rounds[kind] += 1
            try:
                if kind == "submit and value":
                    text = new_text(dice)
                    load.timed("submit", lambda text=text: client.submit(name, text, version="*"))
                elif kind == "move and value":
                    quote = str(dice.choice(list(MOVED)))
                    to = {quote: MOVED[quote] * dice.uniform(0.995, 1.005)}
                    load.timed("move", lambda to=to: client.move(to, version="*"))
                found = load.timed("value", lambda: client.risk(name))
                if found.failed or len(found.positions) != options.contracts:
                    load.errors.append(f"{name}: {found.failed} trades have no figures")
            except Exception as error:  # every error is reported
                load.errors.append(f"{name}: {error!r}")


def loaded(served: Served, options, new_text: NewText) -> tuple[Load, float]:
    """Return the observations of all clients, and the seconds they took."""
    load = Load()
    shares = [len(part) for part in np.array_split(np.arange(options.rounds), options.clients)]
    start = time.perf_counter()
    with ThreadPoolExecutor(options.clients) as pool:
        jobs = [
            pool.submit(client_rounds, served, number, count, options, new_text, load)
            for number, count in enumerate(shares)
        ]
        for job in jobs:
            job.result()
    return load, time.perf_counter() - start


def compared(client: RiskClient, model: str) -> float:
    """Return the largest relative difference between a book's figures here and in the service."""
    found = Market.read(MARKET)
    only_dax = replace(
        found, equities={"DAX": found.equities["DAX"]}, correlations={}, swaption_vols=None
    )
    fit, gaps = MODELS[model](only_dax), []
    for entry in client.books()[:8]:
        told = client.risk(entry.name)
        quotes = client.quotes().quotes
        market = only_dax.with_quotes({q: quotes[q] for q, _ in only_dax.flat_quotes()})
        mine = risk(Book.from_text(client.text(entry.name)), market, fit)
        theirs = {row.quote_id: row.derivative or 0.0 for row in told.sensitivities}
        assert told.value is not None, "the book is in one currency"
        pairs = [(mine.value, told.value)]
        for trade, row in zip(mine.trades, told.positions, strict=True):
            mine_of = vars(trade.position)
            pairs += [
                (mine_of[name], row.figures[name]) for name in ("value", "vega", "theta", "rho")
            ]
        gaps += [abs(a - b) / max(abs(a), 1.0) for a, b in pairs]
        most = max(map(abs, mine.sensitivities.values()))
        gaps += [abs(x - theirs[quote]) / most for quote, x in mine.sensitivities.items()]
    return max(gaps)


def measures(url: str) -> dict[str, float]:
    """Return the service's own counts of valuations and programs."""
    wanted = (
        "jaxtape_valuations_total",
        "jaxtape_programs_compiled",
        "process_cpu_seconds_total",
    )
    lines = httpx2.get(f"{url}/metrics").text.splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith(wanted)
    }


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    p50, p99 = np.quantile(seconds, [0.5, 0.99]).tolist()
    return {
        "requests": len(seconds),
        "p50_ms": 1e3 * p50,
        "p99_ms": 1e3 * p99,
        "max_ms": 1e3 * max(seconds),
    }


def parser():
    found = parser_of(__doc__, rounds=2000, clients=16, contracts=100, kills=5)
    found.add_argument("--model", choices=list(MODELS), default="black_scholes")
    return found


def served_with_limits(folder: Path, options) -> Served:
    """Return the service, with its programs compiled for books like those to come."""
    warm = folder / "warm.csv"
    of_every_kind = texts(max(200, options.contracts), KINDS[options.model])
    warm.write_text(of_every_kind(np.random.default_rng(0)), encoding="utf-8")
    model = options.model.replace("_", "-")
    limits = "--max-body", str(MAX_BODY), "--body-seconds", str(BODY_SECONDS)
    return Served(MARKET, folder / "state", "--model", model, "--warm", str(warm), *limits)


def told(run: Run, found: dict[str, Any]) -> None:
    """Print the results as tables."""
    table = table_of("requests", "kind", "requests", "p50 ms", "p99 ms", "max ms")
    for kind, row in found["latency"].items():
        numbers = (f"{row[name]:,.1f}" for name in ("p50_ms", "p99_ms", "max_ms"))
        table.add_row(kind, f"{row['requests']:,}", *numbers)
    run.console.print(table)
    rates = "requests_a_second", "valuations_a_second", "processor_ms_a_round"
    for name in (*rates, "rounds", "service", "errors"):
        run.console.print(f"{name}: {found[name]}", soft_wrap=True)
    run.console.print(f"largest relative difference from pricing.risk: {found['difference']:.1e}")
    table = table_of("refusals", "request", "wanted", "found", "seconds", "holds")
    for row in found["refusals"]:
        said = "yes" if row["wanted"] == row["found"] else f"NO: {row['said']}"
        cells = str(row["wanted"]), str(row["found"]), f"{row['seconds']:.2f}", said
        table.add_row(row["case"], *cells)
    run.console.print(table)
    run.console.print(f"crashes: {found['crashes']}", soft_wrap=True)
    run.console.print(f"exit status after SIGTERM: {found['exit_status']}")


def measured(folder: Path, options) -> dict[str, Any]:
    """Measure load, refusals and crashes of one service."""
    new_text = texts(options.contracts, KINDS[options.model])
    with served_with_limits(folder, options) as served, served.client() as client:
        ready, before = served.seconds, measures(served.url)
        load, seconds = loaded(served, options, new_text)
        after = measures(served.url)
        difference = compared(client, options.model)
        refused = refusals(served, MAX_BODY, BODY_SECONDS)
        dice, spot = np.random.default_rng(1), MOVED["EQUITY/PRICE/DAX"]
        crashes = crashed(served, lambda: new_text(dice), options.kills, spot)
        status = served.stopped()
    latency = {kind: quantiles(found) for kind, found in load.seconds.items()}
    latency["all"] = quantiles([one for found in load.seconds.values() for one in found])
    service = {name: count - before.get(name, 0.0) for name, count in after.items()}
    used = service.get("process_cpu_seconds_total", 0.0)
    return {
        "mixture": MIXTURE,
        "rounds": dict(load.rounds),
        "seconds": seconds,
        "ready_after_seconds": ready,
        "requests_a_second": latency["all"]["requests"] / seconds,
        "valuations_a_second": options.rounds / seconds,
        "processor_ms_a_round": 1e3 * used / options.rounds,
        "latency": latency,
        "service": service,
        "errors": load.errors,
        "difference": difference,
        "refusals": [asdict(one) for one in refused],
        "crashes": asdict(crashes),
        "exit_status": status,
    }


def holds(found: dict[str, Any]) -> bool:
    """Return True if all requirements are met."""
    refused = all(row["wanted"] == row["found"] for row in found["refusals"])
    is_well = not found["errors"] and not found["crashes"]["lost"] and found["difference"] < 1e-9
    return refused and is_well and found["exit_status"] == 0


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("serve_load", parser(), argv)
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Path(folder), run.options)
    told(run, found)
    value = found["latency"]["value"]
    headline = (
        f"{found['valuations_a_second']:.0f} books of {run.options.contracts} a second, "
        f"p50 {value['p50_ms']:.0f} ms, p99 {value['p99_ms']:.0f} ms"
    )
    run.keep(found, headline)
    return 0 if holds(found) else 1


if __name__ == "__main__":
    sys.exit(main())
