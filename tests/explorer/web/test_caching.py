"""Files named by their content may be kept by browsers; nothing else of the page is."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from focus_explorer.web.hosting.caching import FOR_A_YEAR, KeepNamedByContent


def answer(request):
    return PlainTextResponse("content", status_code=404 if "missing" in request.url.path else 200)


CLIENT = TestClient(KeepNamedByContent(Starlette(routes=[Route("/{path:path}", answer)])))


@pytest.mark.parametrize(
    "path",
    [
        "/assets/index-DphvyggB.js",
        "/assets/Index-Akn07EZk2.css",
        "/focus/assets/src-1GSBhSW9.js",
        "/gradio_api/file=/tmp/x/explorer-61cd121870a5.css",
    ],
)
def test_named_by_content(path):
    assert CLIENT.get(path).headers["cache-control"] == FOR_A_YEAR


@pytest.mark.parametrize(
    "path",
    ["/", "/config", "/theme.css", "/static/js/x.js", "/assets/missing-DphvyggB.js", "/gradio_api/file=/tmp/run-1.csv"],
)
def test_everything_else(path):
    assert "cache-control" not in CLIENT.get(path).headers
