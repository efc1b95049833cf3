"""axe finds nothing serious at any place of the page, light or dark."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import axe_playwright_python
import pytest

from tests.browser.conftest import lead
from tests.browser.places import PLACES

pytestmark = pytest.mark.browser

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
EVERYTHING = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
QUICK = ("tokens", "compare", "statistics", "training")  # of all places
PANEL = ".fx-panel:not([hidden])"  # the open view of the explorer
CONTRAST = {"type": "rule", "values": ["color-contrast"]}


# Contrast takes most of the time of a check. It depends on the colours, the font and the backgrounds below a text, so
# of all texts that share these, at whatever place, only the first two are looked at.
ALIKE = """([known, within]) => {
  const backgrounds = new Map(), seen = new Map(known);
  const below = (node) => {
    if (node === null) return "";
    if (!backgrounds.has(node)) {
      const { backgroundColor, backgroundImage, opacity, position } = getComputedStyle(node);
      const own = [backgroundColor, backgroundImage, opacity, position].join();
      backgrounds.set(node, `${below(node.parentElement)}|${own}`);
    }
    return backgrounds.get(node);
  };
  for (const node of document.querySelectorAll(`${within} *`)) {
    node.removeAttribute("data-alike");
    const words = [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim());
    if (!words || !node.checkVisibility()) continue;
    const { color, fontSize, fontWeight, textShadow } = getComputedStyle(node);
    const disabled = node.closest(":disabled, [aria-disabled=true]") !== null;
    const look = [node.tagName, color, fontSize, fontWeight, textShadow, disabled, below(node)].join("/");
    seen.set(look, (seen.get(look) ?? 0) + 1);
    if (seen.get(look) > 2) node.setAttribute("data-alike", "");
  }
  axe.configure({ rules: [{ id: "color-contrast", selector: ":not([data-alike])" }] });
  return [...seen];
}"""


def findings(page, rules=EVERYTHING, seen=None, within="body", contrast=True):
    """Serious and critical findings, each with the rule and the first elements.

    Args:
        page: to look at.
        rules: of axe that apply.
        seen: looks of texts checked before, with their number; grows.
        within: selector of what is looked at.
        contrast: whether it is checked too.
    """
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(AXE)
    seen = {} if seen is None else seen
    if contrast:
        seen |= page.evaluate(ALIKE, [list(seen.items()), within])
    check = """([runOnly, within, enabled]) => axe.run(within === "body" ? document : within, {
      runOnly, resultTypes: ["violations"], rules: { "color-contrast": { enabled } } })"""
    report = page.evaluate(check, [rules, within, contrast])
    return [
        f"{item['id']} ({item['impact']}): " + "; ".join(node["html"][:160] for node in item["nodes"][:4])
        for item in report["violations"]
        if item["impact"] in ("serious", "critical")
    ]


def test_nothing_serious_in_a_few_views(open_page, first_run):
    """But for contrast, which takes most of the time of a check."""
    page = open_page(f"?run={first_run}", fresh=True)
    problems = []
    for place in PLACES:
        if place.name in QUICK:
            lead(page, f"?run={first_run}&{place.query}")
            place.visit(page)
            problems += [f"{place.name}: {finding}" for finding in findings(page, contrast=False)]
    assert problems == [], "\n".join(problems)


@pytest.mark.long
def test_nothing_serious_anywhere(open_page, first_run):
    """Every place as it opens, then once more after the switch to dark colours, where only contrast can differ."""
    problems, seen, page = [], {}, None
    for _, places in groupby(PLACES, lambda place: place.page):
        first, *others = places
        if page is None or "tour" in first.query:
            page = open_page(f"?__theme=light&{first.query}", fresh=True)
            page.add_style_tag(content="* { transition: none !important; }")  # colours on their way are neither
        else:
            lead(page, f"?run={first_run}&{first.query}")
        first.visit(page)
        problems += findings_at(first, page, seen)
        for place in others:
            place.move(page)
            problems += findings_at(place, page, seen)
    assert problems == [], "\n".join(problems)


def findings_at(place, page, seen):
    light = [f"{place.name}, light: {finding}" for finding in findings(page, seen=seen)]
    page.evaluate("document.body.classList.add('dark')")
    page.wait_for_timeout(50)  # nothing fades: see above
    dark = [f"{place.name}, dark: {finding}" for finding in findings(page, CONTRAST, seen)]
    page.evaluate("document.body.classList.remove('dark')")
    return light + dark


@pytest.mark.long
def test_the_check_finds_what_is_wrong(open_page):
    page = open_page()
    page.evaluate("document.body.append(Object.assign(document.createElement('img'), { src: 'data:,' }))")
    page.evaluate("document.querySelectorAll('span.fx-token')[200].style.color = '#888'")
    page.evaluate("document.querySelectorAll('span.fx-token')[200].style.background = '#999'")
    lines = findings(page)
    assert any(one.startswith("image-alt") for one in lines)
    assert any(one.startswith("color-contrast") and "fx-token" in one for one in lines)
