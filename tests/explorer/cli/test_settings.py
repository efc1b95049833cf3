"""`--budget` and `--window-growth` of every command that has them: given, left out, and refused in one line."""

from __future__ import annotations

import json

import pytest

from focus_explorer.cli.main import main
from focus_explorer.usecases.centroids.files import add_centroids
from focus_explorer.usecases.runs import run_summary
from focus_explorer.usecases.service import Service
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from tests.explorer.conftest import BUDGET, TEXT, ran
from tests.helpers import build_centroids, build_model

pytestmark = pytest.mark.slow
WINDOW, LENGTH, GROWTH = 3, 100, (10, 60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A text; a centroid file with a budget, and another budget; two files that differ in whether windows grow."""
    folder = tmp_path_factory.mktemp("budget")
    model = build_model(vocab_size=512, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4)
    (folder / "text.txt").write_text(TEXT[:LENGTH])
    save_centroids(build_centroids(model, budget=BUDGET), folder / "c.safetensors")
    (folder / "budget.json").write_text('[{"layer": 2, "head": 1, "full": true}]')
    for name, growth in (("grows", GROWTH), ("constant", None)):
        file = build_centroids(model, top_k=1, window=WINDOW, num_sinks=0, window_growth=growth)
        save_centroids(file, folder / f"{name}.safetensors")
    return folder


@pytest.fixture
def chosen(folder, heads_model):
    return ["--model", heads_model, "--centroids", str(folder / "c.safetensors")]


def analysed(capsys, folder, chosen, *more):
    words = ["analyze", folder / "text.txt", *chosen, "--repeats", 1, "--db", folder / "runs.duckdb", "--json", *more]
    return ran(capsys, *words)["config"].get("budget")


@pytest.mark.long
def test_a_run_takes_the_budget_it_is_given(capsys, folder, chosen):
    assert analysed(capsys, folder, chosen) == [entry.to_dict() for entry in BUDGET]
    given = analysed(capsys, folder, chosen, "--budget", folder / "budget.json")
    assert given == [{"layer": 2, "head": 1, "full": True}]
    assert analysed(capsys, folder, chosen, "--budget", "none") is None


@pytest.mark.long
def test_a_stored_run_keeps_its_own(capsys, folder, chosen):
    db = ["--db", folder / "own.duckdb"]
    run = ran(capsys, "analyze", folder / "text.txt", *chosen, "--repeats", 1, *db, "--json")["run_id"]
    assert main([str(word) for word in ["compare", run, *db, "--budget", "none"]]) == 2
    assert "is measured with its own settings; leave --budget out" in capsys.readouterr().err
    service = Service(folder / "own.duckdb")
    add_centroids(service, folder / "c.safetensors", "c.safetensors", None)
    cells = ran(capsys, "compare", run, *db, "--top-k", 1, "--window", 4, "--repeats", 1, "--json")["cells"]
    own = next(cell for cell in cells if cell["kind"] == "focus")
    assert own["retained_pairs"] == pytest.approx(run_summary(service.database, run)["retained_pairs"])


BAD_BUDGETS = [
    (None, "cannot read the budget"),
    ("[{", "is not JSON"),
    ('[{"layer": 9, "full": true}]', "the budget names layer 9, which has no router"),
    ('[{"layer": 1, "head": 4, "full": true}]', "names layer 1, head 4, but a layer of this model has 4"),
    ('[{"layer": 1, "top_k": 5}]', "gives layer 1 top_k 5 but there are 4 groups"),
    (json.dumps([{"layer": layer, "full": True} for layer in range(4)]), "so Focus would run nowhere"),
]


@pytest.mark.parametrize(
    ("command", "budget", "message"),
    [("analyze", *bad) for bad in BAD_BUDGETS]
    + [(command, *BAD_BUDGETS[4]) for command in ("compare", "bench", "evaluate")],
)
def test_a_bad_budget_is_one_clear_line(capsys, tmp_path, folder, chosen, command, budget, message):
    path = tmp_path / "bad.json"
    if budget is not None:
        path.write_text(budget)
    words = {
        "analyze": [folder / "text.txt", "--db", tmp_path / "runs.duckdb"],
        "compare": [folder / "text.txt", "--db", tmp_path / "runs.duckdb"],
        "bench": ["--text", folder / "text.txt", "--lengths", 64, "--layer-lengths", 64, "--out", tmp_path],
        "evaluate": ["--text", folder / "text.txt", "--seq-len", 48],
    }[command]
    assert main([str(word) for word in [command, *words, *chosen, "--budget", path]]) == 2
    err = [line for line in capsys.readouterr().err.splitlines() if "budget" in line]
    assert len(err) == 1
    assert message in err[0]


def test_check_names_the_budget(capsys, folder, heads_model, tmp_path):
    assert main(["centroids", "check", str(folder / "c.safetensors"), "--model", heads_model]) == 0
    expected = "budget: layer 0: full attention; layer 1, head 0: top-k 2, window 3; layer 1, head 2: full attention"
    assert expected in capsys.readouterr().out
    centroids = load_centroids(folder / "c.safetensors")
    centroids.config = centroids.config.replace(budget=[{"layer": 1, "head": 7, "full": True}])
    save_centroids(centroids, tmp_path / "bad.safetensors")
    assert main(["centroids", "check", str(tmp_path / "bad.safetensors"), "--model", heads_model]) == 2
    assert "names layer 1, head 7" in capsys.readouterr().err


@pytest.mark.long
def test_the_mask_of_a_head(capsys, service, budget_run, tmp_path):
    db = ["--db", str(service.database.path)]
    mask = ["export", budget_run, "--what", "mask", "--layer", "1", *db]
    assert main([*mask, "--out", str(tmp_path / "m.npz")]) == 2
    assert "head 0: top-k 2, window 3; heads 1, 3: top-k 1, window 8; head 2: full" in capsys.readouterr().err
    assert main([*mask, "--out", str(tmp_path / "m.npz"), "--head", "3"]) == 0
    assert main([*mask, "--out", str(tmp_path / "n.npz"), "--head", "9"]) == 2
    assert "layer 1 has no key-value head 9; expected 0 to 3" in capsys.readouterr().err
    table = ["export", budget_run, "--what", "layers", "--out", str(tmp_path / "l.csv"), "--head", "1", *db]
    assert main(table) == 2
    assert "--head is about the mask" in capsys.readouterr().err
    for head, heads in ((None, "head 0: top-k 2"), ("2", "head 2: full attention")):
        given = [] if head is None else ["--head", head]
        figure = ["figure", budget_run, "--what", "mask", "--layer", "1", "--out", str(tmp_path / "m.html"), *db]
        assert main([*figure, *given]) == 0
        assert heads in (tmp_path / "m.html").read_text(encoding="utf-8")
    assert main(["figure", budget_run, "--what", "loss", "--out", str(tmp_path / "l.html"), "--head", "1", *db]) == 2
    assert "the figure loss is not of one head" in capsys.readouterr().err


def grown_run(capsys, folder, model, name, *more):
    words = ["analyze", folder / "text.txt", "--model", model, "--centroids", folder / f"{name}.safetensors"]
    return ran(capsys, *words, "--repeats", 1, "--db", folder / "runs.duckdb", "--json", *more)


def same_numbers(one, other):
    return all(one[name] == pytest.approx(other[name]) for name in ("retained_pairs", "perplexity"))


def test_it_replaces_the_files_own(capsys, folder, heads_model):
    own, constant = (grown_run(capsys, folder, heads_model, name) for name in ("grows", "constant"))
    assert own["config"]["window_growth"] == list(GROWTH)
    assert own["retained_pairs"] > constant["retained_pairs"]
    without = grown_run(capsys, folder, heads_model, "grows", "--window-growth", 1, 1)
    assert "window_growth" not in without["config"]
    assert same_numbers(without, constant)
    grown = grown_run(capsys, folder, heads_model, "constant", "--window-growth", *GROWTH)
    assert same_numbers(grown, own)


def test_what_is_no_growth_and_a_stored_run_are_refused(capsys, folder, heads_model):
    words = ["analyze", folder / "text.txt", "--model", heads_model, "--window-growth", 9, 3]
    assert main([str(word) for word in words]) == 2
    assert "window_growth is (9, 3)" in capsys.readouterr().err
    run = grown_run(capsys, folder, heads_model, "constant")["run_id"]
    words = ["compare", run, "--db", folder / "runs.duckdb", "--window-growth", 1, 1]
    assert main([str(word) for word in words]) == 2
    assert "leave --window-growth out" in capsys.readouterr().err
