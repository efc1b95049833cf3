"""What the product imports is declared, and what is declared is imported."""

from __future__ import annotations

import re
import sys
import tomllib

from tests.architecture import foreign, modules
from tests.helpers import ROOT

OURS = {"focus_explorer", "focus_runtime", "paper"}
MODULES = {"scikit-learn": "sklearn", "umap-learn": "umap", "lm-eval": "lm_eval"}
BROUGHT = {  # by a declared distribution that is built on them, and whose versions they must fit
    "anyio": "gradio",
    "choreographer": "kaleido",
    "fastapi": "gradio",
    "numba": "umap-learn",
    "starlette": "gradio",
}


def imported():
    """Distributions' modules that a file of the product imports anywhere."""
    product = [path for module, path in modules().items() if not module.startswith("paper")]
    found = set().union(*map(foreign, product))
    return found - set(sys.stdlib_module_names) - OURS - {"__future__"}


def declared():
    """(modules of the required distributions, modules of all, those of extras too)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def modules(requirements):
        names = {re.split(r"[\[<>=;! ]", requirement)[0] for requirement in requirements}
        return {MODULES.get(name, name.replace("-", "_")) for name in names}

    extras = [one for group in project["optional-dependencies"].values() for one in group]
    return modules(project["dependencies"]), modules([*project["dependencies"], *extras])


def test_what_is_imported_is_declared_and_the_other_way_round():
    required, everything = declared()
    assert imported() - BROUGHT.keys() - everything == set()
    assert required - imported() == set()
