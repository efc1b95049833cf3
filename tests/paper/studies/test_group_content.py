"""Word classes on hand-labelled text, and group statistics against counting by loops."""

from __future__ import annotations

import json
import math
from collections import Counter

import numpy as np
import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.config import CONSTANT
from focus_runtime.errors import InputError, TextError
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure.contingency import contingency, normalised_information
from focus_runtime.measure.loss import final_hidden
from focus_runtime.text.tagging import CLASSES, WORDS, classify
from paper.studies import group_content as module
from paper.studies.group_content import (
    RoutedText,
    describe_groups,
    group_content,
    long_range_pairs,
    routed_text,
    shuffled_information,
)
from tests.helpers import build_centroids, build_model, build_tokenizer

LABELLED = [
    ("It", "pronoun"),
    (" was", "auxiliary"),
    (" Mr", "function"),
    (".", "punctuation"),
    (" Dar", "name"),
    ("cy", "continuation"),
    (" who", "pronoun"),
    (" said", "content"),
    (":", "punctuation"),
    (" “", "punctuation"),
    ("Noth", "pronoun"),
    ("ing", "continuation"),
    (" in", "preposition"),
    (" the", "determiner"),
    (" 18", "number"),
    ("13", "number"),
    (" rooms", "content"),
    (".”", "punctuation"),
    ("\n\n", "whitespace"),
    ("Ro", "content"),
    ("oms", "continuation"),
    (" and", "conjunction"),
    (" Dar", "name"),
    ("cy", "continuation"),
    ("’s", "function"),
    (" don", "content"),
    ("'", "punctuation"),
    ("t", "function"),
    (" ", "whitespace"),
    ("‹F0 9F›", "other"),
    (".", "punctuation"),
    (" Darcy", "name"),
    (" never", "function"),
    (" CHAP", "content"),
]


def test_pieces_get_the_class_a_reader_would_give_them():
    classified = classify([piece for piece, _ in LABELLED])
    assert list(zip([piece for piece, _ in LABELLED], classified.classes, strict=True)) == LABELLED
    assert classified.words[4:6] == ["Darcy", ""]
    assert classified.words[10] == "Nothing"


def test_a_capital_counts_only_where_no_sentence_begins():
    sentence = ["He", " met", " Emma", ".", " Emma", " laughed", ".", " Suddenly", " rain", " fell", "."]
    classes = classify(sentence).classes
    assert classes[2] == classes[4] == "name"
    assert classes[7] == "content"


def test_every_listed_word_has_its_class_and_classes_are_complete():
    for name, words in WORDS.items():
        for word in words.split():
            assert classify(["so", " " + word]).classes[1] == next(n for n in WORDS if word in WORDS[n].split()), word
        assert name in CLASSES
    assert classify([]).classes == []


def made_up(seed, *, sequences=2, length=60, groups=3, window=7, growth=CONSTANT):
    """Random probabilities over random words, a third of them names."""
    random = np.random.default_rng(seed)
    raw = random.gamma(0.3, size=(sequences, length, groups)) + 1e-6
    probabilities = (raw / raw.sum(axis=-1, keepdims=True)).astype(np.float32)
    words = [[str(random.choice(["Ann", "Bo", "cat", "the", ","])) for _ in range(length)] for _ in range(sequences)]
    kinds = {"Ann": "name", "Bo": "name", "cat": "content", "the": "determiner", ",": "punctuation"}
    classes = np.array([[CLASSES.index(kinds[word]) for word in row] for row in words])
    return RoutedText(
        words, words, classes, {4: probabilities}, PairRule(window, growth=growth).near(np.arange(length))
    )


def test_groups_are_described_by_counting(fresh_seed):
    routed = made_up(fresh_seed)
    row = group_content(routed, typical=3, least_count=2, shuffles=5)[0]
    pieces = [word for words in routed.words for word in words]
    flat = routed.probabilities[4].reshape(-1, 3)
    top = flat.argmax(axis=1)
    for group in row["groups"]:
        members = [place for place in range(120) if top[place] == group["group"]]
        assert group["size"] == pytest.approx(len(members) / 120)
        assert group["confidence"] == pytest.approx(np.mean([flat[place].max() for place in members]), rel=1e-5)
        entropy = np.mean([-sum(p * math.log(p) for p in flat[place].tolist()) for place in members])
        assert group["entropy"] == pytest.approx(entropy, rel=1e-4)
        classes = Counter(CLASSES[routed.classes.ravel()[place]] for place in members)
        assert group["purity"] == pytest.approx(max(classes.values()) / len(members))
        assert classes[group["dominant_class"]] == max(classes.values())
        base = (routed.classes == CLASSES.index(group["dominant_class"])).mean()
        assert group["lift"] == pytest.approx(group["purity"] / base)
        assert sum(group["class_shares"].values()) == pytest.approx(1.0)
        inside, everywhere = Counter(pieces[place] for place in members), Counter(pieces)
        for piece in group["typical"]:
            assert piece["count"] == inside[piece["piece"]] >= 2
            assert piece["lift"] == pytest.approx(
                (inside[piece["piece"]] / len(members)) / (everywhere[piece["piece"]] / 120)
            )
            assert piece["lift"] > 1
    dominant = sum(round(group["purity"] * group["size"] * 120) for group in row["groups"])
    assert row["purity"] == pytest.approx(dominant / 120)
    json.dumps(row)


def test_an_empty_group_has_a_row():
    probabilities = np.tile(np.array([[0.8, 0.2]], np.float32), (4, 1))
    rows = describe_groups(probabilities, ["a"] * 4, np.zeros(4, np.int64), typical=2, least_count=1)
    assert rows[0]["size"] == 1.0
    assert rows[0]["typical"] == []
    assert rows[1]["size"] == 0.0
    assert rows[1]["purity"] is None
    assert rows[0].keys() == rows[1].keys()


def test_information_is_the_definition_and_shuffling_destroys_it(fresh_seed):
    random = np.random.default_rng(fresh_seed)
    classes, groups = random.integers(0, 5, 400), random.integers(0, 3, 400)
    information = 0.0
    for a in range(5):
        for b in range(3):
            both = np.mean((classes == a) & (groups == b))
            if both:
                information += both * math.log(both / (np.mean(classes == a) * np.mean(groups == b)))
    entropy = [-sum(np.mean(x == v) * math.log(np.mean(x == v)) for v in set(x.tolist())) for x in (classes, groups)]
    measured = float(normalised_information(contingency(classes, groups, (len(CLASSES), 3))))
    assert measured == pytest.approx(2 * information / sum(entropy), abs=1e-12)
    assert normalised_information(contingency(classes, classes, (len(CLASSES), 5))) == pytest.approx(1.0)
    assert normalised_information(contingency(np.zeros(9, np.int64), np.zeros(9, np.int64), (1, 3))) == 0.0
    null = shuffled_information(classes, classes, 5, shuffles=20, seed=1)
    assert null.shape == (20,)
    assert null.max() < 0.2
    assert len(set(null.tolist())) > 1
    with pytest.raises(InputError, match="shuffles is 0"):
        shuffled_information(classes, groups, 3, shuffles=0, seed=0)


@pytest.mark.parametrize("growth", [CONSTANT, (15, 40)])
@pytest.mark.parametrize("block", [7, 512])
def test_long_range_pairs_are_the_strongest_of_a_double_loop(block, growth, fresh_seed, monkeypatch):
    monkeypatch.setattr(module, "PAIR_ROWS", block)
    routed = made_up(fresh_seed, growth=growth)
    row = long_range_pairs(routed, limit=3)[0]
    best, same, among, same_all, every = {}, 0, 0, 0, 0
    for number in range(2):
        probabilities, words = routed.probabilities[4][number], routed.words[number]
        top = probabilities.argmax(axis=1)
        for i in range(60):
            for j in range(i - 7 * max(growth[0], min(i, growth[1])) // growth[0]):
                every, same_all = every + 1, same_all + (top[i] == top[j])
                if {words[i], words[j]} != {"Ann", "Bo"}:
                    continue
                among, same = among + 1, same + (top[i] == top[j])
                affinity = float(probabilities[i].astype(np.float64) @ probabilities[j].astype(np.float64))
                key = (words[i], words[j])
                if top[i] == top[j] and affinity > best.get(key, 0.0):
                    best[key] = affinity
    assert row["same_group"] == pytest.approx(same / among)
    assert row["same_group_of_all"] == pytest.approx(same_all / every)
    assert [pair["affinity"] for pair in row["pairs"]] == pytest.approx(
        sorted(best.values(), reverse=True)[:3], abs=1e-5
    )
    for pair in row["pairs"]:
        words = routed.words[pair["sequence"]]
        assert words[pair["position"]] == pair["word"]
        assert words[pair["earlier_position"]] == pair["earlier_word"]
        assert pair["distance"] == pair["position"] - pair["earlier_position"] > routed.near[pair["position"]]
    json.dumps(row)


def test_no_pair_beyond_the_window_is_no_share():
    row = long_range_pairs(made_up(0, window=60))[0]
    assert row == {"layer": 4, "same_group": None, "same_group_of_all": None, "pairs": []}
    with pytest.raises(InputError, match="kinds has 'verb'; expected some of punctuation"):
        long_range_pairs(made_up(0), kinds=("verb",))


def test_a_text_is_routed_as_the_model_does_it():
    model, tokenizer = build_model(vocab_size=512), build_tokenizer()
    text = "Anne met Bo at the inn. " * 6
    centroids = build_centroids(model, top_k=1)
    routed = routed_text(model, tokenizer, centroids, text, length=48, window=9)
    assert routed.near.tolist() == [9] * 48
    assert "".join("".join(row) for row in routed.pieces) == text
    assert routed.classes.shape == (3, 48)
    focus = compose(model, centroids, window=9)
    with torch.no_grad():
        final_hidden(model, torch.tensor([tokenizer(text).input_ids[48:96]]))
    expected = focus.assignments()[1].probabilities[0].numpy()
    focus.detach()
    np.testing.assert_allclose(routed.probabilities[1][1], expected, rtol=1e-5)
    assert routed.words[0][:5] == ["Anne", "", "", "", ""]
    few = routed_text(model, tokenizer, centroids, text, length=48, count=2)
    assert few.pieces == [routed.pieces[0], routed.pieces[2]]
    assert len(group_content(few, shuffles=2)) == len(long_range_pairs(few)) == 2
    with pytest.raises(TextError, match="the text has 144 tokens; expected at least 145"):
        routed_text(model, tokenizer, centroids, text, length=145)
    with pytest.raises(InputError, match="count is 0"):
        routed_text(model, tokenizer, centroids, text, count=0)
