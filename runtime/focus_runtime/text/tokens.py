"""Text -> token ids, display pieces that add up to the text byte for byte, and character offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from focus_runtime.errors import TextError
from focus_runtime.text.special import DEFAULT, added_tokens, begins_with, encode, lacks_bos, spelled_tokens

MAX_CHARACTERS = 20_000_000


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """A text and its tokens; one that the tokenizer added has no characters.

    Attributes:
        pieces: text of each token; a token that holds part of a character's bytes shows them as ‹F0 9F›, one that the
            tokenizer added its name, such as <bos>.
        starts, ends: character offsets into `text`; tokens that share one character have the same span.
        left_out: pieces that the tokenizer would have added, had its special tokens not been left out.
    """

    text: str  # what was tokenised (cut at a token boundary when a limit was given)
    ids: list[int]
    pieces: list[str]
    starts: list[int]
    ends: list[int]
    total_tokens: int  # tokens of the whole text before any cut
    added: tuple[str, ...] = ()  # pieces of the first tokens, which the tokenizer added
    left_out: tuple[str, ...] = ()
    spelled: tuple[tuple[str, int], ...] = ()  # special tokens that are spelled in `text`, and how often


def check_text(text: Any) -> str:
    """Refuse what cannot be analysed with a TextError that names the place of the first offence."""
    if not isinstance(text, str):
        raise TextError(f"the text is {type(text).__name__}", expected="a string")
    if not text.strip():
        raise TextError("the text is empty", expected="at least two tokens of text", fix="paste some text")
    if len(text) > MAX_CHARACTERS:
        raise TextError(
            f"the text has {len(text):,} characters", expected=f"at most {MAX_CHARACTERS:,}", fix="cut it into parts"
        )
    if "\0" in text:
        raise TextError(
            f"the text has a NUL character at position {text.index(chr(0)):,}",
            expected="plain text",
            fix="this is probably a binary file; extract its text first",
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TextError(
            f"the text has half of a surrogate pair (U+{ord(text[error.start]):04X}) at position {error.start:,}",
            expected="valid Unicode",
            fix="remove or replace that character",
        ) from error
    return text


def decode_text(data: bytes, name: str = "the file") -> str:
    """Bytes of a text file -> text, UTF-8 with or without a byte order mark; a TextError for binary content."""
    if b"\0" in data[:65536] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TextError(f"{name} is a binary file", expected="plain text in UTF-8", fix="extract its text first")
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise TextError(
            f"{name} is not {encoding[:6].upper().rstrip('-')} text (byte {error.start:,} is invalid)",
            expected="plain text in UTF-8",
            fix="convert it, for example with iconv",
        ) from error


def pieces_of(tokenizer: Any, text: str, *, special_tokens: str = DEFAULT) -> tuple[list[int], list[str]]:
    """Token ids of any text, none of an empty one, and the part of the text that each stands for."""
    if not text.strip():
        return [], []
    ids, spans = encode(tokenizer, check_text(text), special_tokens)
    added = len(added_tokens(tokenizer, special_tokens).ids)
    return ids, _pieces(tokenizer, text, ids, spans, added)[0]


def tokenize(
    tokenizer: Any, text: str, *, max_tokens: int | None = None, special_tokens: str = DEFAULT
) -> TokenizedText:
    """Tokenise a text of at least two tokens, with the special tokens that the tokenizer puts before it.

    `max_tokens`: keep at most this many, cutting the text at a token boundary. `special_tokens`: see `encode`.
    """
    ids, spans = encode(tokenizer, check_text(text), special_tokens)
    total = len(ids)
    if total < 2:
        raise TextError(
            f"the text has {total} token{'' if total == 1 else 's'}",
            expected="at least two: attention needs something to look back at",
            fix="paste a longer text",
        )
    if max_tokens is not None and total > max_tokens:
        whole = (cut for cut in range(max_tokens, 1, -1) if spans[cut][0] >= spans[cut - 1][1])  # splits no character
        keep = next(whole, max_tokens)
        ids, spans = ids[:keep], spans[:keep]
        text = text[: spans[-1][1]]
    added = added_tokens(tokenizer, special_tokens)
    pieces, starts, ends = _pieces(tokenizer, text, ids, spans, len(added.ids))
    return TokenizedText(
        text,
        ids,
        pieces,
        starts,
        ends,
        total,
        added=added.pieces if begins_with(ids, added.ids) else (),
        left_out=added.left_out,
        spelled=tuple(spelled_tokens(tokenizer, text, ids, spans).items()),
    )


def special_notes(tokenizer: Any, tokens: TokenizedText, config: Any) -> list[str]:
    """What a user should know of the special tokens of a text."""
    notes = []
    if tokens.left_out:
        notes.append(
            f"The text was read without {' '.join(tokens.left_out)}, which the tokenizer puts before every text "
            "(--special-tokens none): the model may predict it much worse."
        )
    if tokens.spelled:
        total = sum(count for _, count in tokens.spelled)
        listed = ", ".join(name if count == 1 else f"{name} ×{count:,}" for name, count in tokens.spelled)
        notes.append(f"The text contains {total:,} special token{'' if total == 1 else 's'}: {listed}.")
    if lacks_bos(tokenizer, getattr(config.get_text_config(), "bos_token_id", None)):
        notes.append(
            f"The model has the BOS token {tokenizer.bos_token}, but its tokenizer is set to add none (add_bos_token "
            "is false). If the model was trained with it, set add_bos_token to true in tokenizer_config.json."
        )
    return notes


def _pieces(
    tokenizer: Any, text: str, ids: list[int], spans: list[tuple[int, int]], added: int
) -> tuple[list[str], list[int], list[int]]:
    """Pieces, starts and ends; of the first `added` tokens, those without a character were added by the tokenizer."""
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for index, (start, end) in enumerate(spans):
        if index < added and end == 0:
            pieces.append(str(tokenizer.convert_ids_to_tokens(ids[index])))
            starts.append(0)
            ends.append(0)
            continue
        reached = ends[-1] if ends else 0
        shares_previous = start < reached
        shares_next = index + 1 < len(spans) and spans[index + 1][0] < end
        if shares_previous or shares_next:
            pieces.append(_bytes_piece(tokenizer, ids[index]))
        else:
            start = reached  # characters the tokenizer skips, such as a leading space, belong to the next token
            if index + 1 == len(spans):
                end = len(text)
            pieces.append(text[start:end])
        starts.append(min(start, end))
        ends.append(end)
    return pieces, starts, ends


def vocabulary_piece(tokenizer: Any, token_id: int) -> str:
    """A token as it would appear in a text: part of a character's bytes as ‹F0 9F›, an id without token as ‹id 276›."""
    if tokenizer.convert_ids_to_tokens(token_id) is None:
        return f"‹id {token_id}›"
    return _bytes_piece(tokenizer, token_id).replace("\u2581", " ")  # how SentencePiece writes a space


def _bytes_piece(tokenizer: Any, token_id: int) -> str:
    """A token of a byte-level vocabulary as text if its bytes are whole characters, else as hexadecimal."""
    token = tokenizer.convert_ids_to_tokens(token_id)
    table = _byte_table()
    if token.startswith("<0x") and token.endswith(">"):
        data = bytes([int(token[3:-1], 16)])
    elif all(character in table for character in token):
        data = bytes(table[character] for character in token)
    else:
        return str(token)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "‹" + data.hex(" ").upper() + "›"


@cache
def _byte_table() -> dict[str, int]:
    """The printable stand-ins byte-level BPE uses for the 256 bytes: printable Latin-1 maps to itself."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in plain}
    others = [byte for byte in range(256) if byte not in set(plain)]
    table.update({chr(256 + rank): byte for rank, byte in enumerate(others)})
    return table


def joined_text(pieces: Sequence[str], starts: Sequence[int], ends: Sequence[int]) -> str:
    """The text that the pieces of a `TokenizedText` were cut from, bytes of split characters put together again.

    Pieces whose split characters do not add up are a TextError. What the tokenizer added has no character.
    """
    parts, reached = bytearray(), 0
    for place, piece in enumerate(pieces):
        if ends[place] == 0:
            continue
        overlaps = starts[place] < reached or (place + 1 < len(pieces) and starts[place + 1] < ends[place])
        part = overlaps and piece[:1] == "‹" and piece[-1:] == "›" and len(piece) > 2
        parts += bytes.fromhex(piece[1:-1]) if part else piece.encode()
        reached = max(reached, ends[place])
    try:
        return parts.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextError("the bytes of split characters do not add up to text", expected="pieces of one text") from error
