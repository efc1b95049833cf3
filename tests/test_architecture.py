"""The code follows the table of allowed imports in tests/architecture.py, and docs/architecture.md shows that table."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests import architecture
from tests.architecture import ALLOWED, HEAVY, RUNTIME_NEVER, R, X, folder_of, foreign, imports, modules
from tests.helpers import ROOT

MOST_AT_A_ROOT = 10
HOLDS_TORCH = f"{R}.gpu"  # at the root because routing and attention both launch kernels; only they import it


def test_no_folder_hides_another_in_the_picture():
    places = sorted(architecture.places().values())
    assert len(places) == len(ALLOWED)
    for n, (x, y) in enumerate(places):
        apart = [abs(x - a) >= architecture.BOX_W or abs(y - b) >= architecture.BOX_H for a, b in places[n + 1 :]]
        assert all(apart)


def test_every_folder_has_its_row_in_the_table():
    assert {folder_of(module) for module in modules()} == set(ALLOWED)
    assert set(architecture.PURPOSE) == set(ALLOWED)


def test_the_table_itself_has_no_cycle():
    assert architecture.cycles(ALLOWED) == []


@pytest.mark.slow
def test_no_file_imports_past_its_row():
    wrong = [
        f"{i.source}:{i.line} imports {i.target}"
        for i in imports()
        if folder_of(i.source) != folder_of(i.target) and folder_of(i.target) not in ALLOWED[folder_of(i.source)]
    ]
    assert wrong == []


def test_the_table_allows_no_more_than_is_used():
    used = defaultdict(set)
    for i in imports():
        used[folder_of(i.source)].add(folder_of(i.target))
    roots = {R, X}  # settings, errors and files are there for everybody
    unused = {folder: sorted(targets - used[folder] - roots) for folder, targets in ALLOWED.items()}
    assert {folder: targets for folder, targets in unused.items() if targets} == {}


def test_no_files_import_each_other_in_a_circle():
    graph = defaultdict(set)
    for i in imports():
        graph[i.source].add(i.target)
    assert architecture.cycles(graph) == []


def test_no_entries_of_a_folder_import_each_other_in_a_circle():
    """At every depth: neither two folders nor a folder and a file next to it."""
    graphs = architecture.graphs_by_folder()
    assert {"focus_runtime", "focus_explorer", "focus_explorer/usecases"} <= graphs.keys()
    assert {folder: architecture.cycles(graph) for folder, graph in graphs.items() if architecture.cycles(graph)} == {}


def test_nobody_imports_a_name_that_begins_with_an_underscore():
    private = [i for i in imports() if i.name and i.name.startswith("_") and not i.name.startswith("__")]
    private += [i for i in imports() if i.target.rpartition(".")[2].startswith("_")]
    assert private == []


def test_nothing_inside_imports_the_public_names_of_its_own_package():
    """`from focus_runtime import compose` is for users; inside it would hide where a name is from."""
    assert [i for i in imports() if i.target in (R, X)] == []


def test_the_finder_of_cycles_finds_them():
    assert architecture.cycles({"a": "b", "b": "c", "c": "a", "d": "a"}) == [["a", "b", "c"]]
    assert architecture.cycles({"a": "bc", "b": "c", "c": ""}) == []


@pytest.mark.parametrize("package", [R, X])
def test_a_root_keeps_few_files(package):
    root = architecture.SOURCES[package] / package
    files = [path.name for path in root.iterdir() if path.is_file() and path.name != "py.typed"]
    assert len(files) <= MOST_AT_A_ROOT, files


def test_no_file_repeats_the_name_of_its_folder():
    repeated = [
        str(path.relative_to(ROOT))
        for path in [*modules().values(), *(ROOT / "assets").rglob("*.js"), *(ROOT / "assets").rglob("*.css")]
        if path.stem.startswith((f"{path.parent.name}_", f"{path.parent.name}-"))
    ]
    assert repeated == []


@pytest.mark.parametrize(
    ("folder", "never"), [(R, RUNTIME_NEVER), (f"{X}/views", {"torch", "duckdb", "transformers", "gradio"})]
)
def test_nothing_of_the_screen_is_imported_below_it(folder, never):
    below = [module for module in modules() if folder_of(module).startswith(folder)]
    assert below
    assert [module for module in below if foreign(modules()[module]) & never] == []


@pytest.mark.parametrize("folder", [R, X])
def test_files_at_a_root_import_nothing_heavy(folder):
    for module, path in modules().items():
        if folder_of(module) == folder and module != HOLDS_TORCH:
            assert not foreign(path, at_import=True) & HEAVY, path


def test_one_place_reads_the_environment():
    for path in modules().values():
        if path.name != "settings.py":
            assert "os.environ" not in path.read_text(encoding="utf-8"), path


def test_docs_show_this_table():
    assert architecture.PICTURE.read_text(encoding="utf-8") == architecture.svg(), "run python -m tests.architecture"
    page = architecture.PAGE.read_text(encoding="utf-8")
    assert architecture.page_with_table(page) == page, "run python -m tests.architecture"
