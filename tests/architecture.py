"""The table of allowed imports between folders, and the picture of it in docs/.

`python -m tests.architecture` writes docs/images/architecture.svg and the table in docs/architecture.md again after a
change of `ALLOWED`. tests/test_architecture.py holds the code and both files to this table.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from tests.helpers import ROOT

R, X, P = "focus_runtime", "focus_explorer", "paper"
SOURCES = {R: ROOT / "runtime", X: ROOT, P: ROOT}


def _runtime(names: str) -> frozenset[str]:
    return frozenset({R, *(f"{R}/{name}" for name in names.split())})


# Folder -> folders its files may import. A package's own name stands for the files at its root. Importing within a
# folder is always allowed, as long as no files import each other in a circle.
ALLOWED: dict[str, frozenset[str]] = {
    R: frozenset(),
    f"{R}/models": _runtime(""),
    f"{R}/text": _runtime(""),
    f"{R}/mask": _runtime(""),
    f"{R}/routing": _runtime("models"),
    f"{R}/attention": _runtime("mask routing"),
    f"{R}/composition": _runtime("models mask routing attention"),
    f"{R}/measure": _runtime("models text mask routing attention composition"),
    f"{R}/explain": _runtime("models mask composition measure"),
    f"{R}/fit": _runtime("models text mask routing composition measure"),
    f"{R}/evaluate": _runtime("models text routing composition measure"),
    f"{R}/run": _runtime("models text mask routing composition measure fit"),
    f"{R}/store": _runtime("text mask routing measure fit run explain"),
    X: _runtime(""),
    f"{X}/data": _runtime("mask measure run store") | {X},
    f"{X}/statistics": _runtime("text mask measure store") | {X, f"{X}/data"},
    f"{X}/views": _runtime("mask measure") | {X, f"{X}/data", f"{X}/statistics"},
    f"{X}/usecases": _runtime("models text mask routing composition measure explain fit evaluate run store")
    | {X, f"{X}/data", f"{X}/statistics", f"{X}/views"},
    f"{X}/exports": _runtime("models text mask measure store")
    | {X, f"{X}/data", f"{X}/statistics", f"{X}/views", f"{X}/usecases"},
    f"{X}/web": _runtime("") | {X, f"{X}/views", f"{X}/usecases", f"{X}/exports"},
    f"{X}/cli": _runtime("") | {X, f"{X}/statistics", f"{X}/usecases", f"{X}/exports", f"{X}/web"},
    # the paper reads both, and is one room: nothing imports it
    P: _runtime("models text routing attention composition measure fit evaluate run")
    | {X, f"{X}/usecases", f"{X}/exports"},
}
# What a folder is for, in the picture.
PURPOSE = {
    R: "settings, files, kernels",
    X: "settings, errors",
    f"{R}/models": "load, inspect",
    f"{R}/text": "tokens, tags",
    f"{R}/mask": "which pairs",
    f"{R}/routing": "groups of tokens",
    f"{R}/attention": "kernels",
    f"{R}/composition": "attach to a model",
    f"{R}/measure": "loss, time, intervals",
    f"{R}/explain": "missing links",
    f"{R}/fit": "learn centroids, budgets",
    f"{R}/evaluate": "benchmarks, the doctor",
    f"{R}/run": "one text, many texts",
    f"{R}/store": "DuckDB tables",
    f"{X}/data": "named queries",
    f"{X}/statistics": "arrays to rows",
    f"{X}/views": "rows to payloads",
    f"{X}/usecases": "what is offered",
    f"{X}/exports": "files for papers",
    f"{X}/web": "the page",
    f"{X}/cli": "the command",
    P: "tables and figures",
}
# Distributions that take their time to import.
HEAVY = {"torch", "transformers", "gradio", "plotly", "umap", "pandas", "duckdb", "pyarrow", "scipy", "sklearn"}
RUNTIME_NEVER = {X, "gradio", "plotly", "umap", "pandas"}  # in no file of the runtime


@dataclass(frozen=True)
class Import:
    """One name that one module takes from another; `name` is None for the module itself."""

    source: str
    target: str
    name: str | None
    line: int


@cache
def modules() -> dict[str, Path]:
    """Our modules by dotted name."""
    paths = {}
    for package, base in SOURCES.items():
        for path in sorted((base / package).rglob("*.py")):
            parts = path.relative_to(base).with_suffix("").parts
            paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


Statement = ast.Import | ast.ImportFrom


@cache
def statements(path: Path) -> tuple[list[Statement], list[Statement]]:
    """(every import of a file, those that importing the file runs)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    anywhere = [node for node in ast.walk(tree) if isinstance(node, Statement)]
    return anywhere, [node for node in tree.body if isinstance(node, Statement)]


def names_of(node: Statement) -> list[str]:
    """Dotted names of what a statement may import, modules or not."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]


def foreign(path: Path, *, at_import: bool = False) -> set[str]:
    """Distributions a file imports: anywhere in it, or only those that importing the file imports."""
    return {name.split(".")[0] for node in statements(path)[at_import] for name in names_of(node)}


@cache
def imports() -> list[Import]:
    """Every import of one of our modules by another, also inside functions and for type checking alone.

    The `__init__` files of the two packages are left out: they are the public names, above everything.
    """
    edges = []
    for module, path in modules().items():
        if module in (R, X):
            continue
        for node in statements(path)[0]:
            if isinstance(node, ast.ImportFrom):
                assert not node.level, f"{path}:{node.lineno}: relative import"
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    if inner in modules():
                        edges.append(Import(module, inner, None, node.lineno))
                    elif node.module in modules():
                        edges.append(Import(module, node.module, alias.name, node.lineno))
            else:
                edges += [Import(module, a.name, None, node.lineno) for a in node.names if a.name in modules()]
    return edges


def folder_of(module: str) -> str:
    """Folder of the table a module lies in: `focus_runtime/attention` also for what lies in folders below it."""
    path = modules()[module]
    parts = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    return P if parts[0] == P else "/".join(parts[:2])


def graphs_by_folder() -> dict[str, dict[str, set[str]]]:
    """Folder -> which of its entries (files and folders in it) import which other entries of it."""
    graphs: dict[str, dict[str, set[str]]] = {}
    for i in imports():
        source, target = i.source.split("."), i.target.split(".")
        same = 0
        while same < min(len(source), len(target)) and source[same] == target[same]:
            same += 1
        if 0 < same < min(len(source), len(target)):  # else one is the package the other lies in
            graph = graphs.setdefault("/".join(source[:same]), {})
            graph.setdefault(source[same], set()).add(target[same])
    return graphs


def cycles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Strongly connected parts of more than one node (Tarjan 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    components: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            part = stack[stack.index(node) :]
            del stack[-len(part) :]
            if len(part) > 1:
                components.append(sorted(part))

    for node in list(graph):
        if node not in order:
            visit(node)
    return components


def levels() -> dict[str, int]:
    """Folder -> its row in the picture: one above the highest folder of its own package that it may import."""
    rows: dict[str, int] = {}

    def row(folder: str) -> int:
        if folder not in rows:
            same = [other for other in ALLOWED[folder] if other.split("/")[0] == folder.split("/")[0]]
            rows[folder] = max((row(other) + 1 for other in same), default=0)
        return rows[folder]

    for folder in ALLOWED:
        row(folder)
    return rows


def direct() -> dict[str, set[str]]:
    """`ALLOWED` without what follows from the rest: the arrows of the picture."""

    def reached(folder: str) -> set[str]:
        return set(ALLOWED[folder]).union(*(reached(other) for other in ALLOWED[folder]))

    return {
        folder: {target for target in targets if not any(target in reached(other) for other in targets - {target})}
        for folder, targets in ALLOWED.items()
    }


BOX_W, BOX_H, GAP_X, GAP_Y = 150, 46, 26, 34
FILL = {R: "#eef0fe", X: "#fff4e5", P: "#eaf6ee"}
MIDDLE = {R: 2.0, X: 5.6, P: 6.8}  # column of the picture about which a package's folders stand, from the left


def places() -> dict[str, tuple[float, float]]:
    """Left upper corner of every folder's box: those of a package that stand equally high lie side by side."""
    rows, beside = levels(), defaultdict(list)
    for folder in ALLOWED:
        beside[folder.split("/")[0], rows[folder]].append(folder)
    found = {}
    for (package, row), folders in beside.items():
        for place, folder in enumerate(folders):
            column = MIDDLE[package] + place - (len(folders) - 1) / 2
            found[folder] = (GAP_X + column * (BOX_W + GAP_X), GAP_Y + (max(rows.values()) - row) * (BOX_H + GAP_Y))
    return found


def svg() -> str:
    """The table as a picture: a folder may import the folders it has a line down to, and what those may import."""
    place = places()
    width = max(x for x, _ in place.values()) + BOX_W + GAP_X
    height = max(y for _, y in place.values()) + BOX_H + GAP_Y
    lines = [_line(place[a], place[b], a.split("/")[0] == b.split("/")[0]) for a, to in direct().items() for b in to]
    boxes = []
    for folder, (x, y) in place.items():
        package, _, name = folder.partition("/")
        middle = x + BOX_W / 2
        boxes.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{BOX_W}" height="{BOX_H}" rx="6" fill="{FILL[package]}" '
            f'stroke="#868f9c"/><text x="{middle:.0f}" y="{y + 19:.0f}" font-weight="600">{escape(name or package)}'
            f'</text><text x="{middle:.0f}" y="{y + 36:.0f}" font-size="11" fill="#596373">{PURPOSE[folder]}</text>'
        )
    title = "Folders of runtime (blue), explorer (orange), paper (green); each may import what its lines lead down to"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
            f'height="{height:.0f}" font-family="system-ui, sans-serif" font-size="13" text-anchor="middle" '
            f'fill="#1a1f27">',
            f"<title>{title}</title>",
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
            *sorted(lines),
            *boxes,
            "</svg>\n",
        ]
    )


def _line(upper: tuple[float, float], lower: tuple[float, float], same_package: bool) -> str:
    """A curve from the bottom of a box to the top of one below it, or from its left side to the other package."""
    if same_package:
        (x, y), (to_x, to_y) = (upper[0] + BOX_W / 2, upper[1] + BOX_H), (lower[0] + BOX_W / 2, lower[1])
        bend = GAP_Y
        path = f"M{x:.0f},{y:.0f} C{x:.0f},{y + bend:.0f} {to_x:.0f},{to_y - bend:.0f} {to_x:.0f},{to_y:.0f}"
        return f'<path d="{path}" stroke="#868f9c" fill="none"/>'
    (x, y), (to_x, to_y) = (upper[0], upper[1] + BOX_H / 2), (lower[0] + BOX_W, lower[1] + BOX_H / 2)
    path = f"M{x:.0f},{y:.0f} C{x - 60:.0f},{y:.0f} {to_x + 60:.0f},{to_y:.0f} {to_x:.0f},{to_y:.0f}"
    return f'<path d="{path}" stroke="#c98a2b" fill="none"/>'


def markdown() -> str:
    """The table as Markdown."""

    def names(package: str, folders: Iterable[str]) -> str:
        short = sorted(f.partition("/")[2] or "root" for f in folders if f.partition("/")[0] == package)
        return ", ".join(short)

    lines = ["| folder | may import of the runtime | may import of the explorer |", "|---|---|---|"]
    for folder, targets in ALLOWED.items():
        shown = folder if "/" in folder else f"{folder} (root)"
        lines.append(f"| `{shown}` | {names(R, targets)} | {names(X, targets)} |")
    return "\n".join(lines)


PICTURE, PAGE = ROOT / "docs" / "images" / "architecture.svg", ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- table: python -m tests.architecture -->", "<!-- end of table -->"


def page_with_table(page: str) -> str:
    """docs/architecture.md with the table between its two marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{markdown()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PICTURE.write_text(svg(), encoding="utf-8")
    PAGE.write_text(page_with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
