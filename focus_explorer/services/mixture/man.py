"""The running text of manual pages written with the man macros.

A small part of roff, enough for the pages of this mixture: macros that shape text are followed, definitions, conditions
and tables are left out. Pages written with the mdoc macros are not read.
"""

from __future__ import annotations

import re

SPECIAL = {
    "aq": "'", "bu": "•", "co": "©", "cq": "’", "dq": '"', "em": "—", "en": "–", "ga": "`", "ha": "^", "hy": "-",
    "lq": "“", "mi": "-", "mu": "×", "oq": "‘", "rq": "”", "rs": "\\", "ti": "~", "->": "→", "<-": "←", "+-": "±",
    ">=": "≥", "<=": "≤", "!=": "≠", "==": "≡", "de": "°", "R": "®", 'L"': '"', 'R"': '"', "C+": "C++", "--": "—",
    "PI": "π", "Aq": "'", "C`": '"', "C'": '"', "Tm": "™", "t+-": "±", "12": "½", "ss": "ß", "sq": "'", "if": "∞",
    "la": "⟨", "ra": "⟩", "lB": "[", "rB": "]", "lC": "{", "rC": "}", "sl": "/", "ul": "_", "at": "@", "sh": "#",
    "Do": "$", "ba": "|", "br": "|", "or": "|", "eq": "=", "pl": "+", "Fo": "«", "Fc": "»", "S": "", "Im": "ℑ",
}  # fmt: skip
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
_ENDS = {"PP", "P", "LP", "sp", "HP", "RS", "RE", "br", "Sp"}


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
    def __init__(self) -> None:
        self.blocks: list[str] = []
        self._words: list[str] = []
        self._verbatim = False
        self._tag = False  # the next line is the term of a list

    def line(self, line: str) -> None:
        if line[:1] not in (".", "'"):
            self._add(unescape(line))
            return
        name = _macro(line)
        words = [unescape(word) for word in _arguments(line[line.find(name) + len(name) :])] if name else []
        if name in ("SH", "SS"):
            self._end()
            self._verbatim = False
            self._add(" ".join(words))
            if words:
                self._end()
        elif name == "TP":
            self._end()
            self._tag = True
        elif name == "IP":
            self._end()
            if words and words[0].strip():
                self._words.append(words[0] + " " if words[0] in "•-*o" else words[0])
                if words[0] not in "•-*o":
                    self._words.append("\n")
        elif name in ("nf", "EX", "Vb"):
            self._end()
            self._verbatim = True
        elif name in ("fi", "EE", "Ve"):
            self._end()
            self._verbatim = False
        elif name in _ENDS:
            if self._verbatim:
                self._words.append("\n" if name in ("sp", "PP", "P", "LP") else "")
            else:
                self._end()
        elif name in _ALTERNATING:
            self._add("".join(words))
        elif name in _JOINED:
            self._add(" ".join(words))
        elif name == "OP":
            self._add(f"[{' '.join(words)}]")
        elif name in ("UR", "MT", "URL"):
            self._add(words[0] if words else "")
        elif name in ("UE", "ME", "SY", "YS", "TQ") and words:
            self._add(words[0])

    def text(self) -> str:
        self._end()
        return "\n\n".join(self.blocks)

    def _add(self, text: str) -> None:
        if not text.strip() and not self._verbatim:
            self._end()
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
