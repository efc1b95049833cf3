"""A public page in two browsers."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import expect

from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.service import Service
from tests.browser.conftest import HARBOUR, opening, serving
from tests.helpers import build_model, build_tokenizer, free_port

pytestmark = [pytest.mark.browser, pytest.mark.long]  # without a browser: tests/security/test_modes.py


def test_two_visitors_explore_apart_and_meet_their_limit(chromium, tmp_path):
    build_model(vocab_size=512).save_pretrained(tmp_path / "tiny")
    build_tokenizer().save_pretrained(tmp_path / "tiny")
    chosen = AnalyzeRequest(model=str(tmp_path / "tiny"), centroids="random", top_k=1, window=8, repeats=1)
    service = Service(tmp_path / "shown.duckdb")
    shown = analyze(service, HARBOUR[:600], chosen)
    flags = ("--db", service.database.path, "--model", tmp_path / "tiny", "--centroids", "random")
    outside = free_port()
    flags += ("--allow-frame", f"http://localhost:{outside}")
    with (
        serving(*flags, "--public", "--visitor-runs", "1", "--visitor-tokens", "300", port=7956) as url,
        opening(chromium, url) as open_one,
    ):
        page, other = open_one(), open_one(size="narrow")  # of different contexts: two browsers
        assert [tab.inner_text() for tab in page.get_by_role("tab").all()[:3]] == ["Explore", "Centroids", "Runs"]
        expect(page.locator("#fe-public")).to_contain_text("texts of up to 300 tokens")
        _explore(page, "A text of my own about the harbour. " * 8)
        page.wait_for_function("old => new URLSearchParams(location.search).get('run') !== old", arg=shown)
        own = page.evaluate("new URLSearchParams(location.search).get('run')")
        _explore(page, "Another text of my own. " * 8)
        expect(page.locator("#fe-status [role=alert]")).to_contain_text("what one visitor may use of this page")
        other.goto(f"{url}?run={own}")
        expect(other.locator("#fe-notice")).to_contain_text(f"The run {own} of this link is not in this database")
        other.get_by_role("tab", name="Runs").click()
        expect(other.locator("#fe-runs .fx-runs-name")).to_have_count(1)
        page.get_by_role("tab", name="Centroids").click()
        expect(page.locator("[data-testid=fx-file-use]").first).to_be_visible()
        expect(page.locator("#fe-upload")).to_have_count(0)
        with surrounding(outside, url):
            _explored_in_a_frame(chromium, outside, url, shown)


@contextmanager
def surrounding(port, url):
    """A site, at localhost and 127.0.0.1, whose page shows another page in a frame."""

    class Outside(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(f'<link rel=icon href="data:,"><iframe src="{url}" width=1400 height=800>'.encode())

        def log_message(self, *words):
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Outside) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()


def _explored_in_a_frame(chromium, port, url, shown):
    """A site that is allowed shows the page, whose cookie is kept there; another one shows nothing."""
    context, problems = chromium.new_context(), []
    try:
        outside = context.new_page()
        outside.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        outside.goto(f"http://127.0.0.1:{port}/")
        assert outside.frames[1].url.startswith("chrome-error:")
        [refused] = problems
        assert "frame-ancestors 'self'" in refused
        outside.goto(f"http://localhost:{port}/")
        inside = outside.frames[1]
        inside.wait_for_selector("[data-testid=fx-header]", timeout=90_000)
        _explore(inside, "A text of my own about the harbour. " * 8)
        other_run = "shown => ![null, shown].includes(new URLSearchParams(location.search).get('run'))"
        inside.wait_for_function(other_run, arg=shown)
        inside.get_by_role("tab", name="Runs").click()
        expect(inside.locator("#fe-runs .fx-runs-name")).to_have_count(2)  # so it is the same visitor still
        assert problems == [refused]
    finally:
        context.close()


def _explore(page, text):
    page.evaluate("window.FocusForm.open()")
    page.locator("#fe-text textarea").fill(text)
    page.locator("#fe-run").click()
