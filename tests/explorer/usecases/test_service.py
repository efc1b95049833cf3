"""Two services on one database."""

from __future__ import annotations

from focus_explorer.usecases.runs import run_summary
from focus_explorer.usecases.service import Service


def test_two_services_share_one_file(service, run_id):
    assert run_summary(Service(service.database.path).database, run_id) == run_summary(service.database, run_id)
