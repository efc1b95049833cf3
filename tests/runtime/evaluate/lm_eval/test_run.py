"""lm-eval with composed models: every item against the model itself, on tasks made here, without a network."""

from __future__ import annotations

import dataclasses
import json
import math
import socket

import numpy as np
import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.errors import InputError
from focus_runtime.models.loading import weights_sha256
from tests.helpers import build_centroids, build_model
from tests.runtime.evaluate.test_last_word import novel

pytest.importorskip("lm_eval")

from focus_runtime.evaluate.last_word import write_last_word_tasks
from focus_runtime.evaluate.lm_eval.run import (
    Metric,
    TaskResult,
    _manager,
    _members,
    compare_tasks,
    load_tasks,
    run_tasks,
)

WINDOW, SINKS = 60, 1

CHOICE = """\
task: choices
dataset_path: json
dataset_kwargs:
  data_files:
    test: data/choices.jsonl
output_type: multiple_choice
test_split: test
doc_to_text: "{{question}}"
doc_to_choice: "{{answers}}"
doc_to_target: "{{right}}"
metric_list:
  - metric: acc
  - metric: acc_norm
"""
GENERATE = """\
task: completions
dataset_path: json
dataset_kwargs:
  data_files:
    test: data/choices.jsonl
output_type: generate_until
test_split: test
doc_to_text: "{{question}}"
doc_to_target: "{{answers[0]}}"
generation_kwargs:
  until: ["Q"]
  max_gen_toks: 8
  do_sample: false
metric_list:
  - metric: exact_match
"""
ROLLING = """\
task: texts
dataset_path: json
dataset_kwargs:
  data_files:
    test: data/choices.jsonl
output_type: loglikelihood_rolling
test_split: test
doc_to_text: ""
doc_to_target: "{{question}}"
metric_list:
  - metric: word_perplexity
"""


@pytest.fixture(scope="module", autouse=True)
def no_network():
    """Any attempt to reach out fails the test; the switches of the hub libraries would only hide it."""
    with pytest.MonkeyPatch.context() as patch:

        def refuse(*arguments, **_):
            raise AssertionError(f"a test reached for the network: {arguments[:2]}")

        for name in ("getaddrinfo", "create_connection"):
            patch.setattr(socket, name, refuse)
        patch.setattr(socket.socket, "connect", refuse)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tokenizer):
    folder = tmp_path_factory.mktemp("tasks") / "own"
    write_last_word_tasks([("a", novel(5))], tokenizer, folder, lengths=(50, 200), items=7, window=WINDOW)
    (folder / "data").mkdir()
    rows = [
        {"question": f"Q{'x' * length} and", "answers": [" one", " two three", " z"], "right": length % 3}
        for length in (2, 90, 11, 150, 40)
    ]
    (folder / "data" / "choices.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name, yaml in (("choices", CHOICE), ("completions", GENERATE), ("texts", ROLLING)):
        (folder / f"{name}.yaml").write_text(yaml)
    return folder


@pytest.fixture(scope="module")
def tasks(folder):
    return load_tasks([], task_folder=folder)


@pytest.fixture
def model():
    return build_model()


@pytest.fixture
def focus(model):
    focus = compose(model, build_centroids(model, top_k=1, window=WINDOW, num_sinks=SINKS))
    yield focus
    focus.detach()


def run(model, tokenizer, tasks, names, **settings):
    chosen = {name: tasks[name] for name in names}
    return run_tasks(model, tokenizer, chosen, window=WINDOW, num_sinks=SINKS, **settings)


@torch.no_grad()
def direct(model, tokenizer, context, continuation):
    """(log-likelihood in float64, greedy) from one plain forward pass."""
    before = len(tokenizer(context, add_special_tokens=False).input_ids)
    ids = torch.tensor([tokenizer(context + continuation, add_special_tokens=False).input_ids])
    logits = model(ids).logits[0, before - 1 : -1].double()
    target = ids[0, before:]
    likely = logits.log_softmax(-1).gather(-1, target[:, None]).sum().item()
    return likely, bool((logits.argmax(-1) == target).all()), ids.shape[1]


def rows_of(folder, name):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("under_focus", [False, True])
def test_every_item_is_what_the_model_says(under_focus, model, focus, tokenizer, tasks, folder):
    results = run(focus, tokenizer, tasks, ["last_word_50", "last_word_200"]) if under_focus else None
    if results is None:
        focus.detach()
        results = run(model, tokenizer, tasks, ["last_word_50", "last_word_200"])
    for name, result in results.items():
        expected = [direct(model, tokenizer, row["context"], row["target"]) for row in rows_of(folder, f"{name}.jsonl")]
        likely, greedy, lengths = (np.array(column) for column in zip(*expected, strict=True))
        np.testing.assert_allclose(result.metrics["perplexity"].items, likely, rtol=1e-5)
        assert result.metrics["acc"].items.tolist() == greedy.astype(float).tolist()
        assert result.metrics["perplexity"].value == pytest.approx(math.exp(-likely.mean()))
        assert result.metrics["acc"].value == greedy.mean()
        assert result.tokens.tolist() == lengths.tolist()
        assert result.items == 7


@pytest.mark.slow
@pytest.mark.parametrize("assignment", ["causal", "sinkhorn"])
def test_batches_with_padding_equal_single_items(assignment, model, tokenizer, tasks):
    """Sinkhorn's column sums would count unmasked padding. Model and tokenizer stay as they are."""
    before, padding = weights_sha256(model), tokenizer.padding_side
    focus = compose(model, build_centroids(model, top_k=1, window=WINDOW), assignment=assignment)
    names = ["last_word_50", "last_word_200", "choices"] + ["completions"] * (assignment == "causal")
    single, batched = (run(focus, tokenizer, tasks, names, batch_size=size) for size in (1, 4))
    focus.detach()
    assert weights_sha256(model) == before
    assert tokenizer.padding_side == padding
    for name in names:
        assert batched[name].tokens.tolist() == single[name].tokens.tolist()
        for metric, value in single[name].metrics.items():
            np.testing.assert_allclose(batched[name].metrics[metric].items, value.items, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_focus_changes_long_items_and_no_short_ones(model, focus, tokenizer, tasks):
    names = ["last_word_50", "last_word_200"]
    sparse = run(focus, tokenizer, tasks, names)
    with focus.full_attention():
        full = run(model, tokenizer, tasks, names)
    short, long = (
        np.abs(sparse[name].metrics["perplexity"].items - full[name].metrics["perplexity"].items) for name in names
    )
    assert short.max() < 1e-4
    assert long.min() > 1e-3
    report = compare_tasks(full, sparse)
    assert report["last_word_50"]["longer_than_window"] == report["last_word_50"]["may_differ"] == 0
    assert report["last_word_200"]["longer_than_window"] == report["last_word_200"]["may_differ"] == 1
    assert report["last_word_200"]["metrics"]["perplexity"]["test"] == "sign flips"
    assert json.loads(json.dumps(report)) == report


@pytest.mark.slow
def test_multiple_choice_and_whole_texts(model, focus, tokenizer, tasks, folder):
    rows = rows_of(folder, "data/choices.jsonl")
    results = run(focus, tokenizer, tasks, ["choices", "texts"])
    lengths, right = [], []
    for row in rows:
        scores = [direct(model, tokenizer, row["question"], " " + answer) for answer in row["answers"]]
        right.append(float(np.argmax([score[0] for score in scores]) == row["right"]))
        lengths.append(max(score[2] for score in scores))
    assert results["choices"].metrics["acc"].items.tolist() == right
    assert results["choices"].tokens.tolist() == lengths
    assert results["choices"].beyond_window.tolist() == [length > WINDOW + 1 for length in lengths]
    assert 0 < results["choices"].beyond_window.mean() < 1
    assert results["texts"].tokens.tolist() == [1 + len(row["question"]) for row in rows]
    assert results["texts"].metrics["word_perplexity"].stderr is None
    longer = compare_tasks(results, results)["choices"]["metrics"]["acc"]["longer_items"]
    assert longer["items"] == results["choices"].beyond_window.sum()


@pytest.mark.slow
def test_generation_runs_under_focus(model, focus, tokenizer, tasks, folder):
    """Greedy answers against the model's own greedy loop without a cache."""
    from focus_runtime.evaluate.lm_eval.model import HarnessModel

    wrapped = HarnessModel(model, tokenizer, batch_size=4)
    tasks["completions"].build_all_requests()
    answers = wrapped.generate_until(tasks["completions"].instances)
    for row, answer, (_, length) in zip(
        rows_of(folder, "data/choices.jsonl"), answers, sorted(wrapped.lengths.items()), strict=True
    ):
        ids = torch.tensor([tokenizer(row["question"], add_special_tokens=False).input_ids])
        prompt = ids.shape[1]
        with torch.no_grad():
            for _ in range(8):
                ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=1)
        text = tokenizer.decode(ids[0, prompt:], skip_special_tokens=True)
        assert answer == text.split("Q")[0].split("</s>")[0]
        assert length == prompt + len(tokenizer(answer, add_special_tokens=False).input_ids)


@pytest.mark.slow
def test_items_beyond_the_models_positions_are_cut_and_counted(tokenizer, tasks):
    model = build_model(max_position_embeddings=150)
    result = run(model, tokenizer, tasks, ["choices"])["choices"]
    assert result.cut == 1
    assert result.tokens.max() == 151


@pytest.mark.slow
def test_requests_that_feed_the_same_tokens_share_a_row(model, tokenizer):
    from focus_runtime.evaluate.lm_eval.model import HarnessModel

    wrapped, calls = HarnessModel(model, tokenizer, batch_size=2), []
    model.register_forward_pre_hook(lambda module, inputs, kwargs: calls.append(kwargs["input_ids"]), with_kwargs=True)
    likelihoods = wrapped._loglikelihood_tokens([(None, [9, 8, 7], [token]) for token in (4, 5, 6)])
    assert [call.shape for call in calls] == [(1, 3)]
    expected = model(input_ids=calls[0]).logits[0, -1].log_softmax(-1)
    top = int(expected.argmax())
    answers = wrapped._loglikelihood_tokens([(None, [9, 8, 7], [token]) for token in (top, 3 if top != 3 else 4)])
    assert [greedy for _, greedy in answers] == [True, False]
    assert [likely for likely, _ in likelihoods] == pytest.approx([expected[token].item() for token in (4, 5, 6)])
    for continuation in ([], [3] * 300):
        with pytest.raises(InputError, match="continuation"):
            wrapped._loglikelihood_tokens([(None, [1], continuation)])


# --- comparing


def result(items, *, tokens=(10, 10, 90, 90), metric="acc", window=WINDOW):
    items = np.array(items, dtype=np.float64)
    metrics = {metric: Metric(items.mean(), None, items)}
    return {"t": TaskResult("t", metrics, np.array(tokens), 0, window, window + SINKS + 1)}


def test_accuracies_are_compared_by_mcnemar_and_long_items_alone():
    report = compare_tasks(result([1, 0, 1, 1]), result([1, 0, 0, 1]))["t"]
    row = report["metrics"]["acc"]
    assert (row["full"], row["focus"], row["lost"], row["gained"], row["test"]) == (0.75, 0.5, 1, 0, "McNemar")
    assert row["difference"]["value"] == -0.25
    assert row["longer_items"]["items"] == 2
    assert (row["longer_items"]["full"], row["longer_items"]["focus"]) == (1.0, 0.5)
    assert (report["longer_than_window"], report["items"]) == (0.5, 4)
    assert report["tokens"] == {"median": 50.0, "low": 10, "high": 90}


def test_where_focus_may_differ_is_exact():
    """The last token is not fed and sinks reach everywhere: window + sinks + 2 tokens still see everything."""
    evaluated = result([0, 0, 0, 0], tokens=(WINDOW + 1, WINDOW + 2, WINDOW + SINKS + 2, WINDOW + SINKS + 3))["t"]
    assert evaluated.beyond_window.tolist() == [False, True, True, True]
    assert evaluated.may_differ.tolist() == [False, False, False, True]


def test_different_items_are_not_compared():
    """Tokens of written answers hold what the model wrote; of as many items they are still the same items."""
    full, focus = result([1, 1, 0, 1]), result([1, 0, 0, 1], tokens=(1, 2, 3, 4))
    with pytest.raises(InputError, match="different items"):
        compare_tasks(full, focus)
    full, focus = ({"t": dataclasses.replace(one["t"], written=True)} for one in (full, focus))
    assert compare_tasks(full, focus)["t"]["metrics"]["acc"]["difference"]["value"] == -0.25
    with pytest.raises(InputError, match="different items"):
        compare_tasks(full, {"t": dataclasses.replace(focus["t"], tokens=np.array([1, 2, 3]))})


# --- what a user can get wrong


def test_unknown_tasks_and_folders(folder, tmp_path):
    with pytest.raises(InputError, match=r"last_word_5'? is unknown.*did you mean last_word_50"):
        _members(_manager([], folder), "last_word_5")
    with pytest.raises(InputError, match=r"holds no tasks.*make-task"):
        load_tasks([], task_folder=tmp_path)
    with pytest.raises(InputError, match="holds no tasks"):
        load_tasks([], task_folder=tmp_path / "none")
    with pytest.raises(InputError, match="no task is named"):
        load_tasks([])


@pytest.mark.slow
def test_a_task_with_missing_or_broken_data(folder, tmp_path):
    yaml = (folder / "last_word_50.yaml").read_text()
    (tmp_path / "a.yaml").write_text(yaml)
    with pytest.raises(InputError, match=r"a.yaml names the data file last_word_50.jsonl, which is not there"):
        load_tasks([], task_folder=tmp_path)
    (tmp_path / "last_word_50.jsonl").write_text("{broken")
    with pytest.raises(InputError, match="last_word_50 cannot be loaded"):
        load_tasks([], task_folder=tmp_path)


@pytest.mark.slow
def test_offline_one_line_says_which_data_is_missing():
    with pytest.raises(InputError, match=r"data of task truthfulqa_mc1 could not be fetched.*--task-folder") as caught:
        load_tasks(["truthfulqa_mc1"])
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_the_benchmarks_of_the_paper_are_known_by_name():
    names = ["truthfulqa_mc1", "hellaswag", "arc", "arc_easy", "piqa", "lambada", "gsm8k"]
    manager = _manager(names, None)
    members = [_members(manager, name) for name in names]
    assert members[0] == ["truthfulqa_mc1"]
    assert members[2] == ["arc_challenge", "arc_easy"]
    assert "lambada_openai" in members[5]
    assert len(manager.task_index) < 50


@pytest.mark.parametrize("settings", [{"limit": 0}, {"batch_size": 0}])
def test_settings_out_of_range(settings, model, tokenizer):
    with pytest.raises(InputError, match=next(iter(settings))):
        run_tasks(model, tokenizer, {}, window=4, **settings)
