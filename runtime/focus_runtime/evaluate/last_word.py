"""A last-word task made from plain text, in the form lm-eval reads, after LAMBADA (Paperno et al., arXiv 1606.06031).

The last word of a passage that ends with a sentence is to be predicted. Every length class is a task of its own. In
passages longer than the window the word occurred before only farther back than the window reaches; in shorter ones it
occurred anywhere before.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from focus_runtime.errors import InputError, TextError
from focus_runtime.files import cannot_write, replacing_folder
from focus_runtime.text.special import added_tokens, bare_ids, encode_bare
from focus_runtime.version import __version__

GROUP = "last_word"
SHORTEST = 0.5  # of a class's length; a passage starts with a sentence, so it rarely has exactly the length
COMMON = 0.0005  # share of all words above which a word in lower case can be guessed without reading
WORD = re.compile(r"[^\W\d_]+")
SENTENCE_END = re.compile(r"(?<= )([^\W\d_]{4,})[.!?]+[\"'”’)\]]*(?=\s+[\"'“‘(\[]*[A-Z]|\s*$)")

_YAML = """\
# {description}
tag: {group}
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
output_type: loglikelihood
test_split: test
doc_to_text: "{{{{context}}}}"
doc_to_target: "{{{{target}}}}"
num_fewshot: 0
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
  - metric: perplexity
    aggregation: perplexity
    higher_is_better: false
metadata:
  version: 1.0
"""


@dataclass(frozen=True, slots=True)
class Passage:
    """One item.

    `distance`: tokens from the last one of the word's latest earlier occurrence to the one that must predict the word;
    below the window, attention reaches it in one layer without any group.
    """

    context: str
    target: str
    tokens: int  # of context and target together, with the special tokens that the tokenizer puts before them
    distance: int
    source: str


@dataclass(slots=True)
class _Text:
    """A text with its tokens' ends, words, and the places where a passage may start or end."""

    name: str
    text: str
    ends: list[int]
    words: dict[str, list[int]] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    last_words: list[tuple[int, int]] = field(default_factory=list)

    def token(self, character: int) -> int:
        """Number of the token that holds a character."""
        return bisect.bisect_right(self.ends, character)


def _prepare(name: str, text: str, tokenizer: Any) -> _Text:
    text = " ".join(text.split())
    _, spans = encode_bare(tokenizer, text)
    prepared = _Text(name, text, [end for _, end in spans])
    for match in WORD.finditer(text):
        prepared.words.setdefault(match[0].lower(), []).append(match.start())
    prepared.starts = [0]
    for match in SENTENCE_END.finditer(text):
        prepared.last_words.append(match.span(1))
        if match.end() + 1 < len(text):
            prepared.starts.append(match.end() + 1)
    return prepared


def _guessable(texts: Sequence[_Text]) -> set[str]:
    """Words so common that frequency alone would answer; names stay in, they are what must be remembered."""
    counts: Counter[str] = Counter()
    lower: set[str] = set()
    for text in texts:
        for word, places in text.words.items():
            counts[word] += len(places)
            if any(text.text[place].islower() for place in places):
                lower.add(word)
    most = max(5, COMMON * counts.total())
    return {word for word in lower if counts[word] > most}


def _passage(
    text: _Text, span: tuple[int, int], length: int, window: int, tokenizer: Any, added: int
) -> tuple[int, Passage] | None:
    """The longest passage of at most `length` tokens that ends with this word, and its first character; or None.

    The tokenizer puts `added` special tokens before it, which count.
    """
    begin, end = span
    word = text.text[begin:end].lower()
    first = text.token(end - 1) - (length - added) + 1
    place = bisect.bisect_left(text.starts, 0 if first <= 0 else text.ends[first - 1])
    if place == len(text.starts) or text.starts[place] >= begin - 1:
        return None
    start = text.starts[place]
    earlier = [at for at in text.words[word] if start <= at < begin]
    if not earlier:
        return None
    context, target = text.text[start : begin - 1], text.text[begin - 1 : end]
    passage, before = (bare_ids(tokenizer, part) for part in (context + target, context))
    distance = text.token(begin - 1) - 1 - text.token(earlier[-1] + end - begin - 1)
    if not target.startswith(" ") or not SHORTEST * length <= len(passage) + added <= length:
        return None
    if passage[: len(before)] != before or (length > window and distance <= window):
        return None
    return start, Passage(context, target, len(passage) + added, distance, text.name)


def last_word_passages(
    texts: Sequence[tuple[str, str]], tokenizer: Any, *, length: int, items: int, window: int = 128, seed: int = 0
) -> list[Passage]:
    """At most `items` passages of one length class from (name, text) pairs, none of which overlap, in random order.

    Args:
        length: most tokens of a passage, its last word and added special tokens included; it has at least half of them.
        window: in classes longer than it, the word's earlier occurrences all lie farther back than it reaches.
    """
    prepared = [_prepare(name, text, tokenizer) for name, text in texts]
    guessable, added = _guessable(prepared), len(added_tokens(tokenizer).ids)
    places = [
        (text, span)
        for text in prepared
        for span in text.last_words
        if text.text[slice(*span)].lower() not in guessable
    ]
    random.Random(seed).shuffle(places)
    used: dict[str, list[tuple[int, int]]] = {}
    passages: list[Passage] = []
    for text, span in places:
        if len(passages) == items:
            break
        if (candidate := _passage(text, span, length, window, tokenizer, added)) is None:
            continue
        start, passage = candidate
        others = used.setdefault(text.name, [])
        if all(span[1] <= low or start >= high for low, high in others):
            others.append((start, span[1]))
            passages.append(passage)
    return passages


def write_last_word_tasks(
    texts: Sequence[tuple[str, str]],
    tokenizer: Any,
    out: str | os.PathLike[str],
    *,
    lengths: Sequence[int] = (96, 512, 1024),
    items: int = 100,
    window: int = 128,
    seed: int = 0,
    tokenizer_name: str = "",
) -> dict[str, Any]:
    """Write a folder with one lm-eval task for each length class: NAME.yaml, NAME.jsonl, and last_word.json about all.

    The tasks are called last_word_LENGTH, and last_word stands for all of them. The folder, new or empty, appears whole
    or not at all. Returns what last_word.json holds: settings, texts with their SHA-256, and for each task the count,
    range of tokens and range of distances.
    """
    for name, values, least in (("lengths", lengths, 16), ("items", [items], 1), ("window", [window], 0)):
        if not values or min(values) < least:
            raise InputError(f"{name} is {', '.join(map(str, values)) or 'empty'}", expected=f"at least {least}")
    target = Path(out)
    _check_free(target)
    tasks = {}
    for length in sorted(set(lengths)):
        passages = last_word_passages(texts, tokenizer, length=length, items=items, window=window, seed=seed)
        if not passages:
            raise TextError(
                f"no passage of {length} tokens ends with a word that "
                + ("occurred before" if length <= window else f"occurred before, more than {window} tokens back"),
                fix="give more text, such as a novel, or other lengths",
            )
        tasks[f"{GROUP}_{length}"] = (length, passages)
    about = {
        "made_by": f"focus-explorer {__version__}",
        "seed": seed,
        "window": window,
        "tokenizer": tokenizer_name,
        "texts": [{"name": name, "sha256": hashlib.sha256(text.encode()).hexdigest()} for name, text in texts],
        "tasks": {name: _about(length, passages) for name, (length, passages) in tasks.items()},
    }
    with replacing_folder(target, explain=cannot_write("choose another folder")) as work:
        for name, (length, passages) in tasks.items():
            reach = f", which occurred before but not within the last {window} tokens" if length > window else ""
            description = f"Predict the last word of a passage of up to {length} tokens{reach}."
            yaml = _YAML.format(description=description, group=GROUP, name=name, data=f"{name}.jsonl")
            _write_files(work, name, yaml, map(asdict, passages))
        (work / f"{GROUP}.json").write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return about


def _check_free(target: Path) -> None:
    try:
        free = not target.exists() or (target.is_dir() and not any(target.iterdir()))
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror}", fix="choose another folder") from error
    if not free:
        raise InputError(f"{target} is in use", expected="a new or an empty folder", fix="choose another folder")


def _about(length: int, passages: list[Passage]) -> dict[str, Any]:
    tokens, distances = ([getattr(passage, name) for passage in passages] for name in ("tokens", "distance"))
    return {
        "length": length,
        "items": len(passages),
        "tokens": [min(tokens), max(tokens)],
        "distance": [min(distances), max(distances)],
    }


def write_task(out: str | os.PathLike[str], name: str, yaml: str, rows: Iterable[dict[str, Any]]) -> Path:
    """Write NAME.yaml and NAME.jsonl into a new or empty folder, which appears whole or not at all."""
    target = Path(out)
    _check_free(target)
    with replacing_folder(target, explain=cannot_write("choose another folder")) as work:
        _write_files(work, name, yaml, rows)
    return target


def _write_files(folder: Path, name: str, yaml: str, rows: Iterable[dict[str, Any]]) -> None:
    (folder / f"{name}.yaml").write_text(yaml, "utf-8")
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / f"{name}.jsonl").write_text("".join(lines), "utf-8")
