"""The server as a process: health, a proxy's path, and its end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from focus_explorer.usecases.jobs import JobRunner, stop_all_jobs
from focus_explorer.web.hosting.modes import stop_signals, sweep
from tests.helpers import free_port
from tests.security.conftest import serving


def test_health_and_readiness(private):
    assert private.client.get("/health").json() == {"status": "ok"}
    assert private.client.get("/ready").json() == {"status": "ok"}


@pytest.mark.slow
def test_not_ready_without_a_database_names_no_path(stored, tmp_path):
    broken = tmp_path / "broken.duckdb"
    with serving(broken, stored[2]) as page:
        broken.write_bytes(b"not a database" * 1000)
        assert page.client.get("/health").status_code == 200
        answer = page.client.get("/ready")
    assert answer.status_code == 503
    assert str(tmp_path) not in answer.text


@pytest.mark.parametrize("query", ["?page=nonsense", "?page=", "?run=x&page=a/b", "?page=%00"])
def test_l_a_page_that_does_not_exist_is_the_one_there_is(private, query):
    answer = private.client.get(f"/{query}")
    assert answer.status_code == 200
    assert "Focus Explorer" in answer.text


def test_at_the_end_jobs_stop_at_their_next_step():
    started, runner = threading.Event(), JobRunner()

    def work(job):
        started.set()
        for _ in range(2000):
            job.step("working", 0.5)
            time.sleep(0.01)

    job = runner.start("a", work, kind="test")
    started.wait(5)
    assert stop_all_jobs(5) == []
    assert job.state == "stopped"


TO_ANOTHER_THREAD = """
import os, signal, threading, time
from focus_explorer.web.hosting.modes import stop_signals, wait_for

def elsewhere():
    time.sleep(0.3)  # until the main thread waits
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    time.sleep(20)
    os._exit(3)

with stop_signals() as stopping:
    threading.Thread(target=elsewhere, daemon=True).start()
    wait_for(stopping)
"""


@pytest.mark.slow
def test_a_signal_that_another_thread_receives_ends_the_waiting_too():
    """Its handler runs in the main thread alone, which nothing wakes."""
    assert subprocess.run([sys.executable, "-c", TO_ANOTHER_THREAD], timeout=30, check=False).returncode == 0


STUCK = """
import threading, time
from focus_explorer.web.hosting.modes import exit_at_last
threading.Thread(target=time.sleep, args=(60,)).start()
exit_at_last(0.1)
"""


@pytest.mark.slow
def test_a_stuck_thread_does_not_keep_the_process():
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stderr == "ended with work that did not stop\n"


@contextmanager
def server(database, model, *flags, ignoring_sigint=False):
    """(process, address) of `focus-explorer serve`."""
    words = [sys.executable, "-m", "focus_explorer.cli", "serve", "--db", str(database), "--model", model]
    words += ["--centroids", "random", "--port", str(free_port()), *flags]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests themselves are a background job
    if ignoring_sigint:  # as the background job of a shell script is started
        words = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *words]
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"},
    )
    try:
        address = next(found[0] for line in process.stdout if (found := re.search(r"http://[\d.]+:\d+", line)))
        yield process, address
    finally:
        process.kill()
        process.wait(20)


SECRET = "The treasure lies under the third oak."


def samples(text):
    """(name, labels) -> value."""
    families = text_string_to_metric_families(text)
    return {(s.name, frozenset(s.labels.items())): s.value for f in families for s in f.samples}


@pytest.mark.long
@pytest.mark.slow
def test_a_server_below_a_proxys_path_is_watched_at_a_port_of_its_own_and_ended_in_order(stored):
    port = free_port()
    flags = ["--root-path", "/focus", "--metrics-port", str(port), "--log-json"]
    with server(stored[0], stored[2].model, *flags) as (process, address):
        assert httpx.get(f"{address}/config").json()["root"].endswith("/focus")
        assert httpx.get(f"{address}/ready").status_code == 200
        counted = samples(httpx.get(f"http://127.0.0.1:{port}/metrics").text)
        asked = {"method": "GET", "route": "/ready", "function": "", "status": "200"}
        assert counted["focus_requests_total", frozenset(asked.items())] == 1
        assert counted["focus_database_bytes", frozenset()] == stored[0].stat().st_size
        assert counted["process_resident_memory_bytes", frozenset()] > 1e8
        assert httpx.get(f"{address}/metrics").status_code == 404
        posted = httpx.post(f"{address}/gradio_api/call/rename", json={"data": [SECRET]})  # too few values
        httpx.get(f"{address}/gradio_api/call/rename/{posted.json()['event_id']}", timeout=60)
        process.terminate()
        output = process.stdout.read()
        assert process.wait(20) == 0
    assert "Traceback" not in output
    assert "treasure" not in output
    written = [json.loads(line) for line in output.splitlines() if line and not line.startswith("Focus Explorer is at")]
    assert "/ready" in {line.get("route") for line in written}


@pytest.mark.long
def test_ctrl_c_ends_the_server_in_order(stored):
    with server(stored[0], stored[2].model) as (process, address):
        assert httpx.get(f"{address}/ready").status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert "Traceback" not in process.stdout.read()


def test_sigint_that_was_ignored_stays_without_effect_here_and_is_not_ignored_in_what_is_started():
    """A process inherits what is ignored, but not a handler."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stop_signals() as stopping:
            os.kill(os.getpid(), signal.SIGINT)
            assert not stopping.wait(0.1)
            assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGTERM)
            assert stopping.wait(5)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.long
def test_stop_reaches_a_training_where_sigint_was_ignored(stored, tmp_path):
    """A process inherits what is ignored: the signal that stops a training had no effect while it started."""
    from gradio_client import Client

    with server(tmp_path / "runs.duckdb", stored[2].model, ignoring_sigint=True) as (process, address):
        process.send_signal(signal.SIGINT)  # still without effect on the page itself
        client = Client(address, verbose=False)
        form = ["mine", stored[2].model, 4, 1, 5000, 64, 1, 8, 4, 0.003, "log", "float32", 0, "cpu", "layers", 0, 0, 0]
        client.predict([], [], *form, False, api_name="/start_training")
        functions = {
            item["props"]["elem_id"]: item["id"]
            for item in httpx.get(f"{address}/config").json()["components"]
            if item["props"].get("elem_id")
        }

        def ask(name):
            body = {"data": {}, "fn_name": name, "component_id": functions["fe-training"], "session_hash": "s"}
            return httpx.post(f"{address}/gradio_api/component_server", json=body, timeout=60).json()

        ask("stop_training")  # at once, while the libraries are being imported
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            shown = ask("load_trainings")
            states = [row["status"] for row in shown["trainings"]]
            if shown["job"] is not None:  # None while its row says the same
                states.append(shown["job"]["state"])
            if states and set(states) <= {"stopped"}:
                return
            time.sleep(0.5)
        pytest.fail(f"it was not stopped: {states}")


@pytest.mark.slow
def test_the_folder_is_private_and_gone_with_its_process(tmp_path):
    code = """
import os, sys
from focus_explorer.web.hosting.modes import private_uploads
folder = private_uploads(sys.argv[1])
print(os.environ["GRADIO_TEMP_DIR"] == str(folder), oct(folder.stat().st_mode & 0o777))
"""
    environment = {name: value for name, value in os.environ.items() if name != "GRADIO_TEMP_DIR"}
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.stdout.split() == ["True", "0o700"], done.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_server_left_is_swept_and_nothing_else(tmp_path, monkeypatch):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = tmp_path / f"focus-explorer-uploads-{ended.pid}-abc"
    alive = tmp_path / f"focus-explorer-uploads-{os.getpid()}-abc"
    other = tmp_path / "focus-explorer-uploads-notes"
    target = tmp_path / "mine"
    for folder in (left, alive, other, target):
        folder.mkdir()
        (folder / "file").write_text("x")
    link = tmp_path / f"focus-explorer-uploads-{ended.pid}-link"
    link.symlink_to(target)
    sweep(tmp_path)
    assert not left.exists()
    for kept in (alive, other, target, link):
        assert (kept / "file").exists()
