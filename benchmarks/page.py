"""The served page in headless Chromium: time until interactive, layer switch and hover at 2,000 tokens.

Starts the server on a database with one run of 2,000 tokens (made if needed), then opens the page several times.

    python benchmarks/page.py --text LONG_TEXT_FILE --out benchmarks/results/page.json
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from focus_explorer.service import AnalyzeRequest, Service, read_text_file
from focus_runtime.bench import machine
from focus_runtime.measure import Spread

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
TOKENS = 2000
SWITCH = """async () => {
  const slider = document.querySelector('[data-testid=fx-layer]'), times = [];
  for (let layer = 0; layer < 30; layer++) {
    const start = performance.now();
    slider.value = layer; slider.dispatchEvent(new Event('input', { bubbles: true }));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
    times.push(performance.now() - start);
  }
  return times;
}"""
HOVER = """async () => {
  const times = [];
  for (const token of [...document.querySelectorAll('span.fx-token')].slice(20, 50)) {
    const start = performance.now();
    token.dispatchEvent(new PointerEvent('pointerover', { bubbles: true }));
    token.dispatchEvent(new MouseEvent('mouseover', { bubbles: true }));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
    times.push(performance.now() - start);
  }
  return times;
}"""


def measure(page: Page, url: str) -> tuple[float, float]:
    """Seconds until the form takes input and until the run's tokens are drawn."""
    start = time.perf_counter()
    page.goto(url)
    page.wait_for_selector("#fe-run:not([disabled])")
    interactive = time.perf_counter() - start
    page.wait_for_selector("span.fx-token")
    return interactive, time.perf_counter() - start


def main() -> None:
    """Serve, measure, write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    service = Service(folder / "runs.duckdb")
    request = AnalyzeRequest(top_k=1, window=128, max_tokens=TOKENS, repeats=1)
    run_id = service.analyze(read_text_file(arguments.text), request)
    payload = len(json.dumps(service.run_payload(run_id)).encode())
    command = [
        sys.executable,
        "-m",
        "focus_explorer.cli",
        "serve",
        "--db",
        str(folder / "runs.duckdb"),
        "--port",
        "7961",
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    try:
        url = next(found[0] for line in server.stdout if (found := re.search(r"http://[\d.]+:\d+", line)))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            opened = []
            for _ in range(5):
                page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
                opened.append(measure(page, f"{url}/?run={run_id}"))
            result: dict[str, Any] = {
                "what": f"{TOKENS} tokens, 30 layers, headless Chromium at 1440x900, new context each time",
                "machine": machine(),
                "payload_bytes": payload,
                "seconds_until_interactive": asdict(Spread.of([pair[0] for pair in opened])),
                "seconds_until_tokens": asdict(Spread.of([pair[1] for pair in opened])),
                "layer_switch_to_paint_ms": asdict(Spread.of(page.evaluate(SWITCH))),
                "hover_to_paint_ms": asdict(Spread.of(page.evaluate(HOVER))),
            }
            browser.close()
    finally:
        server.terminate()
    print(json.dumps(result, indent=1))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
