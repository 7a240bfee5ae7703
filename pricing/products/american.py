"""American calls and puts."""

from jaxtyping import Array, Float, Int8

from ..fields import choice, positive, time
from .product import CALL_OR_PUT, AbstractProduct, side_of


class American(AbstractProduct):
    """Pays side * (S - strike) when its holder exercises, at any time up to expiry; side = +1 call, -1 put.

    strike: units of the spot; expiry: years; option: "call" or "put".
    """

    strike: Float[Array, "..."] = positive("strike")
    expiry: Float[Array, "..."] = time("expiry")
    option: Int8[Array, "..."] = choice("option", CALL_OR_PUT, default="put")

    @property
    def side(self) -> Float[Array, "..."]:
        return side_of(self.option, self.strike)

    @property
    def vol_at(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        return self.expiry, self.strike
