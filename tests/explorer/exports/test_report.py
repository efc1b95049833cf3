"""A report says every section with its denominators, loads nothing from anywhere, and prints to pages."""

from __future__ import annotations

import re
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest

from focus_explorer.data.queries import fetch
from focus_explorer.exports.figures import render as report_print
from focus_explorer.exports.report import numbers as report_words
from focus_explorer.exports.report.numbers import cause_shares, read_run
from focus_explorer.exports.report.write import CAUSE_NAMES, render
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.statistics import measure_run

pytestmark = pytest.mark.slow

SECTIONS = ("Setting", "Groups found", "Sparsity", "Quality", "Speed", "Caveats", "Where this comes from")
TEXT = "The harbour was <b>quiet</b> & grey. The cat sat on the mat. It left the harbour again.\n" * 4


class Page(HTMLParser):
    """Words of the headings and of everything, tags that stay open, and addresses."""

    def __init__(self, text):
        super().__init__()
        self.headings, self.open, self.links, self.words = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.links += [value for name, value in attributes if name in ("src", "href", "data", "action")]
        if tag not in ("meta", "br", "path", "rect", "circle"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.words.append(data)
        if "h2" in self.open:
            self.headings.append(data.strip())


@pytest.fixture(scope="module")
def runs(tmp_path_factory, model_folder):
    """A service and two short runs of the same text, one timed once."""
    service = Service(tmp_path_factory.mktemp("report") / "runs.duckdb")
    return service, [
        analyze(
            service,
            TEXT,
            AnalyzeRequest(model=model_folder, centroids="random", top_k=k, window=8, repeats=k),
            command="",
        )
        for k in (1, 2)
    ]


@pytest.fixture(scope="module")
def reports(runs):
    service, ids = runs
    return [read_run(service.database, run_id) for run_id in ids]


def test_a_report_has_every_section_and_loads_nothing(reports):
    for chosen in (reports[:1], reports):
        text = render(chosen)
        page = Page(text)
        assert [heading for heading in page.headings if not heading.isdigit()] == list(SECTIONS)
        assert page.links == []
        assert page.open == []
        assert not re.search(
            r"(src|href|url|@import|https?:)\b", text.replace("default-src", "").replace("style-src", "")
        )
        assert "prefers-color-scheme: dark" in text
        assert "@media print" in text
        assert "<b>quiet" not in text


def test_numbers_are_those_of_the_run(runs, reports):
    service, ids = runs
    report, words = reports[0], " ".join("".join(Page(render(reports[:1])).words).split())
    loss = fetch(service.database, "losses", run_id=ids[0]).to_pandas().groupby("mode").nll.mean()
    assert f"{loss['full']:.3f}" in words
    assert report_words.signed(loss["focus"] - loss["full"], 4) in words
    shares = cause_shares(report)
    assert sum(shares.values()) == pytest.approx(1)
    for cause in CAUSE_NAMES:
        assert report_words.percent(shares[cause]) in words
    tokens = report.run["num_tokens"]
    assert f"{tokens * (tokens + 1) // 2:,} pairs" in words
    assert report.loss["difference"]["low"] <= report.loss["difference"]["mean"] <= report.loss["difference"]["high"]
    largest = np.mean([row["dominance"] for row in fetch(service.database, "layers", run_id=ids[0]).to_pylist()])
    assert f"groups holds {report_words.percent(largest)} of the tokens on average over the layers" in words
    assert "Times rest on 1 repeat only" in words
    assert "Not measured for this run" in words
    assert "Random centroids were not run" in words
    assert "in turn, after one pass of each over its first 256 tokens to warm up. Focus’s times" in words


def test_heads_with_full_attention_are_named_where_they_count_otherwise(service, budget_run, reports):
    report = read_run(service.database, budget_run)
    assert report.full_heads == (1 + 0 + 1 / 4 + 0) / 4  # layer 0, and a head of four in layer 1
    words = " ".join("".join(Page(render([report])).words).split())
    assert f"{report_words.percent(report.full_heads)} of the heads have full attention" in words
    assert "counted with the window, as if they had no full attention. " in words
    assert "of the heads have full attention" not in render(reports)


def test_a_run_of_one_sentence_beside_random_centroids_concludes_nothing(service, model_folder):
    text = "the quiet harbour and the cat on the mat and the harbour again and the grey mat and the cat " * 2
    request = AnalyzeRequest(model=model_folder, centroids="random", top_k=1, window=4, repeats=1)
    run_id = analyze(service, text.strip(), request, command="")
    measure_run(service, run_id, tags=False)
    report = read_run(service.database, run_id)
    gain = report.overall["nmi_minus_random"]
    assert (report.units, gain["low"], gain["high"]) == (1, None, None)
    words = " ".join("".join(Page(render([report])).words).split())
    assert f"(no interval, {gain['count']:,} tokens): whether that is more than chance cannot be told" in words
    assert "The text has 1 sentence. " in words
    assert "interval )" not in words
    assert "interval ," not in words


def test_how_times_were_warmed_up_is_said_by_device():
    assert report_words.warm_up(["cpu"]) == "one pass of each over its first 256 tokens to warm up."
    on_gpu, both = report_words.warm_up(["cuda:0"]), report_words.warm_up(["cpu", "cuda:0"])
    assert on_gpu.startswith("one pass of each over all of it to warm up.")
    assert "first 256 tokens (on a GPU all of it)" in both
    assert all("on a GPU in another pass" in words for words in (on_gpu, both))


def test_only_trained_centroids_are_said_to_have_learned():
    gain = {"low": 0.1, "high": 0.2}
    assert report_words.learned(gain, trained=True).startswith("training found categories")
    assert "training" not in report_words.learned(gain, trained=False)
    assert "training" not in report_words.learned({"low": None, "high": None}, trained=True)


@pytest.mark.browser
def test_it_prints_to_pages_with_every_section(tmp_path, reports):
    if report_print.browser() is None:
        pytest.skip("no Chrome or Chromium")
    page = tmp_path / "report.html"
    page.write_text(render(reports), encoding="utf-8")
    pdf = report_print.print_pdf(page, tmp_path / "report.pdf")
    first = pdf.read_bytes()
    assert first.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", first)) > 1
    try:
        words = subprocess.run(["pdftotext", str(pdf), "-"], capture_output=True, check=True).stdout.decode()
    except FileNotFoundError:
        pytest.skip("no pdftotext")
    assert all(section in words for section in SECTIONS)
    assert re.search(r"1 ?/ ?\d", words)


def test_nothing_is_called_faster_while_repeats_overlap():
    def spread(low, median, high, repeats=3):
        return {"low": low, "median": median, "high": high, "repeats": repeats}

    assert "Focus is faster, 2.00 times" in report_words.speed("Pass", spread(9, 10, 11), spread(4, 5, 6))
    assert "Focus is slower" in report_words.speed("Pass", spread(4, 5, 6), spread(9, 10, 11))
    assert "neither is called faster" in report_words.speed("Pass", spread(5, 10, 11), spread(4, 5, 6))
    assert "says little" in report_words.speed("Pass", spread(10, 10, 10, 1), spread(5, 5, 5, 1))
    assert "worse" in report_words.loss({"low": 0.1, "high": 0.2})
    assert "zero" in report_words.loss({"low": -0.1, "high": 0.2})
