"""Arguments of the API's functions, which come from programs as any JSON, checked against their annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from focus_explorer.errors import InputError

WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
    int | None: "a whole number, or null",
}
# Numbers that the database and JSON can hold; a text may not hold the halves of a pair of UTF-16.
_WHOLE = Annotated[int, Field(strict=True, ge=-(2**53), le=2**53)]
_LIMITS: dict[Any, Any] = {
    int: _WHOLE,
    int | None: _WHOLE | None,
    float: Annotated[float, Field(strict=True, allow_inf_nan=False)],
    str: Annotated[str, Field(strict=True)],
    bool: Annotated[bool, Field(strict=True)],
}


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with an InputError that names an argument of another type than its annotation says."""
    signature = inspect.signature(function, eval_str=True)
    adapters = {
        name: TypeAdapter(_LIMITS.get(parameter.annotation, parameter.annotation))
        for name, parameter in signature.parameters.items()
        if parameter.annotation is not inspect.Parameter.empty
    }

    @wraps(function)
    def with_checks(*values: Any, **named: Any) -> Any:
        bound = signature.bind(*values, **named)
        for name, value in bound.arguments.items():
            if name in adapters:
                bound.arguments[name] = _value(name, value, adapters[name], signature.parameters[name].annotation)
        return function(*bound.args, **bound.kwargs)

    return with_checks


def _value(name: str, value: Any, adapter: TypeAdapter[Any], annotation: Any) -> Any:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        shown = repr(value)
        raise InputError(
            f"{name} is {shown if len(shown) <= 60 else shown[:59] + '…'}",
            expected=WORDS.get(annotation) or error.errors()[0]["msg"],
        ) from error
