"""Centroids are trained once, and accuracy is measured where the text allows."""

from __future__ import annotations

import copy
import dataclasses

import pytest

from focus_explorer.errors import InputError
from focus_runtime.evaluate.lm_eval.run import load_tasks, run_tasks
from paper.reports.answers import benchmarks, last_words
from paper.reports.lab import Lab
from paper.tasks.next_sentence import TASK, write_next_sentence_task
from tests.paper.reports.conftest import REPEATED, TEXT, UNIT


def test_trained_centroids_are_found_again(lab, monkeypatch):
    first = lab.trained(0, num_groups=4)
    monkeypatch.setattr("paper.reports.lab.train_centroids", lambda *a, **k: pytest.fail("trained again"))
    assert lab.trained(0, num_groups=4).sha256 == lab.trained(0, num_groups=4).sha256 != ""
    assert first.config == lab.trained(0, num_groups=4).config
    assert lab.key("a", 1) != lab.key("a", 2)


@pytest.mark.slow
def test_accuracy_is_measured_where_the_text_allows(folder, tmp_path):
    pytest.importorskip("lm_eval")
    scale = dataclasses.replace(UNIT, seq_len=160, window=64)
    lab = Lab(scale, str(folder), [REPEATED], [REPEATED], {"train": ["a"], "val": ["b"]}, tmp_path)
    accuracy = last_words(lab, lab.model)
    assert accuracy["beyond"] == 1.0
    assert 0 <= accuracy["short"].low <= accuracy["short"].value <= 1
    assert accuracy["long"].high <= 1
    assert accuracy["tests"]["long"]["difference"]["value"] == 0.0


@pytest.mark.slow
def test_benchmarks_are_run_by_name_and_one_that_cannot_be_had_is_said(lab, tmp_path, monkeypatch):
    pytest.importorskip("lm_eval")
    write_next_sentence_task([TEXT], lab.tokenizer, tmp_path / "tasks", length=72, items=4)
    asked = []

    def loaded(names):
        asked.extend(names)
        if names != ["piqa"]:
            raise InputError("the hub cannot be reached")
        [task] = load_tasks([TASK], task_folder=tmp_path / "tasks").values()
        return {"piqa": task}

    assert benchmarks(lab, lab.model) == {}  # too few items for what must be fetched
    large = copy.copy(lab)
    large.scale = dataclasses.replace(lab.scale, benchmarks=True)
    large.lines, large.answers = [], {}
    monkeypatch.setattr("paper.reports.answers.load_tasks", loaded)
    monkeypatch.setattr("paper.reports.answers.run_tasks", _renamed)
    cells = benchmarks(large, lab.model)
    assert asked == ["hellaswag", "arc_easy", "piqa", "lambada_openai"]
    assert list(cells) == ["piqa"]
    assert 0 <= cells["piqa"].value <= 1
    assert sum("is not measured: the hub cannot be reached" in line for line in large.lines) == 3


def _renamed(model, tokenizer, tasks, **settings):
    """The local task stands for one that only the hub has."""
    [task] = tasks.values()
    return {"piqa": run_tasks(model, tokenizer, {TASK: task}, **settings)[TASK]}


@pytest.mark.slow
def test_another_model_shares_texts_log_and_folder(lab, folder):
    other = lab.under("paper").on_model(str(folder))
    assert (other.recipe_name, other.folder, other.texts) == ("paper", lab.folder, lab.texts)
    assert lab.under("paper").under(lab.recipe_name) is lab
    other.log("from the other")
    assert lab.lines[-1].endswith("from the other")
    with pytest.raises(InputError):
        lab.on_model("nobody/has-this-model")
