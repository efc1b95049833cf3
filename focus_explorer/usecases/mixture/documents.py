"""From the files of a package to one text: a reader for each kind of file."""

from __future__ import annotations

import gzip
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import PurePosixPath

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


def man_page_text(page: str) -> str | None:
    """Text of a page, or None where it refers to another page or is written with other macros."""
    lines = page.splitlines()
    if any(re.match(r"\.(so|Dd|mso)\b", line) for line in lines) or not any(line.startswith(".SH") for line in lines):
        return None
    reader = _ManReader()
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


class _ManReader:
    """Collects blocks of text: paragraphs, terms with their explanations, listings."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self._words: list[str] = []
        self._verbatim = False
        self._tag = False  # the next line is the term of a list

    def line(self, line: str) -> None:
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


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


BLOCKS = _names(
    "address article blockquote body caption center chapter dd div dl dt figcaption figure form h1 h2 h3 h4 h5 h6 hr "
    "html l lb lg li main ol p pre section title ul verse"
)
VOID = _names("area base br col embed hr img input link meta source track wbr")
SKIPPED = _names("button footer form head header nav note noscript script select style svg table textarea")
SKIPPED_CLASSES = _names(  # of Publican, DocBook and Sphinx
    "docnav footer headerlink index language_switcher_placeholder list-of-examples list-of-figures list-of-tables "
    "navfooter navheader navigation navlinks related revhistory sphinxsidebar table toc toctree-wrapper"
)
SKIPPED_IDS = _names("banner footer navigation title")


class _MarkupReader(HTMLParser):
    """Collects paragraphs; what stands in `pre` keeps its lines."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.paragraphs: list[str] = []
        self._words: list[str] = []
        self._bullet = ""
        self._skipped = ""  # name of the outermost element that is left out
        self._depth = 0  # elements of that name that are open
        self._verbatim = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._skipped:
            self._depth += tag == self._skipped
            return
        if tag == "br":
            self._words.append("\n" if self._verbatim else " ")
        if tag in VOID:
            return
        if _left_out(tag, dict(attrs)):
            self._skipped, self._depth = tag, 1
            return
        if tag in BLOCKS:
            self._end_paragraph()
        if tag == "li":
            self._bullet = "- "
        self._verbatim += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        if self._skipped:
            self._depth -= tag == self._skipped
            if not self._depth:
                self._skipped = ""
            return
        if tag in BLOCKS:
            self._end_paragraph()
        if tag == "pre":
            self._verbatim = max(0, self._verbatim - 1)

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self._words.append(data)

    def close(self) -> None:
        super().close()
        self._end_paragraph()

    def _end_paragraph(self) -> None:
        text = "".join(self._words)
        self._words.clear()
        text = text.strip("\n").rstrip() if self._verbatim else " ".join(text.split())
        if not text.strip():
            return
        self.paragraphs.append(text if self._verbatim else self._bullet + text)
        self._bullet = ""


def _left_out(tag: str, attributes: dict[str, str | None]) -> bool:
    return (
        tag in SKIPPED
        or bool(SKIPPED_CLASSES & set((attributes.get("class") or "").split()))
        or attributes.get("id") in SKIPPED_IDS
        or attributes.get("role") == "navigation"
    )


def paragraphs_of(markup: str) -> list[str]:
    """Paragraphs of a document in order; listings keep their lines."""
    reader = _MarkupReader()
    reader.feed(re.sub(r"<\?.*?\?>", "", markup))
    reader.close()
    return reader.paragraphs


Files = dict[PurePosixPath, bytes]  # path in the package -> content, in the order of reading
BETWEEN = "\n\n\n"  # documents
LONGEST_LINE, LONGEST_MEAN = 2_000, 200  # characters; more has been made by a program


def _decoded(content: bytes) -> str | None:
    """The content as UTF-8, unpacked where it is a gzip file, or None where it is no text."""
    try:
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        return content.decode("utf-8")
    except (UnicodeDecodeError, OSError, EOFError, zlib.error):
        return None


def _plain(files: Files) -> Iterator[str]:
    yield from (text for content in files.values() if (text := _decoded(content)) is not None)


def _html(files: Files) -> Iterator[str]:
    yield from ("\n\n".join(paragraphs_of(page)) for page in _plain(files))


def _code(files: Files) -> Iterator[str]:
    for text in _plain(files):
        lines = text.splitlines()
        if lines and max(map(len, lines)) <= LONGEST_LINE and len(text) / len(lines) <= LONGEST_MEAN:
            yield text


def _man(files: Files) -> Iterator[str]:
    yield from (text for page in _plain(files) if (text := man_page_text(page)))


def _sword(files: Files) -> Iterator[str]:
    """Bibles of the SWORD project (zText): an index, and one compressed block of OSIS markup for each book."""
    by_name = {path.suffix: content for path, content in files.items()}
    index, blocks = by_name.get(".bzs", b""), by_name.get(".bzz", b"")
    for start, size, _ in struct.iter_unpack("<III", index):
        book = zlib.decompress(blocks[start : start + size]).decode("utf-8") if size else ""
        text = "\n\n".join(paragraphs_of(book.replace("</note>", "</note> ")))
        yield re.sub(r" +([,.;:?!])", r"\1", text)


READERS: dict[str, Callable[[Files], Iterator[str]]] = {
    "plain": _plain,
    "html": _html,
    "code": _code,
    "man": _man,
    "sword": _sword,
}


def document_text(kind: str, files: Files) -> str:
    """The text of files of one kind, a name of `READERS`, in order; a file that is no text is left out."""
    return BETWEEN.join(text.strip("\n") for text in READERS[kind](files) if text.strip())
