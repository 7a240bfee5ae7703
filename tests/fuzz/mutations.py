"""Valid trades, markets and command lines, changed by rules that know their structure. All by one seed."""

import copy
import json
import math
import random

from .corpus import BOOK, BOOKS, COLUMNS, MARKET, MARKETS, csv_of

NUMBERS = (
    *(0, -0.0, -1, 1e-320, 5e-324, 1e-9, 0.5, 1.0, 1e15, 1.1e15, -1e15, 1e300, -1e308, 10**18),
    *(10**400, math.nan, math.inf, -math.inf, True, 36525, 36526, 100.0, 2**63, 60.5),
)
TEXTS = (
    *("", " ", "0", "1e5", "1e400", "nan", "-", "1_0", "1,5", "null", "DAX", "EUR", "dax", "|"),
    *("DAX|DAX", "DAX|SX5E|EUR", "call", "put", "max", "payer", "XNYS", "lognormal", "normal"),
    *("\ud800", "\udfff", "\x00", "\x1b[31m", "\u202e", "\u2028", "\r", "\t=1", "\ufeff", "\uffff"),
    *("[/red]", r"$\frac$", "=1+1", "@A1", "<script>", "&amp;", '"', "'", ";", "é", "中", "😀"),
    *("x" * 200, "y" * 5000, "{}", "[]", "{{7*7}}", "%s", "\\u0041", "../x", "x\ny"),
)
DATES = (
    *("0001-01-01", "1899-12-31", "1900-01-01", "2002-07-04", "2002-07-05", "2002-07-06"),
    *("2002-02-30", "2004-02-29", "2099-12-31", "2199-12-31", "2200-01-01", "9999-12-31"),
    *(
        "2002-12-17",
        "2003-06-15",
        "2002-13-01",
        "2002-7-5",
        "\uff12\uff10\uff10\uff12-07-05",
        "2002-12-17|2003-06-15",
    ),
    *("2003-06-15|2002-12-17", "2002-12-17|2002-12-17", "|", "2002-12-17|"),
)


def nasty(random: random.Random) -> object:
    """A value that is wrong in most places, and right in some."""
    kind = random.randrange(10)
    if kind < 3:
        return random.choice(NUMBERS)
    if kind < 6:
        return random.choice(TEXTS)
    if kind < 8:
        return random.choice(DATES)
    if kind == 8:
        return random.choice((None, [], {}, [[]], {"a": {}}, [None], [1e308] * 3))
    return [random.choice((*NUMBERS, *TEXTS, *DATES))] * random.choice((1, 2, 7, 300))


def changed(document, random: random.Random):
    """The document with one to three changes of its tree: a value, a key, a place."""
    document = copy.deepcopy(document)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        places = list(_places(document))
        holder, key = random.choice(places)
        match random.randrange(8):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[random.choice((*TEXTS, *COLUMNS))] = holder.pop(key)
            case 2:
                other, elsewhere = random.choice(places)
                holder[key] = copy.deepcopy(other[elsewhere])
            case 3 if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
            case 4 if isinstance(holder[key], str | int | float):
                holder[key] = str(holder[key])
            case 5 if isinstance(holder, list):
                holder.reverse()
            case _:
                holder[key] = nasty(random)
        if not document:
            break
    return document


def _places(value):
    """Every holder and key of a tree of dicts and lists."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def as_json(document, random: random.Random) -> bytes:
    """A JSON text, in one of the ways of writing it; now and then with a key twice."""
    text = json.dumps(
        document, indent=random.choice((None, 1, "\t")), ensure_ascii=random.random() < 0.7
    )
    if random.random() < 0.05:
        at = text.find('"', random.randrange(len(text)))
        end = text.find(",", at)
        text = text[: end + 1] + text[at : end + 1] + text[end + 1 :]
    return text.encode("utf-8", "surrogatepass")


def damaged(content: bytes, random: random.Random) -> bytes:
    """A file with some bytes put in, taken out, changed, cut off or moved."""
    at, to = sorted(random.randrange(len(content) + 1) for _ in range(2))
    odd = random.choice((b"\0", b"\xff", b"\xed\xa0\x80", b"\r", b"\n", b'"', b",", b";", b"\x1b"))
    match random.randrange(7):
        case 0:
            return content[:at] + odd + content[at:]
        case 1:
            return content[:at]
        case 2:
            return content[:at] + content[to:]
        case 3:
            return content[:at] + bytes([random.randrange(256)]) + content[at + 1 :]
        case 4:
            return content.replace(b"\n", random.choice((b"\r\n", b"\r", b"\n\n", b" ")))
        case 5:
            return b"\xef\xbb\xbf" + content
    return content.decode("utf-8", "replace").encode("utf-16")


def market(random: random.Random) -> bytes:
    """A market file."""
    if random.random() < 0.02:
        content = random.choice(list(MARKETS.values()))
    else:
        content = as_json(changed(MARKET, random), random)
    return damaged(content, random) if random.random() < 0.1 else content


def book(random: random.Random) -> tuple[str, bytes]:
    """A file of trades, and its name."""
    if random.random() < 0.02:
        name, content = random.choice(list(BOOKS.values()))
    else:
        trades = changed(random.sample(BOOK, random.choice((1, 2, 3))), random)
        if random.random() < 0.4:
            name, content = "t.json", as_json(trades, random)
        else:
            rows = [trade for trade in trades if isinstance(trade, dict)]
            columns = random.sample(COLUMNS, len(COLUMNS) - random.choice((0, 0, 0, 1, 2)))
            text = csv_of(rows, columns) if random.random() < 0.5 else csv_of(rows)
            name, content = "t.csv", text
    return name, damaged(content, random) if random.random() < 0.15 else content


_OPTIONS = {
    "risk": {
        "--trades": "t.csv",
        "--market": "m.json",
        "--out": "out",
        "--model": "black-scholes",
        "--paths": "64",
        "--seed": "1",
        "--scenarios": "s.json",
        "--precision": "single",
        "--devices": "1",
        "--budget": "1GiB",
    },
    "calibrate": {
        "--market": "m.json",
        "--underlying": "DAX",
        "--out": "out",
        "--model": "heston",
        "--starts": "1",
        "--max-steps": "9",
        "--seed": "1",
        "--precision": "double",
    },
    "compare": {
        "--jax": "os:getcwd",
        "--torch": "no_such:thing",
        "--inputs": "pipe.py:x",
        "--ways": "eager",
        "--precisions": "single",
        "--tolerance": "1e-6",
        "--seed": "1",
        "--out": "table.json",
    },
    "explain": {
        "--trades": "t.csv",
        "--before": "m.json",
        "--after": "m.json",
        "--out": "out",
        "--model": "black-scholes",
        "--paths": "64",
        "--budget": "1GiB",
    },
    "serve": {
        "--market": "m.json",
        "--trades": "t.csv",
        "--state": "kept",
        "--token-file": "pipe",
        "--host": "127.0.0.1",
        "--port": "0",
        "--max-body": "1KiB",
        "--body-seconds": "2",
        "--warm": "t.csv",
    },
    "monitor": {
        "--yesterday": "out",
        "--out": "alarms.json",
        "--max-rms": "2",
        "--max-failed": "0",
    },
    "validate": {"--html": "page.html", "--out": "values.json"},
    "solve": {"--seeds": "1", "--out": "table.json", "--resume": "saved", "--metrics": "news"},
}
_NEEDED = {
    "risk": ("--trades", "--market", "--out"),
    "calibrate": ("--market", "--underlying", "--out"),
    "explain": ("--trades", "--before", "--after", "--out"),
    "serve": ("--market",),
    "solve": (),
}
_WORDS = (
    *("0", "-1", "1", "1e9", "2147483648", "9223372036854775807", "9223372036854775808"),
    *(
        "-9223372036854775809",
        "9" * 400,
        "1e400GiB",
        "nan",
        "0B",
        "1KiB",
        "1.5",
        "",
        ".",
        "/dev/null",
    ),
    *(
        "/dev/zero",
        "pipe",
        "/proc/self/environ",
        "no/such/file",
        "m.json/out",
        "a" * 300,
        "--",
        "-h",
    ),
)


_COMMANDS = (
    *("risk", "risk", "calibrate", "calibrate", "solve", "compare", "cache"),
    *("explain", "serve", "monitor", "validate"),
)


def command_line(random: random.Random) -> list[str]:
    """The words after `jaxtape`."""
    command = random.choice((*_COMMANDS, random.choice(_WORDS)))
    options = dict(_OPTIONS.get(command, {}))
    needed = _NEEDED.get(command, ())
    kept = {name: x for name, x in options.items() if name in needed or random.random() < 0.4}
    for name in random.sample(list(options), min(len(options), random.choice((0, 1, 1, 2)))):
        kept[name] = random.choice((*_WORDS, *TEXTS))
    words = [word for pair in kept.items() for word in pair]
    if command == "solve":
        words.append(random.choice(("allen-cahn", "all", *_WORDS, *TEXTS)))
    if command == "compare" and random.random() < 0.7:
        words.append(random.choice(("--list", "m.json:x", "json:dumps", *_WORDS, *TEXTS)))
    if command == "monitor":
        words.insert(0, random.choice(("out", "pipe", "m.json", *_WORDS, *TEXTS)))
    if command == "validate":
        words.append(
            random.choice(("european", "--list", "m.json:x", "json:dumps", *_WORDS, *TEXTS))
        )
    if command == "calibrate" and random.random() < 0.3:
        words = ["--market", random.choice(("q.csv", ".", "pipe")), "--out", "out"]
    if command == "cache":
        words += random.choice(([], ["--clear"], ["--info"], [random.choice((*_WORDS, *TEXTS))]))
    if words and random.random() < 0.1:
        words.insert(random.randrange(len(words)), random.choice((*_WORDS, *TEXTS)))
    if words and random.random() < 0.1:
        words.pop(random.randrange(len(words)))
    return [command, *words]
