"""Pictures of every place of the page, wide and narrow, light and dark, to be looked at and for the documentation.

PYTHONPATH=runtime:. python -m tests.browser.pictures --db runs.duckdb --out pictures
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

from playwright.sync_api import sync_playwright

from focus_explorer.usecases.runs import list_runs
from focus_explorer.usecases.service import Service
from tests.browser.conftest import FLAGS, SIZES, find_chromium, serving
from tests.browser.places import PLACES

SCHEMES = ("light", "dark")


def main() -> None:
    """Serve the database and take the pictures requested."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--db", type=Path, required=True, help="a database with at least one run")
    parser.add_argument("--run", help="the run to open; the newest when left out")
    parser.add_argument("--out", type=Path, required=True, help="folder")
    parser.add_argument("--place", action="append", choices=[place.name for place in PLACES], help="only these")
    parser.add_argument("--size", action="append", choices=list(SIZES), help="only these")
    parser.add_argument("--scheme", action="append", choices=SCHEMES, help="only these")
    parser.add_argument("--whole", action="store_true", help="the whole page, not only what a screen shows")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    run = arguments.run or list_runs(Service(arguments.db).database)[0]["run_id"]
    places = [place for place in PLACES if arguments.place is None or place.name in arguments.place]
    with serving("--db", arguments.db, port=7957) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        for place, size, scheme in product(places, arguments.size or SIZES, arguments.scheme or SCHEMES):
            context = browser.new_context(viewport=SIZES[size], color_scheme=scheme)
            page = context.new_page()
            page.goto(f"{url}?run={run}&__theme={scheme}&{place.query}")
            page.wait_for_selector("[data-testid=fx-header]", timeout=90_000)
            place.visit(page)
            target = arguments.out / f"{place.name}-{size}-{scheme}.png"
            page.screenshot(path=target, full_page=arguments.whole)
            print(target)
            context.close()
        browser.close()


if __name__ == "__main__":
    main()
