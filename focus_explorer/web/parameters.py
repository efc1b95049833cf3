"""Parameters of a request for a file, checked."""

from __future__ import annotations

from typing import Any

from focus_explorer.errors import InputError

Request = dict[str, Any]


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
