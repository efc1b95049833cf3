"""The running text of manual pages written with the man macros.

A small part of roff, enough for the pages of this mixture: macros that shape text are followed, definitions, conditions
and tables are left out. Pages written with the mdoc macros are not read.
"""

from __future__ import annotations

import re

_SPECIAL = r"""
aq '   bu •   co ©   cq ’   dq "   em —   en –   ga `   ha ^   hy -   lq “   mi -   mu ×   oq ‘   rq ”   rs \
ti ~   -> →   <- ←   +- ±   >= ≥   <= ≤   != ≠   == ≡   de °   R ®   L" "   R" "   C+ C++   -- —   PI π   Aq '
C` "   C' "   Tm ™   t+- ±   12 ½   ss ß   sq '   if ∞   la ⟨   ra ⟩   lB [   rB ]   lC {   rC }   sl /   ul _
at @   sh #   Do $   ba |   br |   or |   eq =   pl +   Fo «   Fc »   Im ℑ
"""
SPECIAL = dict(zip(_SPECIAL.split()[::2], _SPECIAL.split()[1::2], strict=True)) | {"S": ""}
_ESCAPE = re.compile(
    r"""\\(?:
      f(?:\[[^\]]*\]|\(..|.)          # fonts
    | m(?:\[[^\]]*\]|\(..|.)          # colours
    | s(?:[+-]?\d{1,2}|\[[^\]]*\]|[+-]?'[^']*')  # sizes
    | [hvwlLDoXZbN]'(?P<drawn>[^']*)'  # movements and drawings
    | [*]?\[(?P<long>[^\]]*)\] | [*]?\((?P<two>..) | [*](?P<one>.)  # named characters and strings
    | (?P<char>.)
    | $)""",
    re.VERBOSE,
)
_CHARACTERS = {"e": "\\", "\\": "\\", "-": "-", "'": "´", "`": "`", " ": " ", "~": " ", "0": " ", "t": "\t", ".": "."}
_ALTERNATING = {"BI", "IB", "BR", "RB", "IR", "RI"}
_JOINED = {"B", "I", "SM", "SB", "R", "CW"}
_FIRST_WORD = {"UR", "UE", "MT", "ME", "URL", "SY"}
_BULLETS = {"•", "-", "*", "o"}
_PARAGRAPHS = {"PP", "P", "LP", "sp"}
_HEADINGS = {"SH", "SS"}
_LISTINGS = {"nf", "EX", "Vb"}
_ENDS = _PARAGRAPHS | {"HP", "RS", "RE", "br", "Sp"}  # of a paragraph, not of a listing
_BEGINS = _HEADINGS | _LISTINGS | {"fi", "EE", "Ve", "TP", "TQ", "IP"}


def text_of(page: str) -> str | None:
    """Text of a page, or None where it refers to another page or is written with other macros."""
    lines = page.splitlines()
    if any(re.match(r"\.(so|Dd|mso)\b", line) for line in lines) or not any(line.startswith(".SH") for line in lines):
        return None
    reader = _Reader()
    for line in _followed(lines):
        reader.line(line)
    return reader.text()


def _followed(lines: list[str]) -> list[str]:
    """The lines without definitions, tables and comments, and with continued lines joined."""
    kept: list[str] = []
    until, whole = "", ""
    for part in lines:
        line = re.sub(r'(^|[^\\])\\["#].*', r"\1", whole + part)
        if re.search(r"(?<!\\)(\\\\)*\\$", line):
            whole = line[:-1]
            continue
        whole = ""
        name = _macro(line)
        if until:
            until = "" if name == until else until
        elif name in ("de", "de1", "am", "ig"):
            until = (re.sub(r"^['.]\s*", "", line).split()[2:3] or ["."])[0]
        elif name in ("TS", "EQ", "PS"):
            until = {"TS": "TE", "EQ": "EN", "PS": "PE"}[name]
        elif line or not part:  # no line that was a comment alone
            kept.append(line)
    return kept


def _macro(line: str) -> str:
    found = re.match(r"['.][ \t]*([^\s\\]*)", line)
    return found[1] if found else ""


class _Reader:
    """Collects blocks of text: paragraphs, terms with their explanations, listings."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self._words: list[str] = []
        self._verbatim = False
        self._tag = False  # the next line is the term of a list

    def line(self, line: str) -> None:
        """Read a line of text or a macro with its arguments."""
        if line[:1] not in (".", "'"):
            if not line.strip() and not self._verbatim:
                self._end()
            self._add(unescape(line))
            return
        name = _macro(line)
        words = [unescape(word) for word in _arguments(line[line.find(name) + len(name) :])] if name else []
        if name in _ALTERNATING:
            self._add("".join(words))
        elif name in _JOINED:
            self._add(" ".join(words))
        elif name in _FIRST_WORD:
            self._add("".join(words[:1]))
        elif name == "OP":
            self._add(f"[{' '.join(words)}]")
        elif name in _BEGINS:
            self._end()
            self._begin(name, words)
        elif name in _ENDS and self._verbatim:
            self._words.append("\n" if name in _PARAGRAPHS else "")
        elif name in _ENDS:
            self._end()

    def _begin(self, name: str, words: list[str]) -> None:
        self._verbatim = name in _LISTINGS
        if name in _HEADINGS and words:
            self._add(" ".join(words))
            self._end()
        elif name in ("TP", "TQ"):
            self._tag = True
        elif name == "IP" and words and words[0].strip():
            bullet = words[0] in _BULLETS
            self._words += [words[0], " " if bullet else "\n"]

    def text(self) -> str:
        self._end()
        return "\n\n".join(self.blocks)

    def _add(self, text: str) -> None:
        if not text.strip() and not self._verbatim:
            return
        if self._verbatim:
            self._words.append(text + "\n")
        elif self._tag:
            self._words.append(text + "\n")
            self._tag = False
        else:
            self._words.append(text.strip() + " ")

    def _end(self) -> None:
        text = "".join(self._words)
        self._words.clear()
        self._tag = False
        if self._verbatim:
            text = re.sub(r"\n{3,}", "\n\n", text).strip("\n").rstrip()
        else:
            text = "\n".join(" ".join(line.split()) for line in text.split("\n")).strip()
        if text:
            self.blocks.append(text)


def _arguments(rest: str) -> list[str]:
    """Arguments of a macro: words, or what stands between double quotes."""
    found = re.findall(r'"((?:[^"]|"")*)"?|((?:\\ |\S)+)', rest)
    return [plain if plain else quoted.replace('""', '"') for quoted, plain in found]


def unescape(text: str) -> str:
    """The text with roff's escapes replaced by characters."""
    return _ESCAPE.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    name = found["long"] or found["two"] or found["one"]
    if name is not None:
        if re.fullmatch(r"u[0-9A-Fa-f]{4,6}", name):
            return chr(int(name[1:], 16))
        return SPECIAL.get(name, "")
    return _CHARACTERS.get(found["char"] or "", "")
