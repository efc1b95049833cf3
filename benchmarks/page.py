"""The served page in headless Chromium at 1440x900, and the queries behind it over a large database.

Writes a short and a long run without a model (benchmarks/synthetic_runs.py) and copies the long one until the table
`assignments` has the rows asked for, unless --db names such a database. Every opening is a new browser context.

    PYTHONPATH=runtime:. python benchmarks/page.py --out benchmarks/results/page.json
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.synthetic_runs import LAYERS, copy_run, write_long_run
from focus_explorer.queries import fetch
from focus_explorer.service import Service
from focus_runtime.bench import machine
from focus_runtime.measure import Spread
from focus_runtime.store.database import Database

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
SHORT, LONG, PORT = 2_000, 100_000, 7961
SWITCHES = 50
OF_A_RUN = ("run", "layers", "tops", "pieces", "groups", "group_pieces", "losses", "timings", "token_table")
OF_A_LAYER = ("cells", "mask", "routing", "layer_centroids")

WATCH = """
new MutationObserver((_, observer) => {
  if (!document.querySelector('span.fx-token')) return;
  requestAnimationFrame(() => setTimeout(() => { window.drawnAt = performance.now(); }, 0));
  observer.disconnect();
}).observe(document, { childList: true, subtree: true });
"""
PAINTED = "await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));"
SWITCH = f"""async ([switches, pause]) => {{
  const slider = document.querySelector('[data-testid=fx-layer]'), times = [];
  for (let i = 0; i < switches; i++) {{
    const start = performance.now();
    slider.value = i % {LAYERS}; slider.dispatchEvent(new Event('input', {{ bubbles: true }}));
    {PAINTED}
    times.push(performance.now() - start);
    await new Promise((done) => setTimeout(done, pause));
  }}
  return times;
}}"""
SELECT = f"""async () => {{
  const times = [];
  for (const token of [...document.querySelectorAll('span.fx-token')].slice(20, 40)) {{
    const start = performance.now();
    document.getElementById(token.id).click();
    {PAINTED}
    times.push(performance.now() - start);
  }}
  return times;
}}"""
HOVER = f"""async () => {{
  const times = [];
  for (const token of [...document.querySelectorAll('span.fx-token')].slice(20, 50)) {{
    const start = performance.now();
    token.dispatchEvent(new MouseEvent('mouseover', {{ bubbles: true }}));
    {PAINTED}
    times.push(performance.now() - start);
  }}
  return times;
}}"""
REQUESTS = """performance.getEntriesByType('resource').filter((entry) => entry.name.includes('component_server'))
  .map((entry) => [entry.startTime, entry.encodedBodySize])"""


@contextmanager
def served(database: Path) -> Iterator[str]:
    """The address of a server on this database."""
    command = [sys.executable, "-m", "focus_explorer.cli", "serve", "--db", str(database), "--port", str(PORT)]
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ | paths
    )
    assert server.stdout is not None
    try:
        yield next(found[0] for line in server.stdout if (found := re.search(r"http://[\d.]+:\d+", line)))
    finally:
        server.terminate()


def heap(page: Page) -> float:
    """Megabytes of live JavaScript objects, after a collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return metrics["JSHeapUsedSize"] / 1e6


def opened(browser: Browser, address: str) -> Page:
    """A new page with the run's tokens drawn."""
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.add_init_script(WATCH)
    page.goto(address)
    page.wait_for_function("window.drawnAt !== undefined", timeout=120_000)
    return page


def page_numbers(browser: Browser, address: str, repeats: int) -> dict[str, Any]:
    """Openings, then switches, selections and hovers on the last page."""
    whole, run = [], []
    for number in range(repeats):
        page = opened(browser, address)
        drawn = page.evaluate("window.drawnAt")
        whole.append(drawn / 1000)
        run.append((drawn - page.evaluate(REQUESTS)[0][0]) / 1000)
        if number + 1 < repeats:
            page.context.close()
    first_bytes = page.evaluate(REQUESTS)[0][1]
    page.wait_for_timeout(5000)
    before = heap(page)
    switched = page.evaluate(SWITCH, [SWITCHES, 400])
    page.wait_for_timeout(2000)
    middle = heap(page)
    page.evaluate(SWITCH, [SWITCHES, 400])
    page.wait_for_timeout(2000)
    last = heap(page)
    result = {
        "seconds_until_drawn_from_a_blank_page": asdict(Spread.of(whole)),
        "seconds_until_drawn_from_asking_for_the_run": asdict(Spread.of(run)),
        "bytes_of_the_first_message": first_bytes,
        "bytes_of_all_messages_after_every_layer_was_open": sum(size for _, size in page.evaluate(REQUESTS)),
        "layer_switch_to_paint_ms": asdict(Spread.of(switched)),
        "tokens_on_the_page": page.locator("span.fx-token").count(),
        "select_a_token_to_paint_ms": asdict(Spread.of(page.evaluate(SELECT))),
        "hover_to_paint_ms": asdict(Spread.of(page.evaluate(HOVER))),
        "heap_megabytes": {
            "opened": before,
            f"after_{SWITCHES}_switches": middle,
            f"after_{2 * SWITCHES}_switches": last,
        },
    }
    page.context.close()
    return result


def query_seconds(database: Database, run_id: str, repeats: int) -> dict[str, Any]:
    """Wall time of every query the page asks of one run, opening the file included."""

    def timed(name: str, **parameters: Any) -> dict[str, Any]:
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            fetch(database, name, **parameters)
            times.append(time.perf_counter() - start)
        return asdict(Spread.of(times))

    found = {name: timed(name, run_id=run_id) for name in OF_A_RUN}
    found |= {name: timed(name, run_id=run_id, layer=LAYERS // 2) for name in OF_A_LAYER}
    return found | {"runs": timed("runs")}


def prepared(path: Path, rows: int) -> None:
    """A short run, and copies of a long one until there are `rows` rows of assignments."""
    database = Database(path)
    write_long_run(database, SHORT)
    run_id = write_long_run(database, LONG)
    copy_run(database, run_id, max(0, rows // (LONG * LAYERS) - 1))


def main() -> None:
    """Prepare, serve, measure, write one JSON file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--db", type=Path, help="a database made by an earlier call; made anew when left out")
    parser.add_argument("--rows", type=int, default=30_000_000, help="rows of the table assignments")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    path = arguments.db or folder / "runs.duckdb"
    if arguments.db is None:
        prepared(path, arguments.rows)
    service = Service(path)
    runs = {run["num_tokens"]: run["run_id"] for run in service.runs()}
    with service.database.read() as connection:
        counted = connection.sql("SELECT count(*) FROM assignments").fetchall()[0][0]
    result: dict[str, Any] = {
        "what": f"{LAYERS} layers, headless Chromium at 1440x900, new context each time, runs made up",
        "machine": machine(),
        "load_average_before": os.getloadavg(),
        "rows_of_assignments": counted,
        "database_bytes": path.stat().st_size,
        "query_seconds": query_seconds(service.database, runs[LONG], arguments.repeats),
    }
    with served(path) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for count in (SHORT, LONG):
            result[f"{count}_tokens"] = page_numbers(browser, f"{url}/?run={runs[count]}", arguments.repeats)
        browser.close()
    result["load_average_after"] = os.getloadavg()
    shutil.rmtree(folder)
    print(json.dumps(result, indent=1))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
