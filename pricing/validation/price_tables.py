"""The groups of reference values of the library's models and products."""

from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable

from jaxtape.cli.check import Check, Group
from jaxtape.cli.reference_tables import read_tables

_TABLES = files("pricing.validation") / "tables"
FIGURES = frozenset({"value", "delta", "gamma", "vega", "theta", "rho", "vanna", "volga"})


def of_tables(title: str, file: Traversable) -> Group:
    r"""Return the group of a file of tables whose rows are contracts.

    Args:
        title: The title of the group.
        file: A TOML file (`jaxtape.cli.reference_tables`). Each table names a `product` and a
            `model`; its columns and constants are their arguments, or figures: value, delta, gamma, vega,
            theta, rho, vanna and volga, by the units of `pricing.Greeks`.

    Returns:
        The group, for an entry point of `jaxtape.validated` or for `jaxtape validate FILE.py:NAME`.

    Examples:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "calls.toml"
        >>> head = "[[table]]\nname = 'a call'\nsource = 'Black and Scholes'\n"
        >>> kinds = "product = 'European'\nmodel = 'BlackScholes'\n"
        >>> rows = "strike expiry spot rate vol value\n100 1 100 0.05 0.2 10.45\n"
        >>> _ = path.write_text(f"{head}{kinds}rows = '''\n{rows}'''")
        >>> [known.name for known in of_tables("Calls", path).checks()]
        ['strike 100, expiry 1, spot 100, rate 0.05, vol 0.2']
    """
    return Group(title, partial(read_tables, file, FIGURES), _contracts)


def _contracts(checks: Sequence[Check]) -> Sequence[Check]:
    from .price_checks import find

    return find(checks)


european = of_tables("European options and digitals", _TABLES / "european.toml")
barriers = of_tables("Barriers", _TABLES / "barriers.toml")
american = of_tables("Early exercise", _TABLES / "american.toml")
averages = of_tables("Averages and baskets", _TABLES / "averages.toml")
exotics = of_tables("Lookbacks, touches, forward starts and exchanges", _TABLES / "exotics.toml")
heston = of_tables("Heston and Bates", _TABLES / "heston.toml")
rates = of_tables("Swaps, swaptions, caps and CMS coupons", _TABLES / "rates.toml")
