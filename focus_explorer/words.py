"""Numbers in sentences, as command line, figures and files say them."""

from __future__ import annotations


def ends(low: float | None, high: float | None, form: str, joint: str = " to ") -> str:
    """Both ends of an interval; one unit, such as one scored token, has none.

    Args:
        low: lower end.
        high: upper end.
        form: format of a number, such as `+.3f`.
        joint: between the two.
    """
    return "no interval" if low is None or high is None else f"{low:{form}}{joint}{high:{form}}"
