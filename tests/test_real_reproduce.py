"""Tables at the scale tiny on the embedded model, through the command, with no text of one's own."""

from __future__ import annotations

import csv
import dataclasses
import json

import pytest

from paper.__main__ import main
from paper.lab.scale import SCALES


@pytest.mark.model
def test_two_tables_are_reproduced_from_nothing(tmp_path, monkeypatch):
    few = dataclasses.replace(SCALES["tiny"], study_steps=2)  # a second for each step of each of its strategies
    monkeypatch.setitem(SCALES, "tiny", few)
    names = ["table6", "table8", "speed-by-length"]
    assert main([*names, "--scale", "tiny", "--recipe", "paper", "--out", str(tmp_path)]) == 0
    with (tmp_path / "table8.csv").open() as lines:
        rows = {row["mitigation"]: row for row in csv.DictReader(lines)}
    assert float(rows["sinkhorn"]["dominance"]) < 0.3 < float(rows["softmax"]["dominance"])
    with (tmp_path / "table6.csv").open() as lines:
        rows_7 = list(csv.DictReader(lines))
    assert [row["tokens"] for row in rows_7] == ["512", "1024"]
    assert all(float(row["focus_ms8"]) > 0 for row in rows_7)
    assert (
        json.loads((tmp_path / "speed-by-length.json").read_text())["rows"]
        == json.loads((tmp_path / "table6.json").read_text())["rows"]
    )
    assert "softmax: step" in (tmp_path / "table8.log").read_text()
