"""The fields of trades on several equities: names separated by bars, and weights."""

from pydantic import field_validator

from ..ingestion.field_types import problem
from .trade import Trade, check_count, split_names


class SeveralEquities(Trade):
    """A trade on two or more equities, whose names are separated by bars, such as DAX|SX5E."""

    @property
    def underlyings(self) -> tuple[str, ...]:
        return split_names(self.underlying)

    @property
    def level(self) -> None:
        return None

    @field_validator("underlying", mode="after")
    @classmethod
    def _are_several(cls, value: str) -> str:
        names = split_names(value)
        if len(names) < 2:
            remedy = "give two or more equities, such as DAX|SX5E"
            raise problem(f"{value!r} is not a {cls.type}", remedy)
        return "|".join(names)

    def check(self) -> None:
        check_count(getattr(self, "weights", None), self.underlyings, "weights", "equities")
