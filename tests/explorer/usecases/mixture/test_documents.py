"""From files to a text: plain text, code, HTML, OSIS and manual pages, as programs and people write them."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import PurePosixPath

import pytest

from focus_explorer.usecases.mixture.documents import document_text, man_page_text, paragraphs_of, unescape


def files(**contents):
    return {PurePosixPath(name.replace("_", ".")): content for name, content in contents.items()}


def test_files_are_joined_in_order_and_what_is_no_text_is_left_out():
    content = files(
        b_txt=b"second\n", a_gz=gzip.compress("première\n".encode()), c_txt=b"\xff\xfe", d_txt=b"\x1f\x8bno"
    )
    assert document_text("plain", content) == "second\n\n\npremière"
    assert document_text("plain", {}) == ""


def test_code_made_by_a_program_is_left_out():
    content = files(a_js=b"var a = 1;\n" * 3, min_js=b"var " + b"a=1;" * 600, table_js=(b"0x00," * 60 + b"\n") * 9)
    assert document_text("code", content) == "var a = 1;\n" * 2 + "var a = 1;"


def test_pages_of_each_kind():
    assert document_text("html", files(a_html=b"<p>one<p>two", b_html=b"<p>three")) == "one\n\ntwo\n\n\nthree"
    assert document_text("man", files(a_1=b".SH NAME\nls\n", b_1=b".so a.1\n")) == "NAME\n\nls"


def test_books_of_sword_modules():
    books = [b"", b"<div/>In <note>see</note>the beginning <note>a</note>, day.<div/>Light."]
    blocks = [zlib.compress(book) if book else b"" for book in books]
    index = b"".join(
        struct.pack("<III", len(b"".join(blocks[:i])), len(block), len(books[i])) for i, block in enumerate(blocks)
    )
    content = files(nt_bzs=index, nt_bzz=b"".join(blocks))
    assert document_text("sword", content) == "In the beginning, day.\n\nLight."


PAGE = r"""'\" t
.\" A comment
.TH OPEN 2 2023-02-05 "Linux man-pages"
.de Sp \" space
.if n .sp
..
.ie n \{\
.    ds -- \(*W-
'br\}
.am URL
.  ad l
. .
.SH NAME
open \- open a file \" and a comment
.SH SYNOPSIS
.nf
.B #include <fcntl.h>
.PP
.BI "int open(const char *" pathname ", int " flags );
.fi
.SH DESCRIPTION
The
.BR open ()
call opens \fIpathname\fP,
a file\(aqs name.
.P
It may fail
.RB ( EACCES ,
.IR "no permission" ).
.TP
.B O_RDONLY
Read
only.
.IP \(bu 3
first
.TS
l l.
a	b
.TE
.RS 4
.EX
if (a \\ b)
    exit(\-1);
.EE
.RE
.SS "See also"
.UR https://example.org
the page
.UE
is long.

.TP
.B a
.TQ
.B b
both
"""


def test_macros_escapes_definitions_and_tables():
    assert man_page_text(PAGE).split("\n\n") == [
        "NAME",
        "open - open a file",
        "SYNOPSIS",
        "#include <fcntl.h>",
        "int open(const char *pathname, int flags);",
        "DESCRIPTION",
        "The open() call opens pathname, a file's name.",
        "It may fail (EACCES, no permission).",
        "O_RDONLY\nRead only.",
        "• first",
        "if (a \\ b)\n    exit(-1);",
        "See also",
        "https://example.org the page is long.",
        "a",
        "b\nboth",
    ]


@pytest.mark.parametrize("page", [".so man2/open.2\n", ".Dd May 1\n.Dt LS 1\n.SH NAME\n", "plain text\n", ""])
def test_references_and_other_macros_are_no_text(page):
    assert man_page_text(page) is None


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (r"\fBbold\fP \f(CWcode\fR \f[BI]x\f[]", "bold code x"),
        (r"a\ b\~c\&d\|e\^f\/g\,h\%i\:j", "a b cdefghij"),
        (r"\(lqquoted\(rq \(em \[u2014] \*(L\"x\*(R\"".replace('\\"', '"'), '“quoted” — — "x"'),
        (r"\*(C+ \s-1SMALL\s0 \m[blue]link\m[] \h'-1p'x", "C++ SMALL link x"),
        (r"\e \\ \- \(ha \(ti \(aq", "\\ \\ - ^ ~ '"),
    ],
)
def test_escapes(source, text):
    assert unescape(source) == text


DOCBOOK = """<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE html><html><head><title>Chapter 1</title>
<style>p { color: red }</style></head><body>
<div class="navheader"><table><tr><td><a href="a.html">Prev</a></td></tr></table><hr/></div>
<div class="chapter"><h1 class="title"><a id="x"/>1. Les paquets</h1>
<div class="toc"><p>Table of Contents</p><dl class="toc"><dt><a href="b.html">1.1. A</a></dt></dl></div>
<p>Une phrase   sur
deux lignes &amp; un <code>mot</code>&nbsp;d'ordre.<br/>Fin.</p>
<ul><li><p>premier</p></li><li>second <ul><li>dedans</li></ul></li></ul>
<pre class="screen"># <b>apt</b> update

  Reading...
</pre>
<div class="table"><p class="title">Table 1</p><table><tr><td>no</td></tr></table></div></div>
<div class="navfooter">Next</div></body></html>"""


def test_docbook_keeps_paragraphs_lists_and_listings_and_nothing_else():
    assert paragraphs_of(DOCBOOK) == [
        "1. Les paquets",
        "Une phrase sur deux lignes & un mot d'ordre. Fin.",
        "- premier",
        "- second",
        "- dedans",
        "# apt update\n\n  Reading...",
    ]


def test_publican_and_sphinx_navigation_is_left_out():
    page = """<body><div id="banner"><a>Download</a></div><p id="title">Site</p>
    <ul class="docnav top"><li>Prev</li></ul>
    <div class="related" role="navigation"><h3>Navigation</h3><ul><li>index</li></ul></div>
    <div class="body" role="main"><h1>Scope<a class="headerlink" href="#s">¶</a></h1><p>Text.</p></div>
    <div class="sphinxsidebar"><div><p>Links</p></div></div><div class="footer">©</div></body>"""
    assert paragraphs_of(page) == ["Scope", "Text."]


def test_elements_that_are_never_closed_do_not_hide_what_follows():
    assert paragraphs_of("<p>one<p>two<img src=a><div class=toc><p>no<br></div><li>three") == ["one", "two", "- three"]
    assert paragraphs_of("</pre></div>plain") == ["plain"]
