"""axe finds nothing serious at any place of the page, light or dark."""

from __future__ import annotations

from pathlib import Path

import axe_playwright_python
import pytest

from tests.browser.places import PLACES

pytestmark = pytest.mark.browser

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
EVERYTHING = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
CONTRAST = {"type": "rule", "values": ["color-contrast"]}


def findings(page, rules=EVERYTHING):
    """Serious and critical findings, each with the rule and the first elements."""
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(AXE)
    found = page.evaluate("rules => axe.run(document, { runOnly: rules, resultTypes: ['violations'] })", rules)
    return [
        f"{item['id']} ({item['impact']}): " + "; ".join(node["html"][:160] for node in item["nodes"][:4])
        for item in found["violations"]
        if item["impact"] in ("serious", "critical")
    ]


def test_nothing_serious_anywhere(open_page):
    """Every place as it opens, then once more after the switch to dark colours, where only contrast can differ."""
    problems = []
    for place in PLACES:
        page = open_page(f"?__theme=light&{place.query}")
        place.visit(page)
        problems += [f"{place.name}, light: {found}" for found in findings(page)]
        page.add_style_tag(content="* { transition: none !important; }")  # colours on their way are neither
        page.evaluate("document.body.classList.add('dark')")
        page.wait_for_timeout(300)
        problems += [f"{place.name}, dark: {found}" for found in findings(page, CONTRAST)]
        page.close()
    assert problems == [], "\n".join(problems)


def test_the_check_finds_what_is_wrong(open_page):
    page = open_page()
    page.evaluate("document.body.append(Object.assign(document.createElement('img'), { src: 'data:,' }))")
    assert any(found.startswith("image-alt") for found in findings(page))
