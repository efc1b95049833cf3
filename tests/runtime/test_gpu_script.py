"""`make gpu` in its smoke mode: every part runs on the CPU, failures are results, and nothing waits for the end."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import gpu

pytestmark = pytest.mark.slow


def results(folder):
    return json.loads((folder / "gpu.json").read_text()), (folder / "gpu.md").read_text()


def test_models_and_an_analysis_are_measured(tmp_path, capsys):
    gpu.main(["--device", "cpu", "--out", str(tmp_path / "out"), "--part", "models", "--part", "analyze"])
    found, table = results(tmp_path / "out")
    rows = found["models"]["tiny"]
    assert [row["tokens"] for row in rows] == list(gpu.SMOKE_LENGTHS)
    assert all(row[part]["full_over_focus"] > 0 for row in rows for part in ("prefill", "decode"))
    assert found["analyze"]["tokens"] == gpu.SMOKE_LENGTHS[0]
    assert all(0 < share < 1 for share in found["analyze"]["retained_pairs"])
    assert "No GPU: smoke run" in table
    assert "## tiny, random weights" in table
    assert table in capsys.readouterr().out


def test_a_part_that_fails_is_written_down_and_the_next_runs(tmp_path, monkeypatch):
    def broken(report):
        raise RuntimeError("no kernel image is available\nat line 7")

    monkeypatch.setattr(gpu, "layer_table", broken)
    monkeypatch.setattr(gpu, "gpu_tests", lambda report: {"status": 1, "tail": ["3 failed, 200 passed"]})
    monkeypatch.setattr(gpu, "whole_models", broken)
    gpu.main(["--device", "cpu", "--out", str(tmp_path)])
    found, table = results(tmp_path)
    assert found["layer"] == found["models"] == {"error": "RuntimeError: no kernel image is available"}
    assert found["analyze"]["seconds"] > 0
    assert "3 failed, 200 passed" in table
    assert table.count("no kernel image is available") == 2


def test_no_memory_and_no_time_are_results(tmp_path, monkeypatch):
    def full(focus, ids, **_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(gpu, "prefill_speed", full)
    report = gpu.Report(tmp_path, 1000.0, smoke=True)
    report.add("models", lambda: gpu.whole_models(report))
    row = results(tmp_path)[0]["models"]["tiny"][0]
    assert row["prefill"] == {"error": "out of memory"}
    assert row["decode"]["full_over_focus"] > 0
    late = gpu.Report(tmp_path, 0.0, smoke=True)
    late.add("models", lambda: gpu.whole_models(late))
    found, table = results(tmp_path)
    assert all("were left" in row["skipped"] for row in found["models"]["tiny"])
    assert "0 s were left" in table


def test_it_asks_for_a_gpu(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        gpu.main(["--out", str(tmp_path)])
    assert "no CUDA GPU found" in capsys.readouterr().err
