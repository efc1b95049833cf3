"""axe finds nothing serious at any place of the page, light or dark."""

from __future__ import annotations

from pathlib import Path

import axe_playwright_python
import pytest

from tests.browser.places import PLACES

pytestmark = pytest.mark.browser

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def findings(page):
    """Serious and critical findings, each with the rule and the first elements."""
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(AXE)
    found = page.evaluate("tags => axe.run(document, { runOnly: tags, resultTypes: ['violations'] })", TAGS)
    return [
        f"{item['id']} ({item['impact']}): " + "; ".join(node["html"][:160] for node in item["nodes"][:4])
        for item in found["violations"]
        if item["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_anywhere(open_page, scheme):
    problems = {}
    for place in PLACES:
        page = open_page(f"?__theme={scheme}&{place.query}", scheme=scheme)
        place.visit(page)
        found = findings(page)
        if found:
            problems[place.name] = found
        page.context.close()
    assert problems == {}, "\n".join(f"{name}: {line}" for name, lines in problems.items() for line in lines)


def test_the_check_finds_what_is_wrong(open_page):
    page = open_page()
    page.evaluate("document.body.append(Object.assign(document.createElement('img'), { src: 'data:,' }))")
    assert any(found.startswith("image-alt") for found in findings(page))
