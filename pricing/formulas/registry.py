"""The closed forms, each for one kind of product."""

from ..products import AbstractProduct
from .cap import CAP
from .cms import CMS_COUPON
from .formula import Formula
from .lookback import LOOKBACK
from .path_dependent import AVERAGE_STRIKE, CLIQUET, FORWARD_START
from .spread import SPREAD
from .variance import VARIANCE_SWAP

FORMULAS: tuple[Formula, ...] = (
    LOOKBACK,
    FORWARD_START,
    CLIQUET,
    AVERAGE_STRIKE,
    VARIANCE_SWAP,
    SPREAD,
    CAP,
    CMS_COUPON,
)


def formula_of(product: AbstractProduct) -> Formula | None:
    """Return the closed form of the product's kind, or None."""
    return next((found for found in FORMULAS if isinstance(product, found.product)), None)
