"""A task made from a sample text, on the embedded model with the shipped centroids, item by item."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from focus_explorer.usecases.texts import sample_text
from focus_runtime.composition.attach import compose
from focus_runtime.evaluate.last_word import write_last_word_tasks
from focus_runtime.models.loading import load_model
from focus_runtime.routing.centroid_file import load_centroids

pytestmark = [pytest.mark.model, pytest.mark.long]


def test_last_words_under_focus_are_what_the_composed_model_says(tmp_path):
    pytest.importorskip("lm_eval")
    from focus_runtime.evaluate.lm_eval.run import compare_tasks, load_tasks, run_tasks

    model, tokenizer = load_model("smollm2-135m")
    texts = [(name, sample_text(name)) for name in ("Novel", "Dialogue", "Source code")]
    write_last_word_tasks(texts, tokenizer, tmp_path / "tasks", lengths=(48, 112), items=3, window=48)
    tasks = load_tasks([], task_folder=tmp_path / "tasks")
    focus = compose(model, load_centroids("novels"), top_k=1, window=48)
    try:
        with focus.full_attention():
            full = run_tasks(model, tokenizer, tasks, window=48, num_sinks=4, batch_size=3)
        sparse = run_tasks(focus, tokenizer, tasks, window=48, num_sinks=4, batch_size=3)
        expected = []
        for line in (tmp_path / "tasks" / "last_word_112.jsonl").read_text().splitlines():
            row = json.loads(line)
            before = len(tokenizer(row["context"]).input_ids)
            ids = torch.tensor([tokenizer(row["context"] + row["target"]).input_ids])
            with torch.no_grad():
                likely = model(ids).logits[0, before - 1 : -1].double().log_softmax(-1)
            expected.append(likely.gather(-1, ids[0, before:, None]).sum().item())
    finally:
        focus.detach()
    np.testing.assert_allclose(sparse["last_word_112"].metrics["perplexity"].items, expected, atol=1e-3)
    report = compare_tasks(full, sparse)
    assert (report["last_word_112"]["longer_than_window"], report["last_word_48"]["may_differ"]) == (1, 0)
    short, long = (report[f"last_word_{length}"]["metrics"]["perplexity"]["difference"] for length in (48, 112))
    assert abs(short["value"]) < 1e-3
    assert abs(long["value"]) > 1e-3
