"""Links made by version 0.1 lead to the same view, layer and selection."""

from __future__ import annotations

import gzip
import json

import pytest

from focus_explorer.web.notebook import show
from tests.browser.conftest import lead, opening
from tests.helpers import ROOT

pytestmark = pytest.mark.browser
FOLDER = ROOT / "tests" / "fixtures" / "version_0_1"
LINKS = json.loads((FOLDER / "links.json").read_text(encoding="utf-8"))
ADDRESS = "http://127.0.0.1/focus"


@pytest.mark.long
def test_links_lead_where_they_led(chromium, tmp_path):
    """In the page of one file, whose scripts read the address like those of the served one."""
    path = tmp_path / "runs.duckdb"
    path.write_bytes(gzip.decompress((FOLDER / "runs.duckdb.gz").read_bytes()))
    [run_id] = {address.split("run=")[1].split("&")[0] for address, _ in LINKS.values()}
    show(run_id, database=path).save(tmp_path / "run.html")

    def answer(page):
        page.route(f"{ADDRESS}*", lambda route: route.fulfill(path=tmp_path / "run.html"))

    with opening(chromium, ADDRESS) as open_one:
        first, *others = LINKS.values()
        page = open_one(first[0], before=answer)
        for address, selection in [first, *others]:
            if address != first[0]:
                lead(page, address)
            label, _ = selection.split("\n")
            page.wait_for_function(
                "label => document.querySelector('[data-testid=fx-selection]')?.innerText.includes(label)", arg=label
            )
            shown = page.evaluate("Object.fromEntries(new URLSearchParams(location.search))")
            assert shown == dict(part.split("=") for part in address.removeprefix("?").split("&"))
