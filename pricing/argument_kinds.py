"""Checks that the arguments of a function are objects of the right class."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

Kind = Any  # a class, or a tuple of classes


def check_kind(name: str, value: Any, kind: Kind, remedy: str) -> None:
    """Check that an argument is an object of a class.

    Args:
        name: The name of the argument in the error.
        value: The argument's value.
        kind: The class of such objects, or several classes.
        remedy: The object to give instead, such as "a model, such as Heston(...)".

    Raises:
        TypeError: The value is of another class, or is a class instead of an object.
    """
    if isinstance(value, kind):
        return
    if isinstance(value, type):
        given = f"the class {value.__name__}"
        if issubclass(value, kind):
            remedy = f"an object of it, {value.__name__}(...)"
    else:
        given = repr(value) if isinstance(value, str | int | float) else f"a {type(value).__name__}"
    raise TypeError(f"{name} is {given}: give {remedy}")


def of_kinds(**kinds: tuple[Kind, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that checks arguments; an argument whose default is None may be None.

    Args:
        kinds: Argument -> its class or classes, and the object to give instead.

    Returns:
        A decorator. The decorated function raises TypeError like `check_kind`, and shows the order of
        arguments.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters
        places = (p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD)
        names = tuple(places)
        order = f"{function.__name__}({', '.join(names)}, ...)"
        optional = {name for name in kinds if parameters[name].default is None}

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for name, value in (*zip(names, args, strict=False), *kwargs.items()):
                if name in kinds and not (value is None and name in optional):
                    kind, remedy = kinds[name]
                    check_kind(name, value, kind, f"{remedy}, as in {order}")
            return function(*args, **kwargs)

        return checked

    return decorate
