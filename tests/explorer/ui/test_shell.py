"""What a served page has done before its threads begin."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
from focus_explorer.ui.gradio_import import import_gradio
import_gradio()
from focus_explorer.ui import shell

class Served(Exception):
    pass

def serve(app, port, *, mcp):
    assert hasattr(sys.modules["transformers"], "AttentionInterface")
    raise Served

shell.App._serve = serve
try:
    shell.build_app(database=sys.argv[1]).launch(port=8123, block=False)
except Served:
    print("served")
"""


@pytest.mark.slow
def test_transformers_is_imported_before_a_second_thread_can_ask_for_it(tmp_path):
    """Of two threads that import it at once, the second fails; see `shell._import_transformers`."""
    command = [sys.executable, "-c", CODE, tmp_path / "runs.duckdb"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("served"), done.stderr
