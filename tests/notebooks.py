"""The notebooks of notebooks/ run in kernels of their own; `python -m tests.notebooks` runs them and keeps the outputs.

tests/test_notebooks.py runs them without keeping anything.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.helpers import ROOT

FOLDER = ROOT / "notebooks"
LARGEST = 300_000  # bytes of a committed notebook
LARGEST_OUTPUT = 100_000  # characters; the frame of `show` has megabytes, its line of text is kept
SECONDS = 300  # that one cell may take


def notebooks() -> list[Path]:
    """The files, in order."""
    return sorted(FOLDER.glob("*.ipynb"))


def execute(path: Path, folder: Path) -> Any:
    """Run a notebook in a kernel of this interpreter; returns it with its outputs.

    Args:
        path: the notebook, which stays as it is.
        folder: the kernel's working folder, where the notebook keeps its database.

    Raises:
        CellExecutionError: a cell failed.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=SECONDS, kernel_name="python3", record_timing=False, resources={"metadata": {"path": folder}}
    )
    paths = os.pathsep.join([str(ROOT / "runtime"), str(ROOT)])
    client.execute(env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"})
    return notebook


def to_commit(notebook: Any) -> Any:
    """The notebook without what libraries wrote to standard error, and the text alone of outputs that are too large."""
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.outputs:
            data = output.get("data", {})
            for kind in [kind for kind, content in data.items() if len(content) > LARGEST_OUTPUT]:
                del data[kind]
    return notebook


def main() -> None:
    """Run every notebook and keep its outputs in its file."""
    import nbformat

    for path in [FOLDER / name for name in sys.argv[1:]] or notebooks():
        with tempfile.TemporaryDirectory() as folder:
            notebook = to_commit(execute(path, Path(folder)))
        nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
