"""Gradio is imported without touching its own folder, and works as ever."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import inspect
from pathlib import Path
from focus_explorer.web.gradio_import import import_gradio
find = inspect.getfile
written = []
write = Path.write_text
Path.write_text = lambda path, *given, **named: (written.append(path), write(path, *given, **named))[1]
made = []
import ast
parse = ast.get_source_segment
ast.get_source_segment = lambda *given, **named: (made.append(given), parse(*given, **named))[1]
import_gradio()
import_gradio()
import gradio
assert inspect.getfile is find
assert inspect.getfile(gradio.Button).endswith("button.py")
assert [path for path in written if path.suffix == ".pyi"] == []
assert made == []
with gradio.Blocks() as blocks:
    number = gradio.Number(3)
    number.change(lambda value: value, number, number)
assert len(blocks.get_config_file()["dependencies"]) == 1
"""


@pytest.mark.slow
def test_no_stub_file_is_parsed_or_written():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
