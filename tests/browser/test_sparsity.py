"""The sparsity view as a person uses it: closer into the mask, pairs by distance, attention measured on demand."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

from focus_explorer.data.parts import executed
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.runs import list_runs, run_config
from focus_explorer.usecases.service import Service
from focus_runtime.budget import HeadException
from focus_runtime.config import FocusConfig
from focus_runtime.fit.calibrate import calibrate_potentials
from focus_runtime.models.loading import load_model
from focus_runtime.routing.centroid_file import save_centroids
from focus_runtime.routing.centroids import random_centroids
from tests.browser.test_accessibility import PANEL, findings

pytestmark = [pytest.mark.browser, pytest.mark.model]


def run_id_of(page):
    return page.evaluate("new URLSearchParams(location.search).get('run')")


def open_mask(open_page, layer=6, **options):
    page = open_page(f"?view=sparsity&layer={layer}", **options)
    page.locator("[data-testid=fx-mask] .nsewdrag").first.wait_for(timeout=30_000)
    return page


def zoomed(page, act):
    page.evaluate("document.querySelector('#fe-view .fx-root').dataset.zoomMs = ''")
    act()
    page.wait_for_function("document.querySelector('#fe-view .fx-root').dataset.zoomMs !== ''", timeout=10_000)
    return float(page.locator("#fe-view .fx-root").get_attribute("data-zoom-ms"))


def area(page):
    plot = page.locator("[data-testid=fx-mask]")
    plot.scroll_into_view_if_needed()
    return plot.locator(".nsewdrag").first.bounding_box()


def shown_tile(page):
    return page.evaluate(
        """() => { const trace = document.querySelector('[data-testid=fx-mask]').data[0];
        return {z: trace.z.map(row => [...row]), x: [...trace.x], y: [...trace.y]}; }"""
    )


@pytest.mark.long
def test_zoom_reaches_single_pairs_that_are_the_models(open_page, database):
    page = open_mask(open_page)
    level = page.locator("[data-testid=fx-mask-level]")
    expect(level).not_to_contain_text("one pair")
    whole = level.inner_text()
    button = page.locator(".fx-mask-zoom button").first
    zoomed(page, button.click)
    first = [zoomed(page, button.click) for _ in range(2)]
    zoomed(page, lambda: page.get_by_role("button", name="Whole mask").click())
    zoomed(page, button.click)
    again = [zoomed(page, button.click) for _ in range(2)]
    assert max(map(min, first, again)) < 500  # both steps, the quicker of two: other tests run beside this one
    expect(level).to_contain_text("Each cell is one pair of tokens")
    rows = fetch(Service(database).database, "assignments", run_id=run_id_of(page)).to_pylist()
    groups = [row["membership"] for row in rows if row["layer"] == 6]
    run = fetch(Service(database).database, "run", run_id=run_id_of(page)).to_pylist()[0]
    sinks = int(re.search(r'"num_sinks": (\d+)', run["config"])[1])
    tile = shown_tile(page)
    for row, i in zip(tile["z"], tile["y"], strict=True):
        for value, j in zip(row, tile["x"], strict=True):
            near, shared = i - j <= 16, bool(groups[int(i)] & groups[int(j)])
            cause = (2 if shared else 0) if near else 1 if shared else 3 if j < sinks else 4
            assert value == (None if j > i else cause)

    box, times = area(page), []
    for _ in range(2):
        times.append(zoomed(page, lambda: drag(page, box)))
        expect(level).not_to_have_text(whole)
        zoomed(page, lambda: page.get_by_role("button", name="Whole mask").click())
        expect(level).to_have_text(whole)
    assert min(times) < 500


def drag(page, box):
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] * 0.6)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.9, steps=5)
    page.mouse.up()


def test_a_pair_explains_itself_and_selects_both_tokens(open_page):
    page = open_mask(open_page)
    button = page.locator(".fx-mask-zoom button").first
    for _ in range(3):
        zoomed(page, button.click)
    box = area(page)
    x, y = box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.8
    page.mouse.move(x, y)
    tip = page.locator("[data-testid=fx-tooltip]")
    expect(tip).to_contain_text(re.compile("Kept|Dropped"))
    expect(tip).to_contain_text("Query")
    page.mouse.click(x, y)
    bar = page.locator("[data-testid=fx-selection]")
    expect(bar).to_contain_text(re.compile(r"tokens \d+ and \d+ \(2 tokens\)"))
    assert float(page.locator("#fe-view .fx-root").get_attribute("data-select-ms")) < 150
    path = page.evaluate("document.querySelector('[data-testid=fx-mask]').layout.shapes[0].path")
    assert path.count("M") == 2  # one bar on each axis
    page.get_by_role("tab", name="Tokens").click()
    expect(bar).to_be_visible()


def test_a_pair_and_a_block_are_chosen_by_keyboard_alone(open_page):
    page = open_mask(open_page)
    plot, description = page.get_by_test_id("fx-mask"), page.get_by_test_id("fx-mask-description")
    bar = page.get_by_test_id("fx-selection")
    plot.focus()
    page.keyboard.press("Enter")
    expect(description).to_contain_text(re.compile(r"Cursor on queries \d+–\d+, keys \d+–\d+: .+ \(\d+"))
    assert page.evaluate("document.querySelector('[data-testid=fx-mask]').layout.shapes.length") == 2
    there = description.inner_text()
    page.keyboard.press("ArrowDown")
    expect(description).not_to_have_text(there)
    block = re.search(r"queries \d+–\d+", description.inner_text())[0]
    page.keyboard.press("Enter")
    expect(bar).to_contain_text(block)
    page.keyboard.press("Escape")  # leaves the cursor and keeps what it chose
    expect(description).to_contain_text("Enter shows a cursor")
    expect(bar).to_contain_text(block)

    for _ in range(4):
        zoomed(page, lambda: page.keyboard.press("+"))
    expect(page.get_by_test_id("fx-mask-level")).to_contain_text("one pair")
    page.keyboard.press("Enter")
    for _ in range(30):  # further than this part of the mask is wide: the picture moves along
        page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(400)
    expect(description).to_contain_text(re.compile(r"query token \d+ “.+” and key token \d+ “.+”. (Kept|Dropped)"))
    query, key = re.search(r"query token (\d+) .* key token (\d+)", description.inner_text()).groups()
    before = shown_tile(page)["x"][0]
    zoomed(page, lambda: page.keyboard.press("Shift+ArrowUp"))
    expect(description).to_contain_text(re.compile(rf"query token {query} .* key token {key} "))
    assert shown_tile(page)["x"][0] == before
    page.keyboard.press("Enter")
    expect(bar).to_contain_text(f"tokens {query} and {key} (2 tokens)")


def test_terms_explain_themselves_to_the_keyboard(open_page):
    page = open_mask(open_page)
    tip = page.locator("#fe-view").get_by_test_id("fx-tooltip")
    page.get_by_test_id("fx-header").locator("summary").first.click()  # how it was run is folded away
    for term, words in (("how it was run", "float32 is the format"), ("near, same group, both", "at most 16 apart")):
        page.get_by_role("button", name=f"What does “{term}").focus()
        expect(tip).to_contain_text(words)
    page.get_by_role("tab", name="Compare", exact=True).click()
    page.locator("[data-testid=fx-compare] ~ section").get_by_role("button", name="“nats” mean").focus()
    expect(tip).to_contain_text("natural logarithm")
    page.get_by_role("tab", name="Tokens", exact=True).click()
    page.get_by_test_id("fx-legend").get_by_role("button", name="“Groups” mean").focus()
    expect(tip).to_contain_text("confidence (the mean probability of the group")


@pytest.mark.long
def test_rows_of_both_tables_choose_their_tokens_and_their_layer(open_page):
    page = open_mask(open_page)
    page.get_by_text("this layer by block of query tokens").click()
    button = page.get_by_role("button", name=re.compile("^Select queries")).nth(1)
    first, last = (int(part) for part in button.inner_text().split("–"))
    button.press("Enter")
    expect(page.get_by_test_id("fx-selection")).to_contain_text(f"queries {first}–{last} ({last - first + 1} tokens)")
    expect(button).to_have_attribute("aria-pressed", "true")
    page.get_by_text("pairs per layer").click()
    layer = page.get_by_role("button", name="Go to layer 3", exact=True)
    layer.press("Enter")
    expect(page.locator(".fx-layer-number")).to_have_text("3")
    expect(layer).to_be_focused()
    expect(layer).to_have_attribute("aria-current", "true")
    page.get_by_test_id("fx-mask").press("Enter")
    assert findings(page, within=PANEL) == []


def test_distances_are_shown_with_both_null_baselines(open_page, database):
    page = open_mask(open_page, layer=4)
    chart = page.locator("[data-testid=fx-distance]")
    chart.locator(".main-svg").first.wait_for(timeout=20_000)
    page.get_by_role("radio", name="Mean over layers").check()
    store = Service(database).database
    bits = np.stack([parts[0].membership for parts in executed(store, fetch_run(store, run_id_of(page))).values()])
    query, key = np.tril_indices(bits.shape[1], -17)  # beyond the window of 16
    beyond = key >= 4  # of what is no sink
    far = np.mean([((layer[query] & layer[key]) != 0)[beyond].mean() for layer in bits])
    expect(page.locator(".fx-finding").first).to_contain_text(f"{100 * far:.1f}")
    assert chart.evaluate("node => node.data.length") == 6
    page.locator("[data-testid=fx-layers-chart] .scatterlayer .point").first.wait_for(state="attached")


@pytest.mark.long
def test_attention_is_measured_from_the_page_and_its_links_lead_to_the_text(tiny_page):
    open_one, service, _ = tiny_page
    run_id = list_runs(service.database)[-1]["run_id"]
    page = open_mask(lambda query, **how: open_one(f"{query}&run={run_id}", **how), layer=1)
    page.get_by_role("button", name="Measure attention mass").click()
    heads = page.locator("[data-testid=fx-heads]")
    heads.locator(".main-svg").first.wait_for(timeout=120_000)
    rows = fetch(service.database, "attention_mass", run_id=run_id).to_pylist()
    assert len(rows) == 2 * 4
    kept = sum(row["mass_kept"] for row in rows) / len(rows)
    expect(page.locator(".fx-part").nth(1)).to_contain_text(f"keeps {100 * kept:.1f}")
    link = page.locator("[data-testid=fx-links-dropped] button").first
    query, key = (int(link.get_attribute(f"data-{side}")) for side in ("query", "key"))
    link.click()
    expect(page.locator("[data-testid=fx-selection]")).to_contain_text(f"link from token {query} to {key}")
    expect(page.locator("[data-testid=fx-tokens]")).to_be_visible()
    again = open_mask(lambda query, **how: open_one(f"{query}&run={run_id}", **how), layer=1, size="narrow")
    again.locator("[data-testid=fx-heads] .main-svg").first.wait_for(timeout=30_000)
    assert again.evaluate("document.documentElement.scrollWidth") <= 390


def test_pairs_are_sorted_by_group_and_pushed_together(open_page):
    """The picture changes with the order, and names the share of pairs that the run stored."""
    page = open_page("?view=sparsity")
    note, canvas = page.get_by_test_id("fx-arranged-note"), page.get_by_test_id("fx-arranged")
    expect(canvas).to_be_visible()
    assert note.inner_text() == ""  # nothing is counted for a picture that nobody sees
    canvas.scroll_into_view_if_needed()
    expect(note).not_to_be_empty()
    shown = page.locator(".fx-causes li", has_text="dropped").locator(".fx-muted").inner_text()
    kept = 100 - float(shown.removesuffix("%"))
    assert f"{kept:.1f}" in note.inner_text()
    pictures = []
    for order in ("text", "group", "packed"):
        page.locator(f".fx-arranged-part input[value={order}]").check(force=True)
        expect(canvas).to_have_attribute("data-order", order)
        pictures.append(canvas.evaluate("canvas => canvas.toDataURL()"))
    assert len(set(pictures)) == 3
    page.locator(".fx-arranged-part input[value=text]").check(force=True)
    expect(canvas).to_have_attribute("data-order", "text")
    assert canvas.evaluate("canvas => canvas.toDataURL()") == pictures[0]


def kept_under(database, run_id, layer, *, top_k, window, sinks, growth=(1, 1)):
    """The share of pairs that the rule keeps, pair by pair, from the stored probabilities."""
    rows = fetch(database, "assignments", run_id=run_id).to_pylist()
    probabilities = np.array([row["probabilities"] for row in rows if row["layer"] == layer], dtype=np.float32)
    first = np.argsort(-probabilities, axis=1, kind="stable")[:, :top_k]
    member = np.zeros(probabilities.shape, dtype=bool)
    np.put_along_axis(member, first, True, axis=1)
    query, key = np.indices((len(member), len(member)))
    kept = (
        (member.astype(int) @ member.T.astype(int) > 0)
        | (query - key <= window * query.clip(*growth) // growth[0])
        | (key < sinks)
    )
    causal = key <= query
    return (kept & causal).sum() / causal.sum()


def test_another_budget_is_counted_exactly_and_says_what_was_measured(open_page, database, first_run):
    page = open_page("?view=sparsity&layer=9")
    budget = page.get_by_test_id("fx-budget")
    counts, cost = page.get_by_test_id("fx-budget-counts"), page.get_by_test_id("fx-budget-cost")
    expect(cost).to_have_attribute("data-kind", "measured")  # the run itself
    expect(page.get_by_test_id("fx-budget-reset")).to_be_disabled()
    config = run_config(fetch_run(Service(database).database, first_run))
    sliders = budget.locator("input[type=range]")

    def move(number, value):
        slide = "(s, v) => { s.value = v; s.dispatchEvent(new Event('input', {bubbles: true})); }"
        sliders.nth(number).evaluate(slide, value)

    def expect_counted(**changed):
        rule = {"top_k": config.top_k, "window": config.window, "sinks": config.num_sinks} | changed
        shares = [
            kept_under(Service(database).database, first_run, layer, **rule)
            for layer in ([9] if "sinks" in changed else range(30))
        ]
        own = shares[0] if len(shares) == 1 else shares[9]
        expect(counts).to_contain_text(f"Layer 9 keeps {100 * own:.1f} %")
        if len(shares) == 30:
            expect(counts).to_contain_text(f"All layers with groups keep {100 * np.mean(shares):.1f} %")

    move(0, 2)
    expect_counted(top_k=2)
    expect(cost).to_have_attribute("data-kind", "unknown")
    canvas = page.get_by_test_id("fx-arranged")
    canvas.scroll_into_view_if_needed()
    share = kept_under(Service(database).database, first_run, 9, top_k=2, window=config.window, sinks=config.num_sinks)
    expect(page.get_by_test_id("fx-arranged-note")).to_contain_text(f"{100 * share:.1f} % of all")
    windows = [0, 4, 8, 16, 32, 64, 128, 256]
    move(1, windows.index(64))
    expect_counted(top_k=2, window=64)
    move(2, 7)
    expect_counted(top_k=2, window=64, sinks=7)
    page.get_by_test_id("fx-budget-reset").click()
    expect(cost).to_have_attribute("data-kind", "measured")
    layers = fetch(Service(database).database, "layers", run_id=first_run).to_pylist()
    stored = next(row["retained_pairs"] for row in layers if row["layer"] == 9)
    expect(counts).to_contain_text(f"Layer 9 keeps {100 * stored:.1f} %")
    move(0, 3)
    budget.get_by_role("button", name="Measure settings in Compare").click()
    expect(page.get_by_test_id("fx-compare-settings")).to_be_visible()


@pytest.mark.long
def test_windows_that_grow_are_counted_and_said(tiny_page, tmp_path):
    open_one, service, _ = tiny_page
    folder, growth = list_runs(service.database)[-1]["model_id"], (20, 90)
    model, tokenizer = load_model(folder)
    text = "A boat came in, and a boat went out again. " * 8
    config = FocusConfig(num_groups=4, top_k=1, window=6, num_sinks=2, window_growth=growth)
    centroids = random_centroids(model, config)
    calibrate_potentials(model, centroids, torch.tensor([tokenizer(text)["input_ids"]]))
    save_centroids(centroids, tmp_path / "growing.safetensors")
    request = AnalyzeRequest(model=folder, centroids=str(tmp_path / "growing.safetensors"), repeats=1)
    run_id = analyze(service, text, request)
    page = open_one(f"?run={run_id}&view=sparsity&layer=0")
    page.locator("[data-testid=fx-mask] .nsewdrag").first.wait_for(timeout=30_000)
    page.locator(".fx-about summary").click()
    expect(page.locator(".fx-about")).to_contain_text(
        "window 6, 2 sinks, causal assignment, windows growing from token 20 to 90"
    )
    rule = {"top_k": 1, "window": 6, "sinks": 2, "growth": growth}
    canvas = page.get_by_test_id("fx-arranged")
    canvas.scroll_into_view_if_needed()
    own = kept_under(service.database, run_id, 0, **rule)
    expect(page.get_by_test_id("fx-arranged-note")).to_contain_text(f"{100 * own:.1f} % of all")
    dropped = page.locator(".fx-causes li", has_text="dropped").locator(".fx-muted")
    expect(dropped).to_have_text(re.compile(rf"^{100 * (1 - own):.1f}\s%$"))
    slider = page.get_by_test_id("fx-budget").locator("input[type=range]").nth(0)
    slider.evaluate("(s) => { s.value = 2; s.dispatchEvent(new Event('input', {bubbles: true})); }")
    other = kept_under(service.database, run_id, 0, **rule | {"top_k": 2})
    expect(page.get_by_test_id("fx-budget-counts")).to_contain_text(f"Layer 0 keeps {100 * other:.1f} %")
    assert findings(page, within=PANEL) == []


@pytest.mark.long
def test_query_heads_that_differ_are_named_and_chosen_from_a_list(tiny_page):
    open_one, service, _ = tiny_page
    budget = (
        HeadException(layer=0, query_head=0, full=True),
        HeadException(layer=0, query_head=1, top_k=0, window=4),
        HeadException(layer=0, query_head=3, top_k=2),
        HeadException(layer=1, head=1, window=2),
    )
    model = list_runs(service.database)[-1]["model_id"]
    chosen = AnalyzeRequest(model=model, centroids="random", top_k=1, window=8, repeats=1, budget=budget)
    run_id = analyze(service, "A boat came in, and a boat went out again. " * 8, chosen)
    page = open_one(f"?run={run_id}&view=sparsity&layer=0")
    page.locator("[data-testid=fx-mask] .nsewdrag").first.wait_for(timeout=30_000)
    expect(page.locator(".fx-header-chip, [data-testid=fx-budget]", has_text="budget:").first).to_have_text(
        "budget: 1 query head in full, 4 query heads set apart"
    )
    heads = page.locator(".fx-head-choice:visible select")
    options = heads.locator("option").all_inner_texts()
    assert options == [
        "query head 0: full attention",
        "query head 1: no groups, window 4",
        "query head 2: top-k 1, window 8",
        "query head 3: top-k 2, window 8",
    ]
    heads.select_option(label=options[1])
    expect(page.locator(".fx-part, h3, h2").filter(has_text="layer 0, query head 1").first).to_be_visible()
    same_group = page.locator(".fx-causes li", has_text="same group").locator(".fx-muted")
    expect(same_group).to_have_text(re.compile(r"^0\.0\s%$"))
    page.get_by_role("button", name="Measure attention mass").click()
    kept = page.get_by_test_id("fx-links-kept").locator(".fx-link-details")
    expect(kept.filter(has_text="head 0, full attention").first).to_be_visible(timeout=60_000)
    expect(kept.filter(has_text=re.compile("head [123], full attention"))).to_have_count(0)
    assert findings(page, within=PANEL) == []
