"""Tasks made here: right answers, fresh wrong ones, solved examples, and lm-eval's score of them."""

from __future__ import annotations

import json
import re

import pytest
import torch

from focus_runtime.errors import TextError
from focus_runtime.evaluate.last_word import write_task
from paper.tasks.next_sentence import TASK, YAML, next_sentence_items
from paper.tasks.word_problems import EXAMPLES, word_problems
from tests.helpers import build_model, build_tokenizer

SENTENCES = [f"On day {number} the letter said that matter {number * 7} was at an end." for number in range(60)]
TEXT = " ".join(SENTENCES)


def test_the_right_choice_follows_the_passage_and_the_others_do_not():
    tokenizer = build_tokenizer()
    rows = next_sentence_items([TEXT], tokenizer, length=200, items=25, seed=3)
    assert len(rows) == 25
    for row in rows:
        assert row["context"] + " " + row["choices"][row["answer"]] in TEXT
        assert len(set(row["choices"])) == 4
        wrong = [c for i, c in enumerate(row["choices"]) if i != row["answer"]]
        assert all(c in TEXT and c not in row["context"] for c in wrong)
        assert 100 <= len(tokenizer(row["context"]).input_ids) <= 200
    assert len({row["answer"] for row in rows}) > 1


def test_too_little_text_is_said():
    with pytest.raises(TextError, match="at least 20 sentences"):
        next_sentence_items(["One sentence. And another."], build_tokenizer(), length=50, items=5)


@pytest.mark.slow
def test_the_harness_scores_it_as_the_likelihoods_say(tmp_path):
    pytest.importorskip("lm_eval")
    from focus_runtime.evaluate.lm_eval.run import load_tasks, run_tasks

    tokenizer, model = build_tokenizer(), build_model(max_position_embeddings=512)
    rows = next_sentence_items([TEXT], tokenizer, length=120, items=8)
    folder = write_task(tmp_path / "task", TASK, YAML, rows)
    evaluated = run_tasks(model, tokenizer, load_tasks([], task_folder=folder), window=16)["next_sentence"]
    right = []
    for line in (folder / "next_sentence.jsonl").read_text().splitlines():
        row = json.loads(line)
        scores = []
        for choice in row["choices"]:
            whole = tokenizer(row["context"] + " " + choice, return_tensors="pt").input_ids
            start = len(tokenizer(row["context"]).input_ids)
            logs = torch.log_softmax(model(whole).logits[0, :-1].double(), -1)
            scores.append(sum(logs[i - 1, whole[0, i]].item() for i in range(start, whole.shape[1])))
        right.append(float(scores.index(max(scores)) == row["answer"]))
    assert evaluated.metrics["acc"].items.tolist() == right
    assert evaluated.beyond_window.all()


def test_every_example_is_solved_rightly(fresh_seed):
    rows = word_problems(40, seed=fresh_seed)
    for row in rows:
        *solved, asked = row["context"].split("\n\n")
        assert len(solved) == EXAMPLES
        assert asked.endswith("\nAnswer:")
        for example in solved:
            steps, result = example.split("\nAnswer: ")[1].split(" #### ")
            computed = re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+)", steps)
            assert len(computed) == 2
            for left, sign, right, value in computed:
                a, b = int(left), int(right)
                assert int(value) == {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[sign]
            assert computed[-1][-1] == result
        assert int(row["answer"]) > 0
    assert word_problems(40, seed=fresh_seed) == rows
    assert len({row["context"] for row in rows}) == 40
