"""Special tokens of a text: those that the tokenizer puts before it, such as BOS, and those that are spelled in it.

This is the one place that turns text into token ids. A text begins with the tokens that the tokenizer puts before it by
default ("auto") or with none ("none"). What a tokenizer puts after a text, such as EOS, is left out: a text is read up
to its last token, and nothing after it is scored. A sequence cut from a longer text begins with the same tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from focus_runtime.config import SPECIAL_TOKENS
from focus_runtime.errors import ConfigError

DEFAULT = "auto"
_PROBE = "The text 1."  # any text that has tokens in every vocabulary


@dataclass(frozen=True, slots=True)
class Added:
    """The tokens that stand before a text.

    Attributes:
        ids: token ids, which every text and every cut sequence begins with.
        pieces: how each is spelled, such as "<bos>".
        left_out: spelling of the tokens that the tokenizer would have added and "none" leaves out.
    """

    ids: tuple[int, ...] = ()
    pieces: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def choice(self) -> str | None:
        """The choice where it makes a difference: "auto", "none", or None for a tokenizer that adds no token."""
        return "auto" if self.ids else "none" if self.left_out else None


def added_tokens(tokenizer: Any, special_tokens: str = DEFAULT) -> Added:
    """The tokens that stand before a text.

    Args:
        tokenizer: a fast Hugging Face tokenizer.
        special_tokens: "auto" for the tokenizer's default, "none" for no token.

    Raises:
        ConfigError: the choice is another.
    """
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
    """Token ids of a text without added ones, and (start, end) characters of each; tokens spelled in it are read.

    Args:
        tokenizer: a fast Hugging Face tokenizer.
        text: any text.
    """
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    return list(encoded["input_ids"]), [tuple(span) for span in encoded["offset_mapping"]]


def bare_ids(tokenizer: Any, text: str) -> list[int]:
    """The token ids of `encode_bare`, which take little memory also for a long text."""
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def encode(tokenizer: Any, text: str, special_tokens: str = DEFAULT) -> tuple[list[int], list[tuple[int, int]]]:
    """Token ids of a text with the added ones, which have the characters (0, 0).

    Tokens that are spelled at the beginning of the text are not added a second time.

    Args:
        tokenizer: a fast Hugging Face tokenizer.
        text: any text.
        special_tokens: "auto" or "none", see `added_tokens`.
    """
    ids, spans = encode_bare(tokenizer, text)
    added = added_tokens(tokenizer, special_tokens).ids
    if begins_with(ids, added):
        return ids, spans
    return [*added, *ids], [(0, 0)] * len(added) + spans


def text_ids(tokenizer: Any, text: str, special_tokens: str = DEFAULT) -> list[int]:
    """The token ids of `encode`.

    Args:
        tokenizer: a fast Hugging Face tokenizer.
        text: any text.
        special_tokens: "auto" or "none", see `added_tokens`.
    """
    ids, added = bare_ids(tokenizer, text), added_tokens(tokenizer, special_tokens).ids
    return ids if begins_with(ids, added) else [*added, *ids]


def begins_with(ids: Sequence[int], added: Sequence[int]) -> bool:
    """Whether token ids begin with the added tokens."""
    return list(ids[: len(added)]) == list(added)


def spelled_tokens(tokenizer: Any, text: str, ids: Sequence[int], spans: Sequence[tuple[int, int]]) -> Counter[str]:
    """How often each special token is spelled in a text, in the order in which they appear.

    Args:
        tokenizer: a fast Hugging Face tokenizer.
        text: the text.
        ids, spans: as from `encode`.
    """
    special = {number: str(token) for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return Counter(
        special[token_id]
        for token_id, (start, end) in zip(ids, spans, strict=True)
        if token_id in special and text[start:end].strip() == special[token_id].strip()
    )


def training_note(tokenizer: Any, training: Mapping[str, Any]) -> str | None:
    """What to say of centroids that were trained without the tokens that the tokenizer puts before a text.

    Args:
        tokenizer: of the model they are used with.
        training: their record; that of random centroids and of foreign files tells of no training.
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

    Args:
        tokenizer: a fast Hugging Face tokenizer.
        bos_token_id: of the model's configuration; None for none.
    """
    own = tokenizer.bos_token_id
    told = tokenizer.init_kwargs.get("add_bos_token")
    if told is not False or own is None or own != bos_token_id or own == tokenizer.eos_token_id:
        return False
    return not added_tokens(tokenizer).ids
