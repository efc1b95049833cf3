"""The GPU benchmark's smoke mode: the script itself runs on the CPU and says that it measured no GPU."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

from tests.helpers import ROOT

SCRIPT = ROOT / "benchmarks" / "attention_gpu.py"


@pytest.fixture
def bench(monkeypatch):
    spec = importlib.util.spec_from_file_location("attention_gpu", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "attention_gpu", module)
    spec.loader.exec_module(module)
    return module


def test_smoke_run_writes_the_table(bench, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench, "HEADS", 2)
    monkeypatch.setattr(bench, "MOST_ROUNDS", 3)
    out = tmp_path / "results" / "gpu.json"
    bench.main(["--device", "cpu", "--lengths", "192,160,300000", "--seconds", "20", "--out", str(out)])
    result = json.loads(out.read_text())
    assert result["measures_a_gpu"] is False
    assert result["machine"]["kernel"] == "plain torch loop"
    assert [row["tokens"] for row in result["rows"]] == [160, 192, 300000]
    row = result["rows"][0]
    assert [(case["K"], case["k"]) for case in row["focus"]] == [(4, 1), (8, 1), (4, 2), (8, 2)]
    case = row["focus"][0]
    assert case["full_over_focus"] == pytest.approx(row["full_ms"]["median"] / case["focus_ms"]["median"])
    assert set(case["stage_ms"]) == {"sort", "gather", "same_group", "local", "sinks", "merge"}
    assert case["share_of_pairs"] == pytest.approx(0.25, abs=0.01)
    assert "would take" in result["rows"][2]["skipped"]
    assert {error["what"] for error in result["errors_vs_float64"]} == {"full", "focus"}
    assert all(error["max_abs_error"] < 3e-2 for error in result["errors_vs_float64"])
    assert "paper reported" in capsys.readouterr().out


def test_it_asks_for_a_gpu(bench, capsys, monkeypatch):
    monkeypatch.setattr(bench.torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        bench.main([])
    assert "no CUDA GPU found" in capsys.readouterr().err


def test_the_reported_figures_are_those_of_the_method(bench):
    assert bench.REPORTED[4][1048576] == 4.1
    assert bench.REPORTED[8][4096] == 0.6
    assert bench.REPORTED[8][262144] == 7.6
