"""`jaxtape serve`: values and risk of books over HTTP."""

from pathlib import Path
from typing import Annotated, Any

import typer

from jaxtape.cli.escaping import escaped
from jaxtape.cli.main import PrecisionOption, configure, refuse
from jaxtape.programs.default_store import home_folder
from pricing.ingestion.errors import UnreadableFile

from .. import console
from ..valuing import (
    BUDGET,
    PATHS,
    BudgetOption,
    ModelOption,
    PathsOption,
    SeedOption,
)
from .limits import ServiceLimits

_USUAL = ServiceLimits()


def _seconds(default: float, what: str) -> Any:
    return typer.Option(min=0.1, max=86_400.0, help=what, show_default=f"{default:g}")


def serve(
    market: Annotated[Path, console.path_option(help="The market: JSON.")],
    trades: Annotated[
        Path | None,
        console.path_option(help="A book to store under its file's name: CSV or JSON."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for a free one.")
    ] = 8117,
    state: Annotated[
        Path | None,
        console.path_option(
            help="Folder for books, moved quotes and the token.",
            show_default="$XDG_STATE_HOME/jaxtape/serve",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        console.path_option(help="A file of mode 600 with the token.", show_default="STATE/token"),
    ] = None,
    guard_reads: Annotated[
        bool, typer.Option("--guard-reads", help="Require the token for reading, too, on loopback.")
    ] = False,
    model: ModelOption = "heston",
    paths: PathsOption = PATHS,
    seed: SeedOption = 0,
    starts: console.StartsOption = 1,
    max_steps: console.MaxStepsOption = 100,
    precision: PrecisionOption = None,
    budget: BudgetOption = BUDGET,
    warm: Annotated[
        Path | None,
        console.path_option(help="A book whose programs are compiled before the service is ready."),
    ] = None,
    solutions: Annotated[
        Path | None,
        console.path_option(
            help="Folder of solutions of backward equations: NAME.value, NAME.delta, NAME.gamma, NAME.reach."
        ),
    ] = None,
    forget_quotes: Annotated[
        bool, typer.Option("--forget-quotes", help="Forget quotes that moved in another market.")
    ] = False,
    max_body: Annotated[
        int, console.size_option(help="Largest body of a request.", show_default="4MiB")
    ] = _USUAL.body_bytes,
    max_trades: Annotated[
        int, console.count_option(help="Largest number of trades in a book.")
    ] = _USUAL.trades,
    max_books: Annotated[
        int, console.count_option(help="Largest number of stored books.")
    ] = _USUAL.books,
    max_requests: Annotated[
        int, console.count_option(help="Largest number of concurrent requests.")
    ] = _USUAL.requests,
    max_queue: Annotated[
        int, console.count_option(help="Largest number of waiting and running valuations.")
    ] = _USUAL.queue,
    max_workers: Annotated[
        int, console.count_option(help="Largest number of books valued at once.")
    ] = _USUAL.workers,
    max_states: Annotated[
        int, console.count_option(help="Largest number of states in one request to a solution.")
    ] = _USUAL.states,
    max_move: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Largest move of a quote: a fraction of a price or a vol, or of 10 points of a "
            "rate.",
            show_default=f"{_USUAL.move:g}",
        ),
    ] = _USUAL.move,
    max_connections: Annotated[
        int, console.count_option(help="Largest number of open connections.")
    ] = _USUAL.connections,
    body_seconds: Annotated[
        float, _seconds(_USUAL.body_seconds, "Seconds in which a request must arrive.")
    ] = _USUAL.body_seconds,
    request_seconds: Annotated[
        float, _seconds(_USUAL.request_seconds, "Seconds in which a request is answered.")
    ] = _USUAL.request_seconds,
    stop_seconds: Annotated[
        float,
        _seconds(_USUAL.stop_seconds, "Seconds that running requests have when the service stops."),
    ] = _USUAL.stop_seconds,
) -> None:
    """Serve values, Greeks and sensitivities of books in a market whose quotes move, over HTTP.

    Exit status: 0 after SIGTERM or Ctrl-C; 2 if it cannot start.
    """
    try:
        from . import server
        from .auth import (
            Auth,
            is_loopback,
            kept_token,
            token_of,
        )
        from .database import Store, Unusable
        from .factory import service_of
    except ModuleNotFoundError as error:
        refuse(f"jaxtape serve needs more ({error}): pip install 'jaxtape[serve]'")
    if not is_loopback(host) and token_file is None:
        refuse(
            f"--host {host}: other machines can reach it; give --token-file FILE, a file of mode "
            f"600 "
            "with a token, or --host 127.0.0.1"
        )
    configure(precision)
    server.log_as_json()
    limits = ServiceLimits(
        body_bytes=max_body,
        body_seconds=body_seconds,
        trades=max_trades,
        books=max_books,
        requests=max_requests,
        queue=max_queue,
        workers=max_workers,
        states=max_states,
        move=max_move,
        request_seconds=request_seconds,
        connections=max_connections,
        stop_seconds=stop_seconds,
    )
    settings = {"model": model, "paths": paths, "seed": seed, "budget": budget}
    settings |= {"starts": starts, "max_steps": max_steps}
    files = {"market": market, "trades": trades, "warm": warm, "solutions": solutions}
    try:
        folder = state or home_folder("XDG_STATE_HOME", ".local/state", "--state") / "jaxtape/serve"
    except ValueError as error:
        refuse(str(error))
    try:
        store = Store(folder)
        with store.alone():
            place = folder / "token" if token_file is None else token_file
            token = kept_token(place) if token_file is None else token_of(place)
            auth = Auth(token, is_local=is_loopback(host), guards_reads=guard_reads)
            service = service_of(
                store, auth, limits, **files, **settings, forget_quotes=forget_quotes
            )
            listening = server.bound_socket(host, port)
            banner = (
                f"jaxtape serve: {server.url_of(host, listening)}, token in {escaped(str(place))}"
            )
            server.run(service.application(), listening, limits, banner)
            if service.is_computing:
                server.leave_at_once()
    except (UnreadableFile, Unusable) as error:
        refuse(str(error))
    except OSError as error:
        place, reason = error.filename or folder, error.strerror or error
        refuse(f"{place}: cannot be used: {reason}; make room there, or give another --state")
