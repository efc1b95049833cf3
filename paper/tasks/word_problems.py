"""Arithmetic in words, generated, in the form lm-eval reads: eight solved examples, a question, an answer by writing.

The form is that of GSM8K (Cobbe et al., 2021, arXiv 2110.14168) asked with eight examples: steps in sentences, the
result after "####", compared exactly. The content is of a few sentence patterns, far more alike than GSM8K's, so that a
score here says nothing of a score there; it tells whether a mask over the examples changes answers.
"""

import random
from collections.abc import Callable
from pathlib import Path

TASK = "word_problems"
EXAMPLES = 8
NAMES = ("Anna", "Ben", "Clara", "David", "Ella", "Frank", "Grace", "Henry", "Ida", "Jacob")
THINGS = ("apples", "books", "candles", "eggs", "letters", "pencils", "plates", "shells", "stamps", "stones")

YAML = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")  # what lm-eval reads


def _bought(draw: random.Random) -> tuple[str, str, int]:
    name, thing = draw.choice(NAMES), draw.choice(THINGS)
    first, boxes, each = draw.randint(2, 20), draw.randint(2, 6), draw.randint(2, 9)
    return (
        f"{name} has {first} {thing} and buys {boxes} boxes with {each} {thing} each. How many {thing} are there now?",
        f"The boxes hold {boxes} * {each} = {boxes * each} {thing}. Together that is {first} + {boxes * each} = "
        f"{first + boxes * each}.",
        first + boxes * each,
    )


def _given(draw: random.Random) -> tuple[str, str, int]:
    (name, friend), thing = draw.sample(NAMES, 2), draw.choice(THINGS)
    first, given, found = draw.randint(12, 40), draw.randint(2, 11), draw.randint(2, 20)
    return (
        f"{name} had {first} {thing}, gave {given} to {friend} and then found {found} more. How many {thing} does "
        f"{name} have?",
        f"After giving there are {first} - {given} = {first - given} {thing}. With those found it is {first - given} + "
        f"{found} = {first - given + found}.",
        first - given + found,
    )


PATTERNS: tuple[Callable[[random.Random], tuple[str, str, int]], ...] = (_bought, _given)


def word_problems(items: int, *, seed: int = 0) -> list[dict[str, str]]:
    """Questions, each after eight solved ones: rows with context and answer, a number in digits."""
    draw = random.Random(seed)
    rows = []
    for _ in range(items):
        *solved, (question, _, result) = (draw.choice(PATTERNS)(draw) for _ in range(EXAMPLES + 1))
        shown = [f"Question: {asked}\nAnswer: {steps} #### {value}" for asked, steps, value in solved]
        rows.append({"context": "\n\n".join([*shown, f"Question: {question}\nAnswer:"]), "answer": str(result)})
    return rows
