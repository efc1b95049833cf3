"""A multiple-choice task made from plain text, in the form lm-eval reads: which sentence comes next?

The form is that of TruthfulQA's MC1 (Lin et al., 2022, arXiv 2109.07958): one right answer among several, chosen by
likelihood. The content is another: it asks for memory of the passage, not for truth. No model and no network is needed.
"""

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from focus_runtime.errors import TextError
from focus_runtime.text.special import bare_ids
from paper.output.report import Row

TASK = "next_sentence"
CHOICES = 4
WORDS = (6, 30)  # words of a sentence that may be a choice
ENOUGH = 20  # sentences below which choices would repeat
SENTENCE = re.compile(r"(?<=[.!?][\"”’'])\s+|(?<=[.!?])\s+(?=[\"“‘'A-Z])")
YAML = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")  # what lm-eval reads


def next_sentence_items(texts: Sequence[str], tokenizer: Any, *, length: int, items: int, seed: int = 0) -> list[Row]:
    """At most `items` passages of up to `length` tokens with the sentence that follows and three from elsewhere.

    Returns:
        Rows with context, choices and the number of the right one; the seed decides which, and the order of choices.

    Raises:
        TextError: too few sentences.
    """
    generator = random.Random(seed)
    rows = []
    for text in texts:
        sentences = [part for part in SENTENCE.split(" ".join(text.split())) if part]
        rows += [row for row, _ in zip(_of_text(sentences, tokenizer, length, generator), range(items), strict=False)]
    if not rows:
        raise TextError(
            f"no passage of {length} tokens with a next sentence can be made",
            expected=f"a text with at least {ENOUGH} sentences of {WORDS[0]} to {WORDS[1]} words",
            fix="give more text",
        )
    return generator.sample(rows, min(items, len(rows)))


def _of_text(sentences: list[str], tokenizer: Any, length: int, generator: random.Random) -> Iterator[Row]:
    fit = [i for i, part in enumerate(sentences) if WORDS[0] <= len(part.split()) <= WORDS[1]]
    if len(fit) < ENOUGH:
        return
    counts = [len(bare_ids(tokenizer, sentence)) for sentence in sentences]
    for at in generator.sample(fit, len(fit)):
        start, total = at, 0
        while start > 0 and total + counts[start - 1] <= length:
            start -= 1
            total += counts[start]
        others = [sentences[i] for i in fit if (i < start or i > at) and sentences[i] != sentences[at]]
        if total < length // 2 or len(others) < CHOICES - 1:
            continue
        choices = [sentences[at], *generator.sample(others, CHOICES - 1)]
        order = generator.sample(range(CHOICES), CHOICES)
        context = " ".join(sentences[start:at])
        yield {"context": context, "choices": [choices[i] for i in order], "answer": order.index(0)}
