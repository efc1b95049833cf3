"""Texts by domain: what a training on a mixture of them reads."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from focus_runtime.errors import ConfigError, TextError
from focus_runtime.text.sequences import Mixture, TokenStream, encode_texts
from focus_runtime.text.special import DEFAULT


@dataclass(frozen=True, slots=True)
class TextDomain:
    """Texts of one kind, and how often a training reads them.

    Attributes:
        name: of the domain.
        texts: joined in order.
        weight: above 0; domains share the sequences in the ratio of their weights.
    """

    name: str
    texts: list[str]
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise ConfigError(f"the weight of the domain {self.name!r} is {self.weight}", expected="a number above 0")


def texts_sha256(texts: list[str]) -> str:
    """Hash of training texts, in order."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    return digest.hexdigest()


def all_texts(texts: Sequence[str] | Sequence[TextDomain]) -> list[str]:
    """The texts of all domains, in order."""
    return [text for part in texts for text in (part.texts if isinstance(part, TextDomain) else [part])]


def encode(
    tokenizer: Any, texts: Sequence[str] | Sequence[TextDomain], minimum: int, special_tokens: str = DEFAULT
) -> TokenStream | Mixture:
    """Token stream of texts, or the streams of domains.

    Args:
        tokenizer: of the model.
        texts: texts joined in order, or domains.
        minimum: fewest tokens that are enough, of every domain.
        special_tokens: "auto" or "none", see `encode_texts`.

    Raises:
        TextError: too few tokens. ConfigError: two domains have one name.
    """
    domains = [part for part in texts if isinstance(part, TextDomain)]
    if not domains:
        return encode_texts(tokenizer, all_texts(texts), minimum, special_tokens)
    names = tuple(domain.name for domain in domains)
    if len(set(names)) < len(names):
        raise ConfigError(f"the domains are {', '.join(names)}", expected="every name once")
    streams = []
    for domain in domains:
        try:
            streams.append(encode_texts(tokenizer, domain.texts, minimum, special_tokens))
        except TextError as error:
            raise TextError(
                error.problem.replace("the text", f"the domain {domain.name!r}", 1),
                expected=f"at least {minimum}",
                fix="give it more text, or train on a shorter --seq-len",
            ) from error
    return Mixture(names, tuple(streams), tuple(domain.weight for domain in domains))


def identity(texts: Sequence[str] | Sequence[TextDomain]) -> dict[str, Any]:
    """What a checkpoint keeps of the texts it belongs to."""
    kept: dict[str, Any] = {"texts": texts_sha256(all_texts(texts))}
    domains = [part for part in texts if isinstance(part, TextDomain)]
    if domains:
        kept["domains"] = [[domain.name, domain.weight, texts_sha256(domain.texts)] for domain in domains]
    return kept
