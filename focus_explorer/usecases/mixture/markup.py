"""The running text of HTML and OSIS documents, without navigation, tables of contents and tables."""

from __future__ import annotations

import re
from html.parser import HTMLParser


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


class _Reader(HTMLParser):
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
    reader = _Reader()
    reader.feed(re.sub(r"<\?.*?\?>", "", markup))
    reader.close()
    return reader.paragraphs
