"""What `mkdocs build` adds to the pages in docs/: files of the repository, linked scripts, a recorded run.

A page's `<!-- generated: NAME -->` is replaced by what `GENERATED` makes for that name. Links that leave docs/ lead to
the page that stands for the file, or become its path, since the site knows no address of the repository.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from deploy.site.command_line import command_line
from deploy.site.database import columns
from deploy.site.payloads import payloads
from deploy.site.record import read_recording
from focus_explorer.settings import asset_path
from focus_explorer.web.browser import link
from focus_explorer.web.notebook import page_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BROUGHT = {  # page of the site: file of the repository
    "benchmarks.md": "benchmarks/README.md",
    "changes.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "log.md": "benchmarks/LOG.md",
    "security.md": ".github/SECURITY.md",
}
STANDS_FOR = {file: page for page, file in BROUGHT.items()} | {"README.md": "index.md"}
ENTRY = "site.js"  # of docs/scripts, linked with what it imports
GENERATED: dict[str, Callable[[], str]] = {"command line": command_line, "columns": columns, "payloads": payloads}

_LINK = re.compile(r"(!?)\[([^\[\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_ITEM = re.compile(r"([-*]|\d+\.) ")
_MARK = re.compile(r"<!-- generated: ([\w ]+) -->")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside of docs/, and what is made by the build."""
    made = {page: (ROOT / file).read_text(encoding="utf-8") for page, file in BROUGHT.items()}
    made[f"linked/{ENTRY}"] = link(DOCS / "scripts" / ENTRY, ROOT)
    made["styles/tokens.css"] = asset_path("css", "core", "tokens.css").read_text(encoding="utf-8")
    made["recording/run.html"] = page_of(read_recording())
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in what is generated, and turn links of the repository into links of the site."""
    name = page.file.src_uri
    source = BROUGHT.get(name, f"docs/{name}")
    markdown = _MARK.sub(lambda match: GENERATED[match[1]](), markdown)
    return _LINK.sub(lambda match: _site_link(match, source, name), _spaced(markdown))


def _spaced(markdown: str) -> str:
    """A blank line in front of each list and table right after a paragraph: MkDocs would take it for text."""
    lines = [""]
    in_code = in_list = False
    for line in markdown.split("\n"):
        in_code ^= line.lstrip().startswith("```")
        item = not in_code and _ITEM.match(line) is not None
        row = not in_code and line.startswith("|")
        begins = (item and not in_list) or (row and not lines[-1].startswith("|"))
        if begins and lines[-1].strip():
            lines.append("")
        in_list = item or (in_list and bool(line.strip()))
        lines.append(line)
    return "\n".join(lines[1:])


def _site_link(match: re.Match[str], source: str, page: str) -> str:
    image, text, target, anchor = match[1], match[2], match[3], match[4] or ""
    if ":" in target:
        return match[0]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if path.startswith("docs/"):
        inside = path.removeprefix("docs/")
    elif path in STANDS_FOR:
        inside = STANDS_FOR[path]
    elif (ROOT / path).exists():
        return f"`{path}`" if text.strip("`") in path else f"{text} (`{path}`)"
    else:
        return match[0]
    return f"{image}[{text}]({posixpath.relpath(inside, posixpath.dirname(page) or '.')}{anchor})"
