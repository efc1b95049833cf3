"""`focus-explorer bench` and `evaluate` on a tiny model: what they write, and what they say of bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from focus_explorer.cli.benchmarks import describe_bench
from focus_explorer.cli.main import main
from focus_explorer.views.figures.quality import speed_figure
from focus_runtime.composition.attach import compose
from focus_runtime.measure.perplexity import compare, score
from focus_runtime.models.loading import load_model
from focus_runtime.routing.centroid_file import save_centroids
from focus_runtime.text.sequences import encode_texts, even_sequences
from tests.explorer.cli.conftest import one_error
from tests.explorer.conftest import ran
from tests.helpers import ROOT, build_centroids, build_model
from tests.runtime.evaluate.test_last_word import novel

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


@pytest.fixture(scope="module")
def centroids(tmp_path_factory, model_folder):
    """Files of three training seeds."""
    folder, (model, _) = tmp_path_factory.mktemp("centroids"), load_model(model_folder)
    for seed in range(3):
        save_centroids(build_centroids(model, seed=seed, window=8), folder / f"seed{seed}.safetensors")
    return [str(folder / f"seed{seed}.safetensors") for seed in range(3)]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    for number in (1, 2):
        (folder / f"{number}.txt").write_text(novel(number, 80 * number))
    return folder


@pytest.fixture
def run(model_folder, centroids):
    common = ["--model", model_folder, "--centroids", centroids[0], "--seq-len", "64", "--sequences", "6"]
    return lambda *arguments: main(["evaluate", *common, *map(str, arguments)])


@pytest.mark.long
def test_perplexity_is_that_of_the_runtime(run, texts, tmp_path, capsys, model_folder, centroids):
    from focus_runtime.routing.centroid_file import load_centroids

    out = tmp_path / "new" / "result.json"
    assert run("--text", texts / "1.txt", "--top-k", "2", "--window", "6", "--out", out, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert json.loads(out.read_text()) == printed
    model, tokenizer = load_model(model_folder)
    ids = encode_texts(tokenizer, [(texts / "1.txt").read_text()], 64)
    sequences = even_sequences(ids, 6, 64)
    full = score(model, sequences)
    focus = compose(model, load_centroids(centroids[0]), top_k=2, window=6)
    expected = compare(full, score(focus, sequences))
    row = printed["perplexity"]
    assert {name: row[name] for name in expected} == expected
    assert (row["sequences"], row["tokens"], row["texts"]) == (6, 6 * 63, ["1.txt"])
    assert (printed["config"]["top_k"], printed["config"]["window"]) == (2, 6)
    assert printed["tasks"] is None
    assert [path.name for path in out.parent.iterdir()] == ["result.json"]


def test_several_centroid_files_are_training_seeds(run, texts, capsys, centroids):
    assert run("--text", texts, "--centroids", *centroids, "--json") == 0
    row = json.loads(capsys.readouterr().out)["perplexity"]
    assert (row["seeds"], row["documents"], row["sequences"]) == (3, 2, 6)
    assert row["notes"] == ["sequences of 2 documents were resampled: the intervals do not speak for other documents"]


def test_distant_pairs_kept_are_those_of_analyze(texts, tmp_path, capsys, model_folder):
    model, _ = load_model(model_folder)
    path, text = tmp_path / "heads.safetensors", tmp_path / "text.txt"
    text.write_text((texts / "1.txt").read_text()[:64])
    budget = [{"layer": 0, "head": 0, "window": 64}, {"layer": 1, "window": 64}]
    save_centroids(build_centroids(model, window=8, budget=budget), path)
    common = ["--model", model_folder, "--centroids", str(path)]
    database = ["--db", tmp_path / "runs.duckdb"]
    analysed = ran(capsys, "analyze", text, *common, "--repeats", 1, *database, "--json")
    evaluated = ran(capsys, "evaluate", "--text", text, *common, "--seq-len", 64, "--json")["perplexity"]
    assert analysed["num_tokens"] == 64
    assert 0 < evaluated["distant_kept"] < 1
    assert evaluated["distant_kept"] == pytest.approx(analysed["distant_pairs_kept"])
    assert evaluated["retained_pairs"] == pytest.approx(analysed["retained_pairs"])


def test_without_distant_pairs_none_are_said_to_be_kept(run, texts, capsys):
    assert run("--text", texts / "1.txt", "--window", "64") == 0
    out = capsys.readouterr().out
    assert "pairs kept    100.0% of all, none are distant\n" in out
    for part in ("perplexity    full", "difference", "p = ", "largest group", "1 training seed"):
        assert part in out
    assert run("--text", texts / "1.txt", "--window", "64", "--json") == 0
    assert json.loads(capsys.readouterr().out)["perplexity"]["distant_kept"] is None


def test_short_texts_of_a_folder_are_left_out_by_name(run, texts, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("too short")
    (tmp_path / "b.txt").write_text((texts / "1.txt").read_text())
    assert run("--text", tmp_path, "--json") == 0
    notes = json.loads(capsys.readouterr().out)["perplexity"]["notes"]
    assert any("a.txt was left out: the text has 9 tokens" in note for note in notes)
    (tmp_path / "b.txt").write_text("also short")
    one_error(capsys, run("--text", tmp_path), "none of the 2 texts has 64 tokens")


@pytest.mark.long
def test_tasks_made_here_run_without_a_network(model_folder, centroids, texts, tmp_path, capsys):
    """In a process of its own, under the offline switches of the hub libraries, with an empty home folder."""
    pytest.importorskip("lm_eval")
    folder, out = tmp_path / "tasks", tmp_path / "result.json"
    make = ["make-task", "--text", texts, "--out", folder, "--model", model_folder, "--lengths", "50,200", "--items", 4]
    assert main(["evaluate", *map(str, make), "--window", "60"]) == 0
    assert "last_word_200" in capsys.readouterr().out
    words = ["evaluate", "--model", model_folder, "--centroids", centroids[0], "--window", "60", "--batch", "2"]
    words += ["--task-folder", str(folder), "--out", str(out)]
    switches = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HOME": str(tmp_path), "PYTHONPATH": "runtime:."}
    done = subprocess.run(
        [sys.executable, "-m", "focus_explorer.cli", *words],
        capture_output=True,
        text=True,
        timeout=550,
        env=os.environ | switches,
        cwd=ROOT,
    )
    said = [line for line in done.stderr.splitlines() if "% done)" not in line]  # progress, where it takes long
    assert (done.returncode, said) == (0, [])
    text = done.stdout
    assert "100% are longer than the shortest window" in text
    assert "0% are longer than the shortest window" in text
    result = json.loads(out.read_text())
    assert result["perplexity"] is None
    (tasks,) = result["tasks"]
    assert list(tasks) == ["last_word_200", "last_word_50"]
    assert tasks["last_word_200"]["items"] == 4
    assert tasks["last_word_200"]["metrics"]["perplexity"]["difference"]["value"] != 0
    assert "McNemar" in text
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".arrow"]  # no copies left behind


def test_make_task_prints_what_it_wrote(model_folder, texts, tmp_path, capsys):
    common = ["evaluate", "make-task", "--text", str(texts), "--model", model_folder, "--items", "3", "--window", "60"]
    out = str(tmp_path / "tasks")
    assert main([*common, "--out", out, "--lengths", "50", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tasks"]["last_word_50"]["items"] == 3
    one_error(capsys, main([*common, "--out", out]), "in use")
    one_error(capsys, main([*common, "--out", out + "2", "--lengths", "fifty"]), "--lengths is 'fifty'")
    one_error(capsys, main([*common, "--out", out + "2", "--lengths", "100000"]), "no passage of 100000 tokens")
    assert [path.name for path in tmp_path.iterdir()] == ["tasks"]


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ([], "nothing to evaluate"),
        (["--text", "{empty}"], "has no .txt files"),
        (["--text", "{binary}"], "binary"),
        (["--text", "{short}"], "the text has 9 tokens; expected at least 64"),
        (["--text", "{missing}"], "cannot read"),
        (["--text", "{text}", "--seq-len", "1"], "--seq-len is 1"),
        (["--text", "{text}", "--sequences", "0"], "--sequences is 0"),
        (["--text", "{text}", "--batch", "0"], "--batch is 0"),
        (["--text", "{text}", "--seed", "-1"], "--seed is -1"),
        (["--text", "{text}", "--limit", "0"], "--limit is 0"),
        (["--text", "{text}", "--device", "abacus"], "device 'abacus' is unknown"),
        (["--text", "{text}", "--top-k", "9"], "top_k is 9"),
        (["--text", "{text}", "--centroids", "{missing}"], "missing"),
        (["--text", "{text}", "--centroids", "default"], "width 576"),
        (["--text", "{text}", "--out", "{text}/result.json"], "cannot write"),
        (["--text", "{text}", "--out", "{empty}"], "it is a folder"),
        (["--tasks", "a,,b"], "--tasks is 'a,,b'"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_mistakes_give_one_line_and_no_file(run, texts, tmp_path, capsys, flags, part):
    places = {name: tmp_path / name for name in ("empty", "binary", "short", "missing")} | {"text": texts / "1.txt"}
    places["empty"].mkdir()
    places["binary"].write_bytes(b"\x7fELF\0\0")
    places["short"].write_text("too short")
    before = sorted(tmp_path.rglob("*"))
    keep = [] if "--out" in flags else ["--out", tmp_path / "result.json"]
    one_error(capsys, run(*(flag.format(**places) for flag in flags), *keep), part)
    assert sorted(tmp_path.rglob("*")) == before


def test_centroids_of_another_recipe_are_no_further_seed(run, texts, tmp_path, capsys, model_folder, centroids):
    other = tmp_path / "other.safetensors"
    save_centroids(build_centroids(load_model(model_folder)[0], window=9), other)
    one_error(capsys, run("--text", texts, "--centroids", centroids[0], other), "other settings")


@pytest.mark.long
@pytest.mark.slow
def test_mistakes_with_tasks_give_one_line(run, tmp_path, capsys):
    pytest.importorskip("lm_eval")
    one_error(capsys, run("--tasks", "hellaswag"), "data of task hellaswag could not be fetched", "--task-folder")
    one_error(capsys, run("--task-folder", tmp_path), "holds no tasks")


def test_without_lm_eval_it_says_how_to_install_it(run, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.delitem(sys.modules, "lm_eval.models.huggingface", raising=False)
    one_error(capsys, run("--tasks", "hellaswag"), "pip install 'focus-explorer[eval]'")
