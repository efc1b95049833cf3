"""The texts of a training, plain or by domain: read from files, cut for held-out scores, and the scores in words."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus_explorer.errors import InputError, TextError
from focus_explorer.usecases.texts import read_text_file, text_files
from focus_explorer.words import counted
from focus_runtime.mask.distances import mean_of_some

HELD_OUT = "held-out"  # the one domain of held-out text without names
_NAMED = re.compile(r"(?P<name>[\w.-]+)=(?P<source>.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DomainRequest:
    """One domain as the user gave it: text files and folders, and a weight above 0; the name is "" for plain texts."""

    name: str
    sources: tuple[str, ...]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class DomainTexts:
    name: str
    texts: list[str]
    files: list[Path]
    weight: float = 1.0


def parse_domains(words: Sequence[str], option: str, *, weighted: bool) -> list[DomainRequest]:
    """What the words after an option such as `--text` mean: paths, or NAME=PATH, with `weighted` also NAME=PATH:WEIGHT.

    An existing path is a path, whatever its name. One domain without a name if the words are paths; none without words.
    """
    named = [None if _is_path(word) else _NAMED.fullmatch(word) for word in words]
    if not any(named):
        return [DomainRequest("", tuple(words))] if words else []
    form = f"NAME=PATH{'[:WEIGHT]' if weighted else ''}"
    domains: list[DomainRequest] = []
    for word, match in zip(words, named, strict=True):
        if match is None:
            raise InputError(
                f"{option} {word!r} has no name, but other texts have",
                expected=f"{form} for every {option}, or names for none",
                fix=f"write NAME={word}",
            )
        name, source = match["name"], match["source"]
        if any(name == domain.name for domain in domains):
            raise InputError(
                f"{option} has two domains named {name!r}", expected="every name once", fix="rename one of them"
            )
        source, weight = _weighed(name, source, option) if weighted else (source, 1.0)
        domains.append(DomainRequest(name, (source,), weight))
    return domains


def _is_path(word: str) -> bool:
    return os.path.exists(os.path.expanduser(word))


def _weighed(name: str, source: str, option: str) -> tuple[str, float]:
    """PATH:WEIGHT -> path and weight; 1 without a weight."""
    path, colon, number = source.rpartition(":")
    if not colon or _is_path(source):
        return source, 1.0
    try:
        weight = float(number)
    except ValueError:
        weight = math.nan
    if not 0 < weight < math.inf:
        raise InputError(
            f"{option} gives the domain {name!r} the weight {number!r}",
            expected="a number above 0",
            fix=f"write {name}={path}:2 for twice as many sequences as a domain of weight 1",
        )
    return path, weight


def gather_domains(domains: Sequence[DomainRequest], exclude: Sequence[DomainRequest] = ()) -> list[DomainTexts]:
    """Read the texts of every domain, leaving out every text that is also in a domain of `exclude`."""
    held_out = [source for domain in exclude for source in domain.sources]
    read = []
    for domain in domains:
        try:
            texts, files = gather_texts(domain.sources, held_out)
        except TextError as error:
            if not domain.name:
                raise
            raise TextError(
                f"the domain {domain.name!r}: {error.problem}",
                expected="text files, or folders with .txt files",
                fix="give it another folder, or leave the domain out",
            ) from error
        read.append(DomainTexts(domain.name, texts, files, domain.weight))
    return read


def gather_texts(sources: Sequence[str], exclude: Sequence[str] = ()) -> tuple[list[str], list[Path]]:
    """Texts and files of files and folders of .txt files, in sorted order, without texts that are also in `exclude`."""
    held_out = {read_text_file(path) for path in text_files(exclude)}
    texts = [(read_text_file(path), path) for path in text_files(sources)]
    kept = [(text, path) for text, path in texts if text not in held_out]
    if not kept:
        raise TextError(
            "there is no text to train on" + (" besides the held-out one" if texts else ""),
            expected="text files, or folders with .txt files",
        )
    return [text for text, _ in kept], [path for _, path in kept]


def trained_on(domains: Sequence[DomainTexts]) -> Any:
    """Texts as the runtime takes them: `TextDomain` of each domain with a name, otherwise plain texts."""
    from focus_runtime.fit.inputs import TextDomain

    named = [TextDomain(one.name, one.texts, one.weight) for one in domains if one.name]
    return named or [text for one in domains for text in one.texts]


def held_out_sequences(
    tokenizer: Any, domains: Sequence[DomainTexts], *, count: int, length: int, special_tokens: str
) -> dict[str, Any]:
    """(count, length) token ids of every domain, fewer of a short one; empty without held-out text."""
    from focus_runtime.text.sequences import encode_texts, even_sequences

    sequences = {}
    for domain in domains:
        try:
            ids = encode_texts(tokenizer, domain.texts, length, special_tokens)
        except TextError as error:
            if not domain.name:
                raise
            raise TextError(
                error.problem.replace("the text", f"the held-out domain {domain.name!r}", 1),
                expected=f"at least {length}",
                fix="give it more text or a shorter --seq-len",
            ) from error
        sequences[domain.name or HELD_OUT] = even_sequences(ids, count, length)
    return sequences


def score(model: Any, centroids: Any, sequences: Mapping[str, Any]) -> dict[str, Any]:
    """Held-out perplexities of finished centroids under the hard mask, for top-k 1 and 2, and of full attention.

    `sequences` are (N, T) token ids by domain. For named domains: the report of each under `domains`, and means in
    which each counts once (of perplexities the geometric mean).
    """
    from focus_runtime.fit.validation import validate

    tops = tuple(range(1, min(2, centroids.config.num_groups) + 1))
    reports = {name: validate(model, centroids, ids, top_ks=tops) for name, ids in sequences.items()}
    if list(reports) == [HELD_OUT]:
        return reports[HELD_OUT]
    return _mean(list(reports.values())) | {"domains": reports}


def _mean(reports: list[dict[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in reports[0].items():
        values = [report[name] for report in reports]
        if isinstance(value, dict):
            made[name] = _mean(values)
        elif name == "distant_kept":
            made[name] = mean_of_some(values)
        elif name in ("full", "perplexity"):
            made[name] = math.exp(sum(map(math.log, values)) / len(values))
        elif name in ("scored_tokens", "scored"):
            made[name] = sum(values)
        else:
            made[name] = sum(values) / len(values) if isinstance(value, float) else value
    return made


def describe_evaluation(evaluation: Any) -> str:
    words, mean = f"{evaluation.mean:.4f}", ""
    if len(evaluation.losses) > 1:
        words, mean = ", ".join(f"{name} {loss:.4f}" for name, loss in evaluation.losses.items()), f", mean {words}"
    return (
        f"step {evaluation.step:,}: held-out loss {words}{mean} nats per token, "
        f"largest group {evaluation.dominance:.1%}, pairs kept {evaluation.retained_pairs:.1%}"
    )


def describe_scores(report: dict[str, Any], *, has_budget: bool = False) -> list[str]:
    """What `score` returned, in lines: of all held-out text, then of every domain."""
    if not report:
        return []
    domains = report.get("domains", {})
    mean = f", mean of {counted(len(domains), 'domain')}" if domains else ""
    lines = [
        f"held-out perplexity, full attention: {report['full']:.3f} ({counted(report['scored_tokens'], 'token')}{mean})"
    ]
    for name, row in report.items():
        if name.startswith("k="):
            distant = "none" if row["distant_kept"] is None else f"{row['distant_kept']:.1%}"
            lines.append(
                f"held-out perplexity, Focus {name}: {row['perplexity']:.3f}, largest group {row['dominance']:.1%}, "
                f"pairs kept {row['retained_pairs']:.1%}, distant pairs kept {distant}"
            )
    if has_budget:
        lines.append("  k is that of heads without a setting of their own; the others keep theirs")
    for domain, own in domains.items():
        focus = (f"{name} {row['perplexity']:.3f}" for name, row in own.items() if name.startswith("k="))
        lines.append(f"  {domain}: full attention {own['full']:.3f}, {', '.join(focus)}")
    return lines
