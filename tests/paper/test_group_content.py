"""Group statistics against counting by loops."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.config import CONSTANT
from focus_runtime.errors import TextError
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure.loss import final_hidden
from focus_runtime.text.tagging import CLASSES
from paper.lab import group_content as module
from paper.lab.group_content import RoutedText, group_content, long_range_pairs, routed_text
from tests.helpers import build_centroids, build_model, build_tokenizer


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


def test_groups_are_described_by_counting(fresh_seed, monkeypatch):
    monkeypatch.setattr(module, "TYPICAL", 3)
    monkeypatch.setattr(module, "LEAST_COUNT", 2)
    routed = made_up(fresh_seed)
    row = group_content(routed)[0]
    pieces = [word for words in routed.words for word in words]
    flat = routed.probabilities[4].reshape(-1, 3)
    top = flat.argmax(axis=1)
    for group in row["groups"]:
        members = [place for place in range(120) if top[place] == group["group"]]
        assert group["size"] == pytest.approx(len(members) / 120)
        assert group["confidence"] == pytest.approx(np.mean([flat[place].max() for place in members]), rel=1e-5)
        classes = Counter(CLASSES[routed.classes.ravel()[place]] for place in members)
        assert group["purity"] == pytest.approx(max(classes.values()) / len(members))
        assert classes[group["dominant_class"]] == max(classes.values())
        base = (routed.classes == CLASSES.index(group["dominant_class"])).mean()
        assert group["base_rate"] == pytest.approx(base)
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


def test_shuffled_groups_say_nothing_of_classes(fresh_seed):
    routed = made_up(fresh_seed, sequences=4)
    routed.probabilities[4] = np.eye(len(CLASSES), dtype=np.float32)[routed.classes]
    row = group_content(routed)[0]
    assert row["information"] == pytest.approx(1.0)
    assert row["null_low"] <= row["null_mean"] <= row["null_high"] < 0.3


@pytest.mark.parametrize("growth", [CONSTANT, (15, 40)])
def test_long_range_pairs_are_the_strongest_of_a_double_loop(growth, fresh_seed, monkeypatch):
    monkeypatch.setattr(module, "PAIRS", 3)
    routed = made_up(fresh_seed, growth=growth)
    row = long_range_pairs(routed, "name")[0]
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


def test_a_text_is_routed_as_the_model_does_it():
    model, tokenizer = build_model(vocab_size=512), build_tokenizer()
    text = "Anne met Bo at the inn. " * 6
    centroids = build_centroids(model, top_k=1)
    routed = routed_text(model, tokenizer, centroids, text, length=48, count=9, window=9)
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
    assert len(group_content(few)) == len(long_range_pairs(few, "name")) == 2
    with pytest.raises(TextError, match="the text has 144 tokens; expected at least 145"):
        routed_text(model, tokenizer, centroids, text, length=145, count=1)
