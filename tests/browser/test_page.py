"""The page as a person meets it, driven in headless Chromium from paste to download."""

from __future__ import annotations

import csv
import json
import re
import statistics

import pytest
from playwright.sync_api import expect

from focus_explorer.data.queries import fetch
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.labels import delete_run
from focus_explorer.usecases.run_payload import load_run
from focus_explorer.usecases.runs import list_runs, run_summary, run_text
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.texts import sample_text
from focus_runtime.config import FocusConfig
from focus_runtime.routing.centroid_file import save_centroids
from focus_runtime.routing.centroids import random_centroids
from tests.browser.conftest import lead, opening, reload, serving, unfold
from tests.helpers import build_model, build_tokenizer

pytestmark = [pytest.mark.browser, pytest.mark.model]
TEXT = "The lighthouse keeper counted the ships. One ship, two ships, and then <b>no</b> ships at all.\n" * 8


def stored(service, run_id):
    return fetch(service.database, "assignments", run_id=run_id).to_pylist()


def shown_run(page):
    return page.evaluate("new URLSearchParams(location.search).get('run')")


def open_form(page):
    """Once it holds the run's text: what is typed while that arrives may be replaced by it."""
    page.get_by_role("button", name="Another text").click()
    expect(page.locator("#fe-text textarea")).not_to_have_value(sample_text("Novel"))


def set_layer(page, layer):
    slider = page.locator("[data-testid=fx-layer] input[type=range], input[type=range][data-testid=fx-layer]").first
    slider.evaluate("(s, v) => { s.value = v; s.dispatchEvent(new Event('input', {bubbles: true})); }", layer)


def test_a_run_shows_its_text_groups_and_numbers_and_switches_layers_at_once(open_page, database):
    page = open_page(fresh=True)
    run_id = shown_run(page)
    service = Service(database)
    pieces = [row["piece"] for row in fetch(service.database, "tokens", run_id=run_id).to_pylist()]
    spans = page.locator("span.fx-token")
    assert spans.count() == len(pieces)
    assert page.evaluate("window.hacked") is None
    assert "<script>" in page.locator("[data-testid=fx-tokens]").inner_text()
    expect(page.locator("#fe-text textarea")).to_have_value(run_text(service.database, run_id))
    expect(page.locator("#fe-sample input:checked")).to_have_count(0)  # it is none of the samples
    measured = run_summary(service.database, run_id)["milliseconds"]
    full, focus = (measured["attention"][mode]["median"] for mode in ("full", "focus"))
    assert measured["routing"]["focus"]["median"] > 0.02 * focus  # enough to be seen in two digits, were it added
    expect(page.locator(".fx-card").last).to_contain_text(f"{focus / full:.2f}×")

    page.wait_for_timeout(1500)  # let the page finish its own start-up requests
    rows, urls, times = stored(service, run_id), [], []
    page.on("request", lambda request: urls.append(request.url))
    for layer in (0, 7, 29, 4, 19):
        set_layer(page, layer)
        expected = [row["top_group"] for row in rows if row["layer"] == layer]
        actual = page.eval_on_selector_all("span.fx-token", "spans => spans.map(s => Number(s.dataset.group))")
        assert actual == expected
        page.wait_for_timeout(100)
        times.append(float(page.locator("#fe-view .fx-root").get_attribute("data-switch-ms")))
    assert statistics.median(times) < 100  # other tests run beside this one
    assert [url for url in urls if "component_server" in url] == []

    spans.nth(5).hover()
    tip = page.locator("[data-testid=fx-tooltip]")
    expect(tip).to_be_visible()
    for part in ("A", "B", "C", "D", "%"):
        expect(tip).to_contain_text(part)
    card = page.locator("[data-testid=fx-legend] [aria-pressed]").first
    card.focus()
    page.keyboard.press("Enter")
    expect(card).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Enter")
    expect(card).to_have_attribute("aria-pressed", "false")


@pytest.mark.parametrize("size", ["wide", "narrow"])
def test_a_run_of_a_link_has_the_place_until_another_text_is_wanted(open_page, size):
    page = open_page("?view=tokens&layer=4", size=size)
    before = page.evaluate("location.href")
    expect(page.locator("#fe-text textarea")).to_be_hidden()
    top = page.locator("[data-testid=fx-tokens] .fx-token").first.bounding_box()["y"]
    assert top < (500 if size == "wide" else 700)  # of 900 and of 844
    page.get_by_role("button", name="Another text").click()
    expect(page.locator("#fe-text textarea")).to_be_focused()
    expect(page.locator("#fe-text textarea")).to_be_in_viewport()
    assert page.evaluate("location.href") == before
    page.get_by_role("button", name="Hide the form").click()
    expect(page.locator("#fe-text textarea")).to_be_hidden()


TIMED_AGAIN = """
async ([payload, timings]) => {
  const root = document.createElement("div");
  document.body.replaceChildren(root);
  const answers = { timings: { timings } };
  const server = { load_run: async () => payload, ask: async ({ what }) => answers[what] ?? { error: "not here" } };
  window.again = FocusExplorer.create(root, server);
  await window.again.open(payload.run.run_id, true);
}
"""


@pytest.mark.long
def test_times_of_a_long_text_come_after_it_is_shown(open_page, database):
    page = open_page(fresh=True)
    service = Service(database)
    run_id = shown_run(page)
    payload = load_run(service.database, run_id)
    half = [
        row | {name: row[name] / 2 for name in ("median", "low", "high")} | {"repeats": 9} for row in payload["timings"]
    ]
    page.evaluate(TIMED_AGAIN, [payload, half])
    chip, ratio = page.get_by_test_id("fx-timing"), page.locator(".fx-card").last
    expect(chip).to_contain_text("measured twice so far")
    before = ratio.inner_text()
    page.evaluate("run => window.again.renewTimings(run, true)", run_id)
    expect(chip).to_contain_text("measured 9 times so far")
    assert ratio.inner_text() != before
    page.evaluate("() => window.again.renewTimings('another run', false)")
    expect(chip).to_be_visible()
    page.evaluate("run => window.again.renewTimings(run, false)", run_id)
    expect(chip).to_have_count(0)


def test_a_deleted_run_of_a_link_is_brought_back(tiny_page):
    open_one, service, text = tiny_page
    like = AnalyzeRequest(model=str(text.parent / "tiny"), centroids="random", top_k=1, window=8, repeats=1)
    run_id = analyze(service, TEXT[:200], like)
    delete_run(service, run_id)
    page = open_one(f"?run={run_id}", ready="[data-testid=fx-deleted]")
    page.wait_for_timeout(2000)  # the load event of the page must not open another run over it
    page.get_by_role("button", name="Bring it back").click()
    page.wait_for_selector("[data-testid=fx-header]", timeout=60_000)
    assert shown_run(page) == run_id
    assert run_id in {run["run_id"] for run in list_runs(service.database)}


def test_the_keyboard_skips_the_form_and_the_link_is_copied(open_page):
    page = open_page("?view=tokens&layer=9&sel=t1i", fresh=True)
    page.keyboard.press("Tab")
    expect(page.locator(".fe-skip")).to_be_focused()
    expect(page.locator(".fe-skip")).to_be_in_viewport()
    page.keyboard.press("Enter")
    for _ in range(3):
        page.keyboard.press("Tab")
        assert page.evaluate("document.querySelector('#fe-view').contains(document.activeElement)")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.evaluate("location.href")
    assert "sel=t1i" in copied


@pytest.mark.parametrize(("size", "scheme"), [("wide", "light"), ("narrow", "dark")])
def test_every_view_draws(open_page, size, scheme):
    page = open_page(f"?__theme={scheme}", size=size, scheme=scheme)
    for name, hook in (("Map", "fx-map"), ("Sparsity", "fx-mask"), ("Compare", "fx-loss-chart")):
        page.get_by_role("tab", name=name).click()
        chart = page.locator(f"[data-testid={hook}] .main-svg").first
        expect(chart).to_be_visible(timeout=60_000)
        assert chart.bounding_box()["height"] > 150
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


@pytest.mark.long
def test_the_form_is_filled_like_the_run_of_the_link_but_for_what_was_typed(chromium, page_url, first_run):
    with opening(chromium, page_url) as open_one:
        window = open_one(f"?run={first_run}", fresh=True).locator("#fe-window input")
        expect(window).to_have_value("16")  # not 128, with which the form begins

    with opening(chromium, page_url) as open_one:
        waiting = []
        page = open_one(
            f"?run={first_run}", before=lambda page: page.route("**/queue/join*", lambda route: waiting.append(route))
        )
        window = page.locator("#fe-window input")
        page.get_by_role("button", name="Another text").click()
        window.fill("12")  # the run is shown; the answer that fills the form is still on its way
        assert waiting
        page.unroute("**/queue/join*")  # which lets the held requests go
        page.wait_for_timeout(1000)
        expect(window).to_have_value("12")


def wait_for_another_run(page, before):
    page.wait_for_function(
        "old => { const run = new URLSearchParams(location.search).get('run'); return run && run !== old; }",
        arg=before,
        timeout=120_000,
    )
    return shown_run(page)


def test_a_text_is_counted_refused_with_one_message_then_explored_reopened_and_fetched(tiny_page, tmp_path):
    open_one, service, _ = tiny_page
    page = open_one(f"?run={list_runs(service.database)[0]['run_id']}", fresh=True)
    before = shown_run(page)
    open_form(page)
    page.locator("#fe-text textarea").fill(TEXT)
    expect(page.locator("#fe-tokens")).to_contain_text(re.compile(r"^\s*\d+ tokens\s*$"), timeout=60_000)
    expect(page.locator("#fe-whole")).to_have_count(0)
    unfold(page.get_by_role("button", name="More settings"))
    page.locator("#fe-limit input").fill("20")
    expect(page.locator("#fe-tokens")).to_contain_text("will be cut to the first 20", timeout=60_000)
    page.locator("#fe-whole").click()
    expect(page.locator("#fe-limit input")).to_have_value("0")
    expect(page.locator("#fe-tokens")).not_to_contain_text("cut")

    message = page.locator("#fe-status [role=alert], #fe-status [role=status]")
    for text, part in (("   ", "The text is empty"), ("a", "1 token")):
        page.locator("#fe-text textarea").fill(text)
        page.locator("#fe-run").click()
        expect(message).to_contain_text(part, timeout=60_000)
        assert shown_run(page) == before
        assert page.locator("span.fx-token").count() > 0
    assert "Traceback" not in page.locator("body").inner_text()

    page.locator("#fe-text textarea").fill(TEXT)
    page.locator("#fe-window input").fill("12")
    page.locator("#fe-run").click()
    run_id = wait_for_another_run(page, before)
    expect(page.locator("[data-testid=fx-tokens]")).to_contain_text("lighthouse")
    summary = run_summary(service.database, run_id)
    header = page.locator("[data-testid=fx-header]").inner_text()
    assert f"{summary['perplexity']['focus']:.1f}" in header  # of 100 and more one digit is shown
    assert summary["config"]["window"] == 12

    again = open_one(f"?run={run_id}&layer=1")
    expect(again.locator("[data-testid=fx-tokens]")).to_contain_text("lighthouse")
    rows = [row["top_group"] for row in stored(service, run_id) if row["layer"] == 1]
    assert again.eval_on_selector_all("span.fx-token", "s => s.map(x => Number(x.dataset.group))") == rows

    page.get_by_role("tab", name="Runs").click()
    expect(page.locator("#fe-runs")).to_contain_text(run_id)
    page.locator(f"#fe-runs [data-run='{run_id}'] [data-testid=fx-run-export]").click()
    for file_format in ("csv", "json"):
        page.locator("[data-field=format]").select_option(file_format)
        expect(page.locator("[data-testid=fx-export-command]")).to_contain_text(f"--format {file_format}")
        with page.expect_download() as waiting:
            page.locator("[data-testid=fx-export-make]").click()
        path = tmp_path / f"groups.{file_format}"
        waiting.value.save_as(path)
        downloaded = list(csv.DictReader(path.open())) if file_format == "csv" else json.loads(path.read_text())
        assert len(downloaded) == 2 * summary["config"]["num_groups"]
        assert {row["run_id"] for row in downloaded} == {run_id}


def test_uploaded_centroids_are_used_in_the_next_run(tiny_page, tmp_path):
    from focus_runtime.models.loading import load_model

    open_one, service, text = tiny_page
    page = open_one()
    page.get_by_role("tab", name="Centroids").click()
    path = tmp_path / "six-groups.safetensors"
    model, _ = load_model(str(text.parent / "tiny"))
    save_centroids(random_centroids(model, FocusConfig(num_groups=6, top_k=1)), path)
    page.locator("#fe-upload input[type=file]").set_input_files(path)
    expect(page.locator("#fe-report")).to_contain_text("six-groups.safetensors is valid", timeout=60_000)
    expect(page.locator("#fe-centroid-list")).to_contain_text("six-groups.safetensors")
    page.get_by_role("tab", name="Explore").click()
    before = shown_run(page)
    page.locator("#fe-text textarea").fill(TEXT)
    page.locator("#fe-run").click()
    expect(page.locator("#fe-text textarea")).to_be_hidden(timeout=120_000)  # the result has the place
    run_id = wait_for_another_run(page, before)
    assert run_summary(service.database, run_id)["config"]["num_groups"] == 6
    expect(page.locator("[data-testid=fx-header]")).to_contain_text("K = 6 groups")


def test_unknown_run_in_the_link_is_explained(open_page):
    page = open_page("?run=20000101-000000-abcdef", fresh=True)
    expect(page.locator("#fe-notice [role=alert]")).to_contain_text("20000101-000000-abcdef")


@pytest.mark.long
def test_stop_keeps_nothing_and_the_page_still_works(open_page, database):
    page = open_page(fresh=True)
    before = len(list_runs(Service(database).database))
    open_form(page)
    page.locator("#fe-text textarea").fill(TEXT * 16)  # long enough to be stopped on any machine
    page.locator("#fe-run").click()
    page.wait_for_selector("#fe-status .fe-progress")
    page.locator("#fe-stop").click()
    expect(page.locator("#fe-status")).to_contain_text("Stopped", timeout=20_000)
    page.wait_for_timeout(3000)
    assert len(list_runs(Service(database).database)) == before
    expect(page.locator("#fe-stop")).to_be_disabled()


@pytest.fixture
def tiny_folder(tmp_path):
    """A model folder that is explored within seconds."""
    folder = tmp_path / "model"
    build_model(vocab_size=512).save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return folder


def first_start(tmp_path, model, port):
    return serving("--db", tmp_path / "new" / "runs.duckdb", "--model", model, "--centroids", "random", port=port)


@pytest.mark.long
def test_a_first_visit_that_fails_is_tried_again_and_two_visitors_see_its_stages_and_share_the_run(
    chromium, tiny_folder, tmp_path
):
    config = tiny_folder / "config.json"
    kept = config.read_text()
    config.write_text("{")
    with first_start(tmp_path, tiny_folder, 7956) as url:
        pages = [chromium.new_page() for _ in range(2)]
        pages[0].goto(url)
        expect(pages[0].locator("#fe-first [role=alert]")).to_contain_text("cannot be loaded", timeout=120_000)
        pages[1].goto(url)  # the failure is still there for the next visitor
        expect(pages[1].locator("#fe-first [role=alert]")).to_contain_text("cannot be loaded", timeout=60_000)
        config.write_text(kept)
        pages[0].locator("#fe-retry").click()
        stage = pages[0].locator("#fe-first .fe-progress")
        stage.wait_for()
        stages = set()
        reload(pages[1])
        while stage.count():
            stages.add(pages[0].evaluate("document.querySelector('#fe-first .fe-progress')?.innerText"))
            pages[0].wait_for_timeout(50)
        for page in pages:
            page.wait_for_selector("[data-testid=fx-header]", timeout=120_000)
            expect(page.locator("#fe-first")).to_have_count(0)
            expect(page.locator("#fe-retry")).to_have_count(0)
        assert len(stages - {None}) > 1
        assert shown_run(pages[0]) == shown_run(pages[1])
        assert len(list_runs(Service(tmp_path / "new" / "runs.duckdb").database)) == 1
        for page in pages:
            page.close()


def test_a_view_that_does_not_exist_is_the_first_one(open_page, first_run):
    page = open_page("?view=map")
    for view in ("__proto__", "nonsense"):
        lead(page, f"?run={first_run}&view={view}")
        expect(page.get_by_role("tab", name="Tokens")).to_have_attribute("aria-selected", "true")


def test_a_phone_shows_one_sentence_and_the_text_first(open_page):
    """The facts come on request, by keyboard too, and go again; a wide screen shows them all."""
    wide = open_page()
    sentences = wide.get_by_test_id("fx-answer").locator("p")
    assert sentences.count() > 1
    expect(sentences.last).to_be_visible()
    expect(wide.locator(".fx-cards")).to_be_visible()
    expect(wide.get_by_role("button", name="Details of this run")).to_be_hidden()
    narrow = open_page("?view=tokens", size="narrow")
    more = narrow.get_by_role("button", name="Details of this run")
    sentences = narrow.get_by_test_id("fx-answer").locator("p")
    folded = (sentences.last, narrow.locator(".fx-cards"), narrow.locator(".fx-about"))
    expect(sentences.first).to_be_visible()
    for fact in folded:
        expect(fact).to_be_hidden()
    assert narrow.locator("[data-testid=fx-tokens] .fx-token").first.bounding_box()["y"] < 700
    for expanded in ("true", "false"):
        more.press("Enter")
        expect(more).to_have_attribute("aria-expanded", expanded)
        for fact in folded:
            expect(fact).to_be_visible(visible=expanded == "true")
    expect(more).to_be_focused()


@pytest.mark.long
def test_a_long_name_covers_no_tab(open_page):
    """As after a translation by the browser: name, tabs and help share a line."""
    page = open_page(before=lambda page: page.set_viewport_size({"width": 1000, "height": 900}))
    page.locator(".fe-masthead h1").evaluate("h1 => { h1.textContent = 'Explorador de enfoque de atención'; }")
    for name in ("Training", "Explore"):
        page.get_by_role("tab", name=name, exact=True).click(timeout=5000)
        expect(page.get_by_role("tab", name=name, exact=True)).to_have_attribute("aria-selected", "true")
    page.get_by_test_id("fx-keys-open").click(timeout=5000)
    expect(page.get_by_test_id("fx-keys")).to_be_visible()
