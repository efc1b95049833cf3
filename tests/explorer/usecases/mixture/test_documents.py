"""From files to a text, for each kind of file."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import PurePosixPath

from focus_explorer.usecases.mixture.documents import document_text


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
