"""The scripts and styles the page loads, all served by the page itself.

The ES modules of assets/js are linked into one classic script: ordered so that each module comes after those it
imports, each in a function of its own, so that names of two modules cannot collide. Read is the subset of the syntax
that assets/js uses, at the beginning of a line: named imports of a relative path, and `export` in front of a `const`,
`function` or `class`. Any other import or export is an error with file and line. Node is not needed.
"""

from __future__ import annotations

import atexit
import hashlib
import re
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

import plotly

from focus_explorer.settings import asset_path

_STATEMENT = re.compile(r"^(import|export)\b", re.MULTILINE)
_IMPORT = re.compile(r'import \{([^}]*)\} from "(\.[^"]*)";')
_EXPORT = re.compile(r"export (?=(?:const|class|(?:async )?function\*?) ([A-Za-z_$][\w$]*))")


class LinkError(ValueError):
    """A module that cannot be linked."""


@dataclass(frozen=True, slots=True)
class Module:
    """One module: what it imports as (file, {exported name: local name}, line), what it exports, and its other code."""

    path: Path
    imports: list[tuple[Path, dict[str, str], int]]
    exports: list[str]
    code: str


def link(entry: Path, root: Path | None = None) -> str:
    """One classic script of an entry and all modules that it imports, as a function call whose value is its exports.

    Module names are relative to `root`, or to the entry's own folder. A LinkError is raised for syntax outside the
    subset, an unknown file or name, or an import cycle.
    """
    folder = (entry.parent if root is None else root).resolve()

    def name(path: Path) -> str:
        return f'"{path.relative_to(folder).as_posix()}"'

    lines = ["(() => {", '"use strict";', "const modules = {};"]
    for module in modules(entry):
        lines += [f"// {name(module.path)[1:-1]}", f"modules[{name(module.path)}] = (() => {{"]
        for path, imported, _ in module.imports:
            listed = ", ".join(one if one == local else f"{one}: {local}" for one, local in imported.items())
            lines.append(f"const {{ {listed} }} = modules[{name(path)}];")
        lines += [module.code.strip("\n"), f"return {{ {', '.join(module.exports)} }};", "})();"]
    return "\n".join([*lines, f"return modules[{name(entry.resolve())}];", "})();\n"])


def modules(entry: Path) -> list[Module]:
    """The modules of an entry, each after those that it imports; errors as of `link`."""
    ordered: dict[Path, Module] = {}
    open_paths: list[Path] = []

    def visit(path: Path) -> None:
        if path in open_paths:
            cycle = " → ".join(step.name for step in [*open_paths[open_paths.index(path) :], path])
            raise LinkError(f"{open_paths[-1]}: import cycle: {cycle}")
        open_paths.append(path)
        module = read_module(path)
        for imported, names, line in module.imports:
            if imported not in ordered:
                visit(imported)
            for name in names:
                if name not in ordered[imported].exports:
                    raise LinkError(f"{path}:{line}: {imported.name} exports no {name}")
        ordered[open_paths.pop()] = module

    visit(entry.resolve())
    return list(ordered.values())


def read_module(path: Path) -> Module:
    """Read one file; a LinkError where there is none, or its syntax is outside the subset."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise LinkError(f"{path}: {error.strerror}") from error
    imports, exports, code, last = [], [], [], 0
    for found in _STATEMENT.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        statement = (_IMPORT if found[1] == "import" else _EXPORT).match(text, found.start())
        if statement is None:
            raise LinkError(
                f'{path}:{line}: only `import {{ names }} from "./file.js";` and `export` in front of a named `const`, '
                "`function` or `class` are read"
            )
        code.append(text[last : statement.start()])
        last = statement.end()
        if found[1] == "export":
            exports.append(statement[1])
        else:
            pairs = [part.split(" as ") for part in " ".join(statement[1].split()).strip(",").split(",")]
            names = {pair[0].strip(): pair[-1].strip() for pair in pairs}
            imports.append(((path.parent / statement[2]).resolve(), names, line))
    return Module(path, imports, exports, "".join([*code, text[last:]]))


def plotly_script() -> Path:
    return Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


def page_script() -> str:
    return link(asset_path("js") / "main.js")


def notebook_script() -> str:
    """The one script of a notebook and of a run saved as HTML: the views, without the page around them."""
    return link(asset_path("js") / "notebook.js")


def stylesheets() -> list[Path]:
    """Our style sheets in the order of the cascade: tokens, core, shell, then the folders of the views."""
    root = asset_path("css")

    def order(path: Path) -> tuple[bool, bool, bool, str]:
        name = path.relative_to(root).as_posix()
        return name != "core/tokens.css", not name.startswith("core/"), not name.startswith("shell/"), name

    return sorted(root.rglob("*.css"), key=order)


def host_style() -> Path:
    """Our styles of Gradio's own parts."""
    return asset_path("css", "shell", "page.css")


def background(*, dark: bool) -> str:
    """The colour behind the views, as core/tokens.css defines it for them: they cannot pass it on to a whole page."""
    tokens = asset_path("css", "core", "tokens.css").read_text(encoding="utf-8")
    colours = {}
    for selector, rule in re.findall(r"([^{}]+)\{([^{}]*)\}", tokens):
        if colour := re.search(r"--fx-bg:\s*([^;]+);", rule):
            colours[".dark" in selector] = colour[1]
    return colours[dark]


@cache
def joined_files() -> tuple[Path, Path]:
    """Our script and the styles of our views as two temporary files.

    One request each instead of a hundred, which would queue behind Gradio's own; and not through Gradio's `css`, which
    splits selectors at every comma, also inside `:is()`. The root class is repeated to outrank Gradio's styles. The
    names change with the content, so that a browser never runs what it kept of another version.
    """
    folder = Path(tempfile.mkdtemp(prefix="focus-explorer-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    root = asset_path("css")
    look = "\n".join(
        f"/* {path.relative_to(root).as_posix()} */\n{path.read_text(encoding='utf-8')}"
        for path in stylesheets()
        if path != host_style()
    )
    look = re.sub(r"\.fx-root(?![\w-])", ".fx-root" * 3, look)
    return _written(folder, page_script(), "js"), _written(folder, look, "css")


def _written(folder: Path, text: str, ending: str) -> Path:
    path = folder / f"explorer-{hashlib.sha256(text.encode()).hexdigest()[:12]}.{ending}"
    path.write_text(text, encoding="utf-8")
    return path


def static_paths() -> list[Path]:
    """The files the page may read, and no other."""
    return [plotly_script(), *joined_files()]


def head_html() -> str:
    """Our styles and script; Plotly, ten times their size, is only named: the first chart loads it (core/plotly.js)."""
    script, style = joined_files()
    return (
        f'<link rel="stylesheet" href="{_address(style)}">\n'
        f'<meta name="fe-plotly" content="{_address(plotly_script())}">\n'
        f'<script defer src="{_address(script)}"></script>'
    )


def _address(path: Path) -> str:
    return f"gradio_api/file={escape(str(path), quote=True)}"
