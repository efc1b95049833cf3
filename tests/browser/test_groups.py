"""The Groups tab and the map as a person uses them."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from focus_explorer.queries import fetch
from focus_explorer.service import Service

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
    page.locator(".fx-finder-search").fill("no such token")
    expect(table).to_contain_text("No group fits")


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
    page = open_page("?view=groups&layer=9")
    show(page, "Across layers")
    expect(page.locator("[data-testid=fx-agreement] .main-svg").first).to_be_visible(timeout=60_000)
    page.locator("summary", has_text="Agreement of layer 9").click()
    page.get_by_role("button", name="Layers 9 and 20", exact=True).click()
    pressed = page.locator(".fx-layer-toggle[aria-pressed=true]")
    assert pressed.all_inner_texts() == ["9", "20"]
    assert layer_of(page) == 9


def test_a_lasso_on_the_map_selects_its_tokens(open_page):
    page = open_page("?view=map&layer=9")
    plot = page.locator("[data-testid=fx-map]")
    expect(plot.locator(".main-svg").first).to_be_visible(timeout=60_000)
    show(page, "Lasso")
    plot.scroll_into_view_if_needed()
    box = plot.locator(".nsewdrag").first.bounding_box()
    corners = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98), (0.02, 0.02)]
    for number, (x, y) in enumerate(corners):
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=4)
        if number == 0:
            page.mouse.down()
    page.mouse.up()
    expect(selected(page)).to_contain_text("lassoed")
    page.get_by_role("button", name="Show in the text").click()
    expect(page.locator("[data-testid=fx-tokens]")).to_be_visible()
    assert page.locator(".fx-token:not(.fx-dimmed)").count() > 100


def test_the_map_of_all_layers_and_its_colours(open_page):
    page = open_page("?view=map&layer=9")
    show(page, "All layers")
    caption = page.locator(".fx-map ~ .fx-caption")
    expect(caption).to_contain_text("similar group probabilities in all layers", timeout=60_000)
    expect(caption).to_contain_text("seed 0")
    page.locator("[data-testid=fx-map-colour]").select_option("class")
    expect(page.locator("[data-testid=fx-map]")).to_contain_text("punctuation", timeout=60_000)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.locator("[data-testid=fx-map-colour]").select_option("confidence")
    expect(page.locator("[data-testid=fx-map]")).to_contain_text("Confidence of the most probable group")
    assert [url for url in asked if "component_server" in url and "ask" in url] == []
