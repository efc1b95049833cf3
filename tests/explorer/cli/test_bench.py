"""The bench command on a tiny model: what it writes, and what it says of bad input."""

from __future__ import annotations

import json

import pytest

from focus_explorer.cli.benchmarks import describe_bench
from focus_explorer.cli.main import main
from focus_explorer.views.speed import speed_figure
from focus_runtime.routing.centroid_file import save_centroids
from tests.explorer.cli.conftest import options_in_help
from tests.helpers import build_centroids, build_model

pytestmark = pytest.mark.slow

SMALL = ["--lengths", "16,40,100000", "--layer-lengths", "64,128", "--repeats", "1", "--json"]


@pytest.fixture(scope="module")
def centroid_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("centroids") / "tiny.safetensors"
    save_centroids(build_centroids(build_model(vocab_size=512)), path)
    return str(path)


@pytest.fixture(scope="module")
def result(model_folder, centroid_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    text = folder / "text.txt"
    text.write_text("It is a truth universally acknowledged, that a single man. " * 3)
    arguments = ["bench", "--model", model_folder, "--centroids", centroid_file, "--text", str(text)]
    assert main([*arguments, "--out", str(folder / "out"), *SMALL]) == 0
    return json.loads((folder / "out" / "bench.json").read_text())


def test_every_number_comes_with_that_of_full_attention(result):
    assert [row["tokens"] for row in result["layer"]] == [64, 128]
    assert [row["tokens"] for row in result["prefill"]] == [16, 40]
    assert [row["past_tokens"] for row in result["decode"]] == [16, 40]
    assert result["lengths_beyond_the_text"] == [100000]
    for row in (*result["layer"], *result["prefill"], *result["decode"]):
        assert row["full_over_focus"] == pytest.approx(row["full_ms"]["median"] / row["focus_ms"]["median"])
        assert row["full_ms"]["low"] <= row["full_ms"]["median"] <= row["full_ms"]["high"]
    for row in result["prefill"]:
        assert {"routing", "attention"} <= set(row["stages_ms"]["focus"])
        assert set(row["stages_ms"]["full"]) == {"attention"}
    assert result["perplexity"]["scored_tokens"] == 39
    assert result["perplexity"]["full"] != result["perplexity"]["focus"]
    assert {"machine", "versions", "seed", "config", "centroids_sha256", "dtype"} <= set(result)


def test_the_plot_draws_what_was_measured(result):
    figure = speed_figure(result)
    drawn = {trace.name: (list(trace.x), list(trace.y)) for trace in figure.data}
    with_routing = [row["full_over_focus_with_routing"] for row in result["layer"]]
    assert drawn["one attention layer, heads alike, with routing"] == ([64, 128], with_routing)
    assert drawn["whole model, decode"] == ([16, 40], [row["full_over_focus"] for row in result["decode"]])
    lines = describe_bench(result).splitlines()
    assert all("nan" not in line for line in lines)
    assert len(lines) == 2 + 2 + 2 + 1
    for line, ratio in zip(lines, with_routing, strict=False):
        assert f"{ratio:.2f}x as fast with routing" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lengths", "a,b"], "--lengths is 'a,b'"),
        (["--layer-lengths", "1"], "--layer-lengths is '1'"),
        (["--lengths", "100000"], "expected at least 100,000"),
        (["--repeats", "0"], "--repeats is 0"),
        (["--seed", "99999999999999999999999"], "--seed is 9999"),
        (["--layer-lengths", "99999999999"], "--layer-lengths is '9999"),
        (["--out", "/dev/null/x"], "cannot write"),
    ],
)
def test_bad_input_is_one_line(arguments, message, model_folder, centroid_file, tmp_path, capsys):
    base = ["bench", "--model", model_folder, "--centroids", centroid_file, "--out", str(tmp_path)]
    assert main([*base, "--layer-lengths", "64", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_help_names_the_options(capsys):
    named = {"--model", "--centroids", "--text", "--lengths", "--layer-lengths", "--top-k", "--window", "--sinks"}
    named |= {"--budget", "--window-growth", "--special-tokens"}
    assert options_in_help(capsys, "bench") == named | {
        "--device",
        "--dtype",
        "--backend",
        "--repeats",
        "--seed",
        "--out",
        "--json",
    }
