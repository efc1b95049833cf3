"""The served page in headless Chromium at 1440x900, and the queries behind it over a large database.

Writes a short and a long run without a model (benchmarks/synthetic_runs.py) and copies the long one until the table
`assignments` has the rows requested, unless --db names such a database. Every opening is a new browser context.

    PYTHONPATH=runtime:. python benchmarks/page.py --out benchmarks/results/page.json
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, Error, Page, sync_playwright

from benchmarks.served_page import served
from benchmarks.synthetic_runs import LAYERS, copy_run, write_long_run
from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError
from focus_explorer.usecases.runs import list_runs
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.sql import EXAMPLES, run_sql
from focus_explorer.web.requests.dispatch import dispatch
from focus_runtime.measure.timing import Spread, machine
from focus_runtime.store.database import Database

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
SHORT, LONG, PORT = 2_000, 100_000, 7961
SWITCHES = 50
LOCAL = ("http://127.0.0.1", "data:", "blob:")
PROBLEMS: list[str] = []  # errors in the console, requests to other hosts
OF_A_RUN = ("run", "layers", "tops", "pieces", "groups", "group_pieces", "losses", "timings")
OF_ALL_LAYERS = ("focus_losses", "token_ids", "attention_mass", "comparisons", "crossovers")
OF_THE_LIST = ("runs", "deleted_runs", "centroid_files", "trainings")
OF_A_LAYER = ("attention_links", "projection", "cells", "mask", "layer_centroids")

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
# Choosing a group in the open view's own way, and how long until every mark of it is painted.
CHOOSE = {
    "groups": "document.querySelectorAll('.fx-group-choose')[i % 2].click()",
    "map": "plot('fx-map').emit('plotly_click', {points: [{data: plot('fx-map').data[0], pointNumber: 3 + i}]})",
    "sparsity": "plot('fx-mask').emit('plotly_click', {points: [{pointNumber: [20 + i, 10]}]})",
    "compare": "document.querySelector(`[data-testid=fx-select-${i % 2 ? 'hurt' : 'helped'}]`).click()",
}
IN_VIEW = f"""async (choose) => {{
  const plot = (name) => document.querySelector(`[data-testid=${{name}}]`), times = [];
  for (let i = 0; i < 10; i++) {{
    const start = performance.now();
    new Function('plot', 'i', choose)(plot, i);
    {PAINTED}
    times.push(performance.now() - start);
    await new Promise((done) => setTimeout(done, 200));
  }}
  return times;
}}"""
DRAWN = {
    "groups": ".fx-group-choose",
    "map": "[data-testid=fx-map] .main-svg",
    "sparsity": "[data-testid=fx-mask] .main-svg",
    "compare": "[data-testid=fx-loss-chart] .main-svg",
}
# From pressing a zoom button until the mask is drawn at the new level, the server's answer included.
ZOOM = """async () => {
  const plot = document.querySelector('[data-testid=fx-mask]'), times = [];
  for (let i = 0; i < 8; i++) {
    const buttons = [...document.querySelectorAll('.fx-panel:not([hidden]) button')];
    const button = buttons.find((node) => node.textContent === 'Zoom in');
    if (button.disabled) break;
    const start = performance.now();
    const drawn = new Promise((done) => plot.once('plotly_afterplot', done));
    button.click();
    await drawn;
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
    times.push(performance.now() - start);
    await new Promise((done) => setTimeout(done, 300));
  }
  return times;
}"""
REQUESTS = """performance.getEntriesByType('resource').filter((entry) => entry.name.includes('component_server'))
  .map((entry) => [entry.startTime, entry.encodedBodySize])"""


def heap(page: Page) -> float:
    """Megabytes of live JavaScript objects, after a collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return metrics["JSHeapUsedSize"] / 1e6


def renderer_megabytes() -> float:
    """Resident memory of the largest renderer process: everything the page holds, script or not."""
    sizes = [0.0]
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"--type=renderer" in (process / "cmdline").read_bytes():
                status = (process / "status").read_text()
                sizes.append(int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024)  # type: ignore[index]
    return max(sizes)


def opened(browser: Browser, address: str) -> Page:
    """A new page with the run's tokens drawn."""
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.add_init_script(WATCH)
    page.on("pageerror", lambda error: PROBLEMS.append(f"script: {error}"))
    page.on("console", lambda message: PROBLEMS.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: None if request.url.startswith(LOCAL) else PROBLEMS.append(request.url))
    page.goto(address)
    page.wait_for_function("window.drawnAt !== undefined", timeout=120_000)
    return page


def view_numbers(page: Page) -> dict[str, Any]:
    """Opening each view, and choosing tokens in it; zooming in the mask."""
    numbers: dict[str, Any] = {}
    for view, ready in DRAWN.items():
        start = time.perf_counter()
        page.locator(f".fx-tab[data-view={view}]").click()
        page.locator(ready).first.wait_for(timeout=120_000)
        seconds = time.perf_counter() - start
        page.wait_for_timeout(3000)
        numbers[view] = {"open_seconds": seconds}
        try:
            numbers[view]["select_to_paint_ms"] = asdict(Spread.of(page.evaluate(IN_VIEW, CHOOSE[view])))
            if view == "sparsity":
                numbers[view]["zoom_to_paint_ms"] = asdict(Spread.of(page.evaluate(ZOOM)))
        except Error as error:  # the other numbers are worth keeping
            numbers[view]["problem"] = str(error).splitlines()[0]
    return numbers


def page_numbers(browser: Browser, address: str, repeats: int) -> dict[str, Any]:
    """Openings, then switches, selections and hovers on the last page."""
    whole, run, again = [], [], []
    for number in range(repeats):
        page = opened(browser, address)
        drawn = page.evaluate("window.drawnAt")
        whole.append(drawn / 1000)
        run.append((drawn - page.evaluate(REQUESTS)[0][0]) / 1000)
        page.wait_for_timeout(2000)
        page.reload()
        page.wait_for_function("window.drawnAt !== undefined", timeout=120_000)
        again.append(page.evaluate("window.drawnAt") / 1000)
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
        "seconds_until_drawn_after_a_reload": asdict(Spread.of(again)),
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
    result["views"] = view_numbers(page)
    result["heap_megabytes"]["after_every_view"] = heap(page)
    result["renderer_megabytes"] = renderer_megabytes()
    result["problems"] = PROBLEMS.copy()
    PROBLEMS.clear()
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

    seconds = {name: timed(name, run_id=run_id) for name in OF_A_RUN}
    seconds |= {name: timed(name, run_id=run_id, layer=LAYERS // 2) for name in OF_A_LAYER}
    seconds |= {name: timed(name, run_id=run_id) for name in OF_ALL_LAYERS}
    drawn = np.linspace(0, LONG - 1, 4000, dtype=np.int64).tolist()
    seconds["routing"] = timed("routing", run_id=run_id, layer=LAYERS // 2, positions=drawn)
    seconds["all_probabilities"] = timed("all_probabilities", run_id=run_id, positions=drawn)
    seconds["token_table, 500 tokens"] = timed("token_table", run_id=run_id, first=50_000, last=50_499)
    seconds["token_table, whole, for an export"] = timed("token_table", run_id=run_id, first=0, last=LONG)
    return seconds | {name: timed(name) for name in OF_THE_LIST}


def answer_seconds(service: Service, run_id: str) -> dict[str, Any]:
    """Wall time of what each view waits for, everything included; the first time it is requested, and once more."""
    layer = LAYERS // 2
    pair = {"rows": [50_000, 50_999], "keys": [20_000, 20_999]}
    requests: list[tuple[str, dict[str, Any]]] = [
        ("layer_cells", {"layer": layer}),
        ("word_classes", {}),
        ("groups", {}),
        ("agreement", {}),
        ("map", {"layer": layer, "quick": True}),
        ("map", {"layer": None, "quick": True}),
        ("mask_tile", {"layer": layer, **pair}),
        ("pair_distances", {"layer": layer}),
        ("pair_distances_mean", {}),
        ("attention", {}),
        ("attention_links", {"layer": layer}),
        ("compare_partners", {}),
    ]
    seconds: dict[str, Any] = {}
    for what, details in requests:
        times = []
        for _ in range(2):
            start = time.perf_counter()
            dispatch(service, {"what": what, "run": run_id, **details})
            times.append(time.perf_counter() - start)
        name = what if what != "map" or details["layer"] is not None else "map of all layers"
        seconds[name] = {"first": times[0], "again": times[1]}
    for name, sql in EXAMPLES:
        start = time.perf_counter()
        try:
            run_sql(service.database, sql)
            seconds[f"SQL box: {name}"] = {"first": time.perf_counter() - start}
        except InputError as error:  # stopped at the box's own limits
            seconds[f"SQL box: {name}"] = {"problem": str(error)}
    return seconds


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
    runs = {run["num_tokens"]: run["run_id"] for run in list_runs(service.database)}
    with service.database.read() as connection:
        counted = connection.sql("SELECT count(*) FROM assignments").fetchall()[0][0]
    result: dict[str, Any] = {
        "what": f"{LAYERS} layers, headless Chromium at 1440x900, new context each time, runs made up",
        "machine": machine(),
        "load_average_before": os.getloadavg(),
        "rows_of_assignments": counted,
        "database_bytes": path.stat().st_size,
        "query_seconds": query_seconds(service.database, runs[LONG], arguments.repeats),
        "answer_seconds": answer_seconds(service, runs[LONG]),
    }
    with served(path, PORT) as server, sync_playwright() as playwright:
        url = server.address
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
