"""What a served page has done before its threads begin."""

from __future__ import annotations

import subprocess
import sys

import httpx
import pytest

from focus_explorer.errors import InputError
from focus_explorer.web.gradio_internals import QUEUE_SECONDS
from focus_explorer.web.shell import App, build_app
from tests.helpers import free_port

pytestmark = pytest.mark.slow


def test_transformers_is_imported_before_a_second_thread_can_ask_for_it(tmp_path, monkeypatch):
    """Of two threads that import it at once, the second fails; see `shell._import_transformers`."""
    monkeypatch.delitem(sys.modules, "transformers", raising=False)
    served = []

    def serve(app, port):
        served.append(hasattr(sys.modules["transformers"], "AttentionInterface"))

    monkeypatch.setattr(App, "_serve", serve)
    build_app(database=tmp_path / "runs.duckdb").launch(port=8123, block=False)
    assert served == [True]


def test_it_says_where_it_is_and_costs_nothing_while_nobody_asks(tmp_path, capsys):
    """It names no option of Gradio.

    A browser has six connections for an address: with the heartbeat that a `gr.State` switches on, a seventh tab hung.
    Gradio's own thousand looks a second at an empty queue take a twentieth of a core for as long as it is served.
    """
    app, port = build_app(database=tmp_path / "runs.duckdb"), free_port()
    assert app.blocks.get_config_file()["connect_heartbeat"] is False
    assert app.blocks._queue.sleep_when_free < QUEUE_SECONDS, "Gradio's own is no longer so eager: ours can go"
    app.launch(port=port, block=False)
    try:
        assert app.blocks._queue.sleep_when_free == QUEUE_SECONDS
    finally:
        app.blocks.close(verbose=False)
    assert capsys.readouterr().out == f"Focus Explorer is at http://127.0.0.1:{port}/ (Ctrl-C stops it)\n"


def test_a_machine_that_does_not_know_localhost_is_one_message(tmp_path, monkeypatch):
    """Gradio asks its own server to begin, for all addresses by that name, which a bare container may lack."""
    app, port = build_app(database=tmp_path / "runs.duckdb"), free_port()

    def get(address, **options):
        raise httpx.ConnectError("[Errno -2] Name or service not known")

    monkeypatch.setattr("gradio.blocks.httpx.get", get)
    with pytest.raises(InputError, match=r"cannot be reached at http.*expected a machine that knows localhost"):
        app.launch(port=port, block=False)
    monkeypatch.undo()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/ready")


CODE = """
import inspect
from pathlib import Path
from focus_explorer.web.gradio_internals import import_gradio
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


@pytest.mark.long
def test_no_stub_file_is_parsed_or_written():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
