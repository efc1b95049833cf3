"""The documents of a source, and what is said of those that are skipped."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from focus_runtime.config import TextOptions
from focus_runtime.errors import TextError
from focus_runtime.run.documents import DocumentAnalyst
from focus_runtime.run.source import Document, Skipped, Source
from focus_runtime.run.text import analyze
from tests.helpers import build_centroids, build_model

CHINESE = "\u6d77" * 600  # three bytes each in UTF-8


def test_a_line_without_the_key_is_not_called_empty(tmp_path):
    lines = tmp_path / "x.jsonl"
    lines.write_text('{"text": "words"}\n{"body": "other words"}\n{"text": null}\n{"text": " "}\n')
    found = list(Source(lines).read())
    assert found[0] == Document("x.jsonl:0", "words")
    assert found[1] == Skipped("x.jsonl:1", "not text", "the line has no 'text'")
    assert [one.reason for one in found[2:]] == ["the text is empty"] * 2


@pytest.mark.parametrize(("limit", "taken"), [(1000, False), (1800, True)])
def test_the_limit_counts_bytes_of_files_lines_and_rows(tmp_path, limit, taken):
    (tmp_path / "a.txt").write_text(CHINESE, encoding="utf-8")
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": CHINESE}), encoding="utf-8")
    pq.write_table(pa.table({"text": [CHINESE]}), tmp_path / "c.parquet")
    found = list(Source(tmp_path, glob="*", max_bytes=limit).read())
    assert [isinstance(one, Document) for one in found] == [taken] * 3
    assert taken or {one.kind for one in found} == {"too large"}


TEXT = "the harbour was quiet and the cat sat on the mat; nobody came, nobody left. " * 2


def test_learned_and_random_groups_are_those_of_the_engine(tiny_model, tokenizer):
    learned, random = build_centroids(tiny_model), build_centroids(tiny_model, seed=7)
    before = torch.cat([p.flatten() for p in tiny_model.parameters()]).clone()
    implementation = tiny_model.config._attn_implementation
    options = TextOptions(top_k=2, window=6, max_tokens=90)
    with DocumentAnalyst(tiny_model, tokenizer, learned, random, options, tags=False) as analyst:
        with pytest.raises(TextError, match="1 token"):
            analyst.analyze(Document("short", "x"))
        tables = [analyst.analyze(Document("a", TEXT)) for _ in range(2)]
    assert tables[0]["assignments"].equals(tables[1]["assignments"])
    assert tiny_model.config._attn_implementation == implementation
    assert torch.equal(before, torch.cat([p.flatten() for p in tiny_model.parameters()]))
    groups, document = tables[0]["assignments"], tables[0]["document"].to_pylist()[0]
    for centroids, prefix, mode in ((learned, "", "focus"), (random, "random_", "random")):
        trace = analyze(tiny_model, tokenizer, TEXT, centroids, replace(options, repeats=1))
        for name, values in (
            ("membership", [layer.membership for layer in trace.layers]),
            ("top_group", [layer.top_group for layer in trace.layers]),
        ):
            assert groups[prefix + name].to_pylist() == np.concatenate(values).tolist()
        assert document[f"perplexity_{mode}"] == pytest.approx(trace.perplexity("focus"), rel=1e-6)
        assert document["perplexity_full"] == pytest.approx(trace.perplexity("full"), rel=1e-6)
    assert (document["num_tokens"], document["total_tokens"]) == (90, len(TEXT))
    assert "first 90" in document["notes"]


def test_a_text_beyond_learned_positions_is_a_text_error(tokenizer):
    model = build_model("GPT2")  # 256 of them
    with (
        DocumentAnalyst(model, tokenizer, build_centroids(model), None, TextOptions(), tags=False) as analyst,
        pytest.raises(TextError, match="positions"),
    ):
        analyst.analyze(Document("a", TEXT * 2))
