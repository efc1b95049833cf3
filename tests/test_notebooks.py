"""The four notebooks: each runs as it stands, in a kernel and a folder of its own, and is small enough to commit."""

from __future__ import annotations

import re

import pytest

from tests.notebooks import LARGEST, execute, notebooks

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


@pytest.mark.model
@pytest.mark.slow
def test_they_run_from_the_first_cell_to_the_last(tmp_path):
    shown = {}
    for path in notebooks():
        folder = tmp_path / path.stem
        folder.mkdir()
        made = execute(path, folder)
        assert (folder / "notebook.duckdb").exists()
        outputs = [output for cell in made.cells if cell.cell_type == "code" for output in cell.outputs]
        shown[path.stem] = [output.data for output in outputs if "data" in output]
    assert shown["compose-and-generate"][-1]["text/html"].startswith("<iframe")
    assert "mine" in shown["train-and-compare"][-1]["text/plain"]
    assert any("image/svg+xml" in data for data in shown["figure-for-a-paper"])
    assert len([data for data in shown["groups-in-pandas"] if "<table" in data.get("text/html", "")]) >= 4
