"""`--window-growth` of every command that has it: the mask that ran, what continues a run, and refusals in one line."""

from __future__ import annotations

import pytest

from focus_explorer.cli.main import main
from focus_explorer.usecases.centroids.files import add_centroids
from focus_explorer.usecases.run_model import request_of
from focus_explorer.usecases.runs import run_summary
from focus_explorer.usecases.service import Service
from focus_runtime.routing.centroid_file import save_centroids
from tests.explorer.conftest import TEXT, ran
from tests.helpers import build_centroids, build_model

pytestmark = pytest.mark.slow
WINDOW, LENGTH, GROWTH = 3, 100, (10, 60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A text and two centroid files that differ in whether their windows grow."""
    folder = tmp_path_factory.mktemp("growth")
    (folder / "text.txt").write_text(TEXT[:LENGTH])
    for name, growth in (("grows", GROWTH), ("constant", None)):
        model = build_model(vocab_size=512, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4)
        file = build_centroids(model, top_k=1, window=WINDOW, num_sinks=0, window_growth=growth)
        save_centroids(file, folder / f"{name}.safetensors")
    return folder


def analysed(capsys, folder, model, name, *more):
    words = ["analyze", folder / "text.txt", "--model", model, "--centroids", folder / f"{name}.safetensors"]
    return ran(capsys, *words, "--repeats", 1, "--db", folder / "runs.duckdb", "--json", *more)


def same_numbers(one, other):
    return all(one[name] == pytest.approx(other[name]) for name in ("retained_pairs", "perplexity"))


def test_it_replaces_the_files_own(capsys, folder, heads_model):
    own, constant = (analysed(capsys, folder, heads_model, name) for name in ("grows", "constant"))
    assert own["config"]["window_growth"] == list(GROWTH)
    assert own["retained_pairs"] > constant["retained_pairs"]
    without = analysed(capsys, folder, heads_model, "grows", "--window-growth", 1, 1)
    assert "window_growth" not in without["config"]
    assert same_numbers(without, constant)
    grown = analysed(capsys, folder, heads_model, "constant", "--window-growth", *GROWTH)
    assert same_numbers(grown, own)


def test_what_continues_a_run_keeps_it(capsys, folder, heads_model):
    """The setting of a run on a file that says otherwise: measured again, and asked for again."""
    database = ["--db", folder / "runs.duckdb"]
    service = Service(folder / "runs.duckdb")
    grid = ["--top-k", 1, "--window", WINDOW, "--repeats", 1, "--json"]
    for name, growth in (("grows", (1, 1)), ("constant", GROWTH)):
        add_centroids(service, folder / f"{name}.safetensors", name, None)
        run = analysed(capsys, folder, heads_model, name, "--window-growth", *growth)
        cells = ran(capsys, "compare", run["run_id"], *database, *grid)["cells"]
        focus = next(cell for cell in cells if cell["kind"] == "focus")
        assert focus["retained_pairs"] == pytest.approx(run["retained_pairs"])
        assert request_of(run_summary(service.database, run["run_id"])["config"], name, None).window_growth == growth


def test_compare_bench_evaluate_and_a_folder_take_it_too(capsys, folder, heads_model, tmp_path):
    grows, constant = (
        ["--model", heads_model, "--centroids", folder / f"{name}.safetensors"] for name in ("grows", "constant")
    )
    off, text = ["--window-growth", 1, 1, "--json"], ["--text", folder / "text.txt"]
    database = ["--db", tmp_path / "runs.duckdb"]
    grid = ["--top-k", 1, "--window", WINDOW, "--repeats", 1]
    given = ([*grows, *off], [*constant, "--json"], [*grows, "--json"])
    measured = [ran(capsys, "compare", folder / "text.txt", *words, *database, *grid)["cells"] for words in given]
    pairs = [{cell["kind"]: cell["retained_pairs"] for cell in cells} for cells in measured]
    assert pairs[0] == pytest.approx(pairs[1])
    assert pairs[2]["window"] > 2 * pairs[1]["window"]
    short = ["--lengths", 64, "--layer-lengths", 64, "--repeats", 1, "--out", tmp_path / "bench"]
    assert "window_growth" not in ran(capsys, "bench", *grows, *text, *short, *off)["config"]
    assert "window_growth" not in ran(capsys, "evaluate", *grows, *text, "--seq-len", 48, *off)["config"]
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text(TEXT[:LENGTH])
    corpus = ["analyze", texts, *grows, *database, "--no-tags", "--no-baseline", "--out", tmp_path / "corpus"]
    assert "window_growth" not in ran(capsys, *corpus, *off)["config"]


def test_what_is_no_growth_and_a_stored_run_are_refused(capsys, folder, heads_model):
    words = ["analyze", folder / "text.txt", "--model", heads_model, "--window-growth", 9, 3]
    assert main([str(word) for word in words]) == 2
    assert "window_growth is (9, 3)" in capsys.readouterr().err
    run = analysed(capsys, folder, heads_model, "constant")["run_id"]
    words = ["compare", run, "--db", folder / "runs.duckdb", "--window-growth", 1, 1]
    assert main([str(word) for word in words]) == 2
    assert "leave --budget and --window-growth out" in capsys.readouterr().err
