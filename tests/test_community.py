"""What others read by machine: the citation file and the forms of issues."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from focus_explorer.exports.bundle.write import bibtex
from focus_runtime.version import __version__

ROOT = Path(__file__).parent.parent


def test_the_citation_file_names_what_bundles_cite():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(cited)  # the format asks for these
    [paper] = cited["references"]
    entries = bibtex()
    assert paper["title"] in entries
    assert "Why Attend to Everything? Focus is the Key" in entries
    assert "Why Attend to Everything? Focus is the Key" in paper["notes"]
    assert paper["identifiers"][0]["value"].removeprefix("arXiv:") in entries
    assert f"{cited['title']}}}" in entries
    assert cited["license"] in entries
    # of the releases, which have a date
    newest = re.search(r"^## (\S+) \((\d\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest.groups() == (__version__, str(cited["date-released"]))
    assert cited["version"] == __version__


def test_the_licence_of_every_package_is_known():
    page = (ROOT / "docs" / "licences.md").read_text()
    components = json.loads((ROOT / "deploy" / "sbom.cdx.json").read_text())["components"]
    assert len(components) > 100
    for each in components:
        stated = " ".join(str(one) for one in each.get("licenses", []))
        common = re.search(r"\b(MIT|BSD|Apache|MPL|PSF|ISC|Python)", stated)
        rare = re.search(r"GPL|MPL|CNRI|CMU", stated) or not common
        assert not rare or each["name"] in page, f"{each['name']}: {stated or 'no licence'}; say it in docs/licences.md"


def test_every_shipped_folder_has_a_licence():
    page = (ROOT / "docs" / "licences.md").read_text()
    shipped = {path.name for path in (ROOT / "assets").iterdir() if path.is_dir()}
    named = set(re.findall(r"`assets/(\w+)`", page)) | {"js", "css"}  # scripts and styles of the page
    assert shipped == named
    listed = (ROOT / "assets" / "samples" / "README.md").read_text()
    assert all(f"`{path.name}`" in listed for path in (ROOT / "assets" / "samples").glob("*.txt"))
