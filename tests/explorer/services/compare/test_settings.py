"""Settings, lengths, other runs and generation, measured on a tiny model and checked against plain definitions."""

from __future__ import annotations

import base64
import itertools
import json
import threading
import time

import numpy as np
import pytest
import torch

from focus_explorer.cli import main as cli
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import Cancelled, ConfigError, InputError, NotFoundError
from focus_explorer.services.analyze import AnalyzeRequest, analyze
from focus_explorer.services.compare.lengths import lengths, measure_lengths
from focus_explorer.services.compare.runs import compare_runs, partners
from focus_explorer.services.compare.settings import check_grid, grid, grid_cells, grid_rows, measure_grid, suggested
from focus_explorer.services.run_payload import load_run
from focus_explorer.services.runs import list_runs, run_summary
from focus_explorer.services.service import Service
from focus_explorer.statistics.alignment import align
from focus_explorer.statistics.crossover import crossing
from focus_explorer.ui.questions.answer import answer
from focus_runtime.mask.blocks import count_pairs
from focus_runtime.measure.contingency import adjusted_rand, contingency
from focus_runtime.measure.speed import membership_like
from tests.explorer.conftest import TEXT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def own(tmp_path_factory, model_folder):
    """A service of its own with two runs of one text at different settings."""
    service = Service(tmp_path_factory.mktemp("compare") / "runs.duckdb")
    settings = {"model": model_folder, "centroids": "random", "repeats": 1, "max_tokens": 120}
    first = analyze(service, TEXT, AnalyzeRequest(**settings, top_k=1, window=8))
    second = analyze(service, TEXT, AnalyzeRequest(**settings, top_k=2, window=4))
    analyze(service, TEXT, AnalyzeRequest(**settings | {"max_tokens": 90}))
    return service, first, second


def test_a_grid_measures_every_cell_and_keeps_it(own):
    service, first, _ = own
    rows = measure_grid(service, first, [1, 2], [8, 119], repeats=2)
    assert {(r["kind"], r["top_k"], r["window_size"]) for r in rows} == set(grid_cells([1, 2], [8, 119]))
    assert rows == grid_rows(Service(service.database.path), first)
    cells = {(r["kind"], r["top_k"], r["window_size"]): r for r in rows}
    summary, mine = run_summary(service.database, first), cells["focus", 1, 8]  # the run's own setting, measured again
    assert mine["perplexity_focus"] == pytest.approx(summary["perplexity"]["focus"], rel=1e-4)
    assert mine["perplexity_full"] == pytest.approx(summary["perplexity"]["full"], rel=1e-4)
    assert mine["retained_pairs"] == pytest.approx(summary["retained_pairs"])
    assert mine["dominance"] == pytest.approx(summary["dominance"])
    assert mine["delta_low"] <= mine["delta_mean"] <= mine["delta_high"]
    assert mine["delta_mean"] == pytest.approx(np.log(mine["perplexity_focus"] / mine["perplexity_full"]), abs=1e-9)
    assert mine["repeats"] == 2
    assert mine["scored"] == summary["num_tokens"] - 1
    whole = cells["focus", 1, 119]  # a window over the whole text is full attention
    assert whole["retained_pairs"] == 1
    assert whole["delta_mean"] == pytest.approx(0, abs=1e-5)


def test_the_window_alone_keeps_exactly_the_window_and_the_sinks(own):
    service, first, _ = own
    rows = measure_grid(service, first, [1], [8], repeats=1)
    alone = next(r for r in rows if r["kind"] == "window" and r["window_size"] == 8)
    count, sinks = 120, 4
    pairs = sum(1 for i in range(count) for j in range(i + 1) if i - j <= 8 or j < sinks)
    assert alone["retained_pairs"] == pytest.approx(pairs / (count * (count + 1) / 2))
    assert alone["dominance"] is None
    assert alone["top_k"] == 0
    random = next(r for r in rows if r["kind"] == "random" and (r["top_k"], r["window_size"]) == (1, 8))
    mine = next(r for r in rows if r["kind"] == "focus" and (r["top_k"], r["window_size"]) == (1, 8))
    assert random["perplexity_focus"] != mine["perplexity_focus"]  # other centroids than the run's random ones


def test_stopping_a_grid_keeps_what_was_measured_and_the_model_is_whole(own):
    service, _, second = own
    told = []

    def progress(stage, fraction):
        told.append(stage)
        if len(told) == 4:  # after loading, balancing and one cell
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        measure_grid(service, second, [1], [4, 8], repeats=1, progress=progress)
    assert len(grid_rows(service, second)) == 1
    with pytest.raises(Cancelled):
        measure_grid(service, second, [1], [8], repeats=1, cancelled=lambda: True)
    assert len(grid_rows(service, second)) == 1
    assert len(measure_grid(service, second, [1], [4], repeats=1)) == 3


@pytest.mark.parametrize(
    ("top_k", "window", "repeats", "part"),
    [
        ([], [8], 1, "empty"),
        ([9], [8], 1, "top-k is 9"),
        ([1], [500], 1, "window is 500"),
        ([1], [8], 0, "repeats"),
        ([1, 2, 3, 4], list(range(20)), 1, "cells"),
    ],
)
def test_a_bad_grid_is_refused(own, top_k, window, repeats, part):
    service, first, _ = own
    with pytest.raises(ConfigError, match=part):
        measure_grid(service, first, top_k, window, repeats=repeats)


def test_suggested_values_suit_the_text():
    for tokens, groups, top_k, window in itertools.product((30, 300, 2000, 90_000), (2, 8), (1, 2), (4, 20)):
        found = suggested(groups, tokens, top_k, window)
        assert top_k in found["top_k"]
        assert window in found["window"]
        assert all(1 <= k <= groups for k in found["top_k"])
        assert all(0 < w < tokens for w in found["window"])
        assert len(found["top_k"]) * len(found["window"]) <= 12


def test_the_page_starts_polls_and_stops(own):
    service, first, _ = own
    question = {"what": "compare_grid_start", "run": first, "top_k": [1], "window": [16], "repeats": 1}
    answer(service, question)
    with pytest.raises(InputError, match="another comparison"):
        answer(service, question)
    found = _wait(lambda: answer(service, {"what": "compare_grid", "run": first}))
    assert found["job"]["state"] == "done"
    assert {(c["kind"], c["window_size"]) for c in found["cells"]} >= {("focus", 16), ("window", 16), ("random", 16)}
    json.dumps(found)
    answer(service, question | {"window": [3, 5, 7, 9, 11], "repeats": 20})
    answer(service, {"what": "compare_stop"})
    assert _wait(lambda: answer(service, {"what": "compare_grid", "run": first}))["job"]["state"] == "stopped"
    with pytest.raises(ConfigError, match="window is -1"):
        answer(service, question | {"window": [-1]})
    with pytest.raises(InputError, match="whole numbers"):
        answer(service, question | {"window": "8"})


def _wait(ask, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = ask()
        if found["job"]["state"] not in ("waiting", "running", "stopping"):
            return found
        time.sleep(0.05)
    raise AssertionError("the job did not end")


def test_groups_are_matched_so_that_most_tokens_agree(fresh_seed):
    rng = np.random.default_rng(fresh_seed)
    for sizes in ((4, 4), (3, 5), (5, 3)):
        first, second = (rng.integers(0, size, 60) for size in sizes)
        found = align(first, second, *sizes)
        small, large = sorted(sizes)
        best = 0
        for chosen in itertools.permutations(range(large), small):
            pairs = set(enumerate(chosen)) if sizes[0] <= sizes[1] else {(c, i) for i, c in enumerate(chosen)}
            best = max(best, sum((a, b) in pairs for a, b in zip(first.tolist(), second.tolist(), strict=True)))
        assert found.overlap == pytest.approx(best / 60)
        named = np.array(found.names)[second]
        assert (named == first).mean() == pytest.approx(found.overlap)


def test_rand_index_counts_pairs_of_tokens(fresh_seed):
    rng = np.random.default_rng(fresh_seed)
    first, second = rng.integers(0, 3, 40), rng.integers(0, 4, 40)
    pairs = list(itertools.combinations(range(40), 2))
    a = [first[i] == first[j] for i, j in pairs]
    b = [second[i] == second[j] for i, j in pairs]
    both, chance = sum(x and y for x, y in zip(a, b, strict=True)), sum(a) * sum(b) / len(pairs)
    wanted = (both - chance) / ((sum(a) + sum(b)) / 2 - chance)
    assert adjusted_rand(contingency(first, second, (3, 4))) == pytest.approx(wanted)
    assert adjusted_rand(contingency(first, (first + 1) % 3, (3, 3))) == pytest.approx(1)
    assert adjusted_rand(contingency(first * 0, first * 0, (1, 1))) == 1


def test_two_runs_of_the_same_tokens(own):
    service, first, second = own
    assert [run["run_id"] for run in partners(service, first)] == [second]
    found = compare_runs(service, first, second)
    rows = {name: fetch(service.database, "assignments", run_id=name).to_pylist() for name in (first, second)}
    tops = np.frombuffer(base64.b64decode(found["top"]), np.uint8).reshape(len(found["layers"]), -1)
    for number, layer in enumerate(found["layers"]):
        mine, other = ([r["top_group"] for r in rows[name] if r["layer"] == layer["layer"]] for name in (first, second))
        assert tops[number].tolist() == [layer["names"][group] for group in other]
        assert layer["overlap"] == pytest.approx(np.mean(tops[number] == np.array(mine)))
    ppl = {name: run_summary(service.database, name)["perplexity"]["focus"] for name in (first, second)}
    assert found["difference"]["mean"] == pytest.approx(np.log(ppl[second] / ppl[first]))
    assert found["difference"]["count"] == 119
    with pytest.raises(InputError, match="another text"):
        compare_runs(service, first, list_runs(service.database)[0]["run_id"])


def point(tokens, full, focus, routing=1.0):
    values = {"full": full, "focus": focus}
    spread = {f"{m}_{end}": v for m, v in values.items() for end in ("median", "low", "high")}
    return {"tokens": tokens, "routing_median": routing, **spread}


def test_crossing_lies_where_the_times_are_equal():
    # full = n^2 / 4096 and Focus with routing = n / 2 meet at 2,048; measured on both sides of it
    points = [point(n, n * n / 4096, n / 2 - 1) for n in (512, 1024, 4096, 8192)]
    found = crossing(points[::-1])
    assert (found.kind, found.below, found.above) == ("interpolated", 1024, 4096)
    assert found.tokens == pytest.approx(2048)


def test_crossing_claims_nothing_beyond_what_was_measured():
    assert crossing([]) is None
    assert crossing([point(256, 1, 5), point(512, 4, 6)]).kind == "never"
    assert crossing([point(256, 10, 5), point(512, 40, 6)]).kind == "from the start"
    assert crossing([point(256, 10, 5), point(512, 4, 6)]).kind == "mixed"
    dip = [point(256, 10, 5), point(512, 5, 6), point(1024, 30, 6)]  # faster, slower, faster: only the last counts
    assert crossing(dip).below == 512
    assert not crossing([point(256, 5, 4.5) | {"full_low": 4, "full_high": 6, "focus_high": 6}]).clear


def test_groups_of_another_length_have_the_same_shares(own):
    service, first, _ = own
    layer = load_run(service.database, first)["layer_ids"][0]
    rows = fetch(service.database, "layer_membership", run_id=first, layer=layer)["membership"].to_numpy()
    made = membership_like(torch.from_numpy(rows.copy()), 1000, torch.Generator().manual_seed(0))[0]
    for word in set(rows.tolist()):
        assert (made == word).sum().item() == pytest.approx((rows == word).mean() * 1000, abs=1)


def test_a_runs_own_window_may_be_longer_than_its_text(service, run_id):
    run = fetch_run(service.database, run_id)
    config = json.loads(run["config"]) | {"window": run["num_tokens"] + 50}
    short = run | {"config": json.dumps(config)}
    grid = suggested(config["num_groups"], run["num_tokens"], config["top_k"], config["window"])
    check_grid(short, grid["top_k"], grid["window"], 1)
    with pytest.raises(ConfigError, match="the window is"):
        check_grid(short, [1], [run["num_tokens"] + 49], 1)


def test_lengths_are_measured_and_kept(own):
    service, first, _ = own
    layer = load_run(service.database, first)["layer_ids"][0]
    found = measure_lengths(service, first, layer, seconds=1, repeats=1)["layers"][str(layer)]
    assert found["points"][0]["tokens"] == 256
    assert [p["tokens"] for p in found["points"]] == [256 * 2**i for i in range(len(found["points"]))]
    assert lengths(service, first)["layers"][str(layer)] == found
    rows = fetch(service.database, "layer_membership", run_id=first, layer=layer)["membership"].to_numpy()
    made = membership_like(torch.from_numpy(rows.copy()), 256, torch.Generator().manual_seed(256))[0].numpy()
    assert found["points"][0]["retained_pairs"] == pytest.approx(count_pairs(made, 8, 4).retained_pairs)
    with pytest.raises(NotFoundError, match="no layer 99"):
        measure_lengths(service, first, 99)


def test_generation_goes_on_as_each_mode_alone_would(own):
    service, first, _ = own
    start = {"what": "compare_generation_start", "run": first, "prompt": TEXT[:60], "max_tokens": 6}
    answer(service, start)
    found = _wait(lambda: answer(service, {"what": "compare_generation", "run": first}))
    assert found["job"]["state"] == "done", found["job"]
    sides, layers = found["sides"], load_run(service.database, first)["layer_ids"]
    for mode in ("full", "focus"):
        assert len(sides[mode]["pieces"]) == len(sides[mode]["groups"]) == len(sides[mode]["ms"]) == 6
        assert set(sides[mode]["groups"][0]) == {str(layer) for layer in layers}
        assert "".join(sides[mode]["pieces"]) == sides[mode]["text"]
    json.dumps(found)
    with pytest.raises(InputError, match="prompt is empty"):
        answer(service, start | {"prompt": "  "})
    with pytest.raises(InputError, match="temperature"):
        answer(service, start | {"temperature": 3})


def test_a_job_that_breaks_says_so(own, monkeypatch, capsys):
    service, first, _ = own
    done = threading.Event()

    def broken(*_, **__):
        done.set()
        raise RuntimeError("a defect")

    monkeypatch.setattr("focus_explorer.services.compare.jobs.measure_grid", broken)
    answer(service, {"what": "compare_grid_start", "run": first, "top_k": [1], "window": [8]})
    assert done.wait(5)
    job = _wait(lambda: answer(service, {"what": "compare_grid", "run": first}))["job"]
    assert job["state"] == "failed"
    assert "a defect" not in job["message"]


def test_the_command_measures_the_same(tmp_path, model_folder, capsys):
    text, database = tmp_path / "text.txt", tmp_path / "runs.duckdb"
    text.write_text(TEXT)
    words = [
        "compare",
        str(text),
        "--model",
        model_folder,
        "--centroids",
        "random",
        "--top-k",
        "1",
        "--window",
        "8,16",
        "--repeats",
        "1",
        "--max-tokens",
        "100",
        "--db",
        str(database),
        "--json",
    ]
    assert cli.main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cells"] == grid(Service(database), found["run_id"])["cells"]
    assert len(found["cells"]) == 6
    again = ["compare", found["run_id"], "--top-k", "2", "--window", "8", "--repeats", "1", "--db", str(database)]
    assert cli.main(again) == 0
    out = capsys.readouterr().out
    assert "Window and sinks only" in out
    assert "top-k 2, window 8" in out
    assert cli.main(["compare", str(text), "--top-k", "one", "--db", str(database)]) == 2
