"""A multiple-choice task made from plain text, in the form lm-eval reads: which sentence comes next?

The form is that of TruthfulQA's MC1 (Lin et al., 2022, arXiv 2109.07958): one right answer among several, chosen by
likelihood. The content is another: it asks for memory of the passage, not for truth. No model and no network is needed.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from focus_runtime.errors import TextError
from focus_runtime.evaluate.last_word import write_task
from focus_runtime.text.special import bare_ids

TASK = "next_sentence"
CHOICES = 4
WORDS = (6, 30)  # words of a sentence that may be a choice
ENOUGH = 20  # sentences below which choices would repeat
SENTENCE = re.compile(r"(?<=[.!?][\"”’'])\s+|(?<=[.!?])\s+(?=[\"“‘'A-Z])")

_YAML = """\
# Choose the sentence that follows a passage of about {length} tokens; {choices} choices, one right.
task: {task}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {task}.jsonl
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{context}}}}"
doc_to_choice: choices
doc_to_target: answer
target_delimiter: " "
num_fewshot: 0
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
"""


def next_sentence_items(
    texts: Sequence[str], tokenizer: Any, *, length: int, items: int, seed: int = 0
) -> list[dict[str, Any]]:
    """Passages of up to `length` tokens with the sentence that follows and three from elsewhere in the same text.

    Args:
        tokenizer: counts the tokens.
        texts: plain texts.
        length: tokens of a passage.
        items: how many at most.
        seed: decides which passages, and the order of the choices.

    Returns:
        Rows with context, choices and the number of the right one.

    Raises:
        TextError: too few sentences.
    """
    generator = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for text in texts:
        sentences = [part for part in SENTENCE.split(" ".join(text.split())) if part]
        fit = [i for i, part in enumerate(sentences) if WORDS[0] <= len(part.split()) <= WORDS[1]]
        if len(fit) < ENOUGH:
            continue
        counts = [len(bare_ids(tokenizer, sentence)) for sentence in sentences]
        enough = len(rows) + items
        for at in generator.sample(fit, len(fit)):
            start, total = at, 0
            while start > 0 and total + counts[start - 1] <= length:
                start -= 1
                total += counts[start]
            if total < length // 2:
                continue
            others = [sentences[i] for i in fit if (i < start or i > at) and sentences[i] != sentences[at]]
            if len(others) < CHOICES - 1:
                continue
            choices = [sentences[at], *generator.sample(others, CHOICES - 1)]
            order = generator.sample(range(CHOICES), CHOICES)
            rows.append(
                {
                    "context": " ".join(sentences[start:at]),
                    "choices": [choices[i] for i in order],
                    "answer": order.index(0),
                }
            )
            if len(rows) >= enough:
                break
    if not rows:
        raise TextError(
            f"no passage of {length} tokens with a next sentence can be made",
            expected=f"a text with at least {ENOUGH} sentences of {WORDS[0]} to {WORDS[1]} words",
            fix="give more text",
        )
    return generator.sample(rows, min(items, len(rows)))


def write_next_sentence_task(
    texts: Sequence[str], tokenizer: Any, out: str | os.PathLike[str], *, length: int, items: int, seed: int = 0
) -> Path:
    """Write a folder with the task; it appears whole or not at all.

    Args:
        texts, tokenizer, length, items, seed: as in `next_sentence_items`.
        out: folder to make.

    Raises:
        InputError: the folder exists or cannot be written. TextError: see `next_sentence_items`.
    """
    rows = next_sentence_items(texts, tokenizer, length=length, items=items, seed=seed)
    yaml = _YAML.format(length=length, choices=CHOICES, task=TASK)
    return write_task(out, TASK, yaml, rows)
