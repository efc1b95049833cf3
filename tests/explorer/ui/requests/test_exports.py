"""Questions of the export dialog."""

from __future__ import annotations

from focus_explorer.exports.tables.sources import TABLES, read
from focus_explorer.ui.requests.dispatch import dispatch


def test_the_dialog_offers_a_layer_where_a_table_has_layers(service, run_id):
    offered = {
        one["name"]: one["layers"] for one in dispatch(service, {"what": "export_choices", "run": run_id})["tables"]
    }
    assert offered == {name: "layer" in next(read(service.database, run_id, name)).column_names for name in TABLES}
