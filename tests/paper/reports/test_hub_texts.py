"""Corpora of the hub through `datasets`, which is replaced by one that answers as it does."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from focus_explorer.errors import InputError
from paper.reports.domains import domains
from paper.reports.hub_texts import CORPORA, hub_texts


@pytest.fixture
def asked(monkeypatch):
    """What was asked of `datasets`, whose rows are forty characters each."""
    calls = []

    def load_dataset(path, config, *, split, streaming):
        calls.append((path, config, split, streaming))
        if path == "Skylion007/openwebtext" and "down" in calls:
            raise ConnectionError("the hub is down\nand more")
        return ({"text": "" if n % 3 == 2 else f"{path} {split} {n}".ljust(40)} for n in range(10_000))

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return calls


def test_a_stream_is_read_as_far_as_it_is_needed(asked):
    train, held_out = hub_texts("WikiText-103", train=100, held_out=50)
    assert asked == [
        ("Salesforce/wikitext", "wikitext-103-raw-v1", "train", True),
        ("Salesforce/wikitext", "wikitext-103-raw-v1", "validation", True),
    ]
    assert (len(train), len(held_out)) == (3, 2)  # empty rows are left out
    assert not set(train) & set(held_out)


def test_of_one_split_the_beginning_is_held_out(asked):
    train, held_out = hub_texts("OpenWebText", train=100, held_out=50)
    assert [split for _, _, split, _ in asked] == ["train"]
    assert (len(held_out), len(train)) == (2, 2)
    assert not set(train) & set(held_out)


def test_every_corpus_has_the_splits_it_is_asked_for(asked):
    for name in CORPORA:
        assert all(hub_texts(name, train=40, held_out=40))


def test_without_datasets_or_hub_it_is_one_sentence(asked, monkeypatch):
    asked.append("down")
    with pytest.raises(InputError, match=r"OpenWebText .* cannot be had: the hub is down;"):
        hub_texts("OpenWebText", train=10, held_out=10)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match="PG-19 is read by the package datasets, which is not installed"):
        hub_texts("PG-19", train=10, held_out=10)


@pytest.mark.slow
def test_a_kind_of_text_that_cannot_be_had_has_a_row_and_the_others_run(lab):
    lab.domains = {"letters": lab.texts, "short": ["a b"]}
    try:
        report = domains(lab)
    finally:
        lab.domains = {}
    assert [row["domain"] for row in report.rows] == ["letters", "letters", "letters", "short"]
    assert report.rows[-1]["attention"] == "not measured"
    assert any(note.startswith("short: ") for note in report.notes)
    assert report.claims[0].held is None
