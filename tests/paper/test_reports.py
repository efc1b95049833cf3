"""Every table and figure on a tiny model, with its forms on disk; what its claims are judged by."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from focus_runtime.measure.intervals import Interval
from focus_runtime.measure.perplexity import Scores
from paper.__main__ import measure
from paper.lab import group_content
from paper.lab.timing import layer_times
from paper.names import REPORTS, recipes_of
from paper.output import files
from paper.output.page import read_report
from paper.output.report import merged
from paper.reports import sinks, table2, table9
from paper.reports.domains import domains
from paper.reports.long_context import length_claims
from paper.reports.table7 import speed_quality_claims

COMMITTED = Path(__file__).parents[2] / "benchmarks" / "reproduced" / "small"
FEWER = {  # values that table 9 varies, with the base of both recipes and what its claims are about
    "num_groups": (4, 8),
    "window": (1.0,),
    "temperature": (0.5,),
    "sinkhorn_iterations": (3,),
    "num_sinks": (0, 4),
}
OWN_LOOPS = {  # tables that train or compose in ways of their own, for seconds each; the others walk what all share
    "devices",
    "domains",
    "figure3",
    "from-scratch",
    "gate",
    "gsm8k",
    "mass",
    "routing-size",
    "sinks",
    "table2",
    "table4",
    "table5",
    "table9",
}
NEED_HARNESS = {"table1", "table3", "table4", "table10", "figure1", "figure2", "gsm8k"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in OWN_LOOPS else ()) for name in REPORTS]
)
def test_every_report_is_measured_and_written(name, lab, tmp_path, monkeypatch):
    if name in NEED_HARNESS:
        pytest.importorskip("lm_eval")
        pytest.importorskip("peft")
    monkeypatch.setattr(files, "draw", lambda figure, title: b"<svg/>")
    monkeypatch.setattr(table9, "VARIED", FEWER)
    monkeypatch.setattr(sinks, "COUNTS", (0, 4))
    monkeypatch.setattr(group_content, "SHUFFLES", 5)
    kinds = ("MHA", "interleaved + softcap")
    monkeypatch.setattr(table2, "STAND_INS", {kind: table2.STAND_INS[kind] for kind in kinds})
    recipes = recipes_of(name)[: 1 if name == "gsm8k" else None]  # its answers are written token by token
    report = merged({recipe: measure(name, lab.under(recipe)) for recipe in recipes})
    assert (report.name, report.title) == (name, REPORTS[name])
    keys = {column.key for column in report.columns}
    empty = {key for key in keys if all(row.get(key) is None for row in report.rows)}
    allowed = {"short", "long", "lost"} if name != "pairs" else keys  # too little text for these
    assert not {key for key in empty if not key.startswith("paper")} - allowed
    for row in report.rows:
        if "ppl" in row and row.get("dominance") is not None:
            assert row["retained"] is not None, "a perplexity is given with dominance and pairs kept"
    assert {claim.recipe for claim in report.claims} <= set(recipes_of(name))
    assert {"gate", "lambda", "sinks", "assignment", "N"} <= set(report.setting)
    assert all(claim.rule and claim.evidence for claim in report.claims)
    assert all("nan" not in claim.evidence or claim.held is None for claim in report.claims)
    paths = files.write(report, tmp_path, log="a line\n")
    assert {path.suffix for path in paths} >= {".md", ".csv", ".tex", ".json", ".log"}
    stored = json.loads((tmp_path / f"{name}.json").read_text(), parse_constant=lambda c: pytest.fail(f"{c} in JSON"))
    with (tmp_path / f"{name}.csv").open() as lines:
        assert len(list(csv.DictReader(lines))) == len(report.rows) == len(stored["rows"]) > 0
    if report.figure is not None:
        assert len(files.plotly_figure(report.figure, "").data) == len(report.figure.series)


def _scored(shift):
    nll = np.linspace(3.0, 3.4, 12) + shift
    return Scores(nll, np.full(12, 100), *(np.ones((3, 2))))


def test_settings_that_keep_other_pairs_do_not_decide_whether_settings_matter():
    def row(varied, setting, shift):
        return {"varied": varied, "setting": setting, table9.SCORES: _scored(shift)}

    usual = _scored(0.0)
    rows = [row("num_groups", "K = 8", 0.05), row("window", "w = 32", 0.05), row("num_sinks", "sinks = 0", 0.7)]
    rows += [row("temperature", "τ = 0.1 (base)", 0.0), row("temperature", "τ = 0.5", 0.005)]
    rows.append(row("sinkhorn_iterations", "N = 3", -0.005))
    claim = table9.settings_claim(rows, usual)
    assert claim.held is True
    assert claim.evidence.endswith("τ = 0.5 +0.5%, N = 3 -0.5%")
    assert table9.settings_claim([*rows, row("temperature", "τ = 1", 0.05)], usual).held is False


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
    two, three = length_claims(short)
    assert two.held is None
    assert two.evidence.endswith("not measured at 8,192")
    assert three.held is True
    assert length_claims([*short, _length(8192, 2, 0.001, 0.01)])[0].held is True
    assert length_claims([*short, _length(4096, 2, 0.03, 0.05)])[0].held is False, "more at one length is enough"
    beyond = length_claims([*short, _length(8192, 2, 0.001, 0.01), _length(65_536, 2, 0.03, 0.05)])
    assert beyond[0].held is True, "the claim ends at 8,192"
    assert [claim.held for claim in length_claims([])] == [None, None]
    for held, row in (
        (True, _length(2048, 3, -0.0018, 0.0047, 1.0)),  # rounding
        (False, _length(2048, 3, -0.0018, 0.0047, 0.99)),
        (False, _length(2048, 3, 0.02, 0.03, 1.0)),
        (True, _length(4096, 3, -0.0106, 0.0106, 1.0)),  # two sequences tell little, the pairs all
    ):
        assert length_claims([row])[1].held is held


def test_the_committed_judgement_of_lengths_is_that_of_its_rows():
    report = read_report(COMMITTED / "long-context.json")
    again = length_claims(report.rows)
    assert [(one.text, one.held, one.evidence) for one in report.claims] == [
        (one.text, one.held, one.evidence) for one in again
    ]


def test_the_speed_of_a_layer_is_held_against_the_pairs_that_it_keeps_itself(lab):
    kept = {top_k: layer_times(lab, 4, top_k, 512)["retained_pairs"] for top_k in (2, 4)}
    assert kept[4] == 1.0
    assert 5 / 6 < kept[2] < 0.95
    rows = [{"ppl": 20.0}]
    for top_k in (1, 2, 3, 4):
        row = {**_length(512, top_k, 0.0, 0.01, 0.87), "p": 0.5, "distant": 0.8, "speed": 1.0}
        rows.append(row | {"speed_retained": 0.836 if top_k == 2 else 1.0, "own_speed": Interval(1.35, 1.3, 1.4, 3)})
    twice = speed_quality_claims(rows, 4)[1]
    assert twice.held is False
    assert "the 83.6% of pairs that the timed layer keeps account for 1.20 and something else for the rest" in (
        twice.evidence
    )
    rows[2]["own_speed"] = Interval(1.1, 1.05, 1.15, 3)
    assert "account for 1.20 at most" in speed_quality_claims(rows, 4)[1].evidence


@pytest.mark.slow
def test_a_kind_of_text_that_is_too_short_has_a_row_and_the_others_run(lab):
    several = lab.under("ours")
    several.domains = {"letters": lab.texts, "short": ["a b"]}
    report = domains(several)
    assert [row["domain"] for row in report.rows] == ["letters", "letters", "letters", "short"]
    assert report.rows[-1]["attention"] == "not measured"
    assert any(note.startswith("short: ") for note in report.notes)
    assert report.claims[0].held is None
    several.scale, several.domains = dataclasses.replace(lab.scale, name="paper"), {}
    with pytest.raises(Exception, match="--domain PG-19=FOLDER WikiText-103=FOLDER OpenWebText=FOLDER"):
        domains(several)
