"""The Groups tab and the map as a person uses them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from focus_explorer.data.queries import fetch
from focus_explorer.usecases.labels import group_names
from focus_explorer.usecases.service import Service
from focus_runtime.store.database import Database
from tests.browser.test_page import set_layer

pytestmark = [pytest.mark.browser, pytest.mark.model]


def rows_of(database, page):
    run_id = page.evaluate("new URLSearchParams(location.search).get('run')")
    return fetch(Service(database).database, "assignments", run_id=run_id).to_pylist()


def layer_of(page):
    return int(page.evaluate("new URLSearchParams(location.search).get('layer')"))


def show(page, section):
    page.get_by_role("radio", name=section).check(force=True)


def selected(page):
    return page.locator("[data-testid=fx-selection]")


def selected_on_map(page):
    return page.evaluate(
        """() => document.querySelector('[data-testid=fx-map]').data.slice(0, -1)
          .flatMap((trace) => (trace.selectedpoints || []).map((i) => trace.meta.tokens[i])).sort((a, b) => a - b)"""
    )


def chosen_tokens(page):
    return page.eval_on_selector_all(
        "span.fx-token[aria-selected=true]", "spans => spans.map((s) => Number(s.dataset.pos))"
    )


def elsewhere(open_page, page):
    """The same address in another browser."""
    return open_page(page.evaluate("location.search"))


@pytest.mark.parametrize(("size", "scheme"), [("wide", "light"), ("narrow", "dark")])
def test_cards_describe_every_group_and_select_its_tokens(open_page, database, size, scheme):
    page = open_page(f"?view=groups&layer=9&__theme={scheme}", size=size, scheme=scheme)
    cards = page.locator(".fx-group-card")
    expect(cards.first).to_be_visible(timeout=60_000)
    tops = [row["top_group"] for row in rows_of(database, page) if row["layer"] == 9]
    group = max(set(tops), key=tops.count)
    card = page.locator(f".fx-group-card[data-group='{group}']")
    expect(card).to_contain_text(f"{tops.count(group) / len(tops):.1%}".rstrip("%"))
    mix = card.locator(".fx-class-bar").get_attribute("aria-label")
    assert mix.startswith("Word classes of this group: ")
    assert "%" in mix
    card.locator(".fx-group-choose").click()
    expect(card.locator(".fx-group-choose")).to_have_attribute("aria-pressed", "true")
    expect(selected(page)).to_contain_text(f"{tops.count(group)} tokens")
    assert page.evaluate("new URLSearchParams(location.search).get('sel')") == f"g9.{group}"
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    card.locator(".fx-example").first.click()
    expect(page.locator("[data-testid=fx-tokens]")).to_be_visible()


def test_finder_ranks_filters_and_opens_a_group(open_page, database):
    page = open_page("?view=groups&layer=9")
    show(page, "Find groups")
    table = page.locator("[data-testid=fx-finder]")
    expect(table.locator("tbody tr").first).to_be_visible(timeout=60_000)
    table.get_by_role("button", name="Share", exact=True).click()
    expect(table.locator("th[aria-sort=descending]")).to_contain_text("Share")
    rows = rows_of(database, page)
    sizes = {}
    for row in rows:
        sizes[row["layer"], row["top_group"]] = sizes.get((row["layer"], row["top_group"]), 0) + 1
    first = table.locator("tbody tr").first
    layer, group = int(first.get_attribute("data-layer")), int(first.get_attribute("data-group"))
    assert sizes[layer, group] == max(sizes.values())
    first.click()
    assert layer_of(page) == layer
    expect(selected(page)).to_contain_text(f"{sizes[layer, group]} tokens")
    expect(table.locator("tr[aria-current=true]")).to_have_count(1)
    page.locator("select[data-filter=layer]").select_option(label="4")
    layers = table.locator("tbody tr").evaluate_all("rows => rows.map(row => row.dataset.layer)")
    assert set(layers) == {"4"}
    assert len(layers) == len({g for _, g in sizes})
    page.locator(".fx-finder-search").fill("punctuation")  # no piece of the text has these letters, names do
    named = table.locator("tbody tr .fx-group-title")
    expect(named.first).to_contain_text("punctuation")
    page.locator(".fx-finder-search").fill("no such token")
    expect(table).to_contain_text("No group fits")


def test_a_group_has_a_name_and_can_be_given_another(open_page, database):
    page = open_page("?view=groups&layer=9")
    card = page.locator(".fx-group-card[data-group='2']")
    name = card.get_by_test_id("fx-group-name")
    expect(name.locator(".fx-card-evidence li").first).to_contain_text("in the text", timeout=60_000)
    run_id = page.evaluate("new URLSearchParams(location.search).get('run')")
    stored = group_names(Service(database).database, run_id)["names"][9][2]
    expect(name).to_contain_text(stored["name"] or "no clear content")
    name.get_by_role("button").click()
    name.get_by_label("Name of this group").fill("<b>mine</b>")
    name.get_by_role("button", name="Save").click()
    expect(name.locator(".fx-group-title")).to_have_text("<b>mine</b>")
    page.get_by_role("tab", name="Tokens", exact=True).click()
    expect(page.locator(".fx-group[data-group='2'] .fx-group-title")).to_have_text("<b>mine</b>")
    again = open_page("?view=groups&layer=9").locator(".fx-group-card[data-group='2']").get_by_test_id("fx-group-name")
    expect(again.locator(".fx-group-title")).to_have_text("<b>mine</b>", timeout=60_000)
    again.get_by_role("button").click()
    again.get_by_label("Name of this group").fill("")
    again.get_by_label("Name of this group").press("Enter")
    expect(again).to_contain_text(stored["name"] or "no clear content")


def test_one_selection_is_marked_in_every_view(open_page, database):
    page = open_page("?layer=9")
    page.locator("#fx-token-20").click()
    page.locator("#fx-token-60").click(modifiers=["Shift"])
    chosen, layer = range(20, 61), 9
    rows = rows_of(database, page)
    tops = [row["top_group"] for row in rows if row["layer"] == layer]
    sizes, hits = np.bincount(tops, minlength=8), np.bincount(tops[20:61], minlength=8)
    assert chosen_tokens(page) == list(chosen)
    assert page.locator(".fx-group-hits").all_inner_texts() == [f"{count} selected" for count in hits]

    page.get_by_role("tab", name="Groups", exact=True).click()
    expect(page.locator(".fx-card-hits").first).to_be_visible(timeout=60_000)
    words = page.locator(".fx-card-hits").all_inner_texts()
    assert words == [f"{count} of the {len(chosen)} selected tokens" for count in hits]

    show(page, "Find groups")
    page.locator("select[data-filter=layer]").select_option(label=str(layer))
    for group in range(8):
        cell = page.locator(f"tr[data-group='{group}'] [data-column=selected]")
        expect(cell).to_contain_text(f"{hits[group]} of {sizes[group]}" if sizes[group] else "–")
    page.get_by_role("button", name="Selected", exact=True).click()
    shares = {group: hits[group] / sizes[group] for group in range(8) if sizes[group]}
    first = int(page.locator("[data-testid=fx-finder] tbody tr").first.get_attribute("data-group"))
    assert shares[first] == max(shares.values())

    page.get_by_role("tab", name="Map", exact=True).click()
    page.locator("[data-testid=fx-map] .main-svg").first.wait_for(timeout=60_000)
    assert selected_on_map(page) == list(chosen)

    page.get_by_role("tab", name="Sparsity", exact=True).click()
    page.locator("[data-testid=fx-mask] .main-svg").first.wait_for(timeout=60_000)
    path = page.evaluate("document.querySelector('[data-testid=fx-mask]').layout.shapes[0].path")
    assert re.fullmatch(r"M19\.5,[-\d.]+L60\.5,[-\d.]+M[\d.]+,19\.5L[\d.]+,60\.5", path)

    page.get_by_role("tab", name="Compare", exact=True).click()
    expect(page.locator("[data-testid=fx-selected-loss]")).to_contain_text(f"over {len(chosen)} scored tokens")


@pytest.mark.long
def test_finder_shows_the_attention_kept_as_soon_as_it_is_measured(open_page, database):
    page = open_page("?view=groups&part=finder&layer=9&of=9")
    cell = page.locator("[data-testid=fx-finder] tbody tr td:nth-of-type(9)").first
    expect(cell).to_have_text("–", timeout=60_000)
    run_id = page.evaluate("new URLSearchParams(location.search).get('run')")
    kept = {layer: (0.2 + layer / 100, 0.6) for layer in range(30)}
    store = Database(database)
    try:
        with store.write() as connection:  # as a measurement leaves it; a real one is made in the tests of Sparsity
            for layer, heads in kept.items():
                for head, share in enumerate(heads):
                    values = [run_id, layer, head, 300, share, 0, 0, 1 - share, share, None]
                    connection.execute("INSERT INTO attention_mass VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        page.get_by_role("button", name="Measure the attention kept").click()
        page.locator("[data-testid=fx-heads] .main-svg").first.wait_for(timeout=60_000)
        page.get_by_role("tab", name="Groups", exact=True).click()
        expect(cell).to_contain_text(f"{100 * sum(kept[9]) / 2:.1f}")
        page.get_by_role("button", name=re.compile("Attention kept")).last.hover()
        expect(page.locator("[data-testid=fx-tooltip]")).to_contain_text("mean over 2 heads and the first 300 tokens")
    finally:
        with store.write() as connection:
            connection.execute("DELETE FROM attention_mass WHERE run_id = ?", [run_id])


def test_flow_selects_what_two_groups_share(open_page, database):
    page = open_page("?view=groups&layer=9")
    show(page, "Across layers")
    page.locator("summary", has_text="Strongest flows").click()
    button = page.locator("[data-testid=fx-flow] ~ .fx-details .fx-button").first
    expect(button).to_be_visible(timeout=60_000)
    words = button.inner_text()
    button.click()
    letters = [word for word in words.replace("→", " ").split() if len(word) == 1 and word.isalpha()]
    numbers = [int(word) for word in words.split() if word.isdigit()]
    rows = rows_of(database, page)
    tops = {layer: [row["top_group"] for row in rows if row["layer"] == layer] for layer in numbers}
    a, b = (ord(letter) - ord("A") for letter in letters)
    shared = sum(x == a and y == b for x, y in zip(tops[numbers[0]], tops[numbers[1]], strict=True))
    expect(selected(page)).to_contain_text(f"{shared} tokens")
    assert page.locator(".fx-band-chosen[d^=M]").count() > 0


def test_agreement_opens_the_layer_and_compares(open_page):
    page = open_page("?view=groups&part=layers&layer=9")
    expect(page.locator("[data-testid=fx-agreement] .main-svg").first).to_be_visible(timeout=60_000)
    page.locator("summary", has_text="Agreement of layer 9").click()
    page.get_by_role("button", name="Layers 9 and 20", exact=True).click()
    pressed = page.locator(".fx-layer-toggle[aria-pressed=true]")
    assert pressed.all_inner_texts() == ["9", "20"]
    assert layer_of(page) == 9


@pytest.mark.long
def test_a_lasso_on_the_map_selects_its_tokens(open_page):
    page = open_page("?view=map&layer=9")
    plot = page.locator("[data-testid=fx-map]")
    expect(plot.locator(".main-svg").first).to_be_visible(timeout=60_000)
    show(page, "Lasso")
    plot.scroll_into_view_if_needed()
    box = plot.locator(".nsewdrag").first.bounding_box()
    corners = [(0.02, 0.02), (0.5, 0.02), (0.5, 0.98), (0.02, 0.98), (0.02, 0.02)]
    for number, (x, y) in enumerate(corners):
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=4)
        if number == 0:
            page.mouse.down()
    page.mouse.up()
    expect(selected(page)).to_contain_text("lassoed")
    chosen = selected_on_map(page)
    page.get_by_role("button", name="Show in the text").click()
    expect(page.locator("[data-testid=fx-tokens]")).to_be_visible()
    assert chosen_tokens(page) == chosen
    assert 0 < len(chosen) < page.locator("span.fx-token").count()
    assert chosen_tokens(elsewhere(open_page, page)) == chosen


def test_a_block_of_the_mask_survives_in_the_address(open_page):
    page = open_page("?view=sparsity&layer=9")
    plot = page.locator("[data-testid=fx-mask]")
    plot.locator(".main-svg").first.wait_for(timeout=60_000)
    plot.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(selected(page)).to_contain_text("queries")
    path = "document.querySelector('[data-testid=fx-mask]').layout.shapes[0].path"
    there = page.evaluate(path)
    again = elsewhere(open_page, page)
    again.locator("[data-testid=fx-mask] .main-svg").first.wait_for(timeout=60_000)
    assert again.evaluate(path) == there
    count = re.search(r"\(\d+ tokens?\)", selected(page).inner_text())[0]
    expect(selected(again)).to_contain_text(count)


@pytest.mark.long
def test_the_map_names_neighbours_and_groups_and_shows_where_tokens_crowd(open_page, database):
    page = open_page("?layer=9")
    page.locator("span.fx-token").nth(12).click()
    page.get_by_role("tab", name="Map").click()
    plot, near = page.locator("[data-testid=fx-map]"), page.get_by_test_id("fx-map-near")
    expect(near.locator("li")).to_have_count(10, timeout=60_000)
    expect(near).to_contain_text("(token 12) in layer 9")
    expect(plot.locator(".main-svg").first).to_be_visible(timeout=60_000)
    page.wait_for_function("document.querySelector('[data-testid=fx-map]').layout.shapes?.length === 10")
    annotated = "document.querySelector('[data-testid=fx-map]').layout.annotations.length"
    page.wait_for_function(f"{annotated} > 8", timeout=60_000)  # letters, and names where there are any
    page.get_by_test_id("fx-map-names").uncheck()
    page.wait_for_function(f"{annotated} === 8")
    page.get_by_test_id("fx-map-density").check()
    page.wait_for_function("document.querySelector('[data-testid=fx-map]').data.at(-1).type === 'histogram2dcontour'")
    chosen = near.locator("li button").first
    position = re.search(r"\d+", chosen.locator("small").inner_text())[0]
    chosen.click()
    expect(near).to_contain_text(f"(token {position}) in layer 9")
    page.keyboard.press("Escape")
    expect(near).to_have_text("")
    page.wait_for_function("document.querySelector('[data-testid=fx-map]').layout.shapes.length === 0")


@pytest.mark.long
def test_names_that_come_after_the_map_are_shown_on_it(open_page):
    held = []

    def hold(page):
        page.route(
            "**/component_server/",
            lambda route: held.append(route) if "group_names" in (route.request.post_data or "") else route.continue_(),
        )

    page = open_page("?view=map&layer=9", before=hold)
    annotated = "document.querySelector('[data-testid=fx-map]').layout?.annotations.length"
    page.wait_for_function(f"{annotated} === 8", timeout=60_000)  # letters
    expect(page.get_by_text("A quick map")).to_have_count(0, timeout=60_000)  # its better one draws everything again
    page.wait_for_timeout(500)
    while not held:
        page.wait_for_timeout(50)
    for route in held:
        route.continue_()
    page.wait_for_function(f"{annotated} > 8", timeout=60_000)


def means_on_map(page):
    return page.evaluate(
        """() => { const { x, y } = document.querySelector('[data-testid=fx-map]').data.at(-1); return [x, y]; }"""
    )


@pytest.mark.long
def test_the_map_of_all_layers_and_its_colours(open_page, database):
    page = open_page("?view=map&layer=9&scope=all")
    caption = page.locator(".fx-map ~ .fx-caption")
    expect(caption).to_contain_text("similar group probabilities in all layers", timeout=60_000)
    expect(caption).to_contain_text("UMAP", timeout=60_000)  # a quick PCA comes first
    expect(caption).to_contain_text("seed 0")
    page.locator("[data-testid=fx-map-colour]").select_option("class")
    expect(page.locator("[data-testid=fx-map]")).to_contain_text("punctuation", timeout=60_000)
    traces = page.evaluate(
        """() => document.querySelector('[data-testid=fx-map]').data.slice(0, -1)
          .flatMap(({ x, y, meta }) => meta.tokens.map((pos, i) => [pos, x[i], y[i]]))"""
    )
    places = np.array([place for _, *place in sorted(traces)])
    rows = rows_of(database, page)
    urls = []
    page.on("request", lambda request: urls.append(request.url))
    page.locator("[data-testid=fx-map-colour]").select_option("confidence")
    expect(page.locator("[data-testid=fx-map]")).to_contain_text("Confidence of the most probable group")
    for layer in (9, 4):
        set_layer(page, layer)
        expect(caption).to_contain_text(f"mean place of one group’s tokens in layer {layer}")
        tops = np.array([row["top_group"] for row in rows if row["layer"] == layer])
        expected = np.array([places[tops == group].mean(axis=0) for group in np.unique(tops)])
        for _ in range(50):  # the caption is there before the chart is
            actual = np.array(means_on_map(page)).T
            if actual.shape == expected.shape and np.allclose(actual, expected, atol=1e-3):
                break
            page.wait_for_timeout(100)
        np.testing.assert_allclose(actual, expected, atol=1e-3)
    assert [url for url in urls if "component_server" in url and "ask" in url] == []
    for colouring, title in (("entropy", "Entropy of the group"), ("path", "Path: how far")):
        page.locator("[data-testid=fx-map-colour]").select_option(colouring)
        expect(page.locator("[data-testid=fx-map]")).to_contain_text(title)
    assert "scope=all&colour=path" in page.url
