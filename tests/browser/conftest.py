"""A served page over the real model, and headless Chromium to drive it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path

import pytest

from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.runs import list_runs
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.training.processes import Trainings
from focus_runtime.store.training import is_alive
from tests.helpers import build_model, build_tokenizer
from tests.pace import slowed_down

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
TEXT = "A letter came. <script>window.hacked = true</script> & “quotes” 🙂 مرحبا 你好\n" * 12
HARBOUR = "The harbour was quiet. The cat sat on the mat & left, then came back again.\n" * 60
SIZES = {"wide": {"width": 1440, "height": 900}, "narrow": {"width": 390, "height": 844}}
HEADER = "[data-testid=fx-header]"


SERVER_LOGS = {}  # port -> file, of servers that run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows what the servers of its session wrote last."""
    report = yield
    if report.failed:
        for port, log in SERVER_LOGS.items():
            report.sections.append((f"server of port {port}", log.read_text()[-6000:]))
    return report


@pytest.fixture(scope="session")
def database(tmp_path_factory):
    """A database with one explored text of about 300 tokens, so that pages open at once."""
    path = tmp_path_factory.mktemp("page") / "runs.duckdb"
    service = Service(path)
    analyze(service, TEXT, AnalyzeRequest(centroids="novels", top_k=1, window=16, repeats=2))
    return path


def find_chromium():
    """The Chromium that tests drive: the shell without windows opens a page in two thirds of the time."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@contextmanager
def serving(*arguments, port, before=()):
    """The page's address while a server of its own runs; `before` is what its PYTHONPATH begins with."""
    once = ("--repeats", "1")  # what is timed here is looked at by nobody
    command = [sys.executable, "-m", "focus_explorer.cli", "serve", *map(str, arguments), *once, "--port", str(port)]
    paths = {"PYTHONPATH": os.pathsep.join([*before, *sys.path])}
    with tempfile.NamedTemporaryFile(prefix="focus-explorer-served-", suffix=".log", delete=False) as output:
        log = SERVER_LOGS[port] = Path(output.name)
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | paths)
    try:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            match = re.search(r"http://[\d.]+:\d+", log.read_text())
            if match:
                yield match[0] + "/"
                break
            assert server.poll() is None, f"the server ended before it served: {log.read_text()}"
            time.sleep(0.05)
        else:
            pytest.fail("the page was not served within 90 seconds")
    finally:
        server.terminate()
        server.wait(timeout=20)
        del SERVER_LOGS[port]
        log.unlink()


TABLES = ("runs", "tokens", "layers", "assignments", "losses", "timings", "masks")


@pytest.fixture(scope="session")
def pair(database, first_run):
    """The first run, and the same text at another setting: service, first run, second run.

    The database also holds "twin", newer, which is the second again with its memory not measured.
    """
    service = Service(database)
    second = analyze(service, TEXT, AnalyzeRequest(centroids="novels", top_k=2, window=32, repeats=1))
    with service.database.write() as connection:
        for table in TABLES:
            changes = {
                "runs": ", created_at + INTERVAL 1 HOUR AS created_at",
                "timings": ", 0 AS peak_memory_bytes",
            }.get(table, "")
            connection.execute(
                f"INSERT INTO {table} SELECT * REPLACE ('twin' AS run_id{changes}) FROM {table} "
                f"WHERE run_id = '{second}'"
            )
    return service, first_run, second


@pytest.fixture(scope="session")
def page_url(database):
    with serving("--db", database, port=7951) as url:
        yield url


@pytest.fixture(scope="session")
def chromium():
    from playwright.sync_api import sync_playwright

    executable = find_chromium()
    if executable is None:
        pytest.fail("no Chromium found; install Debian's package `chromium-headless-shell`, or run .ci/run, which does")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield browser
        browser.close()


# Gradio's loader (6.31) leaves the page with its clock running, a callback in every frame while the page is open, and
# keeps the function that it found when its module was loaded; once Gradio stands everybody else has the browser's own.
# Those callbacks took half a minute of processor time in all tests together.
SLOW_LOADER_CLOCK = """
const own = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (callback) => setTimeout(() => own(callback), 250);
new MutationObserver((_, observer) => {
  if (!document.querySelector("[role=tab]")) return;
  window.requestAnimationFrame = own;
  observer.disconnect();
}).observe(document, { childList: true, subtree: true });
"""
# Keeps what the page gave its explorer, for `OPEN_AGAIN`.
KEEP_EXPLORER = """
{
  let api;
  Object.defineProperty(window, "FocusExplorer", {
    get: () => api,
    set: (given) => {
      const create = (root, server) => {
        const view = given.create(root, server);
        window.explorerOfTest = { root, server, view };
        return view;
      };
      api = { create };
    },
  });
}
"""
# Follows a link on a page that stands: a new explorer reads the address, as after the page is loaded, for a tenth of
# what loading costs. The form and the page's other tabs stay as they are.
OPEN_AGAIN = """
async (query) => {
  const { root, server, view } = window.explorerOfTest;
  view.clear();
  const place = root.cloneNode(false);
  for (const name of Object.keys(place.dataset)) delete place.dataset[name];
  root.replaceWith(place);
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  document.querySelector("#fe-tabs [role=tab][aria-selected=false]:first-child")?.click();
  document.activeElement?.blur();
  await new Promise(requestAnimationFrame);
  window.scrollTo(0, 0);
  history.replaceState(history.state, "", query);
  await FocusExplorer.create(place, server).open(new URLSearchParams(query).get("run"));
}
"""
STANDING = defaultdict(list)  # pages that `OPEN_AGAIN` can lead elsewhere, by address, browser, size and scheme
CONTEXTS = {}  # by browser, size and scheme: pages of one context share what the browser has compiled and cached
IDLE = defaultdict(list)  # by the same: blank pages; opening the next one in place takes a third less than in a new one


# What Gradio's client logs of the stream it keeps open when a page is loaded again.
LEAVING = ("AbortError: signal is aborted", "Unexpected error Connection errored out.")
RELOADING = set()  # pages


def lead(page, query):
    """Show what a link to `query`, with its run, shows."""
    page.evaluate(OPEN_AGAIN, query)


def reopen(page):
    """Follow the page's own address, as another browser would."""
    lead(page, page.evaluate("location.search"))


def reload(page):
    """Load a page again; what its client says of the stream this cuts is no problem."""
    RELOADING.add(page)
    try:
        page.reload()
    finally:
        RELOADING.discard(page)


def unfold(control):
    """Click what shows fields for the first time, a tab or an accordion; afterwards they may be filled.

    Gradio gives such fields their first values once more in the next frame, late on a busy machine, over what a
    test wrote by then, which is sooner than a person could.
    """
    control.click()
    control.page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")


def _is_problem(page, message):
    leaving = page in RELOADING and message.text.startswith(LEAVING)
    return message.type == "error" and not leaving


@contextmanager
def opening(chromium, url):
    """Opens pages; afterwards nothing may have gone wrong in a console or left this machine."""
    opened, problems = [], []
    listeners = {
        "pageerror": lambda error: problems.append(f"script error: {error}"),
        "console": lambda m: problems.append(f"console: {m.text}") if _is_problem(m.page, m) else None,
        "request": lambda r: problems.append(f"external: {r.url}") if _external(r.url) else None,
    }

    def open_one(query="", size="wide", scheme="light", before=None, ready=HEADER, fresh=False):
        """A page that shows `query`; with `fresh` a newly loaded one, for a test of what is outside the explorer."""
        key = (chromium, size, scheme)
        if key not in CONTEXTS:
            CONTEXTS[key] = chromium.new_context(
                viewport=SIZES[size], color_scheme=scheme, accept_downloads=True, reduced_motion="reduce"
            )
            CONTEXTS[key].add_init_script(SLOW_LOADER_CLOCK + KEEP_EXPLORER)
        stands = "run=" in query and before is None and ready == HEADER and not fresh
        afterwards = None if before else STANDING[url, *key] if stands else IDLE[key]  # what `before` did stays
        led = stands and bool(afterwards)
        page = afterwards.pop() if led else IDLE[key].pop() if IDLE[key] and not before else CONTEXTS[key].new_page()
        opened.append((page, afterwards, stands))
        for event, listener in listeners.items():
            page.on(event, listener)
        if before is not None:
            before(page)
        if led:
            lead(page, query)
        else:
            page.goto(url + query)
        page.wait_for_selector(ready, timeout=90_000)
        return page

    yield open_one
    for page, afterwards, stands in opened:
        if page.is_closed():
            continue
        if afterwards is None:
            page.close()
            continue
        for event, listener in listeners.items():
            page.remove_listener(event, listener)
        page.mouse.move(0, 0)
        if not stands:
            page.goto("about:blank")
        afterwards.append(page)
    assert problems == []


@pytest.fixture(scope="session")
def first_run(database):
    """The run the database began with; tests of other files add more."""
    return list_runs(Service(database).database)[-1]["run_id"]


@pytest.fixture
def open_page(chromium, page_url, first_run):
    """Opens the served page, at the first run unless the query names one."""
    with opening(chromium, page_url) as open_one:

        def open_run(query="", **how):
            if "run=" not in query:
                query += ("&" if query else "?") + f"run={first_run}"
            return open_one(query, **how)

        yield open_run


def tiny_service(folder):
    """A service with one run of a tiny random model, which lies in FOLDER/tiny."""
    build_model(vocab_size=512).save_pretrained(folder / "tiny")
    build_tokenizer().save_pretrained(folder / "tiny")
    service = Service(folder / "runs.duckdb")
    chosen = AnalyzeRequest(model=str(folder / "tiny"), centroids="random", top_k=1, window=8, repeats=1)
    analyze(service, HARBOUR[:600], chosen)
    return service


@pytest.fixture(scope="session")
def tiny_site(tmp_path_factory):
    """(address, service, text file) of a page over a tiny random model; `pace` beside the text slows trainings down."""
    folder = tmp_path_factory.mktemp("tiny-site")
    service = tiny_service(folder)
    (folder / "text.txt").write_text(HARBOUR)
    flags = ("--db", service.database.path, "--model", folder / "tiny", "--centroids", "random")
    start, _ = slowed_down(folder)
    with serving(*flags, port=7961, before=[start]) as url:
        yield url, service, folder / "text.txt"
    for row in Trainings(service).rows():  # a training outlives its page
        if row["status"] == "running":
            Trainings(service).stop(row["training_id"])
            deadline = time.monotonic() + 60
            while is_alive(row["host"], row["pid"], row["process_started"]) and time.monotonic() < deadline:
                time.sleep(0.1)


@pytest.fixture
def tiny_page(chromium, tiny_site):
    """(opener, service, text file); what was opened is closed after the test."""
    url, service, text = tiny_site
    with opening(chromium, url) as open_one:
        yield open_one, service, text


def _external(url):
    return not url.startswith(("http://127.0.0.1", "http://localhost", "data:", "blob:"))
