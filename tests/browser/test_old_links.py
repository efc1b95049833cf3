"""Links made by version 0.1 lead to the same view, layer and selection."""

from __future__ import annotations

import gzip
import json

import pytest

from tests.browser.conftest import opening, serving
from tests.helpers import ROOT

pytestmark = pytest.mark.browser
FOLDER = ROOT / "tests" / "fixtures" / "version_0_1"
LINKS = json.loads((FOLDER / "links.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def old_url(tmp_path_factory):
    path = tmp_path_factory.mktemp("version_0_1") / "runs.duckdb"
    path.write_bytes(gzip.decompress((FOLDER / "runs.duckdb.gz").read_bytes()))
    with serving("--db", path, port=7971) as url:
        yield url


@pytest.fixture
def old_page(chromium, old_url):
    """Opens a page and closes it after the test: a browser has six connections to a server, a page takes one."""
    with opening(chromium, old_url) as open_one:
        yield open_one


@pytest.mark.parametrize("name", list(LINKS))
def test_links_lead_where_they_led(old_page, name):
    address, selection = LINKS[name]
    page = old_page(address)
    label, _ = selection.split("\n")
    page.wait_for_function(
        "label => document.querySelector('[data-testid=fx-selection]').innerText.includes(label)", arg=label
    )
    shown = page.evaluate("Object.fromEntries(new URLSearchParams(location.search))")
    assert shown == dict(part.split("=") for part in address.removeprefix("?").split("&"))
