"""Numbers as text: with their unit, interval and sign."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

Row = Mapping[str, Any]
DASH = "–"
PARTS_OF_SPEECH = {
    "ADJ": "adjective",
    "ADP": "preposition",
    "ADV": "adverb",
    "AUX": "auxiliary verb",
    "CCONJ": "conjunction",
    "DET": "determiner",
    "INTJ": "interjection",
    "NOUN": "noun",
    "NUM": "number",
    "PART": "particle",
    "PRON": "pronoun",
    "PROPN": "name",
    "PUNCT": "punctuation",
    "SCONJ": "subordinating conjunction",
    "SYM": "symbol",
    "VERB": "verb",
    "X": "other",
    "SPACE": "space",
}


def count(value: float | None) -> str:
    """1,234."""
    return DASH if value is None else f"{value:,.0f}"


def percent(value: float | None, digits: int = 1) -> str:
    """12.3%."""
    return DASH if value is None else f"{value:.{digits}%}"


def number(value: float | None, digits: int = 3) -> str:
    """0.123, with a real minus sign."""
    return DASH if value is None else _minus(f"{value:.{digits}f}")


def signed(value: float | None, digits: int = 3) -> str:
    """+0.123."""
    return DASH if value is None else _minus(f"{value:+.{digits}f}")


def signed_percent(value: float, digits: int = 2) -> str:
    """+1.23%."""
    return _minus(f"{value:+.{digits}%}")


def between(low: float | None, high: float | None, digits: int = 3, *, share: bool = False, sign: bool = False) -> str:
    """0.10 to 0.20; "" without both ends.

    Args:
        low: lower end.
        high: upper end.
        digits: after the point.
        share: as percent.
        sign: with a plus in front of positive numbers; not with `share`.
    """
    if low is None or high is None:
        return ""
    if share:
        return f"{low:.{digits}%} to {high:.{digits}%}"
    return " to ".join((signed if sign else number)(value, digits) for value in (low, high))


def milliseconds(value: float) -> str:
    """With one decimal below 100."""
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def category(tag: str) -> str:
    """A part of speech in words; other categories as they are."""
    return PARTS_OF_SPEECH.get(tag, tag)


def piece(text: str) -> str:
    """A token on one line: spaces in front as they are, breaks as an arrow."""
    shown = text.replace("\n", "↵").replace("\t", "⇥").replace("\r", "")
    return shown if shown.strip() else shown.replace(" ", "␣")


def speed(stage: str, full: Row, focus: Row) -> str:
    """Which mode is faster at one stage; undecided where the repeats overlap.

    Args:
        stage: its title.
        full: median, low, high and repeats of full attention.
        focus: the same of Focus.
    """
    ratio = focus["median"] / full["median"]
    if full["repeats"] < 2 or focus["repeats"] < 2:
        return f"{stage}: {ratio:.2f} times full attention’s time, measured once each, so this says little."
    if focus["high"] < full["low"]:
        return f"{stage}: Focus is faster, {full['median'] / focus['median']:.2f} times as fast by medians."
    if focus["low"] > full["high"]:
        return f"{stage}: Focus is slower, taking {ratio:.2f} times as long by medians."
    return f"{stage}: the repeats overlap, so neither is called faster ({ratio:.2f} times full attention’s time)."


def loss(difference: Row) -> str:
    """The conclusion that a loss difference and its interval allow."""
    if difference["low"] is None or difference["high"] is None:
        return "One scored token has no interval: this text does not tell the two apart."
    if difference["low"] > 0:
        return "Focus predicts this text worse than full attention does."
    if difference["high"] < 0:
        return "Focus predicts this text better than full attention does."
    return "The interval includes zero: this text does not tell the two apart."


def warm_up(devices: Collection[str]) -> str:
    """What comes before the timed passes, by the devices that were timed."""
    from focus_runtime.measure.timing import WARM_UP_TOKENS

    gpu = any("cuda" in device for device in devices)
    on_cpu = [device.startswith("cpu") for device in devices]
    beginning, whole = f"its first {WARM_UP_TOKENS} tokens", "all of it"
    read = beginning if all(on_cpu) else f"{beginning} (on a GPU all of it)" if any(on_cpu) else whole
    stages = " Attention layers alone are timed on a GPU in another pass just before." if gpu else ""
    return f"one pass of each over {read} to warm up.{stages}"


def learned(gain: Row, trained: bool) -> str:
    """What an advantage over random centroids allows to conclude.

    Args:
        gain: mutual information of groups and categories beyond that of random centroids; its ends are None where the
            text has too few sentences for an interval.
        trained: whether the run's own centroids were trained.
    """
    if gain["low"] is None or gain["high"] is None:
        return "whether that is more than chance cannot be told without one."
    if not trained:
        return "this run’s centroids are random ones too, so a difference is that of two draws."
    if gain["low"] > 0:
        return "training found categories beyond those the model’s hidden states show by themselves."
    if gain["high"] < 0:
        return "less than untrained centroids find."
    return "not clearly more than untrained centroids find."


def joined(words: list[str]) -> str:
    """a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def _minus(text: str) -> str:
    return text.replace("-", "−")
