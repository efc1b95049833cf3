"""Tables whose rows have a place in the text are listed as such."""

from __future__ import annotations

import pytest

from focus_explorer.exports.bundle.write import BY_PLACE, DATA_ONLY, PLACES
from focus_explorer.exports.tables.sources import TABLES
from focus_explorer.exports.tables.write import table

pytestmark = pytest.mark.slow


def test_every_table_with_places_is_known_to_have_them(service, run_id):
    with service.database.read():  # opened once for all
        for what in TABLES:
            assert (what in BY_PLACE) == bool(PLACES & set(table(service.database, run_id, what).column_names)), what
    assert set(DATA_ONLY) <= set(BY_PLACE)
