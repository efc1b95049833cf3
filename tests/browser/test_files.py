"""Runs, the SQL box, centroid files, the keyboard sheet, the tour and the one-file page, as a person uses them."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter

import pytest
from playwright.sync_api import expect

from focus_explorer.data.queries import fetch
from focus_explorer.usecases.centroids.files import add_centroids, uploaded_centroids
from focus_explorer.usecases.runs import list_runs
from focus_explorer.usecases.service import Service
from focus_explorer.web.notebook import show
from focus_runtime.config import FocusConfig
from focus_runtime.routing.centroid_file import save_centroids
from focus_runtime.routing.centroids import random_centroids
from tests.browser.conftest import unfold
from tests.browser.test_accessibility import findings
from tests.explorer.usecases.centroids.test_budgets import CONFIG, own_config, tuned_record
from tests.helpers import build_model

pytestmark = [pytest.mark.browser, pytest.mark.model]


@pytest.fixture(scope="module")
def two_runs(pair):
    """Ids of two runs in the served database, newest first."""
    return [row["run_id"] for row in list_runs(pair[0].database)[:2]]


def open_tab(page, name):
    unfold(page.get_by_role("tab", name=name, exact=True))


def item(page, run_id):
    return page.locator(f".fx-runs-item[data-run='{run_id}']")


def test_a_run_is_named_tagged_found_and_deleted_with_undo(open_page, database, two_runs):
    newest, other = two_runs
    page = open_page("?__theme=dark", size="narrow", scheme="dark", fresh=True)
    open_tab(page, "Runs")
    item(page, newest).get_by_test_id("fx-run-edit").click()
    page.get_by_label("Name", exact=True).fill("Harbour <b>study</b>")
    page.get_by_label("Tags, with commas between").fill("paper, draft")
    page.get_by_label("Note", exact=True).fill("look at layer 7")
    page.get_by_test_id("fx-runs-search").fill(newest)  # draws the list anew under the open form
    expect(item(page, other)).to_have_count(0)
    page.get_by_test_id("fx-runs-search").fill("")
    expect(page.get_by_label("Note", exact=True)).to_have_value("look at layer 7")
    page.get_by_role("button", name="Save").click()
    expect(item(page, newest)).to_contain_text("Harbour <b>study</b>")
    expect(item(page, newest).get_by_test_id("fx-run-edit")).to_be_focused()
    stored = {row["run_id"]: row for row in list_runs(Service(database).database)}[newest]
    assert (stored["name"], stored["tags"], stored["note"]) == (
        "Harbour <b>study</b>",
        ["draft", "paper"],
        "look at layer 7",
    )

    for find in ("STUDY", "LAYER 7", "draft", newest):
        page.get_by_test_id("fx-runs-search").fill(find)
        expect(page.locator(".fx-runs-item")).to_have_count(1)
        expect(item(page, newest)).to_be_visible()
    page.get_by_test_id("fx-runs-search").fill("")
    page.get_by_test_id("fx-runs-tag").select_option("paper")
    expect(item(page, other)).to_have_count(0)
    page.get_by_role("button", name="Clear filters").click()
    expect(item(page, other)).to_be_visible()

    item(page, newest).get_by_test_id("fx-run-delete").click()
    expect(item(page, newest)).to_have_count(0)
    assert newest not in {row["run_id"] for row in list_runs(Service(database).database)}
    expect(page.get_by_test_id("fx-runs-deleted")).to_contain_text("Deleted runs (1)")
    page.get_by_test_id("fx-run-undo").click()
    expect(item(page, newest)).to_be_visible()
    assert newest in {row["run_id"] for row in list_runs(Service(database).database)}
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


@pytest.mark.long
def test_two_runs_are_chosen_to_compare_one_is_reopened_and_the_sql_box_answers(
    open_page, database, two_runs, tmp_path
):
    newest, other = two_runs
    page = open_page(fresh=True)
    open_tab(page, "Runs")
    item(page, other).get_by_role("checkbox").check()
    item(page, newest).get_by_role("checkbox").check()
    link = page.get_by_test_id("fx-runs-compare").get_by_role("link", name="Compare the two")
    href = link.get_attribute("href")
    assert href == f"?run={other}&view=compare&part=runs&with={newest}"
    # followed in a page of its own: leaving a page makes Gradio's open streams complain in its console
    compared = open_page(href)
    expect(compared.get_by_role("radio", name="Another run")).to_be_checked()
    expect(compared.get_by_label("Other run", exact=True)).to_have_value(newest, timeout=20_000)
    again = open_page(item(page, other).get_by_role("link", name="Open").get_attribute("href"))
    assert again.evaluate("new URLSearchParams(location.search).get('run')") == other

    field, output = page.get_by_test_id("fx-sql"), page.get_by_test_id("fx-sql-output")
    field.fill("SELECT run_id, num_tokens, '<b>, \"x\"' AS odd FROM runs ORDER BY run_id")
    field.press("Control+Enter")
    expect(output).to_contain_text("rows in", timeout=20_000)
    expect(output).to_contain_text(two_runs[0])
    with page.expect_download() as waiting:
        page.get_by_test_id("fx-sql-csv").click()
    path = tmp_path / "query.csv"
    waiting.value.save_as(path)
    rows = list(csv.DictReader(path.open()))
    kept = {row["run_id"]: row["num_tokens"] for row in list_runs(Service(database).database)}
    assert {row["run_id"]: int(row["num_tokens"]) for row in rows} == kept
    assert {row["odd"] for row in rows} == {'<b>, "x"'}
    for sql, words in (
        ("DROP TABLE runs", "DROP is not allowed"),
        ("SELECT 1; SELECT 2", "2 statements"),
        ("SELECT * FROM read_text('/etc/hostname')", "Files, other databases"),
    ):
        field.fill(sql)
        page.get_by_test_id("fx-sql-run").click()
        expect(output.get_by_role("alert")).to_contain_text(words, timeout=20_000)
    page.get_by_role("button", name="Most lopsided layers").click()
    expect(output.locator("tbody tr")).to_have_count(20, timeout=20_000)


@pytest.mark.long
def test_a_bad_centroid_file_is_explained_and_good_ones_are_looked_into_and_compared(
    open_page, database, first_run, tmp_path
):
    from focus_runtime.models.loading import load_model

    model, _ = load_model("smollm2-135m")
    path = tmp_path / "five-groups.safetensors"
    save_centroids(random_centroids(model, FocusConfig(num_groups=5, top_k=1), seed=5), path)
    add_centroids(Service(database), path, path.name, None)
    page = open_page(fresh=True)
    open_tab(page, "Centroids")
    other = tmp_path / "other-model.safetensors"
    save_centroids(random_centroids(build_model(hidden_size=32), FocusConfig(num_groups=2, top_k=1)), other)
    page.locator("#fe-upload input[type=file]").set_input_files(other)
    expect(page.locator("#fe-report [role=alert]")).to_contain_text("width 32", timeout=60_000)
    shipped = page.locator(".fx-file-card", has_text="ships with the project")
    expect(shipped).to_have_count(3, timeout=60_000)  # the files are read for the first time
    card = shipped.filter(has_text="novels").filter(has_text="Focus at k=1: 25.08")
    expect(card).to_have_count(1)
    unused = page.locator(".fx-file-card", has_text="five-groups")
    expect(unused).to_contain_text("Not trained: random, seed 5")
    unused.get_by_test_id("fx-file-inspect").click()
    expect(page.locator(".fx-file-inside")).to_contain_text(
        "No run has used this file yet. Choose it on the Explore page"
    )
    expect(page.get_by_test_id("fx-file-layers")).to_be_hidden()
    card.get_by_test_id("fx-file-inspect").click()
    for hook in ("fx-file-balance", "fx-file-dominance", "fx-file-similarity"):
        expect(page.locator(f"[data-testid={hook}] .main-svg").first).to_be_visible(timeout=30_000)
    run = page.locator("[data-testid=fx-file-run] option", has_text=first_run).get_attribute("value")
    page.get_by_test_id("fx-file-run").select_option(run)
    layers = fetch(Service(database).database, "layers", run_id=first_run).to_pylist()
    line, even = page.evaluate("document.querySelector('[data-testid=fx-file-dominance]').data.map(({ y }) => [...y])")
    assert line == pytest.approx([layer["dominance"] for layer in layers], abs=1e-6)
    assert set(even) == {1 / 8}
    expect(page.get_by_test_id("fx-file-finding")).to_contain_text(f"{100 * max(line):.1f} % in layer")
    rows = fetch(Service(database).database, "assignments", run_id=first_run).to_pylist()
    sizes = Counter(row["top_group"] for row in rows if row["layer"] == 5)
    shares = [size / sizes.total() for size in sizes.values()]
    balance = -sum(share * math.log(share) for share in shares) / math.log(8)
    row = page.get_by_test_id("fx-file-layers").locator("tbody tr").nth(5)
    expect(row).to_contain_text(f"{balance:.3f}")  # on the screen without opening anything
    page.get_by_role("button", name="What does “balance” mean?").focus()
    expect(page.locator("#fe-centroid-list").get_by_test_id("fx-tooltip")).to_contain_text("entropy")
    assert findings(page, within="#fe-centroid-list") == []
    page.get_by_test_id("fx-file-layer").select_option("3")
    expect(page.locator(".fx-file-inside")).to_contain_text("Most alike in this layer")
    option = page.locator("[data-testid=fx-file-second] option", has_text="five-groups").get_attribute("value")
    page.get_by_test_id("fx-file-second").select_option(option)
    page.get_by_test_id("fx-file-compare").click()
    expect(page.locator("[data-testid=fx-file-distance] .main-svg").first).to_be_visible(timeout=30_000)
    expect(page.locator(".fx-file-changes")).to_contain_text("num groups")
    budget = page.locator(".fx-file-changes tr", has_text="budget").first.locator("td")
    words = r"^1 head in full, 3 heads without groups, .*, 8 query heads in full, \d+"
    expect(budget.first).to_have_text(re.compile(words))
    expect(budget.last).to_have_text("none")
    unused.get_by_test_id("fx-file-rename").click()
    unused.get_by_label("New name of five-groups").fill("default")
    unused.get_by_role("button", name="Save").click()
    expect(unused.get_by_role("alert")).to_contain_text("another file is called 'default'", ignore_case=True)
    unused.get_by_role("button", name="Back").click()
    unused.get_by_test_id("fx-file-rename").click()
    unused.get_by_label("New name of five-groups").fill("renamed.safetensors")
    page.keyboard.press("Enter")
    renamed = page.locator(".fx-file-card", has_text="renamed.safetensors")
    expect(renamed).to_contain_text("no run yet")
    renamed.get_by_test_id("fx-file-use").click()
    chosen = page.locator("#fe-centroids input")
    expect(chosen).to_have_value(re.compile("renamed.safetensors"), timeout=20_000)
    open_tab(page, "Centroids")
    renamed.get_by_test_id("fx-file-remove").click()
    expect(renamed).to_contain_text("No run used it.")
    assert findings(page, within="#fe-centroid-list") == []
    renamed.get_by_test_id("fx-file-keep").click()
    renamed.get_by_test_id("fx-file-remove").click()
    renamed.get_by_test_id("fx-file-remove-sure").click()
    expect(renamed).to_have_count(0)
    assert "renamed.safetensors" not in [row["name"] for row in uploaded_centroids(Service(database).database)]
    expect(chosen).to_have_value("default", timeout=20_000)
    card.get_by_test_id("fx-file-use").click()
    expect(chosen).to_have_value("novels", timeout=20_000)


@pytest.mark.long
def test_a_measured_budget_is_drawn_and_used_by_one_click(tiny_page, tmp_path):
    from focus_runtime.models.loading import load_model

    open_one, service, text = tiny_page
    model, _ = load_model(str(text.parent / "tiny"))
    made = random_centroids(model, CONFIG, seed=3)
    made.config, made.training = own_config(), {"budget": tuned_record()}
    save_centroids(made, tmp_path / "tuned.safetensors")
    add_centroids(service, tmp_path / "tuned.safetensors", "tuned.safetensors", None)
    page = open_one(size="narrow")
    page.add_style_tag(content="* { transition: none !important; }")  # colours on their way are neither
    open_tab(page, "Centroids")
    card = page.locator(".fx-file-card", has_text="tuned.safetensors")
    expect(card).to_contain_text("budget: 1 head in full, 1 head with another top-k", timeout=60_000)
    card.get_by_test_id("fx-file-inspect").click()
    expect(page.locator("[data-testid=fx-file-budgets] .main-svg").first).to_be_visible(timeout=30_000)
    expect(page.get_by_test_id("fx-file-held-out")).to_contain_text("+0.40\u00a0% to +1.80\u00a0%")
    assert findings(page, within="#fe-centroid-list") == []
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    page.get_by_role("button", name="Use the budget with 52\u00a0% of pairs").click()
    expect(page.locator("#fe-centroids input")).to_have_value(re.compile("tuned, 52 % of pairs"), timeout=20_000)
    expect(page.locator("#fe-window input")).to_have_value("8")


def test_shortcuts_work_and_rest_while_typing(open_page):
    page = open_page(fresh=True)
    layer = page.locator(".fx-layer-number")
    before = int(layer.inner_text())
    page.keyboard.press("]")
    expect(layer).to_have_text(str(before + 1))
    page.keyboard.press("[")
    expect(layer).to_have_text(str(before))
    page.keyboard.press("2")
    second = page.locator("#fe-view .fx-tabs [role=tab]").nth(1)
    expect(second).to_have_attribute("aria-selected", "true")
    page.keyboard.press("1")
    page.get_by_role("button", name="Another text").click()
    page.locator("#fe-text textarea").focus()
    page.keyboard.type("]2?")
    expect(layer).to_have_text(str(before))
    expect(page.get_by_test_id("fx-keys")).to_have_count(0)
    assert "]2?" in page.locator("#fe-text textarea").input_value()
    page.get_by_test_id("fx-keys-open").focus()
    page.evaluate("window.scrollTo(0, 500)")
    page.keyboard.press("?")
    sheet = page.get_by_test_id("fx-keys")
    expect(sheet).to_be_visible()
    box = sheet.bounding_box()
    assert 0 <= box["y"] <= box["y"] + box["height"] <= page.viewport_size["height"]  # however the page is scrolled
    assert sheet.evaluate("node => node.scrollTop") == 0
    expect(sheet).to_contain_text("The first few tokens of a text, which all may see")
    for part in ("What the words mean", "The text", "Path of a token", "The mask"):
        expect(sheet.get_by_role("heading", name=part, exact=True)).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("fx-keys")).to_be_hidden()


def walk_the_tour(page):
    """Every step stands whole in the window, also beside a target taller than it, when the page has scrolled there."""
    tour = page.get_by_test_id("fx-tour")
    for number in range(1, 7):
        expect(tour).to_contain_text(f"{number} of 6")
        page.wait_for_function(
            "() => new Promise(end => { const y = scrollY; setTimeout(() => end(y === scrollY), 400) })"
        )
        box = tour.bounding_box()
        assert 0 <= box["y"] <= box["y"] + box["height"] <= page.viewport_size["height"], (number, box)
        assert 0 <= box["x"] <= box["x"] + box["width"] <= page.viewport_size["width"], (number, box)
        if number < 6:
            page.keyboard.press("ArrowRight" if number % 2 else "Enter")


@pytest.mark.long
def test_the_tour_starts_only_on_request_stands_in_the_window_and_ends_for_good(open_page):
    page = open_page(fresh=True)  # a program drives it
    page.wait_for_timeout(600)
    expect(page.get_by_test_id("fx-tour")).to_have_count(0)
    page.get_by_test_id("fx-keys-open").click()
    page.get_by_test_id("fx-tour-again").click()
    walk_the_tour(page)
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("fx-tour")).to_have_count(0)
    assert page.evaluate("localStorage.getItem('fx-tour-done')") == "1"
    linked = open_page("?tour=on", size="narrow", fresh=True)
    walk_the_tour(linked)
    linked.get_by_test_id("fx-tour-skip").click()
    expect(linked.get_by_test_id("fx-tour")).to_have_count(0)
    page.get_by_test_id("fx-keys-open").click()
    page.get_by_test_id("fx-tour-again").click()
    page.locator("#fe-text textarea").fill("")
    page.locator("#fe-run").click()  # who explores needs no tour over the result
    expect(page.get_by_test_id("fx-tour")).to_have_count(0)


def static_export(shown):
    """The HTML that nbconvert makes of a notebook whose one cell shows a run."""
    from nbconvert import HTMLExporter
    from nbformat.v4 import new_code_cell, new_notebook, new_output

    data = {"text/html": shown._repr_html_(), "text/plain": repr(shown)}
    cell = new_code_cell("show(run)", outputs=[new_output("execute_result", data, execution_count=1)])
    return HTMLExporter().from_notebook_node(new_notebook(cells=[cell]))[0]


@pytest.mark.long  # tests/browser/test_old_links.py reads one
@pytest.mark.parametrize("name", ["run", "notebook", "export"])
def test_the_one_file_page_works_from_disk(chromium, database, two_runs, tmp_path, name):
    """A saved run, its frame as a notebook's web view draws it, and nbconvert's export; all without a network."""
    shown = show(two_runs[1], database=database)
    if name == "run":
        shown.save(tmp_path / "run.html")
    else:
        frame = static_export(shown) if name == "export" else f"<!doctype html>{shown._repr_html_()}"
        (tmp_path / f"{name}.html").write_text(frame, encoding="utf-8")
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, offline=True)
    problems = []
    page = context.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"file://{tmp_path}/{name}.html")
    inside = page if name == "run" else page.frame_locator("iframe")
    expect(inside.get_by_test_id("fx-header")).to_be_visible(timeout=30_000)
    colours = inside.locator("span.fx-token").evaluate_all(
        "tokens => tokens.map((token) => getComputedStyle(token).backgroundColor)"
    )
    assert len(colours) > 10
    assert len(set(colours)) > 2, name  # a colour for each group
    inside.locator("span.fx-token").nth(40).click()
    expect(inside.get_by_test_id("fx-predictions")).to_be_visible()
    inside.locator("[role=tab][data-view=sparsity]").click()
    expect(inside.locator("[data-testid=fx-mask] .main-svg").first).to_be_visible(timeout=30_000)
    context.close()
    assert problems == []


def test_programs_call_the_page_by_stable_names(tiny_site):
    from gradio_client import Client

    url, service, _ = tiny_site
    client, first = Client(url, verbose=False), list_runs(service.database)[-1]["run_id"]
    assert first in [row["run_id"] for row in client.predict(api_name="/runs")]
    groups = client.predict(first, api_name="/groups")
    assert {row["run_id"] for row in groups} == {first}
    made = client.predict("One ship, two ships, and no ships at all. " * 4, api_name="/analyze")
    assert client.predict(made["run_id"], api_name="/run")["num_tokens"] == made["num_tokens"]
    client.predict(made["run_id"], api_name="/delete")
    with pytest.raises(Exception, match="was deleted"):
        client.predict(made["run_id"], api_name="/run")
