"""The figure of a mask has the counts of its blocks."""

from __future__ import annotations

from focus_explorer.data.queries import fetch
from focus_explorer.exports.figures.write import PRESETS
from focus_explorer.views.figures.pairs import CAUSES, mask_figure


def test_the_mask_adds_up(service, run_id):
    rows = fetch(service.database, "mask", run_id=run_id, layer=1, part=0)
    tokens = fetch(service.database, "tokens", run_id=run_id).num_rows
    drawn = mask_figure(rows, 1, tokens, PRESETS["column"])
    cells = drawn.data[0]
    colours = set(cells.marker.color)
    blocks = int(rows["row_block"].to_numpy().max()) + 1
    side = -(-blocks // 64)
    shown = -(-blocks // side)
    assert len(cells.x) == shown * (shown + 1) // 2
    assert len(colours) > 3
    assert all(abs(sum(shares) - 100) <= 3 for shares in cells.customdata)
    kept = sum(rows[name].to_numpy().sum() for name in CAUSES if name != "dropped") / (tokens * (tokens + 1) / 2)
    assert f"{kept:.1%} of the pairs are kept" in drawn.layout.meta["caption"]
