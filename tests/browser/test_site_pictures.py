"""The pictures of docs/method.md and the recorded run of the landing page, in a page of their own.

Building the site takes ten times as long; tests/test_site.py does it.
"""

from __future__ import annotations

import functools
import http.server
import json
import re
import threading

import pytest

from deploy.site.record import read_recording
from focus_explorer.settings import asset_path
from focus_explorer.web.browser import link
from focus_explorer.web.notebook import page_of
from tests.browser.conftest import opening
from tests.helpers import ROOT

pytestmark = pytest.mark.browser

SHARED = json.loads((ROOT / "tests" / "fixtures" / "method.json").read_text(encoding="utf-8"))
MARKDOWN = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("index.md", "method.md"))
PLACES = re.findall(r"<iframe .*?</iframe>|<div id=.*?</div>", MARKDOWN, re.DOTALL)
SCHEME = "document.body.dataset.mdColorScheme = '{}'"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def pictures(chromium, tmp_path):
    """A narrow page with both pictures and the recorded run."""
    (tmp_path / "recording").mkdir()
    (tmp_path / "recording" / "run.html").write_text(page_of(read_recording()), encoding="utf-8")
    style = asset_path("css", "core", "tokens.css").read_text() + (ROOT / "docs" / "styles" / "site.css").read_text()
    script = link(ROOT / "docs" / "scripts" / "site.js", ROOT)
    (tmp_path / "index.html").write_text(
        f"<!doctype html><meta charset=utf-8><link rel=icon href=data:,><style>{style}</style>"
        f"<body data-md-color-scheme=default>{''.join(PLACES)}<script>{script}</script>",
        encoding="utf-8",
    )
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with opening(chromium, f"http://127.0.0.1:{server.server_port}/") as open_one:
        yield open_one(size="narrow", ready="#balance-picture table")
    server.shutdown()
    server.server_close()


@pytest.mark.long
def test_pictures_by_keyboard_and_the_recorded_run(pictures):
    assert len(PLACES) == 3
    _slide_the_mask(pictures)
    _balance(pictures)
    recording = pictures.locator("iframe")
    recording.scroll_into_view_if_needed()  # it is loaded when it is near
    frame = recording.element_handle().content_frame()
    frame.wait_for_selector(".fx-token")
    assert len(read_recording()["run"]["pieces"]) > 250
    frame.wait_for_function("window.scrollY > 50")  # past the numbers, to the tabs
    pictures.evaluate(SCHEME.format("slate"))
    frame.wait_for_function("document.documentElement.classList.contains('dark')")
    assert pictures.locator(".picture.dark").count() == 2


def _slide_the_mask(page):
    """From k = 1, w = 4, s = 2 to another example of the shared file, then to another pair."""
    start = next(one for one in SHARED["pairs"] if (one["topK"], one["window"], one["sinks"]) == (1, 4, 2))
    end = next(one for one in SHARED["pairs"] if (one["topK"], one["window"], one["sinks"]) == (2, 7, 4))
    kept = [f"{sum(one['counts'][1:])} of 1,176" if sum(one["counts"][1:]) < 1000 else "" for one in (start, end)]
    assert kept[0] in page.locator(".picture-total").inner_text()
    for at, steps in enumerate((1, 3, 2)):
        slider = page.locator("#mask-picture input").nth(at)
        slider.focus()
        for _ in range(steps):
            slider.press("ArrowRight")
    assert kept[1] in page.locator(".picture-total").inner_text()
    shown = [int(cell) for cell in page.locator(".picture-causes td:last-child").all_inner_texts()]
    assert shown == [*end["counts"][1:], end["counts"][0]]
    mask, reading = page.locator(".picture-mask"), page.locator("#mask-picture .picture-reading")
    assert "24 back" in reading.inner_text()
    mask.focus()
    for key, distance in (("ArrowDown", "25 back"), ("ArrowRight", "24 back"), ("ArrowRight", "23 back")):
        mask.press(key)
        assert distance in reading.inner_text()


def _balance(page):
    picture = page.locator("#balance-picture")
    assert "100 % of the tokens" in picture.inner_text().replace("\u00a0", " ")
    picture.get_by_role("button", name="Next step").press("Enter")
    assert picture.locator("tr:last-child .picture-sum").all_inner_texts() == ["2.00"] * 3
    picture.get_by_role("button", name="Start over").press("Enter")
    picture.get_by_role("button", name="10 rounds").press("Enter")
    assert picture.locator("tbody tr:not(:last-child) .picture-sum").all_inner_texts() == ["1.00"] * 6
    [expected] = [case for case in SHARED["balance"] if case["rounds"] == 10]
    shown = picture.locator("tbody tr").first.locator("td:not(.picture-sum)").all_inner_texts()
    assert shown == [f"{value:.2f}" for value in expected["plan"][0]]
    assert "33 % of the tokens" in picture.inner_text().replace("\u00a0", " ")
