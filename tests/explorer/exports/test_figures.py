"""Figures for print: right size, type and words, no pixels; HTML that loads nothing; no data or no browser is named."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET

import plotly.graph_objects as go
import pytest

from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError
from focus_explorer.exports.figures import render
from focus_explorer.exports.figures.render import open_browser, picture
from focus_explorer.exports.figures.write import PRESETS, figure, write_figure
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.views.figures.groups import token_map_figure
from focus_runtime.budget import HeadException
from tests.explorer.conftest import TEXT

pytestmark = pytest.mark.slow

DRAWABLE = ("group_sizes", "mask", "loss", "timings", "agreement", "distances", "categories")


@pytest.fixture(scope="module")
def figures(service, run_id):
    return {name: figure(service.database, run_id, name) for name in DRAWABLE}


def test_figures_say_what_they_show(figures, service, run_id):
    run = fetch(service.database, "run", run_id=run_id).to_pylist()[0]
    for name, drawn in figures.items():
        meta = drawn.layout.meta
        assert meta["caption"].endswith("."), name
        assert drawn.layout.title.text.startswith("n = "), name
        assert meta["provenance"]["run_id"] == run_id
        assert run["title"] not in str(meta["provenance"])
        assert f"window {8}" in meta["setting"]
        kinds = {trace.type for trace in drawn.data}
        assert kinds <= {"scatter", "bar"}, name  # what Plotly draws as vectors
    assert f"{run['num_tokens']:,} tokens" in figures["group_sizes"].layout.title.text


def lines_of(drawn):
    """Where the dotted lines stand, and the caption's words about them."""
    return [shape.x0 for shape in drawn.layout.shapes], drawn.layout.meta["caption"].split("; ")[-1]


def test_the_windows_of_the_heads_are_the_lines_of_the_distances(service, run_id, budget_run):
    at, words = lines_of(figure(service.database, run_id, "distances"))
    assert at == [8]
    assert words == "the dotted line is the window of 8 tokens."
    grows = "growing with the position."
    for layer in (None, 1):  # 3 and 8 tokens, and a head without a window
        at, words = lines_of(figure(service.database, budget_run, "distances", layer=layer))
        assert at == [3, 8]
        assert (
            words == f"the dotted lines are the shortest and the longest window of the heads, 3 and 8 tokens, {grows}"
        )
    at, words = lines_of(figure(service.database, budget_run, "distances", layer=2))
    assert (at, words) == ([8], f"the dotted line is the window of 8 tokens, {grows}")
    at, words = lines_of(figure(service.database, budget_run, "distances", layer=0))
    assert (at, words) == ([], "full attention has no window.")


def test_a_window_of_no_tokens_has_no_line(service, model_folder):
    how = {"model": model_folder, "centroids": "random", "top_k": 1, "window": 0, "repeats": 1}
    own = AnalyzeRequest(**how, budget=(HeadException(layer=1, head=0, window=6),))
    run_id = analyze(service, TEXT, own)
    at, words = lines_of(figure(service.database, run_id, "distances", layer=0))
    assert (at, words) == ([], "the window is 0 tokens, for which there is no line.")
    for layer in (None, 1):
        at, words = lines_of(figure(service.database, run_id, "distances", layer=layer))
        assert at == [6]
        assert words == "the windows of the heads are 0 to 6 tokens, and the dotted line is the longest."


def test_pairs_by_distance_say_how_heads_with_full_attention_count_without_groups(service, run_id, budget_run):
    words = "Window only: heads with full attention count with the window"
    for run, layer, said in (
        (budget_run, None, True),
        (budget_run, 1, True),
        (budget_run, 2, False),
        (run_id, 1, False),
    ):
        caption = figure(service.database, run, "distances", layer=layer).layout.meta["caption"]
        assert (words in caption) == said


def test_what_was_not_measured_is_named(tmp_path, service, run_id):
    for name, words in (("attention", "has no measured attention; measure it"), ("quality", "has no comparisons")):
        with pytest.raises(InputError, match=words):
            write_figure(service.database, run_id, name, "pdf", tmp_path / "x.pdf")
    with pytest.raises(InputError, match="no stored map of layer 1"):
        write_figure(service.database, run_id, "map", "pdf", tmp_path / "x.pdf", layer=1)
    with pytest.raises(InputError, match="no layer 7"):
        figure(service.database, run_id, "mask", layer=7)
    with pytest.raises(InputError, match="shows all layers"):
        figure(service.database, run_id, "loss", layer=1)
    with pytest.raises(InputError, match="no preset 'a0'"):
        figure(service.database, run_id, "loss", preset="a0")
    with pytest.raises(InputError, match="no figure 'pie'"):
        figure(service.database, run_id, "pie")
    with pytest.raises(InputError, match="no run"):
        figure(service.database, "nope", "loss")
    assert not list(tmp_path.iterdir())


def test_without_a_browser_html_works_and_pdf_says_why(tmp_path, service, run_id, monkeypatch):
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"need Chrome or Chromium, and none was found.*tables, and figures as HTML"):
        write_figure(service.database, run_id, "timings", "pdf", tmp_path / "x.pdf")
    path = write_figure(service.database, run_id, "timings", "html", tmp_path / "x.html")
    text = path.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", text)
    assert f"<dd>{run_id}</dd>" in text
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.html"]


@pytest.mark.long
@pytest.mark.slow
def test_print_files_are_vectors_with_fonts(tmp_path, service, run_id):
    """One browser for all; PDF as wide as the column, fonts inside, no pixels; SVG parses; PNG at 300 per inch."""
    about = {"method": "UMAP", "seed": 0, "trustworthiness": 0.93, "parameters": "{}"}
    points = [about | {"position": place - 2, "x": place % 7, "y": place / 3} for place in range(40)]
    groups = {place: place % 4 for place in range(38)}
    drawn = token_map_figure(points, groups, ["a"] * 38, 0, PRESETS["double"])
    with open_browser():
        for name, words in (("timings", "Time (ms"), ("mask", "Key position (tokens)"), ("agreement", "Adjusted Rand")):
            svg = write_figure(service.database, run_id, name, "svg", tmp_path / f"{name}.svg")
            root = ET.parse(svg).getroot()
            assert not root.findall(".//{http://www.w3.org/2000/svg}image")
            assert words in "".join(root.itertext())
        pdf = tmp_path / "map.pdf"
        pdf.write_bytes(picture(drawn, "pdf"))
        png = write_figure(service.database, run_id, "timings", "png", tmp_path / "timings.png")
    assert int.from_bytes(png.read_bytes()[16:20], "big") == pytest.approx(3.25 * 300, abs=3)
    if shutil.which("pdfimages") is None:
        pytest.skip("poppler's tools are not installed")

    def said(*command):
        return subprocess.run([*command], capture_output=True, text=True, check=True).stdout

    assert len(said("pdfimages", "-list", pdf).splitlines()) == 2  # its two lines of heading
    assert re.search(r"Page size:\s+486 x", said("pdfinfo", pdf))
    fonts = said("pdffonts", pdf).splitlines()[2:]
    assert fonts
    assert all(re.search(r"TrueType.*yes yes yes", line) for line in fonts)
    text = said("pdftotext", pdf, "-")
    assert "UMAP 1" in text
    assert "n = 38 tokens, layer 0, trustworthiness 0.93" in text


@pytest.fixture
def browser(monkeypatch):
    """A browser whose calls named in the set never end; a picture is b"drawn"."""
    hanging = set()

    class Browser:
        def __init__(self, **options):
            pass

        async def step(self, name, answer=None):
            if name in hanging:
                await asyncio.sleep(3600)
            return answer

        async def open(self):
            await self.step("open")

        async def calc_fig(self, figure, opts):
            return await self.step("draw", b"drawn")

        async def close(self):
            await self.step("close")

    monkeypatch.setattr("kaleido.Kaleido", Browser)
    monkeypatch.setattr(render, "START", 0.2)
    monkeypatch.setattr(render, "CLOSE", 0.2)
    return hanging


def test_one_that_does_not_start_is_said(browser):
    browser.add("open")
    with pytest.raises(InputError, match="the browser that draws figures failed: TimeoutError"):
        render.picture(go.Figure(), "svg")
    browser.clear()
    assert render.picture(go.Figure(), "svg") == b"drawn"  # the next one is tried anew


def test_one_that_does_not_end_has_drawn(browser):
    browser.add("close")
    assert render.picture(go.Figure(), "svg") == b"drawn"
