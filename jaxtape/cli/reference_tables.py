"""Read tables of known figures in TOML: a header with the source, and one line per value.

```toml
[[table]]
name = "European options of Haug"
source = "Haug (1998), p. 24"
constants = { expiry = 0.5, strike = 100 }
rows = '''
option  spot  vol   value
call    90    0.15  0.8069
call    90    0.25  2.7026
'''
```

A column with the name of a figure holds known figures; their tolerance is half a unit of the last printed
digit, or the `tolerance` of the table, which then gives the reason in `because`. The other columns, and the
`constants`, identify the contract. A table with `methods` is checked with each of them.
"""

import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from ..output_folder import read_bytes
from .check import Check, Source

_OF_A_TABLE = ("name", "source", "kind", "because", "left_out")
_KINDS = ("published", "computed")
_HALF_A_UNIT = 0.5 * (1.0 + 1e-9)  # with room for binary rounding


def read_tables(file: Traversable, figures: Collection[str]) -> list[Check]:
    r"""Return the checks of a file of tables, in file order, without values.

    Args:
        file: A TOML file.
        figures: The names of columns that hold figures.

    Returns:
        A check for every figure of every row and each of the table's `methods`.

    Raises:
        ValueError: If the file is malformed; the message names the file, the table and the row.

    Examples:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "halves.toml"
        >>> head = "[[table]]\nname = 'halves'\nsource = 'arithmetic'\n"
        >>> _ = path.write_text(head + "rows = '''\nof  value\n1   0.50\n'''")
        >>> [(x.name, x.reference, f"{x.tolerance:.3f}") for x in read_tables(path, {"value"})]
        [('of 1', 0.5, '0.005')]
    """
    try:
        content = read_bytes(file) if isinstance(file, Path) else file.read_bytes()
        heads = tomllib.loads(content.decode("utf-8")).get("table", [])
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file.name}: is not TOML: {error}") from error
    except RecursionError:
        raise ValueError(f"{file.name}: is not readable TOML: it is nested too deeply") from None
    if not (isinstance(heads, list) and heads and all(isinstance(head, dict) for head in heads)):
        raise ValueError(f"{file.name}: has no tables: begin each with [[table]]")
    found: list[Check] = []
    for head in heads:
        name = head.get("name", "a table without a name")
        try:
            _require_kinds(head)
            found += _checks(head, figures)
        except ValueError as error:
            raise ValueError(f"{file.name}, {name}: {error}") from error
    return found


def _require_kinds(head: Mapping[str, Any]) -> None:
    kinds: dict[str, tuple[Callable[[Any], bool], str]] = {
        **dict.fromkeys((*_OF_A_TABLE, "rows"), (_is_text, "text")),
        "methods": (_are_texts, "a list of at least one name"),
        "constants": (
            lambda x: _is_map(x, lambda y: isinstance(y, str | int | float)),
            "a table of numbers and words",
        ),
        "tolerance": (
            lambda x: _is_number(x) or _is_map(x, _is_number),
            "a number, or a table of them by figure",
        ),
    }
    for key, (holds, kind) in kinds.items():
        if key in head and not holds(head[key]):
            raise ValueError(f"{key} is {str(head[key])[:40]!r}: give {kind}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_text, value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_map(value: Any, holds: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(map(holds, value.values()))


def _checks(head: Mapping[str, Any], figures: Collection[str]) -> Iterator[Check]:
    source, tolerance = _source(head), head.get("tolerance")
    methods = head.get("methods", [""])
    columns, *rows = (line.split() for line in head["rows"].strip().splitlines())
    if twice := [column for column in dict.fromkeys(columns) if columns.count(column) > 1]:
        raise ValueError(f"has the column {twice[0]} twice: keep one of them")
    if not set(columns) & set(figures):
        raise ValueError(f"has no column of figures: name one of {', '.join(sorted(figures))}")
    constants = {name: str(value) for name, value in head.get("constants", {}).items()}
    for words in rows:
        if len(words) != len(columns):
            raise ValueError(
                f"{' '.join(words)}: has {len(words)} words for {len(columns)} columns"
            )
        cells = dict(zip(columns, words, strict=True))
        printed_figures = {figure: cells.pop(figure) for figure in columns if figure in figures}
        name = ", ".join(f"{column.replace('_', ' ')} {word}" for column, word in cells.items())
        for method in methods:
            for figure, printed in printed_figures.items():
                if printed == "-":
                    continue
                allowed = _tolerance(tolerance, figure, printed)
                known, of = float(printed), constants | cells
                yield Check(name, figure, known, allowed, source, of, method)


def _source(head: Mapping[str, Any]) -> Source:
    for name in ("name", "source", "rows"):
        if not str(head.get(name, "")).strip():
            raise ValueError(f"has no {name}: give one")
    kind = head.get("kind", "published")
    if kind not in _KINDS:
        raise ValueError(f"kind is {kind!r}: give one of {', '.join(_KINDS)}")
    if ("tolerance" in head) != ("because" in head):
        raise ValueError("tolerance and because belong together: give both or none")
    words = {name: " ".join(head.get(name, "").split()) for name in _OF_A_TABLE if name != "kind"}
    known = {*_OF_A_TABLE, "rows", "methods", "constants", "tolerance"}
    settings = {name: value for name, value in head.items() if name not in known}
    return Source(**words, is_published=kind == "published", settings=settings)


def _tolerance(given: Any, figure: str, printed: str) -> float:
    """Return the tolerance of a figure: the table's, or half a unit of the last printed digit.

    Raises:
        ValueError: If the figure is not a number.
    """
    own = given.get(figure) if isinstance(given, Mapping) else given
    try:
        exponent = int(Decimal(printed).as_tuple().exponent)
        usual = _HALF_A_UNIT * 10.0**exponent
    except (InvalidOperation, ValueError, OverflowError) as error:
        raise ValueError(f"{figure} is {printed[:40]!r}: give a number, or - for none") from error
    return usual if own is None else float(own)
