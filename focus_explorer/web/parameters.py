"""Parameters of a request, checked: what the page sends is as untrusted as any other input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from focus_explorer.errors import InputError

Request = dict[str, Any]
Payload = Mapping[str, Any]  # one of focus_explorer.views.payloads


LARGEST = 2**53  # up to which JSON's numbers are exact


def check_values(value: Any) -> None:
    """Refuse what JSON can say and nothing here can use, wherever it stands in a request.

    Raises:
        InputError: a text with half of a surrogate pair, a number that is none, or one too large.
    """
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InputError("the request has half of a surrogate pair in a text", expected="valid Unicode") from error
    elif isinstance(value, dict):
        for key, inner in value.items():
            check_values(key)
            check_values(inner)
    elif isinstance(value, list):
        for inner in value:
            check_values(inner)
    elif isinstance(value, int | float) and not abs(value) <= LARGEST:
        raise InputError("the request has a number that is too large, or none", expected="numbers up to 2^53")


def run_of(request: Request, name: str = "run") -> str:
    """A run's id; whether there is such a run is checked by the use case."""
    return str(request.get(name))


def layer_of(request: Request) -> int:
    """A layer number.

    Raises:
        InputError: it is none.
    """
    layer = request.get("layer")
    if not isinstance(layer, int) or isinstance(layer, bool):
        raise InputError(f"the layer is {layer!r}", expected="a layer number")
    return layer


def number(request: Request, name: str, default: float | None = None) -> float:
    """A number.

    Args:
        request: sent by the page.
        name: of the parameter.
        default: where it is missing.

    Raises:
        InputError: it is none.
    """
    value = request.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name} is {value!r}", expected="a number")
    return value


def whole_number(request: Request, name: str, default: int | None = None) -> int:
    """A whole number.

    Args:
        request: sent by the page.
        name: of the parameter.
        default: where it is missing.

    Raises:
        InputError: it is none.
    """
    value = request.get(name, default)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name} is {value!r}", expected="a whole number")
    return value


def whole_numbers(request: Request, name: str) -> list[int]:
    """A list of whole numbers.

    Raises:
        InputError: it is none.
    """
    values = request.get(name)
    if not isinstance(values, list):
        raise InputError(f"{name} is {values!r}", expected="whole numbers")
    return [whole_number({name: value}, name) for value in values]


def words(request: Request, name: str) -> list[str]:
    """A list of texts.

    Raises:
        InputError: it is none.
    """
    values = request.get(name)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InputError(f"{name} is {values!r}", expected="a list of texts")
    return values


def span(request: Request, name: str) -> tuple[int, int]:
    """First and one past the last token, from [first, last].

    Raises:
        InputError: it is not a pair of whole numbers.
    """
    value = request.get(name)
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(end, int) for end in value):
        raise InputError(f"{name} is {value!r}", expected="first and last token")
    return value[0], value[1] + 1


def one_of(request: Request, name: str, known: Any) -> str:
    """One of the known values.

    Args:
        request: sent by the page.
        name: of the parameter.
        known: the values.

    Raises:
        InputError: it is none of them.
    """
    value = request.get(name)
    if not isinstance(value, str) or value not in known:
        raise InputError(f"there is no {name} {value!r}", expected=" or ".join(known))
    return value
