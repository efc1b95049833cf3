"""Texts of a training by domain, the held-out ones left out of them, and their scores."""

from __future__ import annotations

import json

import pytest

from focus_explorer.usecases.training.request import TrainRequest, plan_training
from focus_explorer.usecases.training.texts import (
    DomainRequest,
    describe_scores,
    gather_domains,
    gather_texts,
    parse_domains,
    score,
)
from focus_runtime.errors import InputError, TextError
from tests.helpers import build_centroids, random_ids

pytestmark = pytest.mark.slow  # with the other tests of training


def test_a_held_out_text_is_left_out_wherever_it_lies(tmp_path):
    """A copy of it under another name would otherwise be trained on."""
    folder, held = tmp_path / "texts", tmp_path / "held-out.txt"
    folder.mkdir()
    for name, text in (("a.txt", "one text"), ("b.txt", "another"), ("copy.txt", "the held-out one")):
        (folder / name).write_text(text)
    held.write_text("the held-out one")
    texts, files = gather_texts([str(folder)], [str(held)])
    assert texts == ["one text", "another"]
    assert [path.name for path in files] == ["a.txt", "b.txt"]
    assert gather_texts([str(folder / "a.txt")], [str(tmp_path / "texts" / "b.txt")])[0] == ["one text"]
    with pytest.raises(TextError, match="no text to train on besides the held-out one"):
        gather_texts([str(folder)], [str(folder)])


def parse(*words, weighted=True):
    return parse_domains(words, "--text", weighted=weighted)


def test_paths_without_names_are_one_domain():
    assert parse("novels", "notes.txt") == [DomainRequest("", ("novels", "notes.txt"))]
    assert parse() == []


def test_names_and_weights():
    assert parse("novels=x/y:3", "py-3.1=z", "c=w:0.5") == [
        DomainRequest("novels", ("x/y",), 3.0),
        DomainRequest("py-3.1", ("z",), 1.0),
        DomainRequest("c", ("w",), 0.5),
    ]
    assert parse("novels=x:3", weighted=False) == [DomainRequest("novels", ("x:3",))]


def test_an_existing_path_is_a_path_whatever_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b").mkdir()
    (tmp_path / "c:2").mkdir()
    assert parse("a=b") == [DomainRequest("", ("a=b",))]
    assert parse("d=c:2") == [DomainRequest("d", ("c:2",))]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a=x", "a=y"), "--text has two domains named 'a'; expected every name once; rename one of them"),
        (("a=x", "y"), "--text 'y' has no name, but other texts have; expected NAME=PATH"),
        (("a=x:0",), "--text gives the domain 'a' the weight '0'; expected a number above 0; write a=x:2 for twice"),
        (("a=x:-1",), "the weight '-1'"),
        (("a=x:nan",), "the weight 'nan'"),
        (("a=x:inf",), "the weight 'inf'"),
        (("a=x:many",), "the weight 'many'"),
        (("a=x:",), "the weight ''"),
    ],
)
def test_bad_domains_are_named(words, message):
    with pytest.raises(InputError) as raised:
        parse(*words)
    assert message in str(raised.value)


def test_a_domain_without_text_is_named(tmp_path):
    with pytest.raises(TextError, match=r"the domain 'code': the folder .* has no .txt files; expected text files"):
        gather_domains(parse(f"code={tmp_path}"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": "kl"}, "loss is 'kl'; expected lm or distil or both"),
        ({"steps": 0}, "steps is 0"),
        ({"temperature": 0.0}, "temperature is 0"),
        ({"accumulate": 0}, "accumulation is 0"),
        ({"checkpoint_every": 0}, "checkpoint_every is 0"),
        ({"distil_weight": 2.0}, "--distil-weight goes with --loss both, not with --loss lm"),
        ({"loss": "both", "distil_weight": -1.0}, "distil_weight is -1.0; expected a number above 0"),
        ({"patience": 2}, "--patience is given without held-out text; expected the text that decides (--val)"),
        ({"val_every": 5}, "--val-every is given without held-out text"),
        ({"patience": -1}, "--patience is -1"),
        ({"val_every": 0, "val": ("v",)}, "--val-every is 0; expected at least 1 step"),
        ({"learn": "factors"}, "--learn factors is given without trained centroids"),
        ({"learn": "factors", "init": "default", "train_window": 64}, "--train-window is given, but factors"),
        ({"learn": "factors", "init": "default", "hard": True}, "factors of logits are learned under the mask"),
        ({"learn": "all"}, "learn is 'all'; expected groups or factors"),
        ({"hard_steps": 300}, "hard_steps is 300 of 300 steps"),
        ({"hard_steps": 3, "gate": "paper"}, "--hard-steps goes with the log gate only"),
        ({"hard_steps": 3, "hard": True}, "hard and hard_steps are both set"),
        ({"val": ("a=x", "a=y")}, "--val has two domains named 'a'"),
    ],
)
def test_bad_options_are_known_before_any_work(changes, message):
    with pytest.raises(InputError) as raised:
        plan_training(TrainRequest(**({"text": ("t",), "out": "a.safetensors"} | changes)))
    assert message in str(raised.value)


def test_domains_without_distant_pairs_are_left_out_of_those_that_are_kept(tiny_model):
    sequences = {"short": random_ids(20, batch=2), "long": random_ids(60, batch=2)}
    report = score(tiny_model, build_centroids(tiny_model, window=20), sequences)
    own = report["domains"]
    assert own["short"]["k=1"]["distant_kept"] is None
    assert 0 < own["long"]["k=1"]["distant_kept"] < 1
    assert report["k=1"]["distant_kept"] == own["long"]["k=1"]["distant_kept"]
    kept = [own[name]["k=1"]["retained_pairs"] for name in own]
    assert report["k=1"]["retained_pairs"] == pytest.approx(sum(kept) / 2)
    json.dumps(report, allow_nan=False)
    assert f"distant pairs kept {report['k=1']['distant_kept']:.1%}" in describe_scores(report)[1]
    del sequences["long"]
    lines = describe_scores(score(tiny_model, build_centroids(tiny_model, window=20), sequences))
    assert lines[1].endswith("pairs kept 100.0%, distant pairs kept none")


def test_with_a_budget_the_scores_are_not_said_to_be_of_one_k_in_all_heads(tiny_model):
    report = score(tiny_model, build_centroids(tiny_model), {"held-out": random_ids(20, batch=2)})
    said = "  k is that of heads without a setting of their own; the others keep theirs"
    assert said not in describe_scores(report)
    assert describe_scores(report, has_budget=True) == [*describe_scores(report), said]
    assert describe_scores({}, has_budget=True) == []
