"""Questions of the Statistics view."""

from __future__ import annotations

import pytest

from focus_explorer.statistics.tables import statistics_table
from focus_explorer.web.requests.answers import packed
from tests.explorer.web.requests.conftest import until_done


def test_the_page_gets_every_run_and_layer_row_of_the_table(service, run_id):
    answer = until_done(service, {"what": "statistics", "run": run_id})
    table = statistics_table(service.database, run_id, "statistics").to_pylist()
    for scope, key in (("run", "run"), ("layer", "layers")):
        stored = [one for one in table if one["scope"] == scope and not one["statistic"].endswith("_minus_random")]
        assert answer[key]["statistic"] == [one["statistic"] for one in stored]
        assert answer[key]["value"] == pytest.approx([one["value"] for one in stored], rel=1e-5, nan_ok=True)
    assert answer["missing"] == {"tags": True, "random": True, "attention": True}
    assert len(answer["about"]["notes"]) == 2
    assert answer["job"] is None
    assert len(packed(answer).body) < 40_000

    layer = answer["layers"]["layer"][0]
    groups = until_done(service, {"what": "statistics_layer", "run": run_id, "layer": layer})
    assert set(groups["groups"]["layer"]) == {layer}
    assert set(groups["categories"]["layer"]) == {layer} == set(groups["characteristic"]["layer"])
    pairs = until_done(service, {"what": "statistics_pairs", "run": run_id, "layer": layer})
    assert set(pairs["distances"]["layer"]) == {layer, None}
    assert not pairs["links_measured"]
