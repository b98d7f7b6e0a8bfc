"""Public functions and who calls them: arguments held to their annotations, and warnings at the line of the call."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def is_number(value: Any) -> bool:
    """Return whether this is a real number, which truth values and NumPy's durations are not although they say so."""
    return isinstance(value, Real) and not isinstance(value, bool) and type(value).__name__ != "timedelta64"


def is_integer(value: Any) -> bool:
    """Return whether this is an integer, in the same sense."""
    return isinstance(value, Integral) and is_number(value)


def is_by_name(value: Any) -> bool:
    """Return whether this is a mapping from names, and no Dataset."""
    return (
        isinstance(value, Mapping)
        and not hasattr(value, "dims")
        and all(isinstance(key, str) for key in value)
    )


#: By the name of a type in an annotation: how a message says it, and what is one.
KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "None": ("None", lambda x: x is None),
    "bool": ("True or False", lambda x: isinstance(x, bool) or type(x).__name__ in ("bool", "bool_")),
    "int": ("an integer", is_integer),
    "float": ("a number", is_number),
    "str": ("a text", lambda x: isinstance(x, str)),
    "Mapping": ("a mapping from names, such as {'x': …}", is_by_name),
    "Sequence": ("a list", lambda x: isinstance(x, Sequence)),
    "Iterable": ("a list", lambda x: isinstance(x, Iterable) and getattr(x, "ndim", 1) == 1),
}


def checked(function: Function) -> Function:
    """Return a function that refuses arguments whose type is none of its annotation, by their names.

    Only annotations whose types are all in the table are looked at: what is ``Any``, or a type of the package, the
    function looks at itself.
    """
    signature, kinds = inspect.signature(function), {}
    for name, parameter in signature.parameters.items():
        types = [part.partition("[")[0] for part in re.split(r" \| (?![^[]*\])", str(parameter.annotation))]
        if all(kind in KINDS for kind in types) and parameter.kind is not parameter.VAR_KEYWORD:
            kinds[name] = [KINDS[kind] for kind in types]

    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        for name in () if open_ended else kwargs.keys() - signature.parameters.keys():
            known = ", ".join(known for known in signature.parameters if known != "self")
            raise TypeError(f"{function.__name__}() has no argument {name!r}; it has {known}")
        given = dict(zip(signature.parameters, args, strict=False)) | kwargs
        for name in given.keys() & kinds.keys():
            if not any(is_one(given[name]) for _, is_one in kinds[name]):
                expected = " or ".join(text for text, _ in kinds[name])
                raise TypeError(f"{name}={brief(given[name])} has to be {expected}")
        return function(*args, **kwargs)

    return wrapper  # type: ignore[return-value]


def brief(value: Any) -> str:
    """Return a value on one line for a message: its text, or its type where that is long."""
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else type(value).__name__


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the line of code that led here: outside xspline, and what calls functions of it."""
    frame, level = sys._getframe(1), 2
    ours = "xspline", "numba", "contextlib", "functools"
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ours:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


class NotAnArray:
    """Objects that NumPy does not add up with arrays, element by element."""

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        raise self.unlike("an array")

    def unlike(self, other: Any) -> TypeError:
        """Return the error of ``+`` or ``-`` with another kind of object."""
        what = other if isinstance(other, str) else type(other).__name__
        return TypeError(f"{type(self).__name__} goes with its own kind only under + and -, not with {what}")
