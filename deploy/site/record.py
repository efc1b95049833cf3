"""Records the run of the landing page and the example of the mask's picture: `python -m deploy.site.record`.

It runs the embedded model with the default centroids on the opening of a novel, in a database of its own, and writes

- `docs/recording/run.json.xz`: what the offline HTML file of that run holds; the site's build makes the file of it, so
  that its views are always today's;
- `docs/scripts/example.js`: the first tokens of one layer with their groups, most probable first.
"""

from __future__ import annotations

import base64
import json
import lzma
import tempfile
from pathlib import Path
from typing import Any

from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.texts import sample_text
from focus_explorer.web.notebook import recorded
from focus_runtime.store.database import Database

ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "docs" / "recording" / "run.json.xz"
EXAMPLE = ROOT / "docs" / "scripts" / "example.js"
END = " that he is to take possession"  # the text is the beginning of the novel up to here
WINDOW = 32
LAYER, TOKENS = 7, 48  # of the example

_EXAMPLE = """// @ts-check
// Written by `python -m deploy.site.record`: a run's tokens and their groups in one layer, most probable first.

/** @type {{{{ layer: number, pieces: string[], order: number[][] }}}} */
export const EXAMPLE = {{
  layer: {layer},
  pieces: [
{pieces}
  ],
  order: [
{order}
  ],
}};
"""


def opening() -> str:
    """The recorded text, the beginning of the sample `novel.txt`."""
    text = sample_text("Novel")
    return text[: text.index(END)].rstrip() + "\n"


def main() -> None:
    """Run the model and write both files."""
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Path(folder) / "runs.duckdb")
        run_id = analyze(service, opening(), AnalyzeRequest(window=WINDOW), command="python -m deploy.site.record")
        write_recording(recorded(service, run_id))
        EXAMPLE.write_text(_example(service.database, run_id), encoding="utf-8")
    print(f"{RECORDING.stat().st_size:,} bytes, run {run_id}")


def write_recording(run: dict[str, Any]) -> None:
    """Write what `recorded` gave as a small file; counts in hexadecimal compress better than in base64."""
    masks = {
        layer: [one | {"counts": base64.b64decode(one["counts"]).hex()} for one in parts]
        for layer, parts in run["masks"].items()
    }
    content = json.dumps(run | {"masks": masks}, ensure_ascii=False, separators=(",", ":"))
    RECORDING.write_bytes(lzma.compress(content.encode(), preset=9 | lzma.PRESET_EXTREME))


def read_recording() -> dict[str, Any]:
    """The recorded run as `recorded` gave it."""
    run = dict(json.loads(lzma.decompress(RECORDING.read_bytes())))
    for parts in run["masks"].values():
        for one in parts:
            one["counts"] = base64.b64encode(bytes.fromhex(one["counts"])).decode()
    return run


def _example(database: Database, run_id: str) -> str:
    query = """
        SELECT piece, probabilities FROM assignments JOIN tokens USING (run_id, position)
        WHERE run_id = ? AND layer = ? AND position < ? ORDER BY position
    """
    with database.read() as connection:
        rows: list[tuple[Any, ...]] = connection.execute(query, [run_id, LAYER, TOKENS]).fetchall()
    order = [sorted(range(len(values)), key=lambda group: -values[group]) for _, values in rows]
    return _EXAMPLE.format(
        layer=LAYER,
        pieces="\n".join(f"    {json.dumps(piece, ensure_ascii=False)}," for piece, _ in rows),
        order="\n".join(f"    {json.dumps(groups)}," for groups in order),
    )


if __name__ == "__main__":
    main()
