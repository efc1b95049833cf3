"""Text to tokens: pieces add up to the text, bad text is refused by name."""

from __future__ import annotations

import pytest

from focus_runtime.errors import TextError
from focus_runtime.text.tokens import check_text, decode_text, tokenize
from tests.helpers import build_tokenizer

TEXTS = [
    "plain words, and punctuation!",
    "  leading and trailing  ",
    "line\n\n\tbreaks\r\n",
    "naïve café — “quotes”",
    "مرحبا بالعالم",
    "你好,世界",
    "family 👨‍👩‍👧 and 🙂",
    "<script>alert(1)</script> & <b>",
    "e\u0301 combining",
]


def joined_bytes(pieces):
    data = b""
    for piece in pieces:
        if piece.startswith("‹") and piece.endswith("›"):
            data += bytes.fromhex(piece[1:-1])
        else:
            data += piece.encode()
    return data


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_add_up_to_the_text_byte_for_byte(text):
    tokens = tokenize(build_tokenizer(), text)
    assert joined_bytes(tokens.pieces) == text.encode()
    assert len(tokens.pieces) == len(tokens.ids) == len(tokens.starts) == len(tokens.ends)
    assert all(0 <= a <= b <= len(text) for a, b in zip(tokens.starts, tokens.ends, strict=True))


@pytest.mark.parametrize("limit", [2, 3, 7, 11])
def test_a_cut_keeps_whole_characters(limit):
    text = "ab🙂cd🙂ef🙂"
    tokens = tokenize(build_tokenizer(), text, max_tokens=limit)
    assert text.startswith(tokens.text)
    assert len(tokens.ids) <= limit
    assert tokens.total_tokens > len(tokens.ids)


@pytest.mark.parametrize(
    ("text", "part"), [("", "empty"), (" \n\t", "empty"), ("a\0b", "NUL"), ("a\ud800b", "surrogate"), (5, "int")]
)
def test_bad_text_is_named(text, part):
    with pytest.raises(TextError, match=part):
        check_text(text)
    with pytest.raises(TextError, match="1 token;"):
        tokenize(build_tokenizer(), "a")


@pytest.mark.parametrize(
    ("data", "expected"), [(b"plain", "plain"), (b"\xef\xbb\xbfmark", "mark"), ("hé".encode("utf-16"), "hé")]
)
def test_decoding(data, expected):
    assert decode_text(data) == expected


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n\x00\x00", b"abc\xff\xfe\xfa", bytes(range(256))])
def test_binary_is_refused(data):
    with pytest.raises(TextError):
        decode_text(data, "photo.png")
