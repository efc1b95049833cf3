"""Letters of groups, as on the screen."""

from __future__ import annotations

import re

from focus_runtime.errors import ConfigError


def group_label(index: int) -> str:
    """A, B, ... Z, AA, AB, ..."""
    letters = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def group_number(label: str) -> int:
    """The group of a letter, or of a number counted from 0.

    Raises:
        ConfigError: it is neither.
    """
    if label.isascii() and label.isdecimal():
        return int(label)
    if not re.fullmatch("[A-Za-z]+", label):
        raise ConfigError(f"{label!r} is no group", expected="a letter such as B, or a number counted from 0")
    number = 0
    for letter in label.upper():
        number = 26 * number + ord(letter) - 64
    return number - 1
