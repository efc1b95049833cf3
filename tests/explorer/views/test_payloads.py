"""Payloads of a stored run have the declared keys and types, and the browser scripts declare the same ones."""

from __future__ import annotations

import json
import time
import types
from typing import Any, Literal, Union, get_args, get_origin, is_typeddict

import numpy as np
import pytest

from deploy.site.payloads import DECLARATIONS, declarations, payload_fields
from focus_explorer.cli.main import main
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.centroids.cards import CentroidCards
from focus_explorer.usecases.centroids.files import add_centroids, uploaded_centroids
from focus_explorer.usecases.labels import KEEP_DAYS, all_runs, label_run
from focus_explorer.usecases.maps import map_payload
from focus_explorer.usecases.run_payload import load_run
from focus_explorer.usecases.runs import mask_blocks
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.sql import run_sql
from focus_explorer.usecases.training.processes import Trainings
from focus_explorer.views.payloads import PAYLOADS
from focus_explorer.views.run import run_card
from focus_explorer.web.requests.dispatch import dispatch
from focus_runtime.budget import HeadException
from focus_runtime.config import FocusConfig
from focus_runtime.models.loading import load_model
from focus_runtime.routing.centroid_file import save_centroids
from focus_runtime.routing.centroids import random_centroids
from focus_runtime.store.measurements import write_projection
from tests.explorer.conftest import TEXT

pytestmark = pytest.mark.slow


def problems(value: Any, kind: Any, place: str) -> list[str]:
    """Where a JSON value differs from a declared type; an int is a float, a list is a tuple of its length."""
    origin, inner = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        if not isinstance(value, dict):
            return [f"{place}: {type(value).__name__} in place of {kind.__name__}"]
        declared = {key: (one, optional) for key, one, optional in payload_fields(kind)}
        lines = [f"{place}: {key!r} is not declared in {kind.__name__}" for key in value.keys() - declared.keys()]
        for key, (one, optional) in declared.items():
            if key in value:
                lines += problems(value[key], one, f"{place}.{key}")
            elif not optional:
                lines.append(f"{place}: no {key!r}")
        return lines
    if origin in (Union, types.UnionType):
        return [] if any(not problems(value, one, place) for one in inner) else [f"{place}: {value!r:.80} is no {kind}"]
    if origin is Literal:
        return [] if value in inner else [f"{place}: {value!r} is none of {inner}"]
    if origin is tuple:
        if not isinstance(value, list) or len(value) != len(inner):
            return [f"{place}: {value!r:.80} is no {kind}"]
        return [
            line for n, pair in enumerate(zip(value, inner, strict=True)) for line in problems(*pair, f"{place}[{n}]")
        ]
    if origin is list:
        if not isinstance(value, list):
            return [f"{place}: {type(value).__name__} in place of a list"]
        return [line for n, one in enumerate(value) for line in problems(one, inner[0], f"{place}[{n}]")]
    if origin is dict:
        if not isinstance(value, dict):
            return [f"{place}: {type(value).__name__} in place of a dictionary"]
        return [line for key, one in value.items() for line in problems(one, inner[1], f"{place}.{key}")]
    allowed = {float: (float, int)}.get(kind, (kind,))
    right = isinstance(value, allowed) and (kind is bool or not isinstance(value, bool))
    return [] if right else [f"{place}: {value!r:.80} is no {kind.__name__}"]


def check(value: Any, *names: str) -> None:
    """The JSON of a value is one of the named payloads."""
    plain = json.loads(json.dumps(value, allow_nan=False))
    by_payload = [problems(plain, PAYLOADS[name], name) for name in names]
    assert not all(by_payload), "\n".join(line for lines in by_payload for line in lines[:10])


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A database of this file's own: the tests below measure more of their run."""
    return Service(tmp_path_factory.mktemp("payloads") / "runs.duckdb")


@pytest.fixture(scope="module")
def run_id(service, model_folder):
    request = AnalyzeRequest(model=model_folder, centroids="random", top_k=1, window=8, num_sinks=2, repeats=2)
    return analyze(service, TEXT, request, command="focus-explorer test")


@pytest.fixture(scope="module")
def other_id(service, run_id, model_folder):
    """A second run of the same tokens, with a budget and windows that grow."""
    budget = (HeadException(layer=0, head=1, full=True), HeadException(layer=1, top_k=0))
    chosen = {"top_k": 2, "window": 8, "num_sinks": 2, "budget": budget, "window_growth": (8, 64)}
    return analyze(service, TEXT, AnalyzeRequest(model=model_folder, centroids="random", repeats=1, **chosen))


@pytest.fixture(scope="module")
def begin(service, run_id):
    """The first answer to one of the page's questions about the run."""
    return lambda what, **details: dispatch(service, {"what": what, "run": run_id, **details})


@pytest.fixture(scope="module")
def ask(begin):
    """The answer to a question that starts nothing, once everything is computed and no job is running."""

    def question(what: str, **details: Any) -> dict[str, Any]:
        for _ in range(2400):
            answer = begin(what, **details)
            job = answer.get("job") or {}
            if answer.get("state") not in ("computing", "running") and job.get("state") not in ("waiting", "running"):
                return answer
            time.sleep(0.05)
        raise AssertionError(f"{what} was never answered")

    return question


@pytest.mark.parametrize(
    ("what", "details", "names"),
    [
        ("layer_cells", {"layer": 1}, ["LayerCellsPayload"]),
        ("group_orders", {"layer": 1}, ["GroupOrdersPayload"]),
        ("token_attention", {"token": 3}, ["AttentionOfTokenPayload"]),
        ("timings", {}, ["TimingsPayload"]),
        ("trained_on", {}, ["TrainedOnPayload"]),
        ("word_classes", {}, ["WordClassesPayload"]),
        ("predictions", {"token": 3}, ["PredictionsPayload"]),
        ("predictions", {"token": 0}, ["PredictionsPayload"]),
        ("prediction_changes", {}, ["PredictionChangesPayload"]),
        ("groups", {}, ["GroupsPayload"]),
        ("group_names", {}, ["GroupNamesPayload"]),
        ("name_group", {"layer": 0, "group": 1, "name": "my own"}, ["GroupNamePayload"]),
        ("agreement", {}, ["LayerAgreementPayload"]),
        ("map", {"layer": 0, "quick": True}, ["MapPayload"]),
        ("map", {"layer": None, "quick": True}, ["MapPayload"]),
        ("map_neighbours", {"layer": None, "token": 2}, ["NeighboursPayload"]),
        ("mask_tile", {"layer": 0, "rows": [0, 40], "keys": [0, 40]}, ["MaskTilePayload"]),
        ("pair_distances", {"layer": 0}, ["DistancePayload"]),
        ("pair_distances_mean", {}, ["DistanceMeanPayload"]),
        ("attention", {}, ["AttentionPlannedPayload"]),
        ("attention_links", {"layer": 0}, ["AttentionLinksPayload"]),
        ("compare_grid", {}, ["GridPayload"]),
        ("compare_stop", {}, ["JobAnswerPayload"]),
        ("compare_lengths", {}, ["LengthsPayload"]),
        ("compare_links", {}, ["MissingLinksPayload"]),
        ("compare_heads", {}, ["HeadCostsPayload"]),
        ("live_groups", {"text": "The cat sat", "session": "a"}, ["LiveTextPayload"]),
        ("what_if", {"changes": ["silence:0:A"]}, ["WhatIfPayload"]),
        ("compare_generation", {}, ["GenerationPayload"]),
        ("statistics", {}, ["StatisticsPayload"]),
        ("statistics_layer", {"layer": 0}, ["LayerStatisticsPayload"]),
        ("statistics_pairs", {"layer": 0}, ["PairStatisticsPayload"]),
        ("statistics_job", {}, ["JobAnswerPayload"]),
        ("export_choices", {}, ["ExportChoicesPayload"]),
        ("export_command", {"kind": "table", "name": "groups", "format": "csv"}, ["ExportCommandPayload"]),
    ],
)
def test_an_answer_is_its_payload(ask, what, details, names):
    check(ask(what, **details), *names)


def test_a_run_and_its_mask_are_their_payloads(service, run_id):
    check(load_run(service.database, run_id), "RunPayload")
    check(mask_blocks(service.database, run_id, 1), "MaskPayload")
    meta = {"method": "UMAP", "parameters": {"of": 9}, "seed": 0, "trustworthiness": None, "num_centroids": 4}
    write_projection(service.database, run_id, 1, np.random.default_rng(0).normal(size=(610, 2)), meta)
    check(map_payload(service, run_id, 1), "MapPayload")  # stored, unlike the quick ones


def test_two_runs_are_their_payloads(ask, other_id):
    check(ask("compare_partners"), "PartnersPayload")
    check(ask("compare_beside", other=other_id), "MatchedRunsPayload")
    check(ask("compare_numbers", other=other_id), "RunNumbersPayload")
    check(ask("statistics_agreement", other=other_id), "RunAgreementPayload")


def test_what_was_measured_is_its_payload(ask, begin):
    """Everything that a run has only after a measurement."""
    begin("compare_grid_start", top_k=[1, 2], window=[4], repeats=1)
    check(ask("compare_grid"), "GridPayload")
    begin("compare_lengths_start", layer=0, seconds=1)
    check(ask("compare_lengths"), "LengthsPayload")
    begin("compare_links_start", token=30)
    explained = ask("compare_links", token=30)
    assert explained["explained"]["links"]
    check(explained, "MissingLinksPayload")
    begin("token_attention_start", token=9)
    attention = ask("token_attention", token=9)
    assert attention["layers"]
    check(attention, "AttentionOfTokenPayload")
    begin("compare_heads_start")
    costs = ask("compare_heads")
    assert costs["heads"][0]["nll"] is not None
    check(costs, "HeadCostsPayload")
    changed = {"changes": ["silence:0:A", "move:1:30:B"]}
    begin("what_if_start", **changed)
    what_if = ask("what_if", **changed, layer=0, token=30)
    assert what_if["result"]["layers"]
    assert what_if["pairs"]["lost"] > 0
    assert what_if["prediction"]["after"]["tokens"]
    check(what_if, "WhatIfPayload")
    begin("compare_generation_start", prompt="The cat", max_tokens=2)
    generation = ask("compare_generation")
    assert set(generation["sides"]) == {"full", "focus", "prompt_tokens"}
    check(generation, "GenerationPayload")
    check(begin("measure_attention"), "AttentionRunningPayload", "AttentionMassPayload")
    check(ask("attention"), "AttentionMassPayload")
    links = ask("attention_links", layer=0)
    assert links["kept"] or links["dropped"]
    check(links, "AttentionLinksPayload")
    check(begin("statistics_measure", attention=False), "JobAnswerPayload")
    check(ask("statistics"), "StatisticsPayload")
    check(ask("statistics_layer", layer=0), "LayerStatisticsPayload")
    check(ask("statistics_pairs", layer=0), "PairStatisticsPayload")
    check(ask("groups"), "GroupsPayload")


def test_a_file_for_download_is_its_payload(ask, begin):
    started = begin("export_start", kind="table", name="groups", format="csv")
    check(started, "ExportPayload")
    finished = ask("export_state", id=started["id"])
    assert finished["file"]["bytes"] > 0
    check(finished, "ExportPayload")


def test_the_list_of_runs_is_its_payload(service, run_id):
    check({"runs": [run_card(row) for row in all_runs(service)], "keep_days": KEEP_DAYS}, "RunCardsPayload")
    check(label_run(service, run_id, tags=["a"]), "RunLabelPayload")
    result = run_sql(service.database, "SELECT run_id, num_tokens, 0.5 AS half, true AS yes, NULL AS nothing FROM runs")
    check(result, "SqlResultPayload")


def test_centroid_files_are_their_payloads(tmp_path, model_folder):
    service = Service(tmp_path / "runs.duckdb")
    model, _ = load_model(model_folder)
    for name, groups in (("first", 4), ("second", 3)):
        made = random_centroids(model, FocusConfig(num_groups=groups, top_k=1, window=8))
        made.training = {"steps": 5, "texts": ["a"], "validation": {"full": 9.0, "scored_tokens": 9}}
        made.training["validation"]["k=1"] = {"perplexity": 9.5, "dominance": 0.5}
        save_centroids(made, tmp_path / f"{name}.safetensors")
        add_centroids(service, tmp_path / f"{name}.safetensors", name, model_folder)
    cards = CentroidCards(service)
    first, second = (row["sha256"] for row in uploaded_centroids(service.database))
    analyze(service, TEXT, AnalyzeRequest(model=model_folder, centroids=first, repeats=1, max_tokens=40))
    check({"files": cards.cards()}, "CentroidCardsPayload")
    detail = cards.detail(first)
    assert detail["runs"]
    check(detail, "CentroidDetailPayload")
    changes = cards.compare(first, second)
    assert changes["layers"]
    assert changes["settings"]
    check(changes, "CentroidChangesPayload")


@pytest.mark.slow
def test_a_training_is_its_payload(tmp_path, model_folder):
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "val.txt").write_text(TEXT[::-1])
    sizes = {"steps": 2, "seq-len": 48, "batch": 1, "groups": 4, "window": 8, "db": tmp_path / "runs.duckdb"}
    files = {"text": tmp_path / "text.txt", "val": tmp_path / "val.txt", "out": tmp_path / "a.safetensors"}
    options = [f"--{name}={value}" for name, value in (sizes | files | {"model": model_folder}).items()]
    assert main(["train", *options]) == 0
    trainings = Trainings(Service(tmp_path / "runs.duckdb"))
    payload = trainings.payload({trainings.rows()[0]["training_id"]: {}})
    assert payload["curves"]
    assert payload["trainings"][0]["validation"]
    check(payload, "TrainingsPayload")


def test_the_browser_scripts_declare_the_same_payloads():
    assert DECLARATIONS.read_text(encoding="utf-8") == declarations(), "run `python -m deploy.site.payloads`"
