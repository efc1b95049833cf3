"""What is imported in a fresh interpreter by the packages and by commands that only read stored runs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from focus_explorer.cli.main import COMMANDS
from tests.architecture import foreign, modules, names_of, statements
from tests.helpers import ROOT

HEAVY = {"torch", "transformers", "gradio", "plotly", "umap", "spacy", "sklearn", "scipy", "pandas", "matplotlib"}
READERS = {"numpy", "duckdb", "pyarrow"}  # only where data are read
MAIN = "import sys; from focus_explorer.cli.main import main; sys.exit(main(sys.argv[1:]))"
REPORT = """
import atexit, sys
atexit.register(lambda: print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr))
"""


def imported(code, *arguments):
    """Top-level names of the modules loaded when the code ends, and what it printed."""
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "runtime"), str(ROOT)])}
    process = [sys.executable, "-c", REPORT + code, *arguments]
    done = subprocess.run(process, capture_output=True, text=True, timeout=120, env=os.environ | paths)
    assert done.returncode == 0, done.stderr[-2000:]
    return set(done.stderr.splitlines()[-1].split()), done.stdout


@pytest.mark.parametrize("module", ["focus_runtime", "focus_explorer", "focus_explorer.cli", "focus_explorer.cli.main"])
def test_packages_import_nothing_heavy(module):
    assert not imported(f"import {module}")[0] & (HEAVY | READERS)


def test_help_imports_no_command():
    loaded, text = imported(MAIN, "--help")
    assert not loaded & (HEAVY | READERS)
    assert all(name in text for name in COMMANDS)


EVERY_HELP = """
import contextlib, io
from focus_explorer.cli.main import COMMANDS, main
for name in COMMANDS:
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(SystemExit):
        main([name, "--help"])
    heavy = sorted({"torch", "transformers", "gradio", "umap", "spacy", "sklearn"} & sys.modules.keys())
    print(name, text.getvalue().startswith(f"usage: focus-explorer {name}"), *heavy)
"""


@pytest.mark.slow
def test_help_of_no_command_imports_a_model_library():
    """One after the other in one interpreter: the line of the first that imports one names it."""
    _, text = imported(EVERY_HELP)
    assert text.splitlines() == [f"{name} True" for name in COMMANDS]


PAGE = "focus_explorer.web.shell"
OF_MODELS = {"torch", "transformers", "umap", "spacy", "sklearn", "scipy", "matplotlib"}


def test_no_file_that_the_page_is_built_with_imports_a_library_of_models():
    reached, found = [PAGE], {}
    for module in reached:  # grows
        path = modules()[module]
        found[module] = foreign(path, at_import=True) & OF_MODELS
        targets = [name for statement in statements(path)[1] for name in names_of(statement) if name in modules()]
        reached += [name for name in dict.fromkeys(targets) if name not in reached]
    assert len(reached) > 50
    assert {module: libraries for module, libraries in found.items() if libraries} == {}
