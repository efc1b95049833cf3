"""The notebooks of examples/notebooks/ are run; `python -m tests.notebooks` runs each and keeps the outputs.

tests/test_notebooks.py runs them one after another in one kernel, which imports libraries once, and keeps nothing.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.helpers import ROOT

FOLDER = ROOT / "examples" / "notebooks"
LARGEST = 300_000  # bytes of a committed notebook
LARGEST_OUTPUT = 100_000  # characters; the frame of `show` has megabytes, its line of text is kept
SECONDS = 300  # that one cell may take


def notebooks() -> list[Path]:
    """The files, in order."""
    return sorted(FOLDER.glob("*.ipynb"))


@contextmanager
def kernel() -> Iterator[Any]:
    """A kernel of this interpreter, its manager, with this checkout's packages and one thread."""
    from jupyter_client.manager import start_new_kernel

    paths = os.pathsep.join([str(ROOT / "runtime"), str(ROOT)])
    manager, client = start_new_kernel(
        kernel_name="python3", env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    )
    client.stop_channels()
    try:
        yield manager
    finally:
        manager.shutdown_kernel(now=True)


def execute(path: Path, folder: Path, manager: Any) -> Any:
    """Run a notebook; returns it with its outputs.

    Args:
        path: the notebook, which stays as it is.
        folder: the working folder, where the notebook keeps its database.
        manager: of a kernel, whose names are forgotten first.

    Raises:
        CellExecutionError: a cell failed.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    first = nbformat.v4.new_code_cell(f"%reset -f\nimport os\nos.chdir({str(folder)!r})\ndel os")
    notebook.cells.insert(0, first)
    NotebookClient(notebook, km=manager, timeout=SECONDS, record_timing=False).execute(reset_kc=True)
    notebook.cells.pop(0)
    for count, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), start=1):
        cell.execution_count = count
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count
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
        with tempfile.TemporaryDirectory() as folder, kernel() as manager:
            notebook = to_commit(execute(path, Path(folder), manager))
        nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
