"""Measured budgets in a centroid file: read strictly, and used as a copy that differs in budget and record alone."""

from __future__ import annotations

import copy
import json
import math
import random

import gradio as gr
import pytest
import torch

from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.usecases.budget import MOST_EXCEPTIONS, read_record, record_payload
from focus_explorer.usecases.centroids.cards import CentroidCards
from focus_explorer.usecases.centroids.copies import use_budget
from focus_explorer.usecases.centroids.files import add_centroids, uploaded_centroids
from focus_explorer.usecases.service import Service
from focus_explorer.web.api import readable_errors
from focus_explorer.web.requests.table import API
from focus_runtime.config import FocusConfig
from focus_runtime.models.loading import load_model
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from focus_runtime.routing.centroids import random_centroids

pytestmark = pytest.mark.slow

LAYERS = range(4)
HELD_OUT = {
    "relative_difference": {"value": 0.011, "low": 0.004, "high": 0.018},
    "full_perplexity": {"value": 12.0, "low": 11.0, "high": 13.0},
    "focus_perplexity": {"value": 12.13, "low": 11.1, "high": 13.2},
    "retained_pairs": 0.41,
    "distant_kept": 0.2,
    "sequences": 8,
    "tokens": 800,
    "p_value": 0.01,
}


def point(share, loss, *budget):
    return {"budget": list(budget), "retained_pairs": share, "excess": {"novels": loss / 2, "code": loss}}


def full(layer, head):
    return {"layer": layer, "head": head, "full": True}


def tuned_record():
    """As `focus-explorer tune` writes it; the file has the second point."""
    base = point(0.3, 0.12)
    record = {
        "target": {"pairs": 0.42},
        "met": True,
        "calibration": {"novels": 2, "code": 2},
        "without_budget": base,
        "points": [
            base,
            point(0.41, 0.02, full(0, 1), {"layer": 1, "head": 0, "top_k": 2}),
            point(0.52, 0.01, full(0, 0), full(0, 1), {"layer": 1, "head": 0, "top_k": 2}),
        ],
        "first_steps": [],
        "held_out": {"novels": HELD_OUT, "code": HELD_OUT | {"relative_difference": {"value": 0.03} | NO_INTERVAL}},
    }
    return copy.deepcopy(record)


NO_INTERVAL = {"low": None, "high": None}
CONFIG = FocusConfig(num_groups=4, top_k=1, window=8)


def own_config():
    return CONFIG.replace(budget=tuple(tuned_record()["points"][1]["budget"]))


def read(record):
    return read_record({"budget": record}, own_config(), LAYERS)


def changed(*path, value):
    """The record with the value at a path replaced."""
    record = tuned_record()
    place = record
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return record


def test_a_record_is_read():
    record = read(tuned_record())
    assert [each.retained_pairs for each in record.points] == [0.3, 0.41, 0.52]
    assert [len(each.budget) for each in record.points] == [0, 2, 3]
    assert (record.target, record.met, record.source) == (("pairs", 0.42), True, "")
    payload = record_payload(record, own_config().budget)
    assert [each["own"] for each in payload["points"]] == [each["held_out"] for each in payload["points"]]
    assert [each["own"] for each in payload["points"]] == [False, True, False]
    assert payload["held_out_own"]
    assert not payload["before_factors"]
    assert not payload["before_balance"]
    assert record_payload(read(tuned_record() | {"before_factors": True}), own_config().budget)["before_factors"]
    assert payload["pairs_counted_at"] is None
    counted = read(tuned_record() | {"pairs_counted_at": 512})
    assert record_payload(counted, own_config().budget)["pairs_counted_at"] == 512
    assert payload["held_out"][1]["change"] == {"value": 0.03, "low": None, "high": None}


BALANCED = {"sequences": 3, "seq_len": 64}


@pytest.mark.parametrize(
    ("flag", "record", "settings", "balanced", "is_older"),
    [
        ("before_balance", {}, {}, None, False),
        ("before_balance", {}, {}, BALANCED, True),
        ("before_balance", {"balanced": BALANCED}, {}, dict(BALANCED), False),
        ("before_balance", {"balanced": BALANCED}, {}, BALANCED | {"sequences": 4}, True),
        ("before_growth", {}, {}, None, False),
        ("before_growth", {}, {"window_growth": (10, 20)}, None, True),
        ("before_growth", {"window_growth": [10, 20]}, {}, None, True),
        ("before_growth", {"window_growth": [10, 20]}, {"window_growth": (10, 20)}, None, False),
        ("before_growth", {"window_growth": [10, 20]}, {"window_growth": (10, 30)}, None, True),
        ("before_text_sinks", {}, {"text_sinks": 0.9}, None, False),  # an older file does not say
        ("before_text_sinks", {"text_sinks": None}, {"text_sinks": 0.9}, None, True),
        ("before_text_sinks", {"text_sinks": 0.8}, {"text_sinks": 0.9}, None, True),
        ("before_text_sinks", {"text_sinks": 0.9}, {"text_sinks": 0.9}, None, False),
    ],
)
def test_a_record_may_be_older_than_what_the_file_is_now(flag, record, settings, balanced, is_older):
    config = own_config().replace(**settings)
    training = {"budget": tuned_record() | record} | ({} if balanced is None else {"balanced": balanced})
    assert record_payload(read_record(training, config, LAYERS), config.budget)[flag] is is_older


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        "text",
        {},
        changed("points", value=[]),
        changed("points", value=[point(0.1, 0.1)] * 300),
        changed("points", value={"0": point(0.1, 0.1)}),
        changed("without_budget", value=None),
        changed("points", 1, "retained_pairs", value=1.5),
        changed("points", 1, "retained_pairs", value=True),
        changed("points", 1, "retained_pairs", value=math.nan),
        changed("points", 1, "excess", "code", value=math.inf),
        changed("points", 1, "excess", "code", value=10**400),
        changed("points", 1, "excess", "code", value="0.1"),
        changed("points", 1, "excess", value={"novels": 0.1}),
        changed("points", 1, "budget", value={}),
        changed("points", 1, "budget", value=[full(9, 0)]),  # no such layer
        changed("points", 1, "budget", value=[full(0, 0), full(0, 0)]),
        changed("points", 1, "budget", value=[{"layer": 0, "head": 0, "top_k": 5}]),  # of four groups
        changed("points", 1, "budget", value=[full(0, 0) | {"why": 1}]),
        changed("points", 1, "budget", value=[full(0, n) for n in range(MOST_EXCEPTIONS + 1)]),
        changed("calibration", value={}),
        changed("calibration", "code", value=0),
        changed("calibration", value={"x" * 500: 1}),
        changed("target", value={"pairs": 0.4, "loss": 0.1}),
        changed("target", value={"speed": 0.4}),
        changed("met", value=1),
        changed("pairs_counted_at", value=0),
        changed("pairs_counted_at", value="1,024"),
        changed("held_out", value={}),
        changed("held_out", "code", "sequences", value=2.5),
        changed("held_out", "code", "relative_difference", value={"value": 0.1, "low": 0.0, "high": None}),
        tuned_record() | {"copy": {"source": "../x", "held_out_budget": []}},
        tuned_record() | {"copy": {"source": "a" * 64, "held_out_budget": [full(9, 0)]}},
        tuned_record() | {"copy": 3},
    ],
)
def test_a_malformed_record_is_no_record(record):
    assert read(record) is None


def test_fuzzed_records_are_read_or_refused_and_what_is_read_is_plain():
    seed = random.SystemRandom().randrange(2**31)
    rng = random.Random(seed)
    odd = (None, True, -1, 0, 0.5, 10**400, math.nan, -math.inf, "", "<b>", [], {}, [[]], [{}], full(0, 0))

    def places(value, path=()):
        yield path
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for name, each in inner:
            yield from places(each, (*path, name))

    outcomes = set()
    for _ in range(600):
        record = tuned_record()
        for _ in range(rng.choice((1, 1, 2, 4))):
            path = rng.choice([path for path in places(record) if path] or [None])
            if path is None:
                break
            place = record
            for name in path[:-1]:
                place = place[name]
            if rng.random() < 0.3:
                del place[path[-1]]
            else:
                place[path[-1]] = copy.deepcopy(rng.choice(odd))
        result = read(record)
        outcomes.add(result is None)
        if result is not None:
            payload = record_payload(result, own_config().budget)
            text = json.dumps(payload, allow_nan=False)
            assert all(0 <= each["retained_pairs"] <= 1 for each in json.loads(text)["points"]), f"seed {seed}"
    assert outcomes == {True, False}, f"seed {seed}"


@pytest.fixture
def tuned(tmp_path, model_folder):
    """(service, file as loaded, its sha256) of an uploaded file with a record."""
    service = Service(tmp_path / "runs.duckdb")
    model, _ = load_model(model_folder)
    made = random_centroids(model, CONFIG, seed=3)
    made.config, made.base_model = own_config(), "tiny"
    made.training = {"steps": 5, "budget": tuned_record()}
    sha256 = save_centroids(made, tmp_path / "tuned.safetensors")
    add_centroids(service, tmp_path / "tuned.safetensors", "tuned.safetensors", None)
    return service, load_centroids(tmp_path / "tuned.safetensors"), sha256


def kept(service, sha256):
    return next(row for row in uploaded_centroids(service.database) if row["sha256"] == sha256)


def test_a_copy_differs_in_budget_and_record_alone(tuned, tmp_path):
    service, original, sha256 = tuned
    used = use_budget(service, sha256, 2)
    assert used | {"sha256": ""} == {
        "sha256": "",
        "name": "tuned, 52 % of pairs",
        "top_k": 1,
        "window": 8,
        "num_sinks": 4,
    }
    row = kept(service, used["sha256"])
    assert row["name"] == used["name"]
    made = load_centroids(row["path"])
    record = tuned_record()
    expected = CONFIG.replace(budget=tuple(record["points"][2]["budget"]))
    assert made.config == expected
    assert (made.base_model, made.num_model_layers) == (original.base_model, original.num_model_layers)
    for layer, router in original.routers.items():
        for name, value in router.state_dict().items():
            assert torch.equal(value, made.routers[layer].state_dict()[name])
    said = made.training["budget"].pop("copy")
    assert made.training == {"steps": 5, "budget": record}
    assert said["source"] == sha256
    assert said["point"]["retained_pairs"] == 0.52
    budgets = CentroidCards(service).detail(used["sha256"])["budgets"]
    assert [each["own"] for each in budgets["points"]] == [False, False, True]
    assert not budgets["held_out_own"]  # the held-out rows are of the budget that the search chose
    assert [each["held_out"] for each in budgets["points"]] == [False, True, False]
    assert not list((tmp_path / "centroids").glob(".*"))


def test_the_same_point_is_the_same_file(tuned):
    service, _, sha256 = tuned
    first = use_budget(service, sha256, 2)
    assert use_budget(service, sha256, 2) == first
    without = use_budget(service, first["sha256"], 0)  # a copy of a copy is a copy of the first
    assert without["name"] == "tuned, without a budget"
    assert use_budget(service, without["sha256"], 2) == first
    assert use_budget(service, first["sha256"], 2) == first  # the point it has
    assert use_budget(service, sha256, 1)["sha256"] == sha256
    assert use_budget(service, first["sha256"], 1)["name"] == "tuned.safetensors"
    assert len(uploaded_centroids(service.database)) == 3


@pytest.mark.long
def test_programs_read_and_use_measured_budgets(tuned):
    service, _, sha256 = tuned
    read = {name: readable_errors(use_case.for_programs(service)) for name, use_case in API.items()}
    listed = json.loads(json.dumps(read["budgets"](sha256)))
    assert [each["retained_pairs"] for each in listed["points"]] == [0.3, 0.41, 0.52]
    assert [each["own"] for each in listed["points"]] == [False, True, False]
    used = json.loads(json.dumps(read["use_budget"](sha256, 2)))
    assert used == use_budget(service, sha256, 2)
    assert read["budgets"](used["sha256"])["points"][2]["own"]
    with pytest.raises(gr.Error, match="has no budget 3; expected a whole number from 0 to 2"):
        read["use_budget"](sha256, 3)
    with pytest.raises(gr.Error, match="no centroid"):
        read["budgets"]("0" * 64)
    plain = next(card["sha256"] for card in read["centroids"]() if card["name"] == "novels")
    with pytest.raises(gr.Error, match="holds no measured budgets"):
        read["budgets"](plain)


def test_points_of_nearly_equal_shares_have_names_of_their_own(tuned, tmp_path):
    service, file, _ = tuned
    file.training["budget"]["points"][2]["retained_pairs"] = 0.412
    sha256 = save_centroids(file, tmp_path / "near.safetensors")
    add_centroids(service, tmp_path / "near.safetensors", "near", None)
    assert use_budget(service, sha256, 2)["name"] == "near, 41.2 % of pairs"


def test_what_cannot_be_used_is_one_line_and_keeps_nothing(tuned, tmp_path):
    service, file, sha256 = tuned
    for bad in (3, -1, True, None, "1", 1.0):
        with pytest.raises(InputError, match=r"has no budget .*; expected a whole number from 0 to 2"):
            use_budget(service, sha256, bad)
    with pytest.raises(NotFoundError, match="no centroid file 'beef'"):
        use_budget(service, "beef", 0)
    with pytest.raises(InputError, match="novels holds no measured budgets"):
        use_budget(service, load_centroids("novels").sha256, 0)
    file.training["budget"]["target"] = "a lot"
    odd = save_centroids(file, tmp_path / "odd.safetensors")
    add_centroids(service, tmp_path / "odd.safetensors", "odd", None)
    assert CentroidCards(service).detail(odd)["budgets"] is None  # no section, and no error
    with pytest.raises(InputError, match="odd holds no measured budgets"):
        use_budget(service, odd, 0)
    before = len(uploaded_centroids(service.database))
    (tmp_path / "centroids" / f"{sha256}.safetensors").unlink()
    with pytest.raises(InputError, match="No such file"):
        use_budget(service, sha256, 0)
    assert len(uploaded_centroids(service.database)) == before


def test_a_source_that_is_another_file_is_not_chosen(tuned, tmp_path):
    service, file, sha256 = tuned
    file.training["budget"]["copy"] = {"source": sha256, "held_out_budget": [full(1, 1)]}
    file.config = file.config.replace(window=9)
    other = save_centroids(file, tmp_path / "other.safetensors")
    add_centroids(service, tmp_path / "other.safetensors", "other", None)
    used = use_budget(service, other, 0)
    assert load_centroids(kept(service, used["sha256"])["path"]).config.window == 9
