"""The four notebooks: each runs as it stands, in a folder of its own, and is small enough to commit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.notebooks import LARGEST, execute, kernel, notebooks

NAMES = ["compose-and-generate", "figure-for-a-paper", "groups-in-pandas", "train-and-compare"]


def test_they_open_with_pip_install_and_are_small():
    nbformat = pytest.importorskip("nbformat")
    assert [path.stem for path in notebooks()] == NAMES
    for path in notebooks():
        assert path.stat().st_size < LARGEST, path
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert "%pip install --quiet focus-explorer" in code[0].source
        assert not code[0].outputs, path  # nothing is installed where it is
        for cell in code:
            assert cell.execution_count, path  # what a reader sees was executed
            for output in cell.outputs:
                assert output.output_type != "error"
                assert not re.search(r"/(tmp|home|work|root)/", str(output)), path


@pytest.mark.slow
@pytest.mark.parametrize(  # without the one that needs a browser
    "name",
    [
        pytest.param("compose-and-generate", marks=pytest.mark.long),
        "groups-in-pandas",
        pytest.param("train-and-compare", marks=pytest.mark.long),
    ],
)
def test_its_cells_run(name, default_is_tiny, tmp_path, monkeypatch):
    """Here, without a kernel; the first cell installs the package."""
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.chdir(tmp_path)
    [path] = [path for path in notebooks() if path.stem == name]
    names = {}
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code" and "%pip" not in cell.source:
            exec(compile(cell.source, path.name, "exec"), names)
    assert Path("notebook.duckdb").exists()


@pytest.fixture(scope="module")
def manager():
    with kernel() as started:
        yield started


LAST = {  # what the last output with data of each has
    "compose-and-generate": ("text/html", "<iframe"),
    "figure-for-a-paper": ("image/svg+xml", "<svg"),
    "groups-in-pandas": ("text/html", "<table"),
    "train-and-compare": ("text/html", "<table"),
}


@pytest.mark.model
@pytest.mark.long
@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_it_runs_from_the_first_cell_to_the_last(path, tmp_path, manager):
    made = execute(path, tmp_path, manager)
    assert (tmp_path / "notebook.duckdb").exists()
    outputs = [output for cell in made.cells if cell.cell_type == "code" for output in cell.outputs]
    kind, part = LAST[path.stem]
    assert part in [output.data for output in outputs if "data" in output][-1][kind]
