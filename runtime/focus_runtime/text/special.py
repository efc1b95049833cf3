"""What stands before and in a text beside its words: special tokens, and a model's own chat template."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from focus_runtime.config import SPECIAL_TOKENS
from focus_runtime.errors import ConfigError, TextError

DEFAULT = "auto"
_PROBE = "The text 1."  # any text that has tokens in every vocabulary


@dataclass(frozen=True, slots=True)
class Added:
    """The tokens that stand before a text: ids and how each is spelled, such as "<bos>".

    `left_out`: spelling of the tokens that the tokenizer would have added and "none" leaves out.
    """

    ids: tuple[int, ...] = ()
    pieces: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def choice(self) -> str | None:
        """The choice where it makes a difference: "auto", "none", or None for a tokenizer that adds no token."""
        return "auto" if self.ids else "none" if self.left_out else None


def added_tokens(tokenizer: Any, special_tokens: str = DEFAULT) -> Added:
    """The tokens that stand before a text: the tokenizer's default for "auto", no token for "none"."""
    if special_tokens not in SPECIAL_TOKENS:
        raise ConfigError(f"special_tokens is {special_tokens!r}", expected=" or ".join(SPECIAL_TOKENS))
    encoded = tokenizer(_PROBE, return_special_tokens_mask=True, verbose=False)
    ids: list[int] = []
    for token_id, special in zip(encoded["input_ids"], encoded["special_tokens_mask"], strict=True):
        if not special:
            break
        ids.append(token_id)
    pieces = tuple(tokenizer.convert_ids_to_tokens(ids))
    return Added(tuple(ids), pieces) if special_tokens == "auto" else Added(left_out=pieces)


def encode_bare(tokenizer: Any, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Token ids of a text without added ones, and (start, end) characters of each; tokens spelled in it are read."""
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    return list(encoded["input_ids"]), [tuple(span) for span in encoded["offset_mapping"]]


def bare_ids(tokenizer: Any, text: str) -> list[int]:
    """The token ids of `encode_bare`, which take little memory also for a long text."""
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def encode(tokenizer: Any, text: str, special_tokens: str = DEFAULT) -> tuple[list[int], list[tuple[int, int]]]:
    """Token ids of a text with the added ones, which have the characters (0, 0), by "auto" or "none".

    Tokens that are spelled at the beginning of the text are not added a second time.
    """
    ids, spans = encode_bare(tokenizer, text)
    added = added_tokens(tokenizer, special_tokens).ids
    if begins_with(ids, added):
        return ids, spans
    return [*added, *ids], [(0, 0)] * len(added) + spans


def text_ids(tokenizer: Any, text: str, special_tokens: str = DEFAULT) -> list[int]:
    """The token ids of `encode`."""
    ids, added = bare_ids(tokenizer, text), added_tokens(tokenizer, special_tokens).ids
    return ids if begins_with(ids, added) else [*added, *ids]


def begins_with(ids: Sequence[int], added: Sequence[int]) -> bool:
    """Whether token ids begin with the added tokens."""
    return list(ids[: len(added)]) == list(added)


def spelled_tokens(tokenizer: Any, text: str, ids: Sequence[int], spans: Sequence[tuple[int, int]]) -> Counter[str]:
    """How often each special token is spelled in a text, in the order in which they appear."""
    special = {number: str(token) for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return Counter(
        special[token_id]
        for token_id, (start, end) in zip(ids, spans, strict=True)
        if token_id in special and text[start:end].strip() == special[token_id].strip()
    )


def training_note(tokenizer: Any, training: Mapping[str, Any]) -> str | None:
    """What to say of centroids that were trained without the tokens that the tokenizer puts before a text.

    The record of random centroids and of foreign files says nothing of a training.
    """
    added = added_tokens(tokenizer).pieces
    trained = "steps" in training or "regime" in training
    if not added or not trained or training.get("special_tokens") == "auto":
        return None
    return f"trained on texts without {' '.join(added)}, which the model's tokenizer puts before every text"


def lacks_bos(tokenizer: Any, bos_token_id: int | None) -> bool:
    """Whether a model names a BOS token and its tokenizer was explicitly told to add none.

    Many models name a BOS token and never read one: GPT-2, Qwen and SmolLM2 do, with the EOS token or without the
    setting. Only a tokenizer with `add_bos_token` false and a BOS token that is not EOS is remarked on.
    """
    own = tokenizer.bos_token_id
    told = tokenizer.init_kwargs.get("add_bos_token")
    if told is not False or own is None or own != bos_token_id or own == tokenizer.eos_token_id:
        return False
    return not added_tokens(tokenizer).ids


ROLES = ("system", "user", "assistant")
_TURN = re.compile(rf"^({'|'.join(ROLES)}):[ \t]*", re.IGNORECASE | re.MULTILINE)
_FORM = 'lines that begin with user:, assistant: or system:, or a JSON list of {"role": ..., "content": ...}'

Turn = dict[str, str]


def chat_text(tokenizer: Any, text: str) -> str:
    """The text that the model's own template makes of the turns of a chat, or a TextError."""
    turns = read_turns(text)
    if not tokenizer.chat_template:
        raise TextError(
            "the model has no chat template", expected="a model that was trained on chats", fix="leave out --chat"
        )
    try:
        made: str = tokenizer.apply_chat_template(turns, tokenize=False)
    except Exception as error:  # a template raises errors of its own, whose classes transformers does not name
        raise TextError(
            f"the chat template of the model refuses the turns: {error}",
            expected="roles and an order of turns that it allows",
        ) from error
    return made


def read_turns(text: str) -> list[Turn]:
    """The turns of a chat, or a TextError.

    The text is a JSON list of objects with `role` and `content`; or lines, of which each that begins with "user:",
    "assistant:" or "system:" begins a turn.
    """
    if text.lstrip().startswith("["):
        try:
            turns = json.loads(text)
        except json.JSONDecodeError as error:
            raise TextError(f"the turns are not valid JSON: {error}", expected=_FORM) from error
        for number, turn in enumerate(turns, 1):
            if not isinstance(turn, dict) or not all(isinstance(turn.get(name), str) for name in ("role", "content")):
                raise TextError(f"turn {number} of the chat lacks a role or a content that is text", expected=_FORM)
        if not turns:
            raise TextError("the chat has no turn", expected=_FORM)
        return [{"role": turn["role"], "content": turn["content"]} for turn in turns]
    marks = list(_TURN.finditer(text))
    if not marks or text[: marks[0].start()].strip():
        raise TextError("the text does not begin with a turn of a chat", expected=_FORM, fix="leave out --chat")
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    return [
        {"role": mark[1].lower(), "content": text[mark.end() : end].strip()}
        for mark, end in zip(marks, ends, strict=True)
    ]
