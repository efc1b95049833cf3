"""The style sheets as a whole: every class belongs to one file, and is one that the page uses."""

from __future__ import annotations

import re
from collections import defaultdict

from focus_explorer.ui.browser import scripts, stylesheets


def rules():
    """(file name, selector) of every rule, one selector each."""
    for path in stylesheets():
        text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
        for selectors in re.findall(r"([^{};]+)\{", text):
            if not selectors.strip().startswith("@"):
                for selector in re.split(r",(?![^(]*\))", selectors):
                    yield path.name, " ".join(selector.split())


def test_no_class_is_styled_by_two_files_at_its_root():
    owners = defaultdict(set)
    for name, selector in rules():
        if re.fullmatch(r"\.fx-root \.fx-[\w-]+", selector):
            owners[selector].add(name)
    assert len(owners) > 200
    assert {selector: files for selector, files in owners.items() if len(files) > 1} == {}


def test_every_styled_class_is_used():
    code = "\n".join(path.read_text(encoding="utf-8") for path in scripts())
    styled = {found for _, selector in rules() for found in re.findall(r"\.(fx-[\w-]+)", selector)}
    made = set(re.findall(r"fx-[\w-]*\$\{", code))  # names put together at run time, by their beginning
    begins = tuple({name.removesuffix("${") for name in made} - {"fx-"})
    assert {
        name for name in styled if not re.search(rf"{name}(?![\w-])", code) and not name.startswith(begins)
    } == set()
