"""Generated problems are solved rightly in their examples, and their form is what lm-eval reads."""

from __future__ import annotations

import json
import re

import pytest

from focus_runtime.errors import InputError
from paper.tasks.word_problems import EXAMPLES, TASK, word_problems, write_word_problems_task


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


def test_a_folder_is_written_once(tmp_path):
    folder = write_word_problems_task(tmp_path / "tasks", items=3)
    lines = (folder / f"{TASK}.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == word_problems(3)
    with pytest.raises(InputError, match="is in use"):
        write_word_problems_task(folder, items=3)
