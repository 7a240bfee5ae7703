"""Validation with a pydantic model that returns mistakes as a list instead of raising."""

from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from .errors import show
from .field_types import closest

Record = TypeVar("Record", bound=BaseModel)

_WANTED = {
    "list_type": ("a list", "give a list in square brackets"),
    "model_type": ("an object", "give an object in braces"),
    "dict_type": ("an object", "give an object in braces"),
    "string_type": ("a text", "give a text in quotes"),
}
_CONSEQUENCE = "default_factory_not_called"  # a default computed from a field that has a problem


@dataclass(frozen=True)
class ValidationIssue:
    """A mistake: the path from the validated value to the wrong one, its text, the message and the remedy."""

    path: tuple[str | int, ...]
    value: str
    message: str
    remedy: str


def validate(
    model: type[Record], data: object, **context: object
) -> tuple[Record | None, tuple[ValidationIssue, ...]]:
    """Return the record, or None and the problems; `context` is the context of the validators."""
    try:
        return model.model_validate(data, context=context), ()
    except ValidationError as error:
        details = (detail for detail in error.errors() if detail["type"] != _CONSEQUENCE)
        return None, tuple(_problem(model, data, detail) for detail in details)


def _problem(model: type[BaseModel], data: object, detail: ErrorDetails) -> ValidationIssue:
    context = detail.get("ctx", {})
    path = (*detail["loc"], *context.get("path", ()))
    last = str(path[-1]) if path else ""
    if detail["type"] == "input":
        message, remedy = context["message"], context["remedy"]
    elif detail["type"] == "missing":
        description = _owner(model, path).model_fields[last].description
        message, remedy = "is missing", f"give {description}"
    elif detail["type"] == "extra_forbidden":
        known = _owner(model, path).model_fields
        message = "is not a known field"
        remedy = f"{closest(last, known)}the fields are {', '.join(known)}"
    else:
        unnamed = detail["msg"], "see the formats in docs/data.md and docs/trades.md"
        wanted, remedy = _WANTED.get(detail["type"], unnamed)
        message = f"{show(detail['input'])} is not {wanted}"
    value = "" if detail["type"] == "missing" else show(_at(data, path))
    return ValidationIssue(path, value, message, remedy)


def _owner(model: type[BaseModel], path: tuple[str | int, ...]) -> type[BaseModel]:
    """Return the nested model that holds the last field of a path."""
    for part in path[:-1]:
        field = model.model_fields.get(str(part))
        annotation = field and field.annotation
        kinds = get_args(annotation) or (annotation,)  # an optional field is a union
        models = (k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel))
        model = next(models, model)
    return model


def _at(data: Any, path: tuple[str | int, ...]) -> object:
    """Return the value at a path, or its nearest ancestor present."""
    for part in path:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            break
    return data
