"""A run inside a notebook, or as one HTML file: the page's own views over data that lies in it, without a server."""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from focus_explorer.errors import InputError
from focus_explorer.usecases.maps import has_map
from focus_explorer.usecases.run_payload import all_predictions, load_run_of
from focus_explorer.usecases.runs import list_runs, mask_blocks
from focus_explorer.usecases.service import Service
from focus_explorer.web.browser import background, notebook_script, plotly_script, stylesheets
from focus_explorer.web.requests.dispatch import dispatch

HEIGHT = 900
MEASURED = ("compare_grid", "compare_heads", "compare_links")  # what was measured of a run, and stored
OF_RUN = (
    *("groups", "agreement", "word_classes", "attention", "pair_distances_mean", "map", "group_names"),
    *("prediction_changes", "timings", "trained_on"),
    *MEASURED,
)
_SERVER_NEEDED = (
    "This needs the running explorer: start `focus-explorer serve` and open the run {run} there. "
    "This file holds the run as it was stored, without a model."
)
_START = """
const unpacked = (id) => {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).text();
};
const start = async () => {
  const root = document.querySelector('.fx-root');
  if (typeof DecompressionStream === 'undefined') { root.textContent = OLD_BROWSER; return; }
  for (const id of ['charts', 'views']) {
    const script = document.createElement('script');
    script.textContent = await unpacked(id);
    document.head.append(script);
  }
  const inlined = JSON.parse(await unpacked('run'));
  const kept = window.history.replaceState.bind(window.history);
  // A frame without an address of its own may not change it.
  window.history.replaceState = (...given) => { try { kept(...given); } catch { /* the view works without */ } };
  const answer = (stored) => Promise.resolve(stored || { error: inlined.needs_server });
  const stored = ({ what, layer, token }) => {
    if (what === 'predictions') return inlined.predictions[token];
    return inlined.answers[`${what} ${layer ?? 'all'}`] ?? inlined.answers[`${what} any`];
  };
  const view = FocusExplorer.create(root, {
    load_run: () => answer(inlined.run),
    load_mask: (run, layer, part) => answer(inlined.masks[layer][part]),
    ask: (request) => answer(stored(request)),
  });
  view.open(inlined.run.run.run_id);
};
start();
"""
_OLD_BROWSER = "This page needs a browser of 2023 or newer."


@dataclass(frozen=True, slots=True)
class Shown:
    """What `show` gives back: drawn by a notebook, a sentence anywhere else, and a file with `save`."""

    run_id: str
    page: str
    height: int

    def _repr_html_(self) -> str:
        return (
            f'<iframe title="Focus Explorer, run {escape(self.run_id)}" srcdoc="{escape(self.page, quote=True)}" '
            f'style="width:100%;height:{self.height}px;border:0" sandbox="allow-scripts allow-downloads"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<run {self.run_id}, {len(self.page) / 2**20:.1f} MB of HTML; .save('run.html') writes it as a file>"

    def save(self, path: str | Path) -> Path:
        """Write one HTML file that works without a server and without a network."""
        target = Path(os.path.expanduser(path))
        try:
            target.write_text(self.page, encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot write {target}: {error.strerror}", fix="choose a writable folder") from error
        return target


def show(
    run: str | None = None, *, database: str | Path | None = None, dark: bool = False, height: int = HEIGHT
) -> Shown:
    """A stored run, to look at in a notebook or to save as one HTML file.

    Its text, groups with their names, pairs, losses, predictions and what was measured of it (settings, heads, missing
    links) are in it, and the maps drawn before (a PCA where none was). Other maps, zooming into the mask, statistics
    and what runs a model need `focus-explorer serve`.

    Args:
        run: id of the run; the newest when None.
        database: DuckDB file; the user's own when None.
        dark: dark colours.
        height: of the notebook's frame, in pixels.

    Raises:
        InputError: there is no such run, or the database cannot be read.
    """
    service = Service(database)
    if run is None:
        rows = list_runs(service.database)
        if not rows:
            raise InputError(
                f"there is no run in {service.database.path}", fix="`focus-explorer analyze FILE` makes one"
            )
        run = str(rows[0]["run_id"])
    return Shown(run, page_of(recorded(service, run), dark=dark), height)


def recorded(service: Service, run_id: str) -> dict[str, Any]:
    """All that the file of a run holds of it, as JSON has it; `page_of` makes the file."""
    payload = load_run_of(service, run_id)
    masks = {
        one["layer"]: [mask_blocks(service.database, run_id, one["layer"], part) for part in range(len(one["parts"]))]
        for one in payload["layers"]
    }
    return {
        "run": payload,
        "masks": masks,
        "answers": _answers(service, run_id, payload["layer_ids"], whole=bool(payload["cells"])),
        "predictions": all_predictions(service.database, run_id),
        "needs_server": _SERVER_NEEDED.format(run=run_id),
    }


def _answers(service: Service, run_id: str, layers: list[int], *, whole: bool) -> dict[str, Any]:
    """Answers to the requests of the views that need no model, by request and layer; of maps those drawn before."""
    requests: list[tuple[str, int | None]] = [(what, None) for what in OF_RUN]
    for layer in layers:
        requests.append(("pair_distances", layer))
        if not whole:
            requests.append(("layer_cells", layer))
        stored = has_map(service.database, run_id, layer)
        if stored or layer == layers[len(layers) // 2]:
            requests.append(("map", layer))

    def answered(what: str, layer: int | None) -> dict[str, Any]:
        details = ({} if layer is None else {"layer": layer}) | ({"quick": True} if what == "map" else {})
        return dispatch(service, {"what": what, "run": run_id, **details})

    answers = {f"{what} {'all' if layer is None else layer}": answered(what, layer) for what, layer in requests}
    for what, payload in answers.items():
        if what.startswith("map "):
            payload["preliminary"] = False  # nothing better will come
    orders = answered("group_orders", layers[0])
    if len(orders["orders"]) == len(layers):  # of all layers: whichever is asked for
        answers["group_orders any"] = orders
    else:
        answers |= {f"group_orders {layer}": answered("group_orders", layer) for layer in layers}
    if answers["attention all"]["state"] == "done":
        answers |= {f"attention_links {layer}": answered("attention_links", layer) for layer in layers}
    return answers


def page_of(inlined: Mapping[str, Any], *, dark: bool = False) -> str:
    """The HTML file of a recorded run: today's views over the data that `recorded` gave, now or earlier."""
    style = "\n".join(path.read_text(encoding="utf-8") for path in stylesheets() if path.name != "page.css")
    parts = {
        "charts": plotly_script().read_text(encoding="utf-8"),
        "views": notebook_script(),
        "run": json.dumps(inlined, ensure_ascii=False, separators=(",", ":")),
    }
    title = escape(str(inlined["run"]["run"]["title"]))
    return "\n".join(
        [
            f'<!doctype html><html lang="en"{" class=dark" if dark else ""}><head><meta charset="utf-8">',
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>',
            f"<style>{style}\nbody {{ margin: 0; padding: 16px; background: {background(dark=dark)}; }}</style>",
            '</head><body><div class="fx-root"></div>',
            *(f'<script type="application/gzip" id="{name}">{_packed(text)}</script>' for name, text in parts.items()),
            f"<script>const OLD_BROWSER = {json.dumps(_OLD_BROWSER)};{_START}</script></body></html>",
        ]
    )


def _packed(text: str) -> str:
    """Compressed, in letters that end no script: a third to a twentieth of the size."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
