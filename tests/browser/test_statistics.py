"""Statistics and exports as a person uses them: numbers with baselines, what is missing measured, files fetched."""

from __future__ import annotations

import csv
import hashlib
import shlex

import pytest
import scipy.sparse
from playwright.sync_api import expect

from focus_explorer.cli.main import main
from focus_explorer.data.queries import fetch_run
from focus_explorer.exports.figures.write import write_figure
from focus_explorer.statistics.tables import statistics_table
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.run_payload import load_run
from focus_explorer.usecases.runs import list_runs
from focus_explorer.usecases.service import Service
from focus_runtime.budget import HeadException
from tests.browser.conftest import HARBOUR, reopen
from tests.browser.test_accessibility import PANEL, findings

pytestmark = [pytest.mark.browser, pytest.mark.model]
WAIT = 60_000


@pytest.fixture(scope="module")
def rows(database, first_run):
    return statistics_table(Service(database).database, first_run, "statistics").to_pylist()


def open_statistics(open_page, part="", layer=6, **how):
    return open_page(f"?view=statistics&layer={layer}" + (f"&part={part}" if part else ""), **how)


def table(page, name):
    lines = page.locator(f"[data-testid={name}] tbody tr")
    lines.first.wait_for(timeout=WAIT)
    return lines


def test_the_overview_shows_the_stored_numbers_and_their_baselines(open_page, rows):
    page = open_statistics(open_page)
    table(page, "fx-stat-run")
    shown = page.locator("[data-stat]")
    expected = {
        row["statistic"] + (f".{row['category']}" if row["category"] else ""): row
        for row in rows
        if row["scope"] == "run" and not row["statistic"].endswith("_minus_random")
    }
    assert set(shown.evaluate_all("rows => rows.map(row => row.dataset.stat)")) == set(expected)
    for key, row in expected.items():
        if row["statistic"] in ("pairs_kept", "dominance", "purity"):
            line = page.locator(f"[data-stat='{key}']")
            expect(line).to_contain_text(f"{100 * row['value']:.1f}")
            if row["p_value"] is not None:
                same = row["p_value"] > 0.05
            else:  # exactly known under shuffling; sizes do not change by it
                same = row["low"] <= row["shuffled"] <= row["high"] and row["shuffled"] != row["value"]
            assert ("could be shuffled" in line.inner_text()) == same
    expect(page.locator("[data-testid=fx-stat-overview]")).to_contain_text(f"{expected['dominance']['units']} sentence")
    hint = page.locator("[data-stat=dominance] .fx-hint")
    hint.focus()
    expect(page.locator("#fe-view [data-testid=fx-tooltip]").first).to_contain_text("largest group")


def test_questions_are_answered_by_a_sentence_and_a_figure(open_page, rows, database, first_run):
    page = open_statistics(open_page, "questions")
    answer, figure = page.get_by_test_id("fx-answered"), page.get_by_test_id("fx-question-figure")
    quality = load_run(Service(database).database, first_run)["quality"]
    delta = {name: quality[f"delta_{name}"] for name in ("mean", "low", "high")}
    expect(answer).to_contain_text(f"{abs(delta['mean']):.3f}", timeout=WAIT)
    marks = "() => document.querySelector('[data-testid=fx-question-figure]').data?.map(({ x, error_x }) => " + (
        "[x[0] - error_x.arrayminus[0], x[0], x[0] + error_x.array[0]])"
    )
    page.wait_for_function(f"({marks})()?.length === 2")
    shown = page.evaluate(marks)
    assert shown[0] == pytest.approx([delta["low"], delta["mean"], delta["high"]], abs=1e-4)
    assert shown[1] == [0, 0, 0]
    for question, statistic in (("Are the groups even?", "dominance"), ("Do groups follow kinds of words?", "nmi")):
        page.get_by_role("radio", name=question).check(force=True)
        row = next(r for r in rows if r["scope"] == "run" and r["statistic"] == statistic)
        number = f"{100 * row['value']:.1f}" if statistic == "dominance" else f"{row['value']:.3f}"
        expect(answer).to_contain_text(number, timeout=WAIT)
        page.wait_for_function(f"({marks})()?.length === 2")
        assert page.evaluate(marks)[0] == pytest.approx([row["low"], row["value"], row["high"]], rel=1e-4)
    page.get_by_role("radio", name="Do they keep the distant attention").check(force=True)
    if any(row["statistic"] == "distant_mass_kept" for row in rows):  # another test of this page has measured it
        expect(answer).to_contain_text("Distant attention kept")
    else:
        expect(answer).to_contain_text("This was not measured for this run")
        expect(figure).to_be_hidden()
    assert findings(page, within=PANEL) == []
    page.get_by_role("radio", name="Is it faster here?").check(force=True)
    expect(answer).to_contain_text("timed")
    page.get_by_role("button", name="By stage, in Compare").click()
    expect(page.get_by_role("tab", name="Compare")).to_have_attribute("aria-selected", "true")


def test_a_layer_chosen_in_the_table_opens_everywhere_and_the_link_brings_it_back(open_page, rows):
    page = open_statistics(open_page, "layers&stat=dominance")
    lines = table(page, "fx-stat-layer-table")
    by_layer = {row["layer"]: row for row in rows if row["scope"] == "layer" and row["statistic"] == "dominance"}
    assert lines.count() == len(by_layer)
    expect(lines.nth(3)).to_contain_text(f"{100 * by_layer[3]['value']:.1f}")
    page.locator("[data-testid=fx-stat-layer-table] thead button").nth(1).click()  # largest value first
    top = max(by_layer, key=lambda layer: by_layer[layer]["value"])
    expect(lines.first).to_contain_text(f"{100 * by_layer[top]['value']:.1f}")
    page.locator("[data-testid=fx-stat-layers] .main-svg").first.wait_for(timeout=WAIT)
    button = lines.locator("[data-layer='20']")
    button.click()
    expect(page.locator("#fe-view .fx-layer-number")).to_have_text("20")
    expect(button).to_be_focused()
    assert "stat=dominance" in page.url
    assert "layer=20" in page.url
    reopen(page)
    expect(table(page, "fx-stat-layer-table").locator("[aria-current=true]")).to_have_text("20", timeout=WAIT)
    expect(page.locator("#fe-view .fx-stat-part select").first).to_have_value("dominance")


def test_a_group_and_a_distant_pair_chosen_here_are_chosen_everywhere(open_page):
    page = open_statistics(open_page, "groups")
    card = page.locator("[data-testid=fx-stat-groups] .fx-group-choose:enabled").first
    card.wait_for(timeout=WAIT)
    card.click()
    expect(card).to_have_attribute("aria-pressed", "true")
    expect(page.locator("[data-testid=fx-selection]")).to_contain_text("of layer 6")
    assert page.locator("[data-testid=fx-stat-categories] tbody tr").count() > 2
    page.get_by_role("radio", name="Distances").check(force=True)
    pair = page.locator("[data-testid=fx-stat-pairs] [data-pair]").first
    pair.wait_for(timeout=WAIT)
    pair.click()
    expect(page.locator("[data-testid=fx-selection]")).to_contain_text("(2 tokens)")
    expect(pair).to_have_attribute("aria-pressed", "true")
    assert "part=distances" in page.url
    again = open_page(page.evaluate("location.search"))
    again.locator("[data-testid=fx-stat-pairs] h3").first.wait_for(timeout=WAIT)


def test_a_table_fetched_from_the_dialog_has_the_bytes_of_its_command(open_page, database, tmp_path, monkeypatch):
    page = open_page()
    opener = page.locator("[data-testid=fx-export-open]")
    opener.focus()
    page.keyboard.press("Enter")
    command = page.locator("[data-testid=fx-export-command]")
    expect(command).to_contain_text("focus-explorer export", timeout=WAIT)
    page.locator("[data-field=table]").select_option("layers")
    page.locator("[data-field=only]").check()
    expect(command).to_contain_text("--layer")
    with page.expect_download(timeout=WAIT) as waiting:
        page.locator("[data-testid=fx-export-make]").click()
    fetched = tmp_path / "fetched.csv"
    waiting.value.save_as(fetched)
    assert len(list(csv.DictReader(fetched.open()))) == 1
    words = shlex.split(command.inner_text())
    words[words.index("--out") + 1] = str(tmp_path / "written.csv")
    assert main(words[1:]) == 0
    assert (
        hashlib.sha256(fetched.read_bytes()).digest()
        == hashlib.sha256((tmp_path / "written.csv").read_bytes()).digest()
    )
    address = page.locator("[data-testid=fx-export-link]").get_attribute("href")
    assert page.request.get(page.url.split("?")[0] + address + "x").status == 404
    page.keyboard.press("Escape")
    expect(page.locator("[data-testid=fx-export]")).to_have_count(0)
    expect(opener).to_be_focused()

    opener.click()  # what was not measured is said in one line, and the dialog still works
    page.locator("[data-testid=fx-export-command]:not(:empty)").wait_for(timeout=WAIT)
    page.locator("[data-field=kind-figure]").check(force=True)
    page.locator("[data-field=figure]").select_option("quality")
    page.locator("[data-field=figureFormat]").select_option("html")
    page.locator("[data-testid=fx-export-make]").click()
    problem = page.locator("[data-testid=fx-export-state] [role=alert]")
    expect(problem).to_contain_text("no comparisons", timeout=WAIT)
    assert "Traceback" not in problem.inner_text()
    expect(page.locator("[data-testid=fx-export-make]")).to_be_enabled()
    page.locator("[data-field=figure]").select_option("group_sizes")
    with page.expect_download(timeout=WAIT) as waiting:
        page.locator("[data-testid=fx-export-make]").click()
    assert waiting.value.suggested_filename.endswith("-group_sizes.html")


@pytest.mark.long
def test_a_mask_is_fetched_from_the_dialog_once_its_queries_are_in_the_text(open_page, tmp_path):
    page = open_page("?__theme=dark", size="narrow", scheme="dark")
    page.locator("[data-testid=fx-export-open]").click()
    command = page.locator("[data-testid=fx-export-command]")
    page.locator("[data-testid=fx-export-command]:not(:empty)").wait_for(timeout=WAIT)
    page.locator("[data-field=kind-mask]").check(force=True)
    expect(command).to_contain_text("--what mask --format parquet --layer")
    expect(command).not_to_contain_text("--rows")
    page.locator("[data-field=maskLayer]").select_option("3")
    page.locator("[data-field=maskFormat]").select_option("npz")
    first, last = page.get_by_label("First query token"), page.get_by_label("Last query token")
    problem = page.locator("[data-testid=fx-export-problem] [role=alert]")
    whole = int(last.input_value())
    for words, message in (("", "is empty"), ("nine", "is 'nine'"), (str(whole + 1), f"0 to {whole}")):
        first.fill(words)
        expect(problem).to_contain_text(message)
        expect(first).to_be_focused()
        expect(first).to_have_attribute("aria-invalid", "true")
        expect(last).to_have_attribute("aria-invalid", "false")
    first.fill("40")
    last.fill("20")
    expect(problem).to_contain_text("the first query, 40, comes after the last, 20")
    page.locator("[data-testid=fx-export-make]").click()  # says nothing new: it goes to what must be changed
    expect(first).to_be_focused()
    assert findings(page, within="[data-testid=fx-export]") == []
    last.fill("99")
    expect(command).to_contain_text("--rows 40:100")
    expect(problem).to_have_count(0)
    with page.expect_download(timeout=WAIT) as waiting:
        page.locator("[data-testid=fx-export-make]").click()
    assert waiting.value.suggested_filename.endswith("-mask-layer3-rows40-100.npz")
    waiting.value.save_as(tmp_path / "fetched.npz")
    words = shlex.split(command.inner_text())
    words[words.index("--out") + 1] = str(tmp_path / "written.npz")
    assert main(words[1:]) == 0
    assert (tmp_path / "written.npz").read_bytes() == (tmp_path / "fetched.npz").read_bytes()
    matrix = scipy.sparse.load_npz(tmp_path / "fetched.npz")
    assert matrix.shape == (whole + 1, whole + 1)
    assert set(matrix.tocoo().row.tolist()) == set(range(40, 100))
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


@pytest.mark.slow
@pytest.mark.long
def test_the_mask_of_heads_that_differ_is_fetched_from_the_dialog(tiny_page, tmp_path):
    open_one, service, _ = tiny_page
    own = (HeadException(layer=0, head=0, full=True), HeadException(layer=1, query_head=1, top_k=0, window=20))
    model = list_runs(service.database)[-1]["model_id"]
    how = AnalyzeRequest(model=model, centroids="random", top_k=1, window=8, repeats=1, budget=own)
    run_id = analyze(service, HARBOUR[:300], how)
    page = open_one(f"?run={run_id}&view=sparsity&layer=1&head=1&__theme=light")
    page.locator("[data-testid=fx-export-open]").click()
    command = page.locator("[data-testid=fx-export-command]")
    page.locator("[data-testid=fx-export-command]:not(:empty)").wait_for(timeout=WAIT)
    page.locator("[data-field=kind-mask]").check(force=True)
    heads = page.get_by_test_id("fx-export").get_by_label("Heads")
    expect(heads.locator("option:checked")).to_have_text("query head 1: no groups, window 20")
    expect(command).to_contain_text("--layer 1 --head 1")
    assert findings(page, within="[data-testid=fx-export]") == []
    page.locator("[data-field=maskLayer]").select_option("0")
    heads.select_option("head 0: full attention")
    tokens = fetch_run(service.database, run_id)["num_tokens"]
    expect(page.get_by_test_id("fx-export")).to_contain_text(f"This head keeps {tokens * (tokens + 1) // 2:,} pairs")
    heads.select_option("head 1: top-k 1, window 8")
    expect(command).to_contain_text("--layer 0 --head 1")
    page.locator("[data-field=maskFormat]").select_option("npz")
    expect(command).to_contain_text("--format npz --layer 0 --head 1")
    with page.expect_download(timeout=WAIT) as waiting:
        page.locator("[data-testid=fx-export-make]").click()
    assert waiting.value.suggested_filename == f"{run_id}-mask-layer0-head1.npz"
    waiting.value.save_as(tmp_path / "fetched.npz")
    words = shlex.split(command.inner_text())
    words[words.index("--out") + 1] = str(tmp_path / "written.npz")
    assert main(words[1:]) == 0
    assert (tmp_path / "written.npz").read_bytes() == (tmp_path / "fetched.npz").read_bytes()
    kept = scipy.sparse.load_npz(tmp_path / "fetched.npz").nnz
    expect(page.get_by_test_id("fx-export")).to_contain_text(f"This head keeps {kept:,} pairs")
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


@pytest.mark.long
@pytest.mark.slow
def test_random_centroids_measured_from_the_page_appear_with_every_number(tiny_page):
    open_one, service, _ = tiny_page
    run_id = list_runs(service.database)[-1]["run_id"]
    page = open_one(f"?run={run_id}&view=statistics")
    table(page, "fx-stat-run")
    line = page.locator("[data-stat=pairs_kept] td").nth(2)
    expect(line).to_have_text("–")
    page.locator("[data-testid=fx-stat-measure] button").first.click()
    expect(page.locator("[data-testid=fx-stat-measure] progress")).to_be_visible()
    expect(line).to_contain_text("%", timeout=120_000)
    stored = statistics_table(service.database, run_id, "statistics").to_pylist()
    (row,) = [row for row in stored if row["scope"] == "run" and row["statistic"] == "pairs_kept"]
    expect(line).to_contain_text(f"{100 * row['random']:.1f}")
    expect(page.locator("[data-testid=fx-stat-overview]")).to_contain_text("spaCy")


@pytest.mark.long
def test_a_figure_as_html_draws_without_a_network(chromium, database, first_run, tmp_path):
    path = write_figure(Service(database).database, first_run, "mask", "html", tmp_path / "mask.html")
    urls, problems = [], []
    page = chromium.new_page()
    page.on("request", lambda request: urls.append(request.url))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector("#figure .main-svg .bars path")
    assert "Executed mask" in page.inner_text("h1")
    page.close()
    assert urls == [path.as_uri()]
    assert not problems
