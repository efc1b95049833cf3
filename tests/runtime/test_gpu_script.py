"""`make gpu` in its smoke mode: every part runs on the CPU, failures are results, and nothing waits for the end."""

from __future__ import annotations

import gc
import json
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from benchmarks import gpu, gpu_default_model, gpu_models, gpu_tables, short_gpu
from focus_runtime.composition.attach import compose
from focus_runtime.measure.speed import decode_speed
from focus_runtime.measure.speed import model as model_speed
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


def out_of_memory(focus, ids, **_):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def test_no_memory_and_no_time_are_results(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_models, "prefill_speed", out_of_memory)
    report = gpu.Report(tmp_path, 1000.0, smoke=True)
    report.add("models", lambda: gpu.whole_models(report))
    row = results(tmp_path)[0]["models"]["tiny"][0]
    assert row["prefill"] == {"error": "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"}
    assert row["decode"]["full_over_focus"] > 0
    late = gpu.Report(tmp_path, 0.0, smoke=True)
    late.add("models", lambda: gpu.whole_models(late))
    found, table = results(tmp_path)
    assert all("were left" in row["skipped"] for row in found["models"]["tiny"])
    assert "0 s were left" in table


def test_a_text_whose_caches_are_too_much_is_timed_without_them(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_models, "single_prefill_speed", out_of_memory)
    report = gpu.Report(tmp_path, 1000.0, smoke=True)
    report.add("models", lambda: gpu.whole_models(report))
    last = results(tmp_path)[0]["models"]["tiny"][-1]
    assert last["prefill"]["full_over_focus"] > 0
    assert last["prefill"]["cached_error"] == "CUDA out of memory. Tried to allocate 2.00 GiB"
    assert last["decode"] == {"error": "no cache was filled"}


def test_what_fails_at_one_length_leaves_the_rows_of_the_others(tmp_path, monkeypatch):
    def broken(focus, ids, **_):
        if ids.shape[1] == gpu_models.SMOKE_LENGTHS[-1]:
            raise RuntimeError("no plan was found\nat line 7")
        return decode_speed(focus, ids, steps=2)

    monkeypatch.setattr(gpu_models, "decode_speed", broken)
    report = gpu.Report(tmp_path, 1000.0, smoke=True)
    report.add("models", lambda: gpu.whole_models(report))
    first, last = results(tmp_path)[0]["models"]["tiny"]
    assert first["decode"]["steps"] == 2
    assert last["prefill"]["cached"]
    assert last["decode"] == {"error": "RuntimeError: no plan was found"}


ON_AN_H100 = {  # seconds of a pass by full attention and one by Focus, by length; of a decode step of each
    "Llama 3.2 1B": ({8192: 0.10, 32768: 0.52, 131072: 4.3}, 0.07),
    "Mistral 7B": ({8192: 0.52, 32768: 2.45, 131072: 24.0}, 0.10),
    "Gemma 2 9B": ({8192: 0.76, 32768: 3.43, 131072: 24.0}, 0.25),
}


class H100:
    """Stands for the measurements on an H100: a clock that goes on by what they are estimated to take.

    Args:
        monkeypatch: puts it in their place.
        begun: seconds to make a model and compile its kernels.
    """

    def __init__(self, monkeypatch, begun=20.0):
        self.now, self.name, self.begun = 0.0, "", begun
        for script in (gpu, gpu_models):
            monkeypatch.setattr(script, "time", SimpleNamespace(perf_counter=lambda: self.now))
        monkeypatch.setattr(gpu_models, "random_ids", lambda length, device: torch.empty(1, length, device="meta"))
        monkeypatch.setattr(gpu_models, "random_model", self.model)
        monkeypatch.setattr(gpu_models, "prefill_speed", self.prefill)
        monkeypatch.setattr(gpu_models, "single_prefill_speed", self.single)
        monkeypatch.setattr(gpu_models, "decode_speed", self.decode)
        monkeypatch.setattr(gpu_models, "MODELS", {name: name for name in gpu_models.MODELS})

    def rows(self, folder, seconds):
        report = gpu.Report(folder, seconds, smoke=False, parts=("models",), start=0.0)
        report.add("models", lambda: gpu.whole_models(report))
        return results(folder)[0]["models"]

    @contextmanager
    def model(self, name, longest, device):
        self.name, self.now = name, self.now + self.begun
        yield None

    def passes(self, ids, number):
        both = ON_AN_H100[self.name][0][ids.shape[1]]
        self.now += number * both
        return self.medians(both)

    def medians(self, both):
        return {f"{mode}_ms": {"median": 500 * both} for mode in ("full", "focus")} | {"full_over_focus": 1.0}

    def prefill(self, focus, ids, *, repeats):
        return self.passes(ids, 2 + 2 * repeats)

    def single(self, focus, ids, *, steps):
        return self.passes(ids, 1) | {"cached": True, "cache_bytes": 0}, {"full": None}

    def decode(self, focus, ids, *, steps, filled):
        if filled is None:
            self.passes(ids, 1)
        both = ON_AN_H100[self.name][1]
        self.now += 2 * (steps + 1) * both
        return self.medians(both)


@pytest.mark.parametrize("begun", [20.0, 30.0])
def test_250_seconds_are_enough_for_all_models(tmp_path, monkeypatch, begun):
    gpu_there = H100(monkeypatch, begun)
    found = gpu_there.rows(tmp_path, 250.0)
    assert list(found) == ["Llama 3.2 1B", "Mistral 7B", "Gemma 2 9B"]
    for rows in found.values():
        assert [row["tokens"] for row in rows] == list(gpu_models.LENGTHS)
        assert [row["prefill"].get("cached") for row in rows] == [None, None, True]
        assert all("error" not in row["decode"] for row in rows)
    assert gpu_there.now < 250


def test_lengths_that_would_take_too_long_are_skipped_in_time(tmp_path, monkeypatch):
    gpu_there = H100(monkeypatch)
    found = gpu_there.rows(tmp_path, 150.0)
    assert gpu_there.now <= 150
    skipped = [row["skipped"] for rows in found.values() for row in rows if "skipped" in row]
    assert skipped
    assert all(" s were left, about " in why and why.endswith(" s needed") for why in skipped)


def test_parts_share_the_time_that_was_given():
    alone, last = (
        gpu.Report(None, 1000.0, smoke=True, parts=parts) for parts in (("models",), ("layer", "models", "profile"))
    )
    assert alone.left("models") == pytest.approx(1000, abs=5)
    assert last.left("models") == pytest.approx(1000 * 0.5 / 0.55, abs=5)
    assert gpu.Report(None, 1000.0, smoke=True).left("models") == pytest.approx(700, abs=5)


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


def test_the_table_of_models_says_what_a_peak_counts_and_leaves_out_what_is_missing():
    times = {"full_ms": {"median": 3168.0}, "focus_ms": {"median": 1072.0}, "full_over_focus": 2.96}
    prefill = times | {"attention_full_over_focus": 5.5, "peak_bytes": {"full": 13e9, "focus": 13.1e9}}
    rows = [
        {"tokens": 8192, "prefill": prefill, "decode": times},
        {"tokens": 32768, "skipped": "3 s were left, about 20 s needed"},
        {"tokens": 131072, "prefill": prefill | {"cached": True, "cache_bytes": 4.3e9}, "decode": {"error": "no"}},
    ]
    *_, first, last = gpu_tables.whole_models({"models": {"some": rows}}).splitlines()
    assert first.endswith("| 3,168, 1,072 | 2.96× | 13.0, 13.1 |")
    assert last.endswith("| 131,072 | 3,168 | 1,072 | 3.0× | 5.5× |  |  | 13.0, 13.1, 4.3 of it cache |")


@pytest.mark.model
def test_the_default_model_is_asked_what_users_ask(tmp_path, monkeypatch):
    smaller = {"CONTEXT": 150, "GENERATED": 4, "ANALYSED": 140, "TRAIN_TOKENS": 64, "TRAIN_STEPS": 2, "DECODE_STEPS": 2}
    for name, number in smaller.items():
        monkeypatch.setattr(gpu_default_model, name, number)
    command = ["--device", "cpu", "--out", str(tmp_path), "--model", "smollm2-135m", "--part", "default"]
    text = tmp_path / "text.txt"
    text.write_text("The harbour was quiet, and the cat came back again to the old boat. " * 40)
    gpu.main([*command, "--text", str(text)])
    found = results(tmp_path)[0]["default"]
    assert not [part for part, value in found.items() if isinstance(value, dict) and "error" in value]
    assert found["perplexity"]["torch.float32 auto"]["full"] > 1
    assert found["analyze"]["tokens"] == 140
    assert found["generation"]["full_new_tokens"] == found["generation"]["focus_new_tokens"] == 4
    assert found["train"]["finite"]
    text.write_text("Too short.")
    gpu.main([*command, "--text", str(text)])
    assert "150 are needed" in results(tmp_path)[0]["default"]["error"]


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
