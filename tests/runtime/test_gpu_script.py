"""`make gpu` in its smoke mode: every part runs on the CPU, failures are results, and nothing waits for the end."""

from __future__ import annotations

import gc
import json

import pytest
import torch

from benchmarks import gpu, gpu_models, short_gpu
from focus_runtime.composition.attach import compose
from focus_runtime.measure.speed import model as model_speed
from focus_runtime.measure.speed.model import decode_speed
from tests.helpers import TINY, build_centroids, build_model, random_ids

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def _set_aside():
    """The script looks for garbage between models, through all that the tests before have imported: 0.2 s each time."""
    gc.collect()
    gc.freeze()


def results(folder):
    return json.loads((folder / "gpu.json").read_text()), (folder / "gpu.md").read_text()


def test_models_are_measured(tmp_path, capsys):
    gpu.main(["--device", "cpu", "--out", str(tmp_path / "out"), "--part", "models", "--part", "default"])
    found, table = results(tmp_path / "out")
    rows = found["models"]["tiny"]
    assert [row["tokens"] for row in rows] == list(gpu_models.SMOKE_LENGTHS)
    assert all(row[part]["full_over_focus"] > 0 for row in rows for part in ("prefill", "decode"))
    assert [row["prefill"].get("cached", False) for row in rows] == [False, True]
    assert [row["prefill"]["full_ms"]["repeats"] for row in rows] == [gpu_models.REPEATS, 1]
    assert found["default"] == {"skipped": "no --model and --text given"}
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
    assert found["profile"] == found["short"] == {"skipped": "no GPU"}
    assert "3 failed, 200 passed" in table
    assert table.count("no kernel image is available") == 2


@pytest.mark.parametrize("with_peaks", [True, False])
def test_the_pass_that_is_timed_fills_the_caches(monkeypatch, with_peaks):
    model, ids = build_model(), random_ids(60)
    focus = compose(model, build_centroids(model))
    if not with_peaks:
        monkeypatch.setattr(model_speed, "peak_growth", lambda work, device: None)
    lengths = []
    hook = model.register_forward_pre_hook(
        lambda module, args, kwargs: lengths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    row, filled = model_speed.single_prefill_speed(focus, ids, steps=3)
    first = {mode: cache.last.clone() for mode, cache in filled.items()}
    steps = decode_speed(focus, ids, steps=3, filled=filled)
    hook.remove()
    assert lengths == [60] * 2 + [1] * 8
    assert row["cached"]
    assert row["full_ms"]["repeats"] == row["focus_ms"]["repeats"] == 1
    assert row["attention_full_over_focus"] > 0
    assert (row["peak_bytes"]["full"] is not None) == with_peaks
    config = model.config
    entries = config.num_hidden_layers * config.num_key_value_heads * config.head_dim * (60 + 2 * 3 + 3)
    assert row["cache_bytes"] == 2 * 4 * entries
    assert (steps["past_tokens"], steps["full_ms"]["repeats"]) == (60, 3)
    with torch.no_grad():
        assert torch.equal(first["focus"][0], model(input_ids=ids).logits[:, -1].argmax(-1))
        with focus.measured_full_attention():
            assert torch.equal(first["full"][0], model(input_ids=ids).logits[:, -1].argmax(-1))
    focus.detach()


def test_it_asks_for_a_gpu(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        gpu.main(["--out", str(tmp_path)])
    assert "no CUDA GPU found" in capsys.readouterr().err


def test_a_small_model_waits_for_the_host(tmp_path, monkeypatch):
    """The script's smoke run, with a model smaller still."""
    monkeypatch.setattr(short_gpu, "SMALL", TINY)
    monkeypatch.setattr(short_gpu, "default_centroids", lambda device: build_centroids(build_model()))
    parts = ["--part", "model", "--part", "host"]
    short_gpu.main(["--device", "cpu", *parts, "--out", str(tmp_path / "short.json")])
    found = json.loads((tmp_path / "short.json").read_text())
    assert not found["measures_a_gpu"]
    assert {"prefill 64", "decode, full", "decode, focus"} < set(found["model"])
    assert all(times["median"] > 0 for times in found["model"]["prefill 64"].values())
    assert set(found["host"]["a layer"]) == {"full attention", "focus", "focus, launches left out"}
    assert all(times["low"] > 0 for times in found["host"]["a layer"].values())
    assert found["host"]["a view"]["low"] < found["host"]["a layer"]["full attention"]["low"]
