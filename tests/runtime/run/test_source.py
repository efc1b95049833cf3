"""The documents of a source, and what is said of those that are skipped."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from focus_runtime.run.source import Document, Skipped, Source

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


def test_lone_surrogates_do_not_end_the_reading(tmp_path):
    lines = tmp_path / "x.jsonl"
    lines.write_text('{"text": "\\ud800"}\n{"text": "words"}\n')
    assert [getattr(one, "kind", "read") for one in Source(lines).read()] == ["not UTF-8", "read"]
