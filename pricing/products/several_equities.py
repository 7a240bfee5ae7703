"""The fields of trades on several equities: names with bars between them, and a weight for each."""

from pydantic import field_validator

from ..ingestion.fields import problem
from .trade import Trade, check_count, split_names


class SeveralEquities(Trade):
    """A trade on two equities or more, whose names have bars between them, such as DAX|SX5E."""

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
            remedy = "give two equities or more, such as DAX|SX5E"
            raise problem(f"{value!r} is no {cls.type}", remedy)
        return "|".join(names)

    def check(self) -> None:
        check_count(getattr(self, "weights", None), self.underlyings, "weights", "equities")
