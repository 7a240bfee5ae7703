"""Models of several assets, joined from single-asset models."""

from collections.abc import Sequence

from .model import AbstractEquityModel, Joinable
from .shapes import Correlation


def joined(
    models: Sequence[AbstractEquityModel], asset_correlation: Correlation
) -> AbstractEquityModel:
    """Return one model of several assets from single-asset models of one type, on one curve.

    Args:
        models: The models, of a single `Joinable` type.
        asset_correlation: The correlation of the log-spots, of shape (assets, assets); under Heston, that of
            their residual drivers.

    Returns:
        A model of that type.

    Raises:
        TypeError: The models are of several types, or of a type that cannot be joined.
    """
    kinds = {type(model) for model in models}
    kind = next(iter(kinds))
    if len(kinds) > 1 or not issubclass(kind, Joinable):
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise TypeError(
            f"models of {names} cannot be joined: give models of one type that is Joinable, such as Heston or "
            "BlackScholes"
        )
    return kind.joined(models, asset_correlation)
