"""What claims are judged by: equal pairs, measured lengths, the timed layer's own pairs, the model as it is."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from focus_runtime.measure.intervals import Interval
from focus_runtime.measure.perplexity import Scores
from paper.methods import SparQ
from paper.reports.ablation import SCORES, _matter_little
from paper.reports.adaptation import _attached, keys_per_query, selecting_rows, tuned_row
from paper.reports.answers import UNCHANGED, last_words
from paper.reports.lab import Lab
from paper.reports.page import read_report
from paper.reports.quality import _length_claims, _speed, _speed_quality_claims
from tests.paper.reports.conftest import REPEATED, UNIT

COMMITTED = Path(__file__).parents[3] / "benchmarks" / "reproduced" / "small"


def _scored(shift, sequences=12):
    nll = np.linspace(3.0, 3.4, sequences) + shift
    return Scores(nll, np.full(sequences, 100), *(np.ones((3, 2))))


def test_settings_that_keep_other_pairs_do_not_decide_whether_settings_matter():
    def row(varied, setting, shift):
        return {"varied": varied, "setting": setting, SCORES: _scored(shift)}

    usual = _scored(0.0)
    rows = [row("K", "K = 8", 0.05), row("w", "w = 32", 0.05), row("sinks", "sinks = 0", 0.7)]
    rows += [row("τ", "τ = 0.1 (base)", 0.0), row("τ", "τ = 0.5", 0.005), row("N", "N = 3", -0.005)]
    claim = _matter_little(rows, usual)
    assert claim.held is True
    assert claim.evidence.endswith("τ = 0.5 +0.5%, N = 3 -0.5%")
    assert "K, windows and sinks are left out" in claim.evidence
    assert _matter_little([*rows, row("N", "N = 10", 0.05)], usual).held is False


def _length(tokens, top_k, low, high, retained=0.83):
    middle = (low + high) / 2
    return {
        "tokens": tokens,
        "groups": 4,
        "k": top_k,
        "ppl": Interval(20 + 20 * middle, None, None, 0),
        "added": 20 * middle,
        "relative": Interval(middle, low, high, 0),
        "retained": retained,
    }


def test_lengths_that_were_not_measured_are_not_judged():
    short = [_length(1024, 2, 0.001, 0.01), _length(1024, 3, -0.001, 0.001, 1.0)]
    two, three = _length_claims(short)
    assert two.held is None
    assert two.evidence.endswith("not measured at 8,192")
    assert three.held is True
    assert "8,192" not in three.evidence
    assert _length_claims([*short, _length(8192, 2, 0.001, 0.01)])[0].held is True
    assert _length_claims([*short, _length(4096, 2, 0.03, 0.05)])[0].held is False, "more at one length is enough"
    beyond = _length_claims([*short, _length(8192, 2, 0.001, 0.01), _length(65_536, 2, 0.03, 0.05)])
    assert beyond[0].held is True, "the claim ends at 8,192"
    assert [claim.held for claim in _length_claims([])] == [None, None]
    assert all(claim.evidence for claim in _length_claims([]))


def test_k_3_of_4_is_judged_by_its_pairs_and_its_interval_and_not_by_rounding():
    def held(*rows):
        return _length_claims(list(rows))[1].held

    assert held(_length(2048, 3, -0.0018, 0.0047, 1.0)) is True, "0.03 points of a perplexity of 20 are rounding"
    assert held(_length(2048, 3, -0.0018, 0.0047, 0.99)) is False
    assert held(_length(2048, 3, 0.02, 0.03, 1.0)) is False
    assert held(_length(4096, 3, -0.0106, 0.0106, 1.0)) is True, "two sequences tell little, the pairs all"


def test_the_committed_judgement_of_lengths_is_that_of_its_rows():
    report = read_report(COMMITTED / "long-context.json")
    again = _length_claims(report.rows)
    assert [(one.text, one.held, one.evidence) for one in report.claims] == [
        (one.text, one.held, one.evidence) for one in again
    ]


def test_the_speed_of_a_layer_is_held_against_the_pairs_that_it_keeps_itself(lab):
    measured = {top_k: _speed(lab, 4, top_k, 512) for top_k in (2, 4)}
    assert measured[4]["speed_retained"] == 1.0
    assert 5 / 6 < measured[2]["speed_retained"] < 0.95
    rows = [{"ppl": 20.0}]
    for top_k in (1, 2, 3, 4):
        quality = {**_length(512, top_k, 0.0, 0.01, 0.87), "p": 0.5, "distant": 0.8}
        rows.append({**quality, **measured[2 if top_k == 2 else 4], "own_speed": Interval(1.35, 1.3, 1.4, 3)})
    rows[2]["speed_retained"] = 0.836
    twice = _speed_quality_claims(rows, 4)[1]
    assert twice.held is False
    assert "the 83.6% of pairs that the timed layer keeps account for 1.20 and something else for the rest" in (
        twice.evidence
    )
    assert "87%" not in twice.evidence
    rows[2]["own_speed"] = Interval(1.1, 1.05, 1.15, 3)
    assert "account for 1.20 at most" in _speed_quality_claims(rows, 4)[1].evidence


@pytest.mark.slow
def test_keys_a_query_are_those_that_were_read(lab):
    pytest.importorskip("lm_eval")
    sparq = SparQ(num_keys=16, reallocate=False)
    with sparq.attach(lab.model, text=lab.training_sequences(2)) as handle:
        lab.attached(handle)
        read = handle.keys_per_query()
    assert keys_per_query(_attached(lab, "SparQ", sparq, ""), lab.scale.seq_len) == pytest.approx(read)
    rows = selecting_rows(lab, 16)
    assert rows[0]["keys"] == pytest.approx(read)
    assert read < 16 < 18 < rows[2]["keys"], "MagicPIG reads 17 near keys and 4 sinks at least, where there are so many"


@pytest.mark.slow
def test_answers_are_compared_with_the_model_as_it_is_whichever_is_asked_first(folder, tmp_path):
    pytest.importorskip("lm_eval")
    scale = dataclasses.replace(UNIT, seq_len=160, window=64, weight_steps=60, weight_rate=1e-2, task_items=12)
    lab = Lab(scale, str(folder), [REPEATED], [REPEATED], {"train": ["a"], "val": ["b"]}, tmp_path)
    tuned = tuned_row(lab, "full fine-tuning", None)  # as figure1 does, before table1 asks the model as it is
    first = lab.answers[UNCHANGED]
    fresh = copy.copy(lab)
    fresh.answers = {}
    alone = last_words(fresh, lab.model)
    for part in ("short", "long"):
        assert tuned["tests"][part]["full"] == alone[part].value
    assert {name: result.metrics["acc"].value for name, result in first.items()} == {
        name: result.metrics["acc"].value for name, result in fresh.answers[UNCHANGED].items()
    }
    assert tuned["long"].value != alone["long"].value, "the training changed what is answered"
