"""Requests of the page: how they are looked up, read, answered and kept, and which are refused."""

from __future__ import annotations

import gzip
import json
import time
from types import SimpleNamespace

import pytest

from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.exports.tables.sources import TABLES, read
from focus_explorer.statistics.describe import STATISTICS
from focus_explorer.statistics.tables import statistics_table
from focus_explorer.usecases.labels import label_run
from focus_explorer.usecases.request import UseCase
from focus_explorer.usecases.run_payload import load_run
from focus_explorer.web.requests import compare
from focus_explorer.web.requests.dispatch import KeptAnswers, component_functions, dispatch, guarded, packed
from focus_explorer.web.requests.table import PAGE


def until_done(service, question):
    for _ in range(200):
        answer = dispatch(service, question)
        if answer.get("state") != "computing":
            return answer
        time.sleep(0.05)
    raise AssertionError("never answered")


@pytest.mark.parametrize(
    "question",
    [
        {"what": "statistics", "run": "../../etc"},
        {"what": "statistics_layer", "run": "RUN", "layer": 99},
        {"what": "statistics_agreement", "run": "RUN", "other": "nope"},
        {"what": "export_command", "run": "RUN", "kind": "table", "name": "../x", "format": "csv"},
        {"what": "export_start", "run": "RUN", "kind": "figure", "name": "map", "format": "exe", "preset": "column"},
        {"what": "export_start", "run": "RUN", "kind": "table", "name": "groups", "format": "csv", "layer": 99},
        {"what": "export_start", "run": "RUN", "kind": "everything"},
        {"what": "export_state", "id": "../../etc/passwd"},
    ],
)
def test_bad_questions_are_refused_in_one_line(service, run_id, question):
    question = {key: run_id if value == "RUN" else value for key, value in question.items()}
    with pytest.raises(InputError) as problem:
        until_done(service, question)
    assert "\n" not in str(problem.value)


def echo(service, run_id: str, layer: int, tokens: list[int] | None = None, share: float = 0.5, quick: bool = False):
    return {"service": service, "layer": layer, "share": share, "quick": quick, "tokens": tokens}


@pytest.fixture
def echoed(monkeypatch):
    monkeypatch.setitem(PAGE, "echo", UseCase(echo, page="echo"))
    return lambda **question: dispatch("service", {"what": "echo", "run": "a", **question})


def test_a_question_reaches_its_function(echoed):
    expected = {"service": "service", "layer": 3, "share": 0.5, "quick": False, "tokens": None}
    assert echoed(layer=3) == expected
    assert echoed(layer=3.0, share=1, tokens=[2]) == expected | {"share": 1.0, "tokens": [2]}


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({}, "layer is missing; expected a whole number"),
        ({"layer": "1"}, "layer is '1'; expected a whole number"),
        ({"layer": True}, "layer is True; expected a whole number"),
        ({"layer": 1.5}, "layer is 1.5; expected a whole number"),
        ({"layer": 1, "run": 5}, "run_id is 5; expected a text"),
        ({"layer": 1, "quick": "no"}, "quick is 'no'; expected true or false"),
        ({"layer": 1, "share": "half"}, "share is 'half'; expected a number"),
        ({"layer": 1, "tokens": ["x"]}, "tokens is ['x']; expected a list of whole numbers, or null"),
        ({"layer": 1, "color": 2}, "there is no parameter 'color'; expected run_id, layer, tokens, share, quick"),
        ({"layer": 2**60}, f"layer is {2**60}; expected a whole number"),
        ({"layer": float("nan")}, "layer is nan; expected a whole number"),
        ({"layer": 1, "tokens": [2**60]}, "the request has a number that is too large, or none"),
        ({"layer": 1, "run": "\ud800"}, "the request has half of a surrogate pair in a text; expected valid Unicode"),
        ({"layer": "x" * 99}, f"layer is '{'x' * 58}…; expected a whole number"),
    ],
)
def test_a_wrong_parameter_is_named_with_what_was_expected(echoed, question, message):
    with pytest.raises(InputError) as problem:
        echoed(**question)
    assert str(problem.value).startswith(message)


@pytest.mark.parametrize("question", [{}, {"what": "no such"}, {"what": None}])
def test_an_unknown_question_is_one_clear_message(question):
    with pytest.raises(InputError, match="reload the page"):
        dispatch(None, question)


def test_a_component_is_called_with_a_json_object_or_nothing():
    def label(service, run: str, tags: list[str] | None = None):
        return {"run": run, "tags": tags}

    (function,) = component_functions("service", label)
    assert function.__name__ == "label"
    for wrong in ("a", 3, ["a"], True):
        assert content(function(wrong)) == {"error": f"the request is a {type(wrong).__name__}; expected a JSON object"}
    assert content(function({"run": "a", "tags": ["b"]})) == {"run": "a", "tags": ["b"]}
    assert content(function({"run": "a", "tags": 5})) == {"error": "tags is 5; expected a list of texts, or null"}
    assert content(function(None)) == {"error": "run is missing; expected a text"}


def test_work_that_ends_while_its_results_are_read_is_still_said_to_run():
    """The page asks again while work runs, and not once it is done."""

    class Jobs:
        state = "running"

        def status(self):
            return {"state": self.state}

    jobs = Jobs()

    def read(service, run_id: str):
        jobs.state = "done"  # without the last of the results
        return {}

    answer = compare.with_job(read)(SimpleNamespace(part=lambda kind: jobs), "run")
    assert (jobs.state, answer["job"]["state"]) == ("done", "running")


@pytest.mark.slow
def test_the_export_dialog_offers_tables_with_layers_and_masks_with_their_size(service, run_id):
    offered = dispatch(service, {"what": "export_choices", "run": run_id})
    tables = {one["name"]: one["layers"] for one in offered["tables"]}
    assert tables == {name: "layer" in next(read(service.database, run_id, name)).column_names for name in TABLES}
    mask, layers = offered["mask"], fetch(service.database, "layers", run_id=run_id).to_pylist()
    assert [(row["layer"], row["pairs"]) for row in mask["layers"]] == [
        (row["layer"], round(row["retained_pairs"] * row["causal_pairs"])) for row in layers
    ]
    assert mask["formats"] == ["parquet", "npz", "csv"]
    assert mask["tokens"] == fetch_run(service.database, run_id)["num_tokens"]


def test_the_page_gets_every_run_and_layer_row_of_the_statistics_table(service, run_id):
    answer = until_done(service, {"what": "statistics", "run": run_id})
    table = statistics_table(service.database, run_id, "statistics").to_pylist()
    for scope, key in (("run", "run"), ("layer", "layers")):
        stored = [one for one in table if one["scope"] == scope and not one["statistic"].endswith("_minus_random")]
        stored.sort(key=lambda one: list(STATISTICS).index(one["statistic"]))
        assert answer[key]["statistic"] == [one["statistic"] for one in stored]
        assert answer[key]["value"] == pytest.approx([one["value"] for one in stored], rel=1e-5, nan_ok=True)
    assert answer["missing"] == {"tags": True, "random": True, "attention": True}
    assert len(answer["about"]["notes"]) == 2
    assert answer["job"] is None
    assert len(packed(answer).body) < 40_000

    layer = answer["layers"]["layer"][0]
    groups = until_done(service, {"what": "statistics_layer", "run": run_id, "layer": layer})
    assert set(groups["groups"]["layer"]) == {layer}
    assert set(groups["categories"]["layer"]) == {layer} == set(groups["characteristic"]["layer"])
    pairs = until_done(service, {"what": "statistics_pairs", "run": run_id, "layer": layer})
    assert set(pairs["distances"]["layer"]) == {layer, None}
    assert not pairs["links_measured"]


def content(response):
    compressed = response.headers.get("content-encoding") == "gzip"
    return json.loads(gzip.decompress(response.body) if compressed else response.body)


@pytest.fixture
def counted():
    """Answers of states that a test chooses, and how often they were computed."""

    class Counted:
        def __init__(self):
            self.state, self.computed = "first", 0
            self.answers = KeptAnswers(lambda: self.state, most_bytes=60)

        def get(self, name="a", text="x"):
            def work():
                self.computed += 1
                return {"name": name, "text": text}

            return content(self.answers.packed(name, work))

    return Counted()


@pytest.mark.slow
def test_a_run_is_packed_once_until_the_database_changes(service, run_id):
    answers, computed = KeptAnswers(service.database.state), []

    def work():
        computed.append(1)
        return load_run(service.database, run_id)

    def opened():
        return content(answers.packed(run_id, work))

    first = opened()
    assert first == opened() == content(packed(guarded(lambda: load_run(service.database, run_id))))
    assert len(computed) == 1
    before = first["run"]["name"]
    try:
        label_run(service, run_id, name="another name")
        assert opened()["run"]["name"] == "another name"
    finally:
        label_run(service, run_id, name=before)
    assert opened() == first


def test_an_answer_belongs_to_one_known_state_and_one_name(counted):
    assert counted.get() == counted.get() == {"name": "a", "text": "x"}
    assert counted.computed == 1
    assert counted.get("b")["name"] == "b"
    counted.state = "second"
    assert counted.get(text="new")["text"] == "new"
    assert counted.computed == 3
    counted.state = None  # unknown: nothing is kept
    counted.get()
    counted.get()
    assert counted.computed == 5


def test_the_oldest_goes_where_there_is_no_room(counted):
    for name in "abc":  # of 23 bytes each
        counted.get(name)
    counted.get("b")
    assert counted.computed == 3
    counted.get("a")
    assert counted.computed == 4


def test_a_problem_is_not_kept(counted):
    def missing():
        counted.computed += 1
        raise NotFoundError("there is no run 'a'")

    for _ in range(2):
        assert content(counted.answers.packed("a", missing)) == {"error": "there is no run 'a'"}
    assert counted.computed == 2
    assert counted.get()["text"] == "x"
