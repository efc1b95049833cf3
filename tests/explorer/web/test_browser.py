"""What the page and a saved run take from the style sheets."""

from __future__ import annotations

import re

from focus_explorer.web.browser import background, joined_files, stylesheets


def test_the_background_is_the_token_of_the_theme():
    tokens = stylesheets()[0].read_text(encoding="utf-8")
    assert tokens.count(f"--fx-bg: {background(dark=False)};") == 1
    assert tokens.count(f"--fx-bg: {background(dark=True)};") == 1
    assert tokens.index(background(dark=False)) < tokens.index(".dark .fx-root") < tokens.index(background(dark=True))


def test_every_joined_style_sheet_is_labelled_by_its_own_path():
    _, style = joined_files()
    labels = re.findall(r"^/\* ([\w/-]+\.css) \*/$", style.read_text(encoding="utf-8"), re.M)
    assert labels[0] == "core/tokens.css"
    assert len(labels) == len(set(labels)) == len(stylesheets()) - 1  # page.css goes to Gradio
