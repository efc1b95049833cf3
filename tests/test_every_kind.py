"""Every command and every view on a model with sliding windows, gaps between routed layers, softcap and one head,
and on one with heads that differ by a budget."""

from __future__ import annotations

import csv
import json
import time
import zipfile
from contextlib import nullcontext
from pathlib import Path

import pytest

from focus_explorer.cli.main import main
from focus_explorer.data.corpus import CorpusData
from focus_explorer.exports.figures.write import FIGURES
from focus_explorer.usecases.centroids.files import add_centroids
from focus_explorer.usecases.service import Service
from focus_explorer.web.requests.dispatch import dispatch
from focus_explorer.web.requests.table import PAGE
from focus_runtime.attention.fused import fused_available
from focus_runtime.composition.attach import compose
from focus_runtime.composition.heads import FULL
from focus_runtime.mask.rule import CAUSES
from focus_runtime.measure.loss import layer_shares
from focus_runtime.routing.centroid_file import save_centroids
from tests.helpers import build_centroids, build_model, build_tokenizer

pytestmark = pytest.mark.slow
TEXT = "The harbour was quiet. The cat sat on the mat & left, then came back again.\n" * 2
KINDS = {  # family, changes of its configuration, layers with groups
    "sliding, gaps, softcap, one head": (
        "Gemma2",
        {"num_hidden_layers": 4, "sliding_window": 24, "num_attention_heads": 1, "num_key_value_heads": 1},
        (0, 2),
    ),
    "budget": ("Llama", {"num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4}, (0, 1, 2, 3)),
}
BUDGET = [  # every sort of exception: a layer in full, a head in full, a head and a layer with settings of their own
    {"layer": 1, "full": True},
    {"layer": 2, "head": 1, "full": True},
    {"layer": 2, "head": 3, "top_k": 2, "window": 9},
    {"layer": 3, "top_k": 2},
]


STARTED = {  # requests that start work -> the one that says how far it is
    "compare_grid_start": "compare_grid",
    "compare_lengths_start": "compare_lengths",
    "compare_generation_start": "compare_generation",
    "compare_links_start": "compare_links",
    "compare_heads_start": "compare_heads",
    "token_attention_start": "token_attention",
    "what_if_start": "what_if",
    "what_if_save": "what_if",
    "measure_attention": "attention",
    "statistics_measure": "statistics_job",
}


class Site:
    """A model of one kind with its centroids, texts and database, and the runs made of them."""

    def __init__(self, kind, folder):
        family, changes, self.layers = KINDS[kind]
        self.kind, self.folder, self.model = kind, folder, build_model(family, vocab_size=512, **changes)
        self.model.save_pretrained(folder / "model")
        build_tokenizer().save_pretrained(folder / "model")
        self.budget = BUDGET if kind == "budget" else []
        layers = {"budget": self.budget} if self.budget else {"layers": self.layers}
        save_centroids(build_centroids(self.model, **layers), folder / "c.safetensors")
        (folder / "docs").mkdir()
        for name, text in (("text", TEXT), ("docs/a", TEXT), ("docs/b", TEXT[9:])):
            (folder / f"{name}.txt").write_text(text)
        self.db = ["--db", str(folder / "runs.duckdb")]
        self.chosen = ["--model", str(folder / "model"), "--centroids", str(folder / "c.safetensors")]
        self.service = Service(folder / "runs.duckdb")
        add_centroids(self.service, folder / "c.safetensors", "c.safetensors", str(folder / "model"))
        self.sliding = {24} if kind.startswith("sliding") else {None}
        self.runs = []

    def __str__(self):
        return self.kind

    def path(self, name):
        return str(self.folder / name)

    def ask(self, what, **more):
        """The answer of a view, once it is computed."""
        for _ in range(600):
            answer = dispatch(self.service, {"what": what, "run": self.runs[0], **more})
            state = (answer.get("job") or {}).get("state", answer.get("state", "done"))
            assert state != "failed", str(answer)
            if what in STARTED or state in ("done", "none"):
                return answer
            time.sleep(0.05)
        raise AssertionError(f"{what} was never answered")


@pytest.fixture(scope="module", params=list(KINDS))
def site(request, tmp_path_factory):
    return Site(request.param, tmp_path_factory.mktemp("kind"))


# What is measured, written and shown of a run that is stored as it ran; in `make test` of one kind.
SLIDING, BUDGETED = KINDS
one_kind = pytest.mark.parametrize("site", [pytest.param(SLIDING, marks=pytest.mark.long), BUDGETED], indirect=True)


@pytest.fixture
def said(capsys):
    """Runs a command that must succeed; its output."""

    def run(*words):
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    return run


@pytest.fixture
def analysed(site, said):
    """The site with two runs of one text."""
    for top_k in () if site.runs else ("1", "2"):
        words = ["analyze", site.path("text.txt"), *site.chosen, *site.db, "--repeats", "1", "--top-k", top_k]
        site.runs.append(json.loads(said(*words, "--attention", "--json"))["run_id"])
    return site


def test_what_is_stored_is_what_ran(analysed, said):
    """Counts of pairs and the backend are those of the model composed anew."""
    import torch

    from focus_runtime.routing.centroid_file import load_centroids
    from focus_runtime.text.tokens import tokenize

    ids = torch.tensor([tokenize(build_tokenizer(), TEXT).ids])
    focus = compose(analysed.model, load_centroids(analysed.path("c.safetensors")), top_k=1)
    with torch.no_grad():
        focus.model(ids)
    expected = {layer: layer_shares(masks)[0] for layer, masks in focus.head_masks().items()}
    backends = set(focus.backend_names.split(", "))
    focus.detach()
    assert tuple(expected) == analysed.layers
    with analysed.service.database.read() as connection:
        rows = connection.execute(
            "SELECT layer, retained_pairs, sliding_window FROM layers WHERE run_id = ? ORDER BY layer",
            [analysed.runs[0]],
        ).fetchall()
        backend = connection.execute("SELECT backend FROM runs WHERE run_id = ?", [analysed.runs[0]]).fetchone()[0]
    assert {layer: kept for layer, kept, _ in rows} == pytest.approx(expected)
    assert {window for _, _, window in rows} == analysed.sliding
    assert set(backend.split(", ")) == backends
    assert ("fused" in backends) == fused_available()
    assert (FULL in backends) == bool(analysed.budget)


def test_a_backend_that_was_requested_runs_where_it_can(analysed, said):
    """Inside a sliding window only the fused kernel runs; for any other the run says what ran in its place."""
    words = ["analyze", analysed.path("text.txt"), *analysed.chosen, *analysed.db, "--repeats", "1", "--top-k", "1"]
    summary = json.loads(said(*words, "--backend", "masked", "--json"))
    own = "sliding" if 24 in analysed.sliding else "masked"
    assert set(summary["backend"].split(", ")) == ({own, FULL} if analysed.budget else {own})
    said("runs", "delete", summary["run_id"], *analysed.db)


def changes_of(analysed):
    """Changes that every kind of model takes, in the middle of its layers."""
    layer = analysed.layers[len(analysed.layers) // 2]
    return [f"move:{layer}:40:B", "see:all:90:6", f"silence:{layer}:A"]


@pytest.mark.long
@one_kind
def test_commands_that_measure(analysed, said):
    run, other = analysed.runs
    said("statistics", run, "--attention", *analysed.db)
    said("statistics", run, "--with", other, *analysed.db)
    grid = ["--top-k", "1,2", "--window", "4,30", "--repeats", "1"]
    compared = json.loads(said("compare", analysed.path("text.txt"), *analysed.chosen, *analysed.db, *grid, "--json"))
    said("figure", compared["run_id"], "--what", "quality", "--out", analysed.path("quality.html"), *analysed.db)
    text = ["--text", analysed.path("text.txt")]
    lengths = ["--lengths", "64", "--layer-lengths", "64", "--repeats", "1"]
    said("bench", *analysed.chosen, *text, *lengths, "--out", analysed.path("bench.json"))
    said("evaluate", *analysed.chosen, *text, "--seq-len", "48")
    said("centroids", "check", analysed.path("c.safetensors"), "--model", analysed.path("model"))
    said("heads", run, "--verify", "2", *analysed.db)
    changes = [word for text in changes_of(analysed) for word in ("--set", text)]
    said("what-if", run, *changes, "--save", *analysed.db)
    said("runs", *analysed.db)


@one_kind
def test_a_corpus(analysed, said):
    out = ["--out", analysed.path("corpus"), "--no-tags", "--json"]
    corpus = json.loads(said("analyze", analysed.path("docs"), *analysed.chosen, *analysed.db, *out).splitlines()[-1])
    assert corpus["documents"] == 2
    run = corpus["corpus_id"]
    said("corpora", "show", run, *analysed.db)
    said("statistics", run, *analysed.db)
    said("export", run, "--what", "distances", "--out", analysed.path("distances.csv"), *analysed.db)
    with analysed.service.database.read() as connection:
        stored = connection.execute("SELECT retained_pairs FROM layers WHERE run_id = ?", [analysed.runs[0]]).fetchall()
    assert corpus["retained_pairs"]["value"] == pytest.approx(sum(kept for (kept,) in stored) / len(stored), abs=0.05)
    with (Path(analysed.path("distances.csv"))).open() as file:
        rows = [row for row in csv.DictReader(file) if row["layer"]]
    for layer in analysed.layers:  # of the pairs as the statistics count them again, from groups and settings
        own = [row for row in rows if int(row["layer"]) == layer]
        share = sum(float(row["kept"]) for row in own) / sum(int(row["pairs"]) for row in own)
        kept = CorpusData(analysed.service.database, run).layers().to_pylist()
        pairs = [sum(row[cause] for cause in CAUSES) for row in kept if row["layer"] == layer]
        dropped = [row["dropped"] for row in kept if row["layer"] == layer]
        assert share == pytest.approx(1 - sum(dropped) / sum(pairs))


@one_kind
def test_trainings(site, said):
    text = ["--text", site.path("text.txt"), "--model", site.path("model"), "--seq-len", "24", "--window", "4"]
    said("train", *text, "--steps", "2", "--out", site.path("trained.safetensors"), *site.db)
    said("finetune", *text, "--steps", "1", "--centroid-steps", "1", "--out", site.path("tuned"))
    said("trainings", *site.db)


@pytest.mark.long
@one_kind
def test_exports_figures_report_and_bundle(analysed, said):
    run, other = analysed.runs
    one_layer = ["--layer", analysed.layers[-1]]
    said("export", run, "--what", "mask", "--out", analysed.path("mask.npz"), *one_layer, *analysed.db)
    for head in (1, 3) if analysed.budget else ():  # in full, and with settings of its own
        of_head = ["--layer", "2", "--head", head]
        said("export", run, "--what", "mask", "--out", analysed.path("mask.csv"), *of_head, *analysed.db)
        said("figure", run, "--what", "mask", "--out", analysed.path("mask.html"), *of_head, *analysed.db)
    for name, layer in (("structure", []), ("map", one_layer)):  # all are drawn below, a map where there is one
        said("figure", run, "--what", name, "--out", analysed.path(f"{name}.html"), *layer, *analysed.db)
    printed = analysed.kind == SLIDING  # one kind is enough: the browser prints any page alike
    said("report", run, other, "--out", analysed.path("report"), *([] if printed else ["--no-pdf"]), *analysed.db)
    assert (analysed.folder / "report/report.pdf").exists() == printed
    written = (analysed.folder / "report/report.html").read_text()
    assert ("Layers and heads that the budget names do so with" in written) == bool(analysed.budget)
    with pytest.MonkeyPatch.context() as patch:  # a browser draws anything alike
        patch.setattr("focus_explorer.exports.figures.render.picture", lambda figure, form: figure.to_json().encode())
        patch.setattr("focus_explorer.exports.figures.render.open_browser", nullcontext)
        said("bundle", run, "--out", analysed.path("b.zip"), "--text", *analysed.db)  # every table and figure
    with zipfile.ZipFile(analysed.folder / "b.zip") as bundle:
        drawn = {name.rsplit("/")[-1] for name in bundle.namelist() if name.endswith(".svg")}
    of_settings = {"quality"}  # that were compared, see above
    assert {name.partition("-")[0].removesuffix(".svg") for name in drawn} == set(FIGURES) - of_settings
    again = ["--out", analysed.path("again"), "--db", analysed.path("again.duckdb")]
    assert "every table has the bytes it had" in said("rebuild", analysed.path("b.zip"), *analysed.chosen, *again)


@pytest.mark.long
@one_kind
def test_every_view(analysed):
    other, middle = analysed.runs[1], analysed.layers[len(analysed.layers) // 2]
    of_layer, changes = {"layer": middle}, changes_of(analysed)
    questions = {
        "layer_cells": of_layer,
        "group_orders": of_layer,
        "token_attention": {"token": 40},
        "token_attention_start": {"token": 40},
        "mask_tile": {**of_layer, "rows": [0, 60], "keys": [0, 60]},
        "pair_distances": of_layer,
        "attention_links": of_layer,
        "statistics_layer": of_layer,
        "statistics_pairs": of_layer,
        "statistics_agreement": {"other": other},
        "map": {**of_layer, "quick": True},
        "map_neighbours": {**of_layer, "token": 3},
        "compare_beside": {"other": other},
        "compare_numbers": {"other": other},
        "compare_grid_start": {"top_k": [2], "window": [8], "repeats": 1},
        "compare_lengths_start": {**of_layer, "seconds": 1},
        "predictions": {"token": 40},
        "name_group": {**of_layer, "group": 1, "name": ""},
        "compare_links": {"token": 40},
        "compare_links_start": {"token": 40},
        "what_if": {"changes": changes, "token": 40, **of_layer},
        "what_if_start": {"changes": changes},
        "what_if_save": {"changes": changes},
        "live_groups": {"text": "The harbour was quiet.", "session": "a"},
        "compare_generation_start": {"prompt": "The harbour", "max_tokens": 4},
        "export_command": {"kind": "table", "name": "groups", "format": "csv"},
    }
    skipped = {"export_start", "export_state", "export_stop", "compare_stop", "stop_attention", "statistics_stop"}
    skipped |= {"token_attention_stop"}
    for name in PAGE:
        if name in skipped:  # files are those of the commands; nothing is stopped
            continue
        assert analysed.ask(name, **questions.get(name, {})) is not None
        if name in STARTED:
            answer = analysed.ask(STARTED[name], **questions.get(STARTED[name], {}))
            assert not name.startswith("what_if") or answer["result"]["layers"]
    points = analysed.ask("compare_lengths")["layers"][str(middle)]["points"]
    expected = "fused" if fused_available() else "sliding" if 24 in analysed.sliding else "masked"
    expected = ", ".join(sorted({expected, FULL})) if analysed.budget else expected
    assert {point["backend"] for point in points} == {expected}
