"""The tables of docs/gpu.md and of the README are those of the measured file."""

from __future__ import annotations

import json

from benchmarks.gpu_tables import RESULT, tables, tables_of_short
from tests.helpers import ROOT


def test_the_tables_are_those_of_the_measurement():
    *own, readme = tables(json.loads(RESULT.read_text(encoding="utf-8")))
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    for table in [*own, *tables_of_short()]:
        assert table in page
    assert readme in (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(own[0].splitlines()) == 2 + 11  # 1K to 1M
