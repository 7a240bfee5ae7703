"""The service in this process: figures, refusals, tokens, conditions, limits, and what it keeps."""

import asyncio
import json
import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from fastapi.testclient import TestClient
from starlette.requests import Request
from typer.testing import CliRunner

from calibration import RESULTS, Calibration, market_models
from calibration.app.serve import engine_cache, factory
from calibration.app.serve.auth import Auth, kept_token, token_of
from calibration.app.serve.client import RiskClient, ServiceError
from calibration.app.serve.database import Store, Unusable
from calibration.app.serve.factory import service_of
from calibration.app.serve.limits import ServiceLimits
from calibration.app.serve.metrics import Metrics
from calibration.app.serve.problems import HTTPProblem
from calibration.app.serve.request_limits import RequestLimiter, body_of
from calibration.app.serve.server import JsonLines
from calibration.app.serve.session import Session
from calibration.app.serve.session_state import Precondition, QuotedMarket, StoredBook
from calibration.app.serve.solutions import ServedSolution, read_solutions
from calibration.app.serve.valuations import ValuationQueue
from jaxtape.cli.main import app as commands
from pricing import BlackScholes, Book, European, Market, RiskResult, risk
from pricing.fbsde import GradientRegression, Hermite, export, from_product, parametric, solve
from pricing.ingestion import InputError
from pricing.models.surface_models import black_scholes
from pricing.reporting import positions_of

TOKEN = "a-token-of-the-tests"
SPOT = "EQUITY/PRICE/DAX"
MARKET = {
    "asof": "2002-07-05",
    "currency": "EUR",
    "curves": {"EUR": {"dates": ["2002-07-18", "2003-06-15"], "zero_rates": [0.0357, 0.0368]}},
    "equities": {
        "DAX": {
            "curve": "EUR",
            "spot": 4468.17,
            "implied_vols": {
                "expiries": ["2002-12-17", "2003-06-15"],
                "strikes": [4400, 4500],
                "vols_by_expiry": [[0.2781, 0.2781], [0.2722, 0.2661]],
            },
        }
    },
}
HEAD = "id,type,underlying,quantity,option,strike,expiry"
BOOK = f"{HEAD}\nE1,european,DAX,10,call,4500,2003-03-18\nE2,european,DAX,-7,put,4100,2002-10-18\n"
CSV = {"content-type": "text/csv"}
OWN = {"authorization": f"Bearer {TOKEN}"}
USUAL = ServiceLimits()
SETTINGS = {
    "model": "black-scholes",
    "paths": 1024,
    "seed": 0,
    "budget": 2**30,
    "starts": 1,
    "max_steps": 100,
}


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    file = tmp_path_factory.mktemp("market") / "market.json"
    file.write_text(json.dumps(MARKET))
    return file


def service(market: Path, folder: Path, limits: ServiceLimits = USUAL, **access: bool):
    """A client of a service in this process, as `TestClient` has it."""
    rule = Auth(TOKEN, **{"is_local": True, **access})
    found = service_of(Store(folder), rule, limits, market=market, **SETTINGS)
    return TestClient(found.application(), "http://127.0.0.1", raise_server_exceptions=False)


def own_client(http: TestClient, token: str | None = TOKEN, **settings) -> RiskClient:
    return RiskClient("http://127.0.0.1", token=token, transport=http._transport, **settings)


@pytest.fixture(scope="module")
def shared(market, tmp_path_factory):
    with service(market, tmp_path_factory.mktemp("shared")) as http:
        yield http


@pytest.fixture
def client(shared):
    """A client of one service for the module, with no books at first."""
    found = own_client(shared)
    for entry in found.books():
        found.delete(entry.name)
    found.move({SPOT: 4468.17}, version="*")
    return found


@pytest.fixture
def session(market, tmp_path):
    return Session(Store(tmp_path), market, ServiceLimits(trades=5, books=2))


# --- figures ----------------------------------------------------------------------------------------------


def test_figures_are_those_of_the_library(client, market):
    client.submit("desk", BOOK)
    client.move({SPOT: 4500.0}, version="*")
    quotes, book = Market.read(market).with_quotes({SPOT: 4500.0}), Book.from_text(BOOK)
    wanted, found = risk(book, quotes, black_scholes), client.risk("desk")
    assert (found.value, found.failed, found.trades) == (wanted.value, 0, 2)
    assert {row.quote_id: row.derivative for row in found.sensitivities} == wanted.sensitivities
    for row, position in zip(found.positions, positions_of(wanted, book, quotes), strict=True):
        assert (row.id, row.method, row.status) == (position.id, "ClosedForm", "ok")
        assert row.figures == position.figures and row.figures["delta_1pct"] != 0.0
    of_parts = client.value("desk"), client.greeks("desk"), client.sensitivities("desk")
    assert {part.value for part in of_parts} == {wanted.value}
    assert of_parts[1].positions == found.positions
    assert of_parts[2].sensitivities == found.sensitivities
    assert found.market_version == client.quotes().version


def test_a_value_is_in_the_currency_of_its_trades(tmp_path):
    of_dollars = MARKET["equities"]["DAX"] | {"currency": "USD"}
    (tmp_path / "dollars.json").write_text(json.dumps(MARKET | {"equities": {"DAX": of_dollars}}))
    with service(tmp_path / "dollars.json", tmp_path / "state") as http:
        client = own_client(http)
        client.submit("desk", BOOK)
        assert client.value("desk").currency == "USD"


def test_a_book_in_two_currencies_has_a_value_for_each(tmp_path):
    dax = MARKET["equities"]["DAX"]
    both = {"DAX": dax, "NY": dax | {"currency": "USD"}}
    (tmp_path / "both.json").write_text(json.dumps(MARKET | {"equities": both}))
    with service(tmp_path / "both.json", tmp_path / "state") as http:
        client = own_client(http)
        client.submit("euros", BOOK)
        client.submit("both", BOOK + "E3,european,NY,2,call,4500,2003-03-18\n")
        found, euros = client.risk("both"), client.value("euros")
        assert (found.currency, found.value) == (None, None)
        assert (euros.currency, euros.values) == ("EUR", {"EUR": euros.value})
        dollars = found.positions[2].figures["value"]
        assert found.values == pytest.approx({"EUR": euros.value, "USD": dollars}, rel=1e-12)
        rates = [row for row in found.sensitivities if row.quote_id == "ZERO/RATE/EUR/2002-07-18"]
        assert [row.currency for row in rates] == ["EUR", "USD"]


def test_a_book_in_json_has_the_same_figures(client):
    client.submit("desk", BOOK)
    rows = [dict(zip(HEAD.split(","), line.split(","), strict=True)) for line in BOOK.split()[1:]]
    for row in rows:
        row |= {"quantity": float(row["quantity"]), "strike": float(row["strike"])}
    client.submit("json", json.dumps(rows), "json")
    assert client.value("json").value == client.value("desk").value
    assert json.loads(client.text("json")) == rows


def test_what_is_known_is_not_computed_again(client, shared):
    def counted():
        lines = shared.get("/metrics").text.splitlines()
        return {
            line.split('"')[1]: float(line.split()[-1])
            for line in lines
            if line.startswith("jaxtape_valuations_total")
        }

    client.submit("desk", BOOK)
    client.value("desk")
    before = counted()
    client.greeks("desk")
    client.risk("desk")
    found = shared.get("/v1/books/desk/value")
    again = shared.get("/v1/books/desk/value", headers={"if-none-match": found.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    after = counted()
    assert after["computed"] == before["computed"]
    assert after["cached"] == before.get("cached", 0.0) + 3.0
    client.move({SPOT: 4400.0}, version="*")
    assert client.value("desk").market_version == client.quotes().version
    assert counted()["computed"] == before["computed"] + 1.0


def test_what_another_service_has_said_is_not_known(market, tmp_path):
    def tags(folder, **settings):
        rule = Auth(TOKEN, is_local=True)
        found = service_of(Store(folder), rule, USUAL, market=market, **(SETTINGS | settings))
        http = TestClient(found.application(), "http://127.0.0.1")
        http.put("/v1/books/desk", content=BOOK, headers=CSV | OWN)
        places = "/v1/quotes", "/v1/books/desk/value"
        return [http.get(place).headers["etag"] for place in places]

    quotes, value = tags(tmp_path / "first")
    assert tags(tmp_path / "first") == [quotes, value]
    same, other = tags(tmp_path / "first", paths=2048)
    assert same == quotes and other != value
    assert quotes not in tags(tmp_path / "second")
    http = service(market, tmp_path / "third")
    content = '{"quotes": {"EQUITY/PRICE/DAX": 1}}'
    found = http.patch("/v1/quotes", content=content, headers=OWN | {"if-match": quotes})
    assert found.status_code == 412


def test_a_book_of_another_size_compiles_nothing(client, shared):
    def programs():
        lines = shared.get("/metrics").text.splitlines()
        return next(line for line in lines if line.startswith("jaxtape_programs_compiled "))

    rows = (f"E{n},european,DAX,1,call,{4300 + n},2003-03-18" for n in range(120))
    client.submit("desk", BOOK)
    client.value("desk")
    before = programs()
    client.submit("large", "\n".join((HEAD, *rows)))
    assert client.value("large").trades == 120
    assert programs() == before


# --- books ------------------------------------------------------------------------------------------------


def test_a_book_is_kept_read_listed_replaced_and_removed(client):
    first = client.submit("desk", BOOK)
    assert (first.name, first.trades, client.books()) == ("desk", 2, (first,))
    assert client.text("desk") == BOOK
    other = client.submit("desk", BOOK.replace("10,call", "11,call"), version=first.version)
    assert other.version != first.version and "11,call" in client.text("desk")
    with pytest.raises(ServiceError, match=r"\(412\)") as changed:
        client.submit("desk", BOOK, version=first.version)
    assert changed.value.problem.version == other.version
    with pytest.raises(ServiceError, match=r"no If-Match.*\(428\)"):
        client.submit("desk", BOOK)
    assert client.submit("desk", client.text("desk")) == other  # once more changes nothing
    with pytest.raises(ServiceError, match=r"\(412\)"):
        client.delete("desk", version=first.version)
    client.delete("desk", version=other.version)
    assert client.books() == ()
    for ask in (client.text, client.value, client.delete):
        with pytest.raises(ServiceError, match=r"there is no book 'desk'.*\(404\)"):
            ask("desk")


def test_mistakes_name_place_value_and_remedy(client, shared):
    bad = BOOK.replace("4500", "-1").replace("E2,european,DAX", "E2,european,DAXX")
    with pytest.raises(ServiceError, match=r"\(422\)") as refused:
        client.submit("desk", bad)
    strike, underlying = refused.value.problem.errors
    assert (strike.file, strike.line, strike.column, strike.field) == ("desk.csv", 2, 6, "strike")
    assert strike.remedy == "give a strike > 0" and "did you mean 'DAX'?" in underlying.remedy
    assert str(strike).startswith("desk.csv:2: column 'strike': -1 is not a positive number")
    assert client.books() == ()
    found = shared.put("/v1/books/desk", content=bad, headers=CSV | OWN)
    assert (found.status_code, found.headers["content-type"]) == (422, "application/problem+json")
    assert found.json()["type"] == "urn:jaxtape:problem:book-refused"
    assert found.json()["instance"] == "/v1/books/desk"


def test_of_very_many_mistakes_the_first_are_named(session):
    rows = "".join(f"E{n},european,DAX,1,call,-1,2003-03-18\n" for n in range(1200))
    session._limits = ServiceLimits()
    with pytest.raises(HTTPProblem, match="1,200 mistakes") as problem:
        session.submit("desk", "csv", f"{HEAD}\n{rows}".encode(), Precondition())
    assert len(problem.value.document("").errors) == 1000


@pytest.mark.parametrize(
    ("content", "headers", "status", "said"),
    [
        (b"\xff\xfe", CSV, 422, "is not UTF-8 text"),
        (b"", CSV, 422, "is empty"),
        (b"a;b", CSV, 422, "separated by semicolons"),
        (b"[", {"content-type": "application/json"}, 422, "is not JSON"),
        (b"[]", {"content-type": "image/png"}, 415, "image/png"),
        (b"[]", {}, 415, "of no known type"),
    ],
)
def test_what_is_no_book_is_refused(shared, content, headers, status, said):
    found = shared.put("/v1/books/none", content=content, headers={**headers, **OWN})
    assert found.status_code == status and said in found.json()["detail"]


@pytest.mark.parametrize("name", [".hidden", "Desk", "a%20b", "x" * 101, "%C3%A9"])
def test_a_name_is_a_name_of_a_file_anywhere(shared, name):
    found = shared.put(f"/v1/books/{name}", content=BOOK, headers=CSV | OWN)
    assert found.status_code == 400 and "lower-case letters" in found.json()["remedy"]


@pytest.mark.parametrize(
    ("method", "path", "content"),
    [
        ("PATCH", "/v1/quotes", r'{"quotes": {"EQUITY/PRICE/DA\ud800": 1}}'),
        ("PATCH", "/v1/quotes", r'{"quotes": {"EQUITY/PRICE/DAX": "\ud800"}}'),
        ("PUT", "/v1/books/half", r'[{"id": "E1", "type": "european", "stri\ud800ke": 1}]'),
        ("PUT", "/v1/books/half", r'[{"id": "\ud800", "type": "\ud800", "underlying": "\ud800"}]'),
    ],
)
def test_half_a_surrogate_pair_is_a_mistake(shared, method, path, content):
    headers = {"content-type": "application/json", "if-match": "*"} | OWN
    found = shared.request(method, path, content=content, headers=headers)
    assert found.status_code == 422 and r"\ud800" in str(found.json()["errors"])


# --- quotes -----------------------------------------------------------------------------------------------


def test_of_two_moves_of_one_version_one_is_made(client):
    version = client.quotes().version
    moved = client.move({SPOT: 4501.0}, version=version)
    with pytest.raises(ServiceError, match=r"\(412\)") as changed:
        client.move({SPOT: 4502.0}, version=version)
    assert changed.value.problem.version == str(moved.version) == str(version + 1)
    assert client.quotes().quotes[SPOT] == 4501.0


def test_quotes_move_together_or_not_at_all(client):
    before = client.quotes()
    vol = "EQUITY_OPTION/RATE_LNVOL/DAX/2002-12-17/4400"
    with pytest.raises(ServiceError, match=r"\(422\)") as refused:
        client.move({SPOT: 4600.0, vol: -0.2, "EQUITY/PRICE/DAY": 1.0}, version="*")
    assert [mistake.field for mistake in refused.value.problem.errors] == [vol, "EQUITY/PRICE/DAY"]
    assert "did you mean 'EQUITY/PRICE/DAX'" in refused.value.problem.errors[1].remedy
    assert client.quotes() == before


def test_a_quote_far_from_its_neighbours_is_taken_if_confirmed_and_kept(market, tmp_path):
    vol, limits = "EQUITY_OPTION/RATE_LNVOL/DAX/2002-12-17/4400", ServiceLimits(move=20.0)
    store, body = Store(tmp_path), {"quotes": {vol: 2.4}}
    session, always = Session(store, market, limits), Precondition("*")
    with pytest.raises(HTTPProblem, match=r"2\.4 is far from") as refused:
        session.move(json.dumps(body).encode(), always)
    assert refused.value.status == 422
    session.move(json.dumps(body | {"confirmed": True}).encode(), always)
    after = Session(store, market, limits)  # the next start takes what was confirmed
    assert dict(after.market.market.flat_quotes())[vol] == pytest.approx(2.4)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "a move is an object"),
        ('{"quotes": {}}', "a move is an object"),
        ('{"quotes": {"EQUITY/PRICE/DAX": 1}, "more": 1}', "a move is an object"),
        ('{"quotes": {"EQUITY/PRICE/DAX": 1}, "confirmed": 1}', "a move is an object"),
        ('{"quotes": {"EQUITY/PRICE/DAX": 1, "EQUITY/PRICE/DAX": 2}}', "appears twice"),
        ('{"quotes": {"EQUITY/PRICE/DAX": NaN}}', "is not a finite number"),
        ('{"quotes": {"EQUITY/PRICE/DAX": "4500"}}', "is not a number"),
        ('{"quotes": {"EQUITY/PRICE/DAX": true}}', "is not a number"),
    ],
)
def test_what_is_no_move_is_refused(shared, content, said):
    found = shared.patch("/v1/quotes", content=content, headers={"if-match": "*", **OWN})
    assert found.status_code == 422 and said in found.json()["detail"]


# --- who may do what --------------------------------------------------------------------------------------

WRITES = [("PUT", "/v1/books/desk"), ("DELETE", "/v1/books/desk"), ("PATCH", "/v1/quotes")]
READS = ["/v1/books", "/v1/quotes", "/v1/books/desk", "/v1/books/desk/value", "/metrics"]


@pytest.mark.parametrize("given", [None, "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN])
@pytest.mark.parametrize(("method", "path"), WRITES)
def test_nothing_is_written_without_the_token(client, shared, method, path, given):
    client.submit("desk", BOOK)
    before = client.books(), client.quotes()
    headers = CSV | {"if-match": "*"} | ({} if given is None else {"authorization": given})
    found = shared.request(method, path, content=BOOK, headers=headers)
    assert (found.status_code, found.headers["www-authenticate"]) == (401, "Bearer")
    assert "Authorization: Bearer" in found.json()["remedy"]
    assert (client.books(), client.quotes()) == before
    with pytest.raises(ServiceError, match=r"\(401\)"):
        own_client(shared, token=None).move({SPOT: 1.0}, version="*")


@pytest.mark.parametrize("path", READS)
@pytest.mark.parametrize("access", [{"is_local": False}, {"guards_reads": True}])
def test_reading_needs_the_token_where_others_read(market, tmp_path, path, access):
    http = service(market, tmp_path, **access)
    assert http.get(path).status_code == 401
    assert http.get(path, headers=OWN).status_code in (200, 404)
    assert http.get("/health/live").json() == {"live": True}


def test_a_name_of_another_host_is_refused(shared):
    assert shared.get("/v1/books", headers={"host": "evil.example"}).status_code == 400
    for host in ("localhost:8117", "127.0.0.1", "[::1]:8117"):
        assert shared.get("/v1/books", headers={"host": host}).status_code == 200


def test_a_token_is_kept_for_the_user_alone(tmp_path):
    file = tmp_path / "token"
    token = kept_token(file)
    assert file.stat().st_mode & 0o777 == 0o600 and len(token) >= 32
    assert kept_token(file) == token_of(file) == token
    file.chmod(0o640)
    with pytest.raises(Unusable, match="run chmod 600"):
        token_of(file)
    file.chmod(0o600)
    for text in ("", "short", "two words that are long", "übersee-übersee-übersee"):
        file.write_text(text)
        with pytest.raises(Unusable, match="contains no token"):
            token_of(file)
    with pytest.raises(Unusable, match="cannot be read"):
        token_of(tmp_path / "none")


@pytest.fixture
def own_logs():
    """What a command sends to its log stays its own."""
    logs = [logging.getLogger(name) for name in ("jaxtape.serve", "uvicorn.error")]
    before = [(log, log.handlers, log.propagate, log.level) for log in logs]
    yield
    for log, handlers, propagate, level in before:
        log.handlers, log.propagate = handlers, propagate
        log.setLevel(level)


def full_disk(*_):
    raise OSError(28, "No space left on device")


def ran(*words):
    return CliRunner().invoke(commands, ["serve", *map(str, words)])


def test_a_service_that_cannot_start_says_why(market, tmp_path, monkeypatch, own_logs):
    state = "--state", tmp_path / "state"
    found = ran("--market", market, *state, "--host", "0.0.0.0")
    assert found.exit_code == 2 and "give --token-file FILE" in found.stderr
    found = ran("--market", tmp_path / "none.json", *state)
    assert found.exit_code == 2 and "there is no such file" in found.stderr
    bad = tmp_path / "bad.csv"
    bad.write_text(BOOK.replace("4500", "-1"))
    found = ran("--market", market, *state, "--trades", bad)
    assert found.exit_code == 2 and "-1 is not a positive number" in found.stderr
    (tmp_path / "file").write_text("")
    found = ran("--market", market, "--state", tmp_path / "file")
    assert found.exit_code == 2 and "give another --state" in found.stderr
    with monkeypatch.context() as patch:
        patch.setattr(Store, "keep_quotes", full_disk)
        found = ran("--market", market, "--state", tmp_path / "full")
    (line,) = found.stderr.splitlines()
    assert found.exit_code == 2 and "No space left on device; make room there" in line
    for name in [name for name in sys.modules if name.startswith("calibration.app.serve.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    found = ran("--market", market, *state)
    assert found.exit_code == 2 and "pip install 'jaxtape[serve]'" in found.stderr


# --- limits -----------------------------------------------------------------------------------------------


def test_books_are_bounded_in_bytes_in_trades_and_in_number(market, tmp_path):
    http = service(market, tmp_path, ServiceLimits(body_bytes=400, trades=3, books=1))
    put = lambda name, text: http.put(f"/v1/books/{name}", content=text, headers=CSV | OWN)
    found = put("desk", BOOK + "#" * 400)
    assert (found.status_code, found.headers["connection"]) == (413, "close")
    rows = "".join(f"E{n},european,DAX,1,call,4500,2003-03-18\n" for n in range(4))
    assert "4 trades, and at most 3" in put("desk", f"{HEAD}\n{rows}").json()["detail"]
    assert put("desk", BOOK).status_code == 201
    found = put("other", BOOK)
    assert found.status_code == 409 and "--max-books" in found.json()["remedy"]


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("csv", f"{HEAD}\n" + "x\n\r\n ,,\r" * 6),
        ("csv", f"\n{HEAD}\r" + 'E,"european\r' * 6),
        ("json", "[1, {}, [], null, 2, 3]"),
    ],
)
def test_trades_are_counted_before_they_are_taken_apart(session, monkeypatch, format, text):
    assert len(StoredBook("desk", format, text).book.rows) == 6
    monkeypatch.setattr(Book, "from_text", lambda *_: 1 / 0)
    with pytest.raises(HTTPProblem, match="6 trades, and at most 5") as problem:
        session.submit("desk", format, text.encode(), Precondition())
    assert problem.value.status == 413


def read_body(limits: ServiceLimits, *parts: bytes, headers=(), ends: bool = True) -> bytes:
    """What `body_of` makes of a body in parts, after which nothing comes if it does not end."""
    left = list(parts)

    async def receive():
        if not left and not ends:
            await asyncio.sleep(60.0)
        body = left.pop(0) if left else b""
        return {"type": "http.request", "body": body, "more_body": bool(left) or not ends}

    scope = {"type": "http", "method": "PUT", "headers": list(headers)}
    return asyncio.run(body_of(Request(scope, receive), limits))


def test_a_body_is_read_within_its_size_and_its_time():
    limits = ServiceLimits(body_bytes=6, body_seconds=0.05)
    assert read_body(limits, b"abc", b"def") == b"abcdef"
    large = (b"content-length", b"7"), (b"expect", b"100-continue")
    for parts, headers, ends, status in [
        ((b"abc", b"defg"), (), True, 413),
        ((), large, False, 413),
        ((b"abc",), (), False, 408),
        ((b"abcdefg",), (), False, 413),
    ]:
        with pytest.raises(HTTPProblem) as problem:
            read_body(limits, *parts, headers=headers, ends=ends)
        assert problem.value.status == status
        assert problem.value.headers["connection"] == "close"


def test_one_request_too_many_is_told_to_come_again():
    statuses, inside = [], asyncio.Event()

    async def slow(scope, receive, send):
        inside.set()
        await asyncio.sleep(0.05)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def send(message):
        if message["type"] == "http.response.start":
            statuses.append((message["status"], dict(message["headers"]).get(b"retry-after")))

    async def asked(path):
        scope = {"type": "http", "method": "GET", "path": path, "headers": []}
        await gate(scope, None, send)

    async def all_asked():
        first = asyncio.create_task(asked("/v1/books"))
        await inside.wait()
        await asked("/v1/books")
        await asked("/health")
        await first
        await asked("/v1/books")

    gate = RequestLimiter(slow, ServiceLimits(requests=1), Metrics())
    asyncio.run(all_asked())
    assert statuses == [(503, b"1"), (200, None), (200, None), (200, None)]


@pytest.mark.parametrize(
    ("method", "status"), [("GET", 503), ("PUT", 504), ("PATCH", 504), ("DELETE", 504)]
)
def test_what_a_stopping_service_cannot_wait_for_is_told_to_come_again(method, status):
    told = []

    async def send(message):
        told.append(message)

    async def endless(scope, receive, send):
        await asyncio.sleep(60.0)

    async def cancelled():
        scope = {"type": "http", "method": method, "path": "/v1/books/a", "headers": []}
        task = asyncio.create_task(RequestLimiter(endless, USUAL, Metrics())(scope, None, send))
        await asyncio.sleep(0.0)
        task.cancel()
        await task

    asyncio.run(cancelled())
    assert told[0]["status"] == status and dict(told[0]["headers"])[b"retry-after"] == b"1"


class Pricer:
    """Values empty books, each when it is let."""

    def __init__(self):
        self.count, self.let = 0, threading.Event()

    def __call__(self, stored, market):
        self.count += 1
        assert self.let.wait(10.0)
        return RiskResult((), 0.0, {}, {}, ())


def empty(name: str) -> StoredBook:
    return StoredBook(name, "csv", f"{HEAD}\n")


def quoted(market: Path) -> QuotedMarket:
    found = Market.read(market)
    return QuotedMarket(found, "", 1, {}, found)


def test_requests_for_the_same_figures_share_one_computation(market):
    pricer, state = Pricer(), quoted(market)

    async def asked():
        found = ValuationQueue(pricer, str, ServiceLimits(queue=2), Metrics())
        tasks = [asyncio.create_task(found.of(empty("a"), state)) for _ in range(5)]
        tasks.append(asyncio.create_task(found.of(empty("b"), state)))
        await asyncio.sleep(0.01)
        with pytest.raises(HTTPProblem, match="2 valuations are queued") as full:
            await found.of(empty("c"), state)
        assert (full.value.status, full.value.headers) == (503, {"retry-after": "1"})
        pricer.let.set()
        *same, other = await asyncio.gather(*tasks)
        assert all(one is same[0] for one in same) and other is not same[0]
        assert await found.of(empty("a"), state) is same[0]
        found.close()

    asyncio.run(asked())
    assert pricer.count == 2


def test_quotes_that_keep_moving_make_no_line(market):
    pricer, first = Pricer(), quoted(market)

    async def asked():
        limits = ServiceLimits(queue=3, request_seconds=0.02, workers=1)
        found = ValuationQueue(pricer, str, limits, Metrics())
        other = asyncio.create_task(found.of(empty("other"), first))
        await asyncio.sleep(0.0)
        for version in range(1, 9):  # nobody waits so long
            with pytest.raises(HTTPProblem, match="still being computed"):
                await found.of(empty("a"), replace(first, version=version))
        with pytest.raises(HTTPProblem, match="still being computed"):
            await other
        found._limits = ServiceLimits(queue=3)
        tasks = [
            asyncio.create_task(found.of(empty("a"), replace(first, version=version)))
            for version in range(9, 20)
        ]
        await asyncio.sleep(0.01)
        pricer.let.set()
        got = await asyncio.gather(*tasks)
        assert {one.key[2] for one in got} == {19} and len(set(map(id, got))) == 1
        found.close()

    asyncio.run(asked())
    assert pricer.count == 2


def test_a_slow_book_does_not_stop_the_others(market):
    """Its own newer state waits for it, and takes no thread from the others meanwhile."""
    state, is_slow, let, seen = quoted(market), threading.Event(), threading.Event(), []

    def price(stored, market):
        seen.append(stored.name)
        if stored.name == "slow":
            is_slow.set()
            assert let.wait(10.0)
        return RiskResult((), 0.0, {}, {}, ())

    async def asked():
        found = ValuationQueue(price, str, ServiceLimits(workers=2), Metrics())
        slow = [asyncio.create_task(found.of(empty("slow"), state))]
        await asyncio.to_thread(is_slow.wait, 10.0)
        newer = replace(state, version=2)
        slow.append(asyncio.create_task(found.of(empty("slow"), newer)))
        await asyncio.sleep(0.0)
        for name in ("a", "b", "a"):
            assert (await found.of(empty(name), state)).key[0] == name
        assert seen == ["slow", "a", "b"] and found.is_computing
        let.set()
        assert [one.key[2] for one in await asyncio.gather(*slow)] == [1, 2]
        found.close()

    asyncio.run(asked())
    assert seen == ["slow", "a", "b", "slow"]


def test_books_that_are_valued_at_once_have_the_figures_of_one_after_the_other(market):
    """Threads share the models that are fitted, and the budget, at quotes that move."""
    texts = [BOOK.replace("4500", str(4400 + 20 * n)) for n in range(4)]
    stored = [StoredBook(f"book-{n}", "csv", text) for n, text in enumerate(texts)]
    base = Market.read(market)
    moved = [base.with_quotes({SPOT: 4400.0 + 10.0 * n}) for n in range(3)]
    together = engine_cache.EngineCache(base, "market.json", **SETTINGS)

    def values(book: StoredBook) -> list[float]:
        return [together.risk(book, state).value for state in moved]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(values, stored))
    alone = [[risk(b.book, state, black_scholes).value for state in moved] for b in stored]
    assert found == alone


def test_a_quote_moves_as_far_as_it_may(market, tmp_path):
    rate = "ZERO/RATE/EUR/2002-07-18"
    vol = "EQUITY_OPTION/RATE_LNVOL/DAX/2002-12-17/4400"
    with service(market, tmp_path, ServiceLimits(move=0.1)) as http:
        client = own_client(http)
        for quote, value, said in (
            (SPOT, 44681.7, "44681.7 is 900 % from 4468.17"),
            (SPOT, 4468.17 / 1.11, "is 11 % from 4468.17, and at most 10 % are taken at once"),
            (vol, 0.2781 * 1.11, "is 11 % from 0.2781"),
            (rate, 0.0457 + 1e-6, "basis points from 0.0357, and at most 100 basis points"),
        ):
            with pytest.raises(ServiceError, match=r"\(422\)") as refused:
                client.move({SPOT: 4470.0, quote: value}, version="*")
            (mistake,) = refused.value.problem.errors
            assert said in str(mistake) and "--max-move" in mistake.remedy
        assert client.quotes().quotes[SPOT] == 4468.17
        client.move({SPOT: 4468.17 * 1.1, vol: 0.2781 / 1.1, rate: 0.0457}, version="*")
        client.move({SPOT: 4468.17 * 1.2}, version="*")  # from where it stands by now


def test_a_folder_that_others_may_write_holds_no_state(market, tmp_path):
    """What stands there is taken for what the service has accepted: the folder, and every file in it."""
    folder = tmp_path / "state"
    Store(folder).keep_book(StoredBook("desk", "csv", BOOK))
    kept_token(folder / "token")
    assert set(Store(folder).books()) == {"desk"}
    for place in (folder, folder / "state.sqlite", folder / "token"):
        for more in (0o020, 0o002):
            before = place.stat().st_mode
            place.chmod(before | more)
            with pytest.raises(Unusable, match=rf"{place}: others may write it; run chmod go-w"):
                Store(folder)
            place.chmod(before)
    folder.chmod(0o777)
    found = ran("--market", market, "--state", folder)
    assert found.exit_code == 2 and "others may write it" in found.stderr
    folder.chmod(0o700)
    assert set(Store(folder).books()) == {"desk"}


def test_figures_are_tagged_with_the_state_that_they_are_of(client, shared, monkeypatch):
    client.submit("desk", BOOK)
    of = ValuationQueue.of

    async def newer(valuations, stored, state):
        return await of(valuations, stored, replace(state, version=state.version + 1))

    with monkeypatch.context() as patch:
        patch.setattr(ValuationQueue, "of", newer)
        found = shared.get("/v1/books/desk/value")
    version = client.quotes().version + 1
    assert found.json()["market_version"] == version and f"-{version}-" in found.headers["etag"]


def test_figures_that_are_late_are_there_for_the_next_request(market):
    pricer, state, forgotten = Pricer(), quoted(market), []

    async def at_last(found, name):
        """The figures, asked for until they are there."""
        while True:
            try:
                return await found.of(empty(name), state)
            except HTTPProblem as problem:
                assert problem.status == 503

    async def asked():
        found = ValuationQueue(
            pricer, forgotten.append, ServiceLimits(request_seconds=0.02), Metrics()
        )
        with pytest.raises(HTTPProblem, match="still being computed") as late:
            await found.of(empty("a"), state)
        assert late.value.status == 503 and found.is_computing
        pricer.let.set()
        assert (await at_last(found, "a")).failed == 0 and pricer.count == 1
        pricer.let.clear()
        with pytest.raises(HTTPProblem):
            await found.of(empty("gone"), state)
        found.forget("gone")
        pricer.let.set()
        await at_last(found, "b")
        await asyncio.gather(*found._forgetting)
        assert set(found._found) == {"a", "b"} and forgotten == ["gone"]
        found.close()

    asyncio.run(asked())


def test_quotes_without_models_are_a_conflict(market):
    def price(stored, market):
        raise RuntimeError("the optimum was not found")

    async def asked():
        found = ValuationQueue(price, str, ServiceLimits(), Metrics())
        with pytest.raises(
            HTTPProblem, match="quotes of version 1 have no models: the optimum"
        ) as one:
            await found.of(empty("a"), quoted(market))
        assert one.value.status == 409
        found.close()

    asyncio.run(asked())


@pytest.fixture
def engines(monkeypatch):
    """Engines in a market one of whose vols is 1.2, with a calibration that fails there; and what was tried."""
    tried = []

    def calibrated(start, quotes, *, num_starts, max_steps, key):
        assert (num_starts, max_steps) == (3, 7)
        np.testing.assert_array_equal(jax.random.key_data(key), [0, SETTINGS["seed"]])
        tried.append(float(quotes.vols.max()))
        is_good = tried[-1] < 1.0
        result = RESULTS.successful if is_good else RESULTS.max_steps_reached
        return Calibration(start, quotes.vols, result, {})

    def failure(market, name, found, file):
        is_good = found.result == RESULTS.successful
        return (
            None if is_good else InputError(file, None, None, name, "", "not fitted", "correct it")
        )

    monkeypatch.setattr(market_models, "calibrate_precisely", calibrated)
    monkeypatch.setattr(market_models, "_failure", failure)
    monkeypatch.setattr(engine_cache.MarketModels, "fit", property(lambda self: black_scholes))
    dax = MARKET["equities"]["DAX"]
    vols = dax["implied_vols"] | {
        "strikes": [4300, 4400, 4500],
        "vols_by_expiry": [[0.28, 1.2, 0.27], [0.28, 0.27, 0.26]],
    }
    equities = {name: dax | {"implied_vols": vols} for name in ("DAX", "SMI")}
    market = Market.from_text(json.dumps(MARKET | {"equities": equities}))
    settings = SETTINGS | {"model": "heston", "starts": 3, "max_steps": 7}
    return engine_cache.EngineCache(market, "market.json", **settings), market, tried


def test_an_equity_is_calibrated_once_its_quotes_are_corrected(engines):
    found, market, tried = engines
    stored = StoredBook("desk", "csv", BOOK)
    for _ in range(2):
        result = found.risk(stored, market)
        assert result.value == 0.0 and "not fitted" in str(result.errors)
    assert tried == [1.2]
    corrected = market.with_quotes({"EQUITY_OPTION/RATE_LNVOL/DAX/2002-12-17/4400": 0.275})
    for spot in (4468.17, 4500.0):
        result = found.risk(stored, corrected.with_quotes({SPOT: spot}))
        assert result.value != 0.0 and not result.errors
    assert tried == [1.2, 0.28]


def test_starts_and_steps_are_those_of_the_command_line(market, tmp_path, monkeypatch):
    """The fixture `engines` asks that each calibration takes them."""

    def service_of(*_, starts, max_steps, **others):
        raise Unusable(f"{starts} starts of {max_steps} steps")

    monkeypatch.setattr(factory, "service_of", service_of)
    files = ["--market", str(market), "--state", str(tmp_path / "state")]
    ended = CliRunner().invoke(commands, ["serve", *files, "--starts", "3", "--max-steps", "7"])
    assert ended.exit_code == 2 and "3 starts of 7 steps" in ended.output


def test_models_that_no_book_shares_are_forgotten(engines):
    found, market, _ = engines
    for name, underlying in [("a", "DAX"), ("b", "DAX"), ("c", "SMI"), ("c", "DAX")]:
        found.risk(StoredBook(name, "csv", BOOK.replace("DAX", underlying)), market)
    assert [names for names, _ in found._shared] == [("DAX",)]
    for name, left in [("a", 1), ("b", 1), ("c", 0)]:
        found.forget(name)
        assert len(found._shared) == left


def test_a_book_that_is_removed_late_is_forgotten(market, tmp_path, monkeypatch):
    let, forgotten, drop = threading.Event(), threading.Event(), Store.drop_book

    def slow(store, name):
        assert let.wait(10.0)
        drop(store, name)

    monkeypatch.setattr(Store, "drop_book", slow)
    monkeypatch.setattr(ValuationQueue, "forget", lambda *_: forgotten.set())
    with service(market, tmp_path, ServiceLimits(request_seconds=1.0)) as http:
        http.put("/v1/books/desk", content=BOOK, headers=CSV | OWN)
        found = http.delete("/v1/books/desk", headers=OWN | {"if-match": "*"})
        assert found.status_code == 504 and not forgotten.is_set()
        let.set()
        assert forgotten.wait(10.0)


# --- what is kept -----------------------------------------------------------------------------------------


def test_a_session_goes_on_where_another_has_ended(session, market, tmp_path):
    stored, is_new = session.submit("desk", "csv", BOOK.encode(), Precondition())
    session.submit("gone", "csv", BOOK.encode(), Precondition())
    session.delete("gone", Precondition("*"))
    session.move(b'{"quotes": {"EQUITY/PRICE/DAX": 4500.5}}', Precondition("*"))
    assert is_new
    after = Session(Store(tmp_path), market, ServiceLimits())
    version = session.market.version
    assert after.books == {"desk": stored} and after.market.version == version
    assert dict(after.market.market.flat_quotes())[SPOT] == 4500.5
    assert float(after.market.base.equities["DAX"].spot) == 4468.17


def test_a_change_that_is_not_on_the_disk_is_not_made(session, monkeypatch):
    monkeypatch.setattr(session._store, "keep_book", full_disk)
    monkeypatch.setattr(session._store, "keep_quotes", full_disk)
    before = session.books, session.market
    with pytest.raises(OSError, match="No space"):
        session.submit("desk", "csv", BOOK.encode(), Precondition())
    with pytest.raises(OSError, match="No space"):
        session.move(b'{"quotes": {"EQUITY/PRICE/DAX": 4500}}', Precondition("*"))
    assert (session.books, session.market) == before


def test_a_full_disk_is_an_answer(market, tmp_path, monkeypatch):
    http = service(market, tmp_path)
    monkeypatch.setattr(Store, "keep_book", full_disk)
    found = http.put("/v1/books/desk", content=BOOK, headers=CSV | OWN)
    assert found.status_code == 507 and "No space left" in found.json()["detail"]
    assert http.get("/v1/books").json() == {"books": []}


def test_quotes_that_moved_in_another_market_are_not_taken_for_this_one(session, market, tmp_path):
    session.submit("desk", "csv", BOOK.encode(), Precondition())
    session.move(b'{"quotes": {"EQUITY/PRICE/DAX": 4500}}', Precondition("*"))
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**MARKET, "asof": "2002-07-06"}))
    with pytest.raises(Unusable, match=r"1 quotes were moved in another market.*--forget-quotes"):
        Session(Store(tmp_path), other, ServiceLimits())
    found = Session(Store(tmp_path), other, ServiceLimits(), forget_quotes=True)
    version = found.market.version
    assert version > session.market.version
    assert (found.market.moves, set(found.books)) == ({}, {"desk"})
    assert Session(Store(tmp_path), other, ServiceLimits()).market.version == version


def test_quotes_that_are_refused_by_now_may_be_forgotten(session, market, tmp_path):
    session.move(b'{"quotes": {"EQUITY/PRICE/DAX": 4500}}', Precondition("*"))
    store, version = Store(tmp_path), session.market.version
    store.keep_quotes(store.quotes()._replace(quotes={SPOT: -1.0}))
    with pytest.raises(Unusable, match=r"-1\.0 is not a positive number.*--forget-quotes"):
        Session(store, market, ServiceLimits())
    found = Session(store, market, ServiceLimits(), forget_quotes=True)
    assert found.market.version > version and found.market.moves == {}
    assert Session(store, market, ServiceLimits()).market.version == found.market.version


def test_a_folder_is_for_one_service_and_for_its_files(tmp_path):
    store = Store(tmp_path)
    with store.alone(), pytest.raises(Unusable, match="another service"), Store(tmp_path).alone():
        pass
    store = Store(tmp_path)
    store.keep_book(StoredBook("No name", "csv", BOOK))
    with pytest.raises(Unusable, match="holds the book 'No name'"):
        store.books()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "state.sqlite").write_text("{" * 4096)
    with pytest.raises(Unusable, match=r"state.sqlite: is not what a service writes.*move it away"):
        Store(tmp_path / "other")


def test_a_failure_is_told_with_a_name_that_the_log_has(market, tmp_path, monkeypatch, caplog):
    http = service(market, tmp_path)
    monkeypatch.setattr(Session, "book", lambda *_: 1 / 0)
    with caplog.at_level(logging.ERROR, "jaxtape.serve"):
        found = http.get("/v1/books/desk")
    name = found.headers["x-request-id"]
    assert found.status_code == 500 and name in found.json()["remedy"]
    assert "ZeroDivisionError" not in found.text
    records = [record for record in caplog.records if getattr(record, "request", "") == name]
    line = json.loads(JsonLines().format(next(r for r in records if r.exc_info)))
    assert line["level"] == "error" and "ZeroDivisionError" in line["traceback"]


# --- the page of OpenAPI, health, and a client without a service -------------------------------------------


def test_it_says_what_it_does_and_how_it_is(shared):
    paths = shared.get("/openapi.json").json()["paths"]
    assert {"/v1/books/{name}/risk", "/v1/quotes", "/health"} <= set(paths)
    assert set(paths["/v1/books/{name}"]) == {"get", "put", "delete"}
    assert shared.get("/health/live").status_code == 200
    own_client(shared).wait(60.0)
    assert shared.get("/health").json() == {"live": True, "ready": True}
    told = shared.get("/metrics").text
    assert "jaxtape_ready 1.0" in told and 'route="/v1/quotes"' in told
    found = shared.get("/nowhere")
    assert found.status_code == 404 and found.json()["type"] == "urn:jaxtape:problem:not-found"


def test_a_client_is_patient_and_says_who_did_not_answer():
    import httpx2

    answers = [503, 503, 200]

    def answer(request):
        status = answers.pop(0)
        text = '{"books": []}' if status == 200 else "busy"
        return httpx2.Response(status, headers={"retry-after": "0"}, text=text)

    client = RiskClient("http://here", transport=httpx2.MockTransport(answer))
    assert client.books() == () and not answers
    answers += [503, 503]
    impatient = RiskClient("http://here", retries=1, transport=httpx2.MockTransport(answer))
    with pytest.raises(ServiceError, match=r"busy \(503\)"):
        impatient.books()
    sent = []

    def silent(request):
        sent.append(request.method)
        raise httpx2.ReadError("gone")

    client = RiskClient("http://here", retries=1, transport=httpx2.MockTransport(silent))
    with pytest.raises(ServiceError, match="http://here did not answer"):
        client.books()
    with pytest.raises(ServiceError, match=r"did not answer"):
        client.move({SPOT: 1.0}, version="*")
    assert sent == ["GET", "GET", "PATCH"]  # a move is not made twice
    with pytest.raises(ServiceError, match="is not ready after 0 s"):
        client.wait(0.0)


# --- solutions of backward equations ------------------------------------------------------------------------


ONE = b'{"t": true, "states": [[100.0, 95.0]]}'


@pytest.fixture(scope="module")
def put(tmp_path_factory):
    """A solution for puts of many strikes, and the folder of what it exports."""
    strikes = lambda f: from_product(European(f[0], 1.0), BlackScholes(100.0, 0.05, 0.2), 2)
    solver = GradientRegression(4096, (Hermite(2),))
    solution = solve(parametric(strikes, 90.0, 110.0), solver, key=jax.random.key(0))
    folder = tmp_path_factory.mktemp("solutions")
    for figure in ("value", "delta", "gamma", "reach"):
        (folder / f"put.{figure}").write_bytes(export(solution, figure))
    return solution, folder


@pytest.mark.repeat
def test_a_solution_is_evaluated_over_http(market, tmp_path, put):
    solution, folder = put
    rule, states = Auth(TOKEN, is_local=True), [[100.0, 95.0], [97.0, 105.0]]
    found = service_of(
        Store(tmp_path), rule, ServiceLimits(states=2), market=market, solutions=folder, **SETTINGS
    )
    http = TestClient(found.application(), "http://127.0.0.1", raise_server_exceptions=False)
    with http:
        client = own_client(http)
        (entry,) = client.solutions()
        assert (entry.name, entry.dimension) == ("put", 2)
        assert entry.figures == ["value", "delta", "gamma"]
        figures = client.evaluate("put", 0.25, states).figures
        for name in entry.figures:
            wanted = [getattr(solution, name)(0.25, x) for x in states]
            np.testing.assert_allclose(figures[name], wanted, rtol=1e-12)
        assert client.evaluate("put", 0.25, states).extrapolated == [False, False]
        # .5 is the first date: the spot has a vol of 20 %, and strikes are from 90 to 110
        far = client.evaluate("put", 0.25, [[300.0, 95.0], [97.0, 111.0]])
        assert far.extrapolated == [True, True]
        for t, rows, status, told in (
            (1.5, states, 422, "value is not known at t = 1.5 in states[0]"),
            (0.0, [], 422, "at least one state of 2 finite numbers"),
            (0.0, [[100.0]], 422, "of 2 finite numbers"),
            (0.0, [*states, states[0]], 413, "there are 3 states, and at most 2 are allowed"),
        ):
            with pytest.raises(ServiceError) as refusal:
                client.evaluate("put", t, rows)
            assert refusal.value.status == status and told in str(refusal.value)
        for content in (b"", b"[1]", b'{"t": 0.0, "states": [[1e999, 1.0]]}', b'{"t": 0}', ONE):
            answer = http.post("/v1/solutions/put", content=content)
            assert answer.status_code == 422 and answer.json()["remedy"]
        with pytest.raises(ServiceError, match="there is no solution 'call'"):
            client.evaluate("call", 0.0, states)


def test_a_number_beyond_single_precision_is_refused():
    """It became infinite, where a network that saturates has a finite value."""
    single = ServedSolution("put", {}, 2, np.dtype(np.float32))
    for content in (
        b'{"t": 0.0, "states": [[1e39, 1.0]]}',
        b'{"t": 1e300, "states": [[1.0, 1.0]]}',
    ):
        with pytest.raises(HTTPProblem) as refusal:
            single.evaluated(content, 5)
        assert refusal.value.status == 422
        assert "too large for the solution's float32" in str(refusal.value.errors)


@pytest.mark.repeat
def test_files_of_two_solutions_are_not_mixed(put, tmp_path):
    """A delta of another solution beside a value was served."""
    first, folder = put
    solver = GradientRegression(4096, (Hermite(2),))
    second = solve(first.problem, solver, key=jax.random.key(1))
    (tmp_path / "a.value").write_bytes((folder / "put.value").read_bytes())
    (tmp_path / "a.delta").write_bytes(export(second, "delta"))
    with pytest.raises(Unusable, match=r"a\.value: is from another solution than the files beside"):
        read_solutions(tmp_path)
    (tmp_path / "a.delta").write_bytes((folder / "put.gamma").read_bytes())
    with pytest.raises(
        Unusable, match=r"a\.delta: holds the gamma of a solution; export its delta"
    ):
        read_solutions(tmp_path)
    (tmp_path / "a.delta").write_bytes((folder / "put.delta").read_bytes())
    assert set(read_solutions(tmp_path)["a"].figures) == {"value", "delta"}


def test_what_is_no_solution_is_refused_at_the_start(put, tmp_path):
    (tmp_path / "a.value").write_bytes(b"no program")
    with pytest.raises(
        Unusable, match=r"a\.value: is not a program that pricing\.fbsde\.export wrote"
    ):
        read_solutions(tmp_path)
    (tmp_path / "a.value").rename(tmp_path / "a.vega")
    with pytest.raises(Unusable, match=r"a\.vega: is none of NAME\.value"):
        read_solutions(tmp_path)
    _, folder = put
    (tmp_path / "a.vega").write_bytes((folder / "put.reach").read_bytes())
    (tmp_path / "a.vega").rename(tmp_path / "a.reach")
    with pytest.raises(Unusable, match=r"a\.reach: has no figures beside it"):
        read_solutions(tmp_path)
    with pytest.raises(Unusable, match=r"missing: cannot be read: No such file"):
        read_solutions(tmp_path / "missing")
    _, folder = put
    folder.chmod(0o777)
    with pytest.raises(
        Unusable, match="others may write it; run chmod go-w on it, or give another"
    ):
        read_solutions(folder)
    folder.chmod(0o700)
