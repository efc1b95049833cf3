"""Figures of a bundle have the same bytes each time and reveal no order of the text."""

from __future__ import annotations

import numpy as np
import pytest

from focus_explorer.exports.bundle.write import steady, write_figures
from focus_explorer.exports.figures import write as figures
from focus_runtime.store.projections import write_projection


def test_pictures_lose_their_times_and_random_names():
    assert steady(b"/CreationDate (D:20261121204500+00'00')", "pdf") == b"/CreationDate (D:20000101000000+00'00')"
    one = b'<g class="clips"><clipPath id="clip1a2b3cxyplot"/><g clip-path="url(#clip1a2b3cxyplot)"/>'
    assert steady(one, "svg") == steady(one.replace(b"1a2b3c", b"f00ba7"), "svg")


@pytest.mark.browser
def test_figures_are_the_same_twice_and_carry_no_words(monkeypatch, tmp_path, service, run_id):
    """Drawn by two starts of the browser; the map's points do not stand in the order of the text."""
    from focus_explorer.exports.figures.render import browser

    if browser() is None:
        pytest.skip("no Chrome or Chromium")
    monkeypatch.setattr(figures, "FIGURES", dict.fromkeys(("map", "agreement", "loss", "mask")))
    places = np.random.default_rng(0).normal(size=(610, 2))
    meta = {"method": "UMAP", "parameters": {}, "seed": 0, "trustworthiness": None, "num_centroids": 4}
    write_projection(service.database, run_id, 0, places, meta)
    results = [write_figures(service.database, run_id, tmp_path / name, with_text=False) for name in ("1", "2")]
    assert results[0] == results[1]
    assert f"figures/{run_id}/map-layer0.svg" in results[0]["made"]
    assert [one["name"] for one in results[0]["missing"]] == ["loss", "mask"]
    for path in results[0]["made"]:
        first, second = ((tmp_path / name / path).read_bytes() for name in ("1", "2"))
        assert first == second, path
        assert first.startswith(b"%PDF" if path.endswith(".pdf") else b"<svg")
        assert b"harbour" not in first
