"""Requests get ids, are counted, and are logged without anything a user wrote."""

from __future__ import annotations

import contextvars
import json
import logging
import re
import time

import pytest

from focus_explorer.usecases.jobs import DEFECT, JobRunner, job_counts
from focus_explorer.usecases.users import LOG, request_id, working_for
from focus_explorer.web.hosting.observing import JSONLog
from tests.security.conftest import serving
from tests.security.test_server import SECRET, samples

pytestmark = pytest.mark.slow


@pytest.fixture
def lines():
    """What is logged as JSON, parsed."""
    found = []

    class Kept(logging.Handler):
        def emit(self, record):
            found.append(json.loads(self.format(record)))

    root, before = logging.getLogger(), {}
    for name in (None, *logging.Logger.manager.loggerDict):
        logger = logging.getLogger(name)
        before[name] = logger.handlers[:], logger.propagate, logger.level
    JSONLog(Kept()).take_over()
    yield found
    logging.captureWarnings(False)
    for name, (handlers, propagate, level) in before.items():
        logger = logging.getLogger(name)
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)
    assert root.handlers == before[None][0]


def test_a_request_has_one_id_in_its_answer_and_its_line(private, lines):
    answer = private.client.get("/health", headers={"X-Request-ID": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"
    made = [private.client.get("/health", headers={"X-Request-ID": 'a"} b'}) for _ in range(2)]
    assert all(re.fullmatch(r"[0-9a-f]{32}", item.headers["x-request-id"]) for item in made)
    assert made[0].headers["x-request-id"] != made[1].headers["x-request-id"]
    refused = private.client.get("/health", headers={"Host": "evil.example"})
    assert refused.status_code == 421
    by_id = {line["request"]: line for line in lines if line["event"] == "request"}
    assert by_id["mine-1"]["route"] == "/health"
    assert by_id["mine-1"]["status"] == 200
    assert by_id[refused.headers["x-request-id"]]["status"] == 421


def test_neither_log_nor_metrics_hold_what_users_wrote(stored, lines):
    with serving(*stored[:1], stored[2]) as page:
        _, problem = page.call("analyze", SECRET, "no such centroids " + SECRET)
        assert problem
        page.client.get(f"/{SECRET}", params={"run": SECRET, "page": SECRET})
        page.client.get("/", params={"page": SECRET})
        for way in ("call", "call/v2", "run", "api"):
            answer = page.client.post(f"/gradio_api/{way}/{SECRET}", json={"data": []})
            assert answer.status_code == 404
            assert SECRET not in answer.text
        page.client.request(SECRET.split()[1].upper(), "/health")
        text = samples_text(page)
    written = json.dumps(lines) + text
    for word in ("treasure", "TREASURE", "oak"):
        assert word not in written
    counted = samples(text)
    routes = {dict(labels).get("route") for name, labels in counted if name == "focus_requests_total"}
    assert {"/gradio_api/call/{api_name}", "other"} <= {
        route.replace("{api_name:path}", "{api_name}") for route in routes
    }
    functions = {dict(labels)["function"] for name, labels in counted if name == "focus_requests_total"}
    assert functions == {"analyze", ""}


def samples_text(page):
    from prometheus_client import generate_latest

    return generate_latest(page.metrics.registry).decode()


def test_a_jobs_lines_name_the_request_that_started_it(lines):
    before = job_counts().ended["count", "failed"]
    with working_for("asked-1"):
        job = JobRunner().start("mine", lambda job: 1 / 0, kind="count")
        context = contextvars.copy_context()
    assert job.wait(20)
    assert request_id() == context.run(request_id) == ""
    deadline = time.monotonic() + 20
    while len(lines) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [(line["event"], line["kind"], line["request"]) for line in lines] == [
        ("job failed", "count", "asked-1"),
        ("job ended", "count", "asked-1"),
    ]
    assert job_counts().ended["count", "failed"] == before + 1


def test_a_defect_in_a_function_is_logged_under_the_request_that_called_it(stored, lines, monkeypatch, capfd):
    def fails(*values, **named):
        raise ValueError(SECRET)

    monkeypatch.setattr("focus_explorer.web.api.analyze_text", fails)
    with serving(*stored[:1], stored[2]) as page:
        values = [SECRET, stored[2].model, "random", 1, 8, 2, "causal", 100, "auto", "auto", "auto"]
        posted = page.client.post(
            "/gradio_api/call/analyze", json={"data": values}, headers={"X-Request-ID": "asked-2"}
        )
        answer = page.client.get(f"/gradio_api/call/analyze/{posted.json()['event_id']}").text
    [line] = [line for line in lines if line["event"] == "function failed"]
    assert (line["function"], line["request"], line["error"]) == ("analyze", "asked-2", "ValueError")
    assert DEFECT in answer
    for written in (json.dumps(lines), answer, *capfd.readouterr()):
        assert "treasure" not in written


def test_errors_are_logged_by_type_and_place(lines):
    def fails():
        raise ValueError(SECRET)

    try:
        fails()
    except ValueError:
        LOG.exception("job failed", extra={"fields": {"kind": "grid"}})
        logging.getLogger("some.library").exception("could not read %s", SECRET)
    own, other = lines
    assert own["event"] == "job failed"
    assert own["kind"] == "grid"
    assert other["event"].startswith("message at ")
    for line in lines:
        assert line["error"] == "ValueError"
        assert line["frames"][-1].endswith(" fails")
        assert "treasure" not in json.dumps(line)
