"""Questions of the export dialog."""

from __future__ import annotations

import pytest

from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.exports.tables.sources import TABLES, read
from focus_explorer.web.requests.dispatch import dispatch

pytestmark = pytest.mark.slow


def test_the_dialog_offers_a_layer_where_a_table_has_layers(service, run_id):
    offered = {
        one["name"]: one["layers"] for one in dispatch(service, {"what": "export_choices", "run": run_id})["tables"]
    }
    assert offered == {name: "layer" in next(read(service.database, run_id, name)).column_names for name in TABLES}


def test_the_dialog_offers_the_mask_of_every_layer_with_its_size(service, run_id):
    offered = dispatch(service, {"what": "export_choices", "run": run_id})["mask"]
    layers = fetch(service.database, "layers", run_id=run_id).to_pylist()
    assert [(row["layer"], row["pairs"]) for row in offered["layers"]] == [
        (row["layer"], round(row["retained_pairs"] * row["causal_pairs"])) for row in layers
    ]
    assert offered["formats"] == ["parquet", "npz", "csv"]
    assert offered["tokens"] == fetch_run(service.database, run_id)["num_tokens"]
