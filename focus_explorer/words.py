"""Numbers in sentences, as command line, figures and files say them."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, unit: str, units: str | None = None) -> str:
    """A number with its unit, as in "1,200 sentences" and "1 sentence"; `units` is the plural, if not `unit` plus s."""
    return f"{count:,} {unit if count == 1 else units or f'{unit}s'}"


def tokens_in_words(count: int, added: Sequence[str]) -> str:
    """A count of tokens and which of them the tokenizer added, as in "461 tokens with <bos>"."""
    return counted(count, "token") + (f" with {' '.join(added)}" if added else "")


def ends(low: float | None, high: float | None, form: str) -> str:
    """Both ends of an interval, in a format such as `+.3f`; one unit, such as one scored token, has none."""
    return "no interval" if low is None or high is None else f"{low:{form}} to {high:{form}}"
