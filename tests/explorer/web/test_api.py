"""The functions for programs and language models."""

from __future__ import annotations

import ast
import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import gradio as gr
import pytest

from focus_explorer.cli.main import main
from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.runs import run_summary
from focus_explorer.web import api
from focus_explorer.web.hosting.modes import Hosting
from focus_explorer.web.requests.table import API
from focus_explorer.web.shell import build_app
from tests.explorer.conftest import TEXT
from tests.helpers import free_port

pytestmark = pytest.mark.slow


VIEWS = (
    *("agreement", "group_names", "name_group", "map", "mask", "distances", "attention", "attention_links", "settings"),
    *("lengths", "beside", "missing_links", "head_costs", "what_if", "statistics"),
)
OTHERS = (
    *("analyze", "runs", "run", "groups", "layers", "tokens", "compare", "centroids", "compare_centroids", "budgets"),
    *("use_budget", "sql", "rename", "note", "tag", "delete", "undelete"),
)


@pytest.fixture(scope="module")
def page(service, model_folder):
    """A page that also serves language models."""
    chosen = AnalyzeRequest(model=model_folder, centroids="random")
    return build_app(database=service.database.path, request=chosen, hosting=Hosting(mcp=True))


@pytest.fixture
def named(page):
    """The functions of the page by their names."""
    return {each.api_name: each.fn for each in page.blocks.fns.values()}


def test_analyze_takes_device_precision_and_backend(named):
    function = named["analyze"]
    run = function(TEXT, window=8, device="cpu", dtype="float32", backend="decomposed")
    assert [run[name] for name in ("device", "dtype", "backend")] == ["cpu", "float32", "decomposed"]
    with pytest.raises(gr.Error, match="backend is 'quick'; expected one of auto"):
        function(TEXT, backend="quick")


# What `start_training` takes after the two lists of files, by place; new fields come at the end.
TRAINING = {
    "name": "mine",
    "model": "nobody/knows",
    "groups": 4,
    "top_k": 1,
    "steps": 20,
    "seq_len": 64,
    "batch": 1,
    "window": 8,
    "sinks": 4,
    "lr": 0.003,
    "gate": "log",
    "dtype": "auto",
    "seed": 0,
    "device": "cpu",
    "loss": "layers",
    "hard_steps": 0,
    "val_every": 0,
    "patience": 0,
    "domains": False,
    "recipe": "ours",
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patience": 2}, "Patience is given without held-out text; expected the text that decides (Held-out texts)"),
        ({"val_every": 5}, "Score every is given without held-out text"),
        ({"gate": "paper", "hard_steps": 3}, "Hard steps goes with the log gate only; choose the log gate"),
        ({"steps": None}, "Steps is empty; expected a whole number"),
        ({"hard_steps": 20}, "Hard_steps is 20 of 20 steps; expected fewer than all"),
    ],
)
def test_a_training_that_cannot_be_is_refused_in_the_forms_words(named, changes, message):
    answer, _ = named["start_training"](None, None, *(TRAINING | changes).values())
    assert message in answer
    assert "--" not in answer


def test_functions_for_programs_have_stable_names_and_descriptions(page):
    endpoints = page.blocks.get_api_info()["named_endpoints"]
    assert set(endpoints) >= {f"/{name}" for name in (*VIEWS, *OTHERS)}
    names = {path: [one["parameter_name"] for one in endpoint["parameters"]] for path, endpoint in endpoints.items()}
    assert names["/tokens"] == ["run_id", "first", "count"]
    assert names["/analyze"][:2] == ["text", "model"]
    assert names["/mask"] == ["run_id", "layer", "first_query", "last_query", "first_key", "last_key", "head"]
    assert all(endpoints[f"/{name}"].get("description") for name in ("analyze", "runs", "sql", *VIEWS))


def test_answers_are_plain_values_and_problems_one_sentence(service, run_id):
    read = functions(service)
    for answer in (
        read["runs"](),
        read["run"](run_id),
        read["groups"](run_id),
        read["layers"](run_id),
        read["tokens"](run_id, 3, 4),
        read["centroids"](),
        read["sql"]("SELECT 1"),
    ):
        json.dumps(answer)
    assert [row["position"] for row in read["tokens"](run_id, 3, 4)] == [3, 4, 5, 6]
    assert read["compare"](run_id, run_id)["settings_that_differ"] == {}
    with pytest.raises(gr.Error, match="there is no run 'nope'"):
        api.readable_errors(read["run"])("nope")


@pytest.fixture(scope="module")
def other_run(service, run_id, model_folder):
    """The same tokens with another window."""
    request = AnalyzeRequest(model=model_folder, centroids="random", top_k=1, window=12, num_sinks=2, repeats=1)
    return analyze(service, TEXT, request, command="focus-explorer test")


def functions(service):
    return {name: use_case.for_programs(service) for name, use_case in API.items()}


def test_views_answer_programs_with_plain_lists(service, run_id, other_run):
    views = functions(service)
    layers = [row["layer"] for row in fetch(service.database, "layers", run_id=run_id).to_pylist()]
    arguments = dict.fromkeys(VIEWS, (run_id,)) | {
        "name_group": (run_id, layers[0], 0, ""),
        "map": (run_id, layers[0], True),
        "mask": (run_id, layers[0], 0, 9, 0, 9),
        "beside": (run_id, other_run),
        "attention_links": (run_id, layers[0]),
        "head_costs": (other_run,),
        "what_if": (run_id, ["silence:0:A"]),
        "missing_links": (other_run, 30),  # it measures random centroids, which other tests look for in the first
    }
    answers = {name: views[name](*arguments[name]) for name in VIEWS}
    json.dumps(answers)
    assert answers["agreement"]["layers"] == layers
    assert len(answers["agreement"]["agreement"]) == len(layers)
    tokens = run_summary(service.database, run_id)["num_tokens"]
    assert len(answers["map"]["x"]) == len(answers["map"]["positions"]) == len(answers["what_if"]["changes"]) == tokens
    assert answers["group_names"]["layers"] == layers
    assert answers["group_names"]["names"][0][0] == answers["name_group"]
    assert answers["attention"]["state"] == "none"
    assert answers["attention_links"] == {"dropped": [], "kept": []}
    assert answers["settings"].keys() == {"cells", "suggested", "setting", "num_groups"}
    assert answers["missing_links"]["token"] == 30
    assert answers["lengths"] == {"layers": {}}
    assert {row["statistic"] for row in answers["statistics"]} >= {"nmi", "purity", "pairs_kept"}
    assert {row["layer"] for row in views["statistics"](run_id, "categories", layers[0])} == {layers[0]}
    assert len(answers["distances"]["shares"]) == 5
    assert len(views["distances"](run_id, layers[0])["counts"]) == 5
    assert answers["beside"]["layers"][0]["overlap"] == 1.0  # the first layer sees no mask
    rows = fetch(service.database, "assignments", run_id=run_id).to_pylist()
    assert answers["beside"]["top"][0] == [row["top_group"] for row in rows if row["layer"] == layers[0]]
    for name in VIEWS:
        with pytest.raises(InputError, match="there is no run 'nope'"):
            views[name]("nope", *arguments[name][1:])


def test_a_rectangle_of_the_mask_is_the_one_the_groups_make(service, run_id):
    views = functions(service)
    layer = fetch(service.database, "layers", run_id=run_id)["layer"][0].as_py()
    rows = fetch(service.database, "assignments", run_id=run_id).to_pylist()
    bits = {row["position"]: row["membership"] for row in rows if row["layer"] == layer}
    answer = views["mask"](run_id, layer, 20, 39, 5, 34)
    assert (answer["block_size"], answer["rows"], answer["keys"]) == (1, [20, 40], [5, 35])
    for i in range(20, 40):
        for j in range(5, 35):
            near, shared, sink = i - j <= 8, bool(bits[i] & bits[j]), j < 2
            if near:
                cause = "local_and_group" if shared else "local_only"
            else:
                cause = "group_only" if shared else "sink_only" if sink else "dropped"
            expected = [] if j > i else [cause]
            assert [name for name in answer["causes"] if answer["counts"][name][i - 20][j - 5]] == expected
    with pytest.raises(InputError, match="outside the text"):
        views["mask"](run_id, layer, 9000, 9001, 0, 3)


def test_the_mask_is_of_the_heads_that_are_named_where_they_differ(service, budget_run):
    mask = functions(service)["mask"]
    (message,) = _problem(lambda: mask(budget_run, 1, 0, 99, 0, 99))
    assert message.startswith("the heads of layer 1 differ (head 0: top-k 2, window 3; heads 1, 3: top-k 1, window 8;")
    assert message.endswith("; name one of them as head")
    answers = {head: mask(budget_run, 1, 0, 99, 0, 99, head) for head in range(4)}
    assert [one["heads"] for one in answers.values()] == [[0], [1, 3], [2], [1, 3]]
    assert not any(one["query_heads"] for one in answers.values())
    dropped = {head: sum(map(sum, one["counts"]["dropped"])) for head, one in answers.items()}
    assert dropped[2] == 0 < min(dropped[0], dropped[1])
    assert dropped[1] == dropped[3] != dropped[0]
    alike = mask(budget_run, 2, 0, 99, 0, 99)
    assert alike == mask(budget_run, 2, 0, 99, 0, 99, 3)
    assert alike["heads"] == [0, 1, 2, 3]
    with pytest.raises(InputError, match=r"layer 1 has no key-value head 4; expected 0 to 3"):
        mask(budget_run, 1, 0, 99, 0, 99, 4)
    with pytest.raises(gr.Error, match="head is True; expected a whole number, or null"):
        api.readable_errors(mask)(budget_run, 1, 0, 99, 0, 99, True)


def _problem(call):
    with pytest.raises(InputError) as refused:
        call()
    return str(refused.value).splitlines()


def test_serving_language_models_without_the_package_is_one_clear_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("focus_explorer.web.shell.find_spec", lambda name: None)
    assert main(["serve", "--mcp", "--db", str(tmp_path / "runs.duckdb")]) == 2
    assert capsys.readouterr().err == (
        "error: --mcp needs the package `mcp`; install it with `pip install 'focus-explorer[mcp]'`\n"
    )


def test_a_language_model_finds_the_functions_and_gets_answers(page, run_id):
    """With the client of the protocol's own package."""
    page.launch(port=free_port(), block=False)
    try:
        with ThreadPoolExecutor(1) as thread:  # a browser test may have left a loop running in this one
            called = _call_functions(f"{page.blocks.local_url}gradio_api/mcp/", run_id)
            tools, runs, problem, agreement = thread.submit(asyncio.run, called).result(timeout=60)
    finally:
        page.blocks.close(verbose=False)
    assert tools >= {"analyze", "runs", "run", "groups", "layers", "tokens", "compare", "sql", *VIEWS}
    assert run_id in runs
    assert ast.literal_eval(agreement)["agreement"][0][0] == 1.0
    assert "there is no run 'nope'" in problem


async def _call_functions(address, run_id):
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    def words(result):
        return " ".join(part.text for part in result.content)

    async with streamablehttp_client(address) as (read, write, _), ClientSession(read, write) as session:
        await session.initialize()
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert [name for name, tool in tools.items() if not tool.description] == []
        names = {name.removeprefix("focus_explorer_") for name in tools}
        named = {name.removeprefix("focus_explorer_"): name for name in tools}
        runs = words(await session.call_tool(named["runs"], {}))
        problem = words(await session.call_tool(named["run"], {"run_id": "nope"}))
        agreement = words(await session.call_tool(named["agreement"], {"run_id": run_id}))
        return names, runs, problem, agreement
