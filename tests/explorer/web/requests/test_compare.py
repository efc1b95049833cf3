"""Answers of the Compare view about work that goes on meanwhile."""

from __future__ import annotations

import pytest

from focus_explorer.web.requests import compare

READERS = {
    "compare_grid": "grid",
    "compare_lengths": "lengths",
    "compare_links": "measured_links",
    "compare_heads": "measured_heads",
    "compare_generation": None,
    "what_if": None,
}


class EndingWork:
    """A service whose comparison ends while its results are read: these are still without the last of them."""

    state = "running"

    def part(self, _kind):
        return self

    def status(self):
        return {"state": self.state}

    def read(self, *_arguments):
        self.state = "done"
        return {}

    generated = measured = read

    def saved(self, _run_id):
        return None


@pytest.mark.parametrize(("name", "reader"), READERS.items())
def test_work_that_ends_while_its_results_are_read_is_still_said_to_run(monkeypatch, name, reader):
    """The page asks again while work runs, and not once it is done."""
    service = EndingWork()
    if reader is not None:
        monkeypatch.setattr(compare, reader, service.read)
    answer = compare.REQUESTS[name](service, {"run": "run", "changes": ["silence:1:A"]})
    assert service.state == "done"
    assert answer["job"]["state"] == "running"
