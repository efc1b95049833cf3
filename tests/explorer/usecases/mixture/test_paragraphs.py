"""Clean characters, and paragraphs that are compared and cut."""

from __future__ import annotations

from focus_explorer.usecases.mixture.paragraphs import clean, first_bytes, key, keys, without_known

LONG = "A paragraph that is long enough to be compared with the paragraphs of other texts."
OTHER = "Another paragraph that is long enough to be compared, and that no other text has at all."


def test_line_ends_control_characters_and_many_blank_lines_are_cleaned():
    assert clean("\ufeffone \r\ntwo\u00a0three\x07\t\n\n\n\n\n  four\f") == "one\ntwo three\n\n\n  four"
    assert clean("indented:\n\n    code\n") == "indented:\n\n    code"
    assert clean("\n\n    code\n") == "    code"


def test_paragraphs_are_compared_without_white_space_and_short_ones_are_not():
    assert key(LONG) == key(LONG.replace(" ", "\n  "))
    assert key(LONG) != key(OTHER)
    assert key("Contents") is None


def test_known_paragraphs_are_dropped_and_the_rest_keeps_its_layout():
    text = f"Title\n\n{LONG}\n\n\n    {OTHER}\n\nTitle\n"
    assert without_known(text, keys(LONG)) == (f"Title\n\n    {OTHER}\n\nTitle", 1)
    assert without_known(text, keys("Title")) == (text.strip("\n"), 0)
    assert without_known(LONG, keys(LONG)) == ("", 1)


def test_the_first_paragraphs_are_whole_and_at_most_as_many_bytes():
    text = "eins\n\nzwölf\n\n\ndrei"
    assert first_bytes(text, 100) == text
    assert first_bytes(text, len("eins\n\nzwölf".encode())) == "eins\n\nzwölf"
    assert first_bytes(text, len("eins\n\nzwölf".encode()) - 1) == "eins"
    assert first_bytes("one paragraph alone", 3) == "one paragraph alone"
