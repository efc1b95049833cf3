"""What a training reads: texts by domain and a model, with the hashes by which they are known again."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from focus_runtime.errors import ConfigError, TextError
from focus_runtime.models.loading import fingerprint, weights_sha256
from focus_runtime.text.sequences import Mixture, TokenStream, encode_texts


@dataclass(frozen=True, slots=True)
class TextDomain:
    """Texts of one kind, joined in order; domains share the sequences in the ratio of their weights."""

    name: str
    texts: list[str]
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise ConfigError(f"the weight of the domain {self.name!r} is {self.weight}", expected="a number above 0")


Texts = Sequence[str] | Sequence[TextDomain]  # texts joined in order, or domains


def texts_sha256(texts: Texts) -> str:
    """Hash of training texts, in order."""
    digest = hashlib.sha256()
    for part in texts:
        for text in part.texts if isinstance(part, TextDomain) else [part]:
            digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    return digest.hexdigest()


def texts_identity(texts: Texts) -> dict[str, Any]:
    """What a checkpoint keeps of the texts it belongs to."""
    kept: dict[str, Any] = {"texts": texts_sha256(texts)}
    domains = [part for part in texts if isinstance(part, TextDomain)]
    if domains:
        kept["domains"] = [[domain.name, domain.weight, texts_sha256(domain.texts)] for domain in domains]
    return kept


def encode_domains(tokenizer: Any, texts: Texts, minimum: int, special_tokens: str) -> TokenStream | Mixture:
    """Token stream of texts, or the streams of domains, each of at least `minimum` tokens."""
    domains = [part for part in texts if isinstance(part, TextDomain)]
    if not domains:
        return encode_texts(tokenizer, [text for text in texts if isinstance(text, str)], minimum, special_tokens)
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


@dataclass(frozen=True, slots=True)
class ModelHashes:
    """Hashes of a model's weights, computed once and handed on: the second reads every weight."""

    fingerprint: str  # short, from a sample of the weights; stored with centroids and checkpoints
    weights: str  # sha256 of every weight's bytes

    @classmethod
    def of(cls, model: Any) -> ModelHashes:
        return cls(fingerprint(model), weights_sha256(model))
