"""The GPU benchmark's smoke mode: the script itself runs on the CPU and says that it measured no GPU."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import attention_gpu as bench
from benchmarks import layer_gpu
from focus_runtime.mask.allowed_pairs import allowed_pairs
from focus_runtime.mask.rule import PairRule
from tests.runtime.attention.inputs import random_membership

SMALL = (layer_gpu.Shape(2, 2, 16), layer_gpu.Shape(4, 2, 16))


@pytest.mark.slow
def test_smoke_run_writes_the_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench, "SHAPES", SMALL)
    monkeypatch.setattr(layer_gpu, "MOST_ROUNDS", 3)
    out = tmp_path / "results" / "gpu.json"
    lengths = ["--lengths", "192,160,300000", "--others-up-to", "192", "--seconds", "20"]
    bench.main(["--device", "cpu", *lengths, "--out", str(out)])
    result = json.loads(out.read_text())
    assert result["measures_a_gpu"] is False
    assert "gpu" not in result["machine"]
    assert [(row["tokens"], row["shape"]) for row in result["rows"]] == [
        (tokens, shape.name) for tokens in (160, 192, 300000) for shape in SMALL
    ]
    row = result["rows"][0]
    assert [(case["K"], case["k"]) for case in row["focus"]] == [(4, 1), (8, 1), (4, 2), (8, 2)]
    case = row["focus"][0]
    assert case["full_over_focus"]["torch"] == pytest.approx(row["full_ms"]["torch"]["median"] / case["ms"]["median"])
    assert "would take" in result["rows"][4]["skipped"]
    assert "left out" in result["rows"][5]["skipped"]
    assert len(result["errors_vs_float64"]) == 8
    assert all(error["relative_error"] < 1e-2 for error in result["errors_vs_float64"])
    assert "2 heads of 16" in capsys.readouterr().out


@pytest.mark.parametrize(("length", "window", "sinks"), [(50, 7, 3), (40, 0, 0), (30, 100, 4)])
def test_pairs_kept_are_those_of_the_mask(length, window, sinks, fresh_seed):
    membership = random_membership(length, groups=5, top_k=2)
    position = torch.arange(length)[None]
    allowed = allowed_pairs(membership, membership, position, position, PairRule(window, sinks)).sum().item()
    assert bench.pairs_kept(membership, window, sinks) == pytest.approx(allowed / (length * (length + 1) / 2))
