"""Numbers in sentences, as command line, figures and files say them."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, unit: str, units: str | None = None) -> str:
    """So many of a unit, as in "1,200 sentences" and "1 sentence".

    Args:
        count: at least 0.
        units: the word for many, where that is not `unit` with an s.
    """
    return f"{count:,} {unit if count == 1 else units or f'{unit}s'}"


def tokens_in_words(count: int, added: Sequence[str]) -> str:
    """A count of tokens and which of them the tokenizer added, as in "461 tokens with <bos>".

    Args:
        added: pieces that the tokenizer put before the text.
    """
    return counted(count, "token") + (f" with {' '.join(added)}" if added else "")


def ends(low: float | None, high: float | None, form: str, joint: str = " to ") -> str:
    """Both ends of an interval; one unit, such as one scored token, has none.

    Args:
        form: format of a number, such as `+.3f`.
    """
    return "no interval" if low is None or high is None else f"{low:{form}}{joint}{high:{form}}"
