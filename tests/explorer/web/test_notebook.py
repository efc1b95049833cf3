"""A run as an object of a notebook and as one file."""

from __future__ import annotations

import base64
import gzip
import json
import re

import pytest

import focus_explorer
from focus_explorer.errors import InputError
from focus_explorer.usecases.run_payload import load_run, predictions
from focus_explorer.usecases.runs import list_runs
from focus_explorer.web.notebook import MEASURED
from tests.explorer.conftest import TEXT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shown(service, run_id):
    return focus_explorer.show(run_id, database=service.database.path)


def test_the_file_holds_the_run_and_asks_nobody(service, shown, tmp_path):
    page = shown.save(tmp_path / "run.html").read_text()
    packed = dict(re.findall(r'<script type="application/gzip" id="(\w+)">(.*?)</script>', page))
    parts = {name: gzip.decompress(base64.b64decode(text)).decode() for name, text in packed.items()}
    assert "FocusExplorer" in parts["views"]
    assert "Plotly" in parts["charts"]
    inlined = json.loads(parts["run"])
    payload = load_run(service.database, shown.run_id)
    assert inlined["run"] == json.loads(json.dumps(payload))
    assert "".join(inlined["run"]["pieces"]).startswith(TEXT[:50])
    assert set(inlined["masks"]) == {str(layer) for layer in payload["layer_ids"]}
    for what in ("groups all", "agreement all", "map all", "pair_distances 1", "group_names all", "group_orders any"):
        assert inlined["answers"][what]
        assert "error" not in inlined["answers"][what]
    for name in MEASURED:
        assert "error" not in inlined["answers"][f"{name} all"]
    assert len(inlined["predictions"]) == len(payload["pieces"])
    for token in range(0, len(payload["pieces"]), 29):
        one = predictions(service.database, shown.run_id, token)
        assert inlined["predictions"][token] == json.loads(json.dumps(one))
    assert len(page) < 5e6
    assert page.count("<script>alert") == 0  # the text's own script stays text
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=", page)


def test_a_notebook_gets_a_frame_and_a_terminal_a_sentence(service, run_id):
    shown = focus_explorer.show(database=service.database.path, height=300)
    html = shown._repr_html_()
    assert html.startswith("<iframe")
    assert 'sandbox="allow-scripts' in html
    assert html.count("<") == 2  # the page inside is escaped as a whole
    assert list_runs(service.database)[0]["run_id"] in repr(shown)  # the newest
    assert len(repr(shown)) < 120


def test_what_cannot_be_shown_is_said(service, shown, tmp_path):
    with pytest.raises(InputError, match="nope"):
        focus_explorer.show("nope", database=service.database.path)
    with pytest.raises(InputError, match="there is no run"):
        focus_explorer.show(database=tmp_path / "new.duckdb")
    with pytest.raises(InputError, match="cannot write"):
        shown.save(tmp_path / "no" / "run.html")
    with pytest.raises(AttributeError):
        _ = focus_explorer.nothing
