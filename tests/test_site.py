"""The documentation as a site: it builds without a warning, its links and anchors lead somewhere, and it loads nothing
from elsewhere."""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

import focus_runtime
from focus_explorer.cli.main import COMMANDS
from focus_explorer.views.payloads import PAYLOADS
from focus_runtime.store.database import Database
from tests.helpers import ROOT

DOCS = ROOT / "docs"
MKDOCS = ROOT / "deploy" / "site" / "mkdocs.yml"
LOADING = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href")}


class Page(HTMLParser):
    """Ids, links and loaded files of a page."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        self.loads += [found[name] for of, name in LOADING if of == tag and found.get(name)]


COMMAND_WORDS = ("--max-tokens", "--visitor-minutes", "--head-window", "for --centroids random")


@pytest.mark.slow
def test_what_is_generated_has_every_command_option_payload_and_column(tmp_path):
    from deploy.site.hooks import GENERATED

    made = {name: generate() for name, generate in GENERATED.items()}
    for command in (*COMMANDS, "runs rename"):
        assert re.search(rf"^##+ {command}$", made["command line"], re.M), command
    assert [words for words in COMMAND_WORDS if words not in made["command line"]] == []
    assert [name for name in PAYLOADS if f"### {name}\n" not in made["payloads"]] == []
    for name, text in made.items():
        assert any(f"<!-- generated: {name} -->" in page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
        assert not re.search(r"^[^|\n#`].*\n\|", text, re.M), "a table needs an empty line before it"
    with Database(tmp_path / "a.duckdb").read() as connection:
        columns = connection.execute("SELECT column_name, data_type FROM information_schema.columns").fetchall()
    assert [f"{column} {kind}" for column, kind in columns if f"`{column} {kind}" not in made["columns"]] == []


def test_every_page_is_named_in_the_navigation():
    """What a build refuses, without one: a page that is missing, and one that nothing leads to."""
    from deploy.site.hooks import BROUGHT

    text = MKDOCS.read_text(encoding="utf-8")
    named = set(re.findall(r"[\w/-]+\.md", text[text.index("\nnav:") :]))
    assert named == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} | BROUGHT.keys()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """(folder of the built site, its pages by path); links of the page for missing addresses are absolute."""
    folder = tmp_path_factory.mktemp("site")
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": f"{ROOT / 'runtime'}{os.pathsep}{ROOT}"}
    config = ["--config-file", str(MKDOCS)]
    command = [sys.executable, "-m", "mkdocs", "build", *config, "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stderr[-4000:]
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*.html")]
    return folder, {name: Page((folder / name).read_text(encoding="utf-8")) for name in names if name != "404.html"}


def inside(page, target):
    """(path of the file, fragment) that a link of a page leads to within the site; None for other links."""
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(parts.path))) if parts.path else page
    return path, unquote(parts.fragment)


@pytest.mark.long
def test_links_and_anchors_lead_somewhere_and_no_page_is_an_orphan(site):
    folder, pages = site
    linked = {"index.html"}
    for name, page in pages.items():
        for target in page.links:
            found = inside(name, target)
            if found is None:
                continue
            path, fragment = found
            assert (folder / path).exists(), f"{name} links to {target}"
            if fragment and path in pages:
                assert fragment in pages[path].ids, f"{name} links to {target}"
            if path != name:
                linked.add(path)
    assert len(pages) > 30
    assert pages.keys() - linked == set()


@pytest.mark.long
def test_nothing_is_loaded_from_elsewhere(site):
    folder, pages = site
    for name, page in pages.items():
        for target in page.loads:
            found = inside(name, target)
            assert found is not None, f"{name} loads {target}"
            assert (folder / found[0]).exists(), f"{name} loads {target}"
    for path in folder.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", path.read_text(encoding="utf-8")), path
    own = (folder / "linked" / "site.js").read_text(encoding="utf-8")
    assert "MaskPicture" in own
    assert not re.search(r"\bfetch\(|XMLHttpRequest|import\(", own)


@pytest.mark.long
def test_the_reference_has_every_public_name(site):
    _, pages = site
    runtime = pages["reference/runtime.html"].ids
    missing = {name for name in focus_runtime.__all__ if f"focus_runtime.{name}" not in runtime}
    assert missing == {"__version__"}


@pytest.mark.long
def test_no_table_list_or_mark_is_left_as_text(site):
    folder, pages = site
    for name in pages:
        text = (folder / name).read_text(encoding="utf-8")
        text = re.sub(r"<(pre|code|script)\b.*?</\1>", "", text, flags=re.DOTALL)
        for left in (r"\|---\|", r"\n- ", r"\]\(\S+\.md", r"```", r"<!-- generated", r"markdown=", r"\*\*\w"):
            found = re.search(f".*{left}.*", text)
            assert found is None, f"{name}: {found[0][:200]}"


@pytest.mark.long
def test_the_landing_page_shows_the_recorded_run(site):
    folder, pages = site
    frames = [target for target in pages["index.html"].loads if target.startswith("recording/")]
    assert len(frames) == 1
    page = (folder / "recording" / "run.html").read_text(encoding="utf-8")
    assert 'class="fx-root"' in page
    assert len(page) < 4e6
    raw = [path.name for path in folder.rglob("*") if path.suffix in {".xz", ".md"}]
    assert raw == []
