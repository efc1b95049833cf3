"""Text of manual pages as people, pod2man, DocBook and Asciidoctor write them."""

from __future__ import annotations

import pytest

from focus_explorer.usecases.mixture.man import text_of, unescape

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
    assert text_of(PAGE).split("\n\n") == [
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
    assert text_of(page) is None


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
