"""The token view as a reader uses it: finding, filtering, choosing tokens, and what one token may attend to."""

from __future__ import annotations

import base64
import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

from benchmarks.synthetic_runs import write_long_run
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.generate import LiveTexts
from focus_explorer.usecases.runs import list_runs, run_config, run_summary
from focus_explorer.usecases.service import Service
from focus_runtime.mask.allowed_pairs import allowed_pairs
from focus_runtime.mask.rule import CAUSES, PairRule
from focus_runtime.store.database import Database
from tests.browser.conftest import opening
from tests.browser.test_page import set_layer, shown_run, stored

pytestmark = [pytest.mark.browser, pytest.mark.model]
LONG = 8_000


@pytest.fixture(scope="module")
def long_page(database, page_url, chromium):
    """Opens pages of a run too long to come whole."""
    run_id = write_long_run(Database(database), LONG)
    with opening(chromium, page_url) as open_one:
        yield lambda query="": open_one(f"?run={run_id}&layer=9{query}"), database, run_id


def count_of(page, way, cause):
    words = page.locator(f"[data-way={way}] [data-cause={cause}] .fx-number").first.inner_text()
    return int(words.replace(",", ""))


def check_links(page, membership, config, pos):
    """The panel of a token against the mask that is executed."""
    member, places = torch.tensor(membership), torch.arange(len(membership))
    at = slice(pos, pos + 1)
    rule = PairRule(config["window"], config["num_sinks"])
    row = allowed_pairs(member[at], member, places[at], places, rule)[0]
    column = allowed_pairs(member, member[at], places, places[at], rule)[:, 0]
    for way, allowed in (("back", row), ("forward", column)):
        total = sum(count_of(page, way, cause) for cause in CAUSES[:-1])
        assert total == int(allowed.sum()) - (way == "forward")  # the token itself is counted once, looking back
    for span in page.locator("span.fx-token[data-link]").all()[:200]:
        other = int(span.get_attribute("data-pos"))
        assert bool(row[other]) if other < pos else bool(column[other])
    for span in page.locator("span.fx-token:not([data-link])").all()[:200]:
        other = int(span.get_attribute("data-pos"))
        assert other == pos or not (bool(row[other]) if other < pos else bool(column[other]))


def test_a_token_shows_exactly_what_the_mask_allows(open_page, database):
    page = open_page("?layer=4")
    run_id = shown_run(page)
    config = run_summary(Service(database).database, run_id)["config"]
    rows = stored(Service(database), run_id)
    for pos, layers in ((150, (4, 11)), (2, (11, 20))):
        page.locator(f"#fx-token-{pos}").click()
        for layer in layers:
            page.locator(".fx-path-cell").nth(layer).click()
            expect(page.locator("[data-testid=fx-detail]")).to_contain_text(f"layer {layer}")
            check_links(page, [row["membership"] for row in rows if row["layer"] == layer], config, pos)
    assert page.locator(".fx-path-cell").count() == 30


def test_search_finds_counts_steps_and_selects(open_page, database):
    page = open_page()
    pieces = [row["piece"] for row in fetch(Service(database).database, "tokens", run_id=shown_run(page)).to_pylist()]
    hits = len(re.findall("letter", "".join(pieces)))
    field, status = page.locator("[data-testid=fx-search]"), page.locator(".fx-search-status")
    field.fill("LETTER")
    expect(status).to_have_text(f"1 of {hits}")
    field.press("Enter")
    expect(status).to_have_text(f"2 of {hits}")
    field.press("Shift+Enter")
    field.press("Shift+Enter")
    expect(status).to_have_text(f"{hits} of {hits}")
    page.get_by_role("button", name="Select all hits").click()
    expect(page.locator("[data-testid=fx-selection]")).to_contain_text("letter", ignore_case=True)
    page.get_by_label("Regular expression").check()
    field.fill("l.tt(")
    expect(status).to_have_text("not a valid regular expression")
    field.fill("l.tt[a-z]r|quotes")
    expect(status).to_have_text(re.compile(rf"^\d+ of {hits + ''.join(pieces).count('quotes')}$"))


def test_filters_dim_and_hide(open_page, database):
    page = open_page("?layer=3")
    rows = [row["top_group"] for row in stored(Service(database), shown_run(page)) if row["layer"] == 3]
    group = max(set(rows), key=rows.count)
    page.locator("[data-testid=fx-filter] summary").click()
    page.locator("[data-testid=fx-filter] select").first.select_option(str(group))
    bright = page.eval_on_selector_all(
        "span.fx-token:not(.fx-dimmed)", "spans => spans.map((s) => Number(s.dataset.pos))"
    )
    assert bright == [pos for pos, top in enumerate(rows) if top == group]
    page.locator("[data-testid=fx-filter]").get_by_label("Hide").check(force=True)
    assert page.locator("span.fx-token").count() == rows.count(group)
    page.get_by_role("button", name="Clear filter").click()
    assert page.locator("span.fx-token").count() == len(rows)
    page.locator("[data-testid=fx-filter] select").nth(1).select_option("punctuation")
    expect(page.locator("span.fx-token", has_text=".").first).to_be_visible()
    expect(page.locator("span.fx-token", has_text="letter")).to_have_count(0)


def test_colouring_search_filter_and_range_survive_in_the_address(open_page, database):
    page = open_page("?layer=9")
    assert re.findall("colour|find|regex|group=|kind|from|to=|others", page.url) == []
    page.get_by_label("Confidence", exact=True).check(force=True)
    page.get_by_label("Regular expression").check()
    page.locator("[data-testid=fx-search]").fill("lett.r|q[a-z]+s")
    expect(page.locator(".fx-search-status")).to_contain_text(" of ")
    page.locator("[data-testid=fx-filter] summary").click()
    page.locator("[data-testid=fx-filter] select").nth(1).select_option("content")
    page.get_by_label("to", exact=True).fill("120")
    page.get_by_label("to", exact=True).press("Enter")
    page.locator("[data-testid=fx-filter]").get_by_label("Hide").check(force=True)
    tokens = page.locator("span.fx-token")
    expect(tokens.filter(has_text=".")).to_have_count(0)
    assert int(tokens.last.get_attribute("data-pos")) <= 120
    first, last = tokens.nth(1).get_attribute("data-pos"), tokens.nth(4).get_attribute("data-pos")
    page.locator(f"#fx-token-{first}").click()
    page.locator(f"#fx-token-{last}").click(modifiers=["Shift"])
    looks = """() => [...document.querySelectorAll('span.fx-token')]
      .map((s) => [s.dataset.pos, s.dataset.shade, s.ariaSelected, s.classList.contains('fx-hit')])"""
    before = page.evaluate(looks)
    assert len({shade for _, shade, _, _ in before}) > 1
    assert any(hit for *_, hit in before)
    again = open_page(page.evaluate("location.search"))
    expect(again.locator("[data-testid=fx-selection]")).to_contain_text(f"tokens {first} to {last}")
    expect(again.locator(".fx-search-status")).to_contain_text(" of ")
    expect(again.locator("span.fx-token")).to_have_count(len(before))
    assert again.evaluate(looks) == before
    assert again.evaluate("location.search") == page.evaluate("location.search")
    again.get_by_role("tab", name="Compare", exact=True).click()
    assert "find=" not in again.url
    again.get_by_role("tab", name="Tokens", exact=True).click()
    assert "find=" in again.url
    again.get_by_role("button", name="Clear filter").click()
    again.locator("[data-testid=fx-search]").fill("")
    again.get_by_label("Group", exact=True).first.check(force=True)
    expect(again.locator("span.fx-token.fx-hit")).to_have_count(0)
    assert re.findall("colour|find|regex|group=|kind|from|to=|others", again.url) == []


def shades(page):
    return page.eval_on_selector_all("span.fx-token", "spans => spans.map((s) => s.dataset.shade)")


def test_colourings_follow_the_stored_numbers(open_page, database):
    page = open_page("?layer=9")
    run_id = shown_run(page)
    rows = stored(Service(database), run_id)
    here = np.array([row["probabilities"] for row in rows if row["layer"] == 9], dtype=np.float64)
    tops = np.array([row["top_group"] for row in rows]).reshape(-1, len(here))
    groups = here.shape[1]
    company = np.zeros(len(here))
    for now, following in pairwise(tops):
        for pos in range(len(here)):
            with_it = now == now[pos]
            company[pos] += (following[with_it] == following[pos]).mean() / (len(tops) - 1)
    entropy = -(here * np.log(np.maximum(here, 1e-12))).sum(axis=1) / np.log(groups)
    spread = (company - company.min()) / (company.max() - company.min())
    certain = (here.max(axis=1) - 1 / groups) / (1 - 1 / groups)
    for name, value in (("Confidence", certain), ("Entropy", entropy), ("Path", spread)):
        page.get_by_label(name, exact=True).check(force=True)
        steps = np.array([int(shade.removeprefix("s")) for shade in shades(page)])
        # sent in 255 steps, so a value at an edge may fall on either side
        assert np.all(np.abs(steps + 0.5 - np.clip(value * 8, 0.5, 7.5)) < 0.5 + 0.05)
        assert len(set(steps)) > 2
    nll = {
        mode: [
            row["nll"]
            for row in fetch(Service(database).database, "losses", run_id=run_id).to_pylist()
            if row["mode"] == mode
        ]
        for mode in ("full", "focus")
    }
    limits = [-1, -0.5, -0.2, -0.05, 0.05, 0.2, 0.5, 1]
    page.get_by_label("Loss difference", exact=True).check(force=True)
    differences = np.float32(nll["focus"]) - np.float32(nll["full"])
    assert shades(page) == ["none", *(f"d{sum(value >= limit for limit in limits)}" for value in differences)]


def test_lines_and_paragraphs_of_the_text_are_kept(tiny_page):
    open_one, service, folder = tiny_page
    text = "One line.\nA second line.\n\nA paragraph, after an empty line.\n\n\nThe end\n  with an indented line."
    model = str(folder.parent / "tiny")
    run_id = analyze(service, text, AnalyzeRequest(model=model, centroids="random", window=8, repeats=1))
    page = open_one(f"?run={run_id}")
    pieces = [row["piece"] for row in fetch(service.database, "tokens", run_id=run_id).to_pylist()]
    assert "".join(pieces) == text
    tops = page.eval_on_selector_all(
        "span.fx-token", "spans => spans.map((s) => s.closest('.fx-line').getBoundingClientRect().top)"
    )
    height = page.locator(".fx-line").first.bounding_box()["height"]
    lines = [round((top - tops[0]) / height) for top in tops]
    assert lines == ["".join(pieces[:pos]).count("\n") for pos in range(len(pieces))]
    assert page.locator(".fx-newline").count() == text.count("\n")


def test_ranges_by_drag_shift_click_and_keyboard(open_page):
    page = open_page()
    token = lambda pos: page.locator(f"#fx-token-{pos}")  # noqa: E731
    token(3).hover()
    page.mouse.down()
    token(6).hover()
    token(8).hover()
    page.mouse.up()
    bar = page.locator("[data-testid=fx-selection]")
    expect(bar).to_contain_text("tokens 3 to 8")
    token(12).click(modifiers=["Shift"])
    expect(bar).to_contain_text("tokens 3 to 12")
    page.keyboard.press("Shift+ArrowRight")
    expect(bar).to_contain_text("tokens 3 to 13")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    last = page.locator("span.fx-token").count() - 1
    expect(bar).to_contain_text(f"token {last}")
    expect(page.locator("[data-testid=fx-detail]")).to_contain_text("nothing comes after it")


@pytest.mark.long
def test_a_long_text_scrolls_with_few_tokens_on_the_page(long_page):
    open_long, path, run_id = long_page
    page = open_long()
    text, scroller = page.locator("[data-testid=fx-tokens]"), page.locator(".fx-scroller")
    height = scroller.evaluate("node => node.scrollHeight")
    text.focus()
    page.keyboard.press("End")
    expect(page.locator(f"#fx-token-{LONG - 1}")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("[data-testid=fx-detail]")).to_contain_text(f"{LONG - 1:,}")
    rows = fetch(Database(path), "cells", run_id=run_id, layer=9).sort_by("position")
    config = run_summary(Service(path).database, run_id)["config"]
    expect(page.locator("[data-way=back] .fx-number").first).to_be_visible()
    check_links(page, rows["membership"].to_pylist(), config, LONG - 1)
    assert page.locator("span.fx-token").count() < 3000
    assert scroller.evaluate("node => node.scrollHeight") == height
    before = scroller.evaluate("node => node.scrollTop")
    page.wait_for_timeout(1500)
    set_layer(page, 10)  # fetched ahead, so the colours are there at once
    page.get_by_label("Confidence", exact=True).check(force=True)
    assert page.locator("span.fx-token[data-shade=none]").count() == 0
    assert scroller.evaluate("node => node.scrollTop") == before
    page.keyboard.press("Escape")
    text.focus()
    page.keyboard.press("Home")
    expect(page.locator("#fx-token-0")).to_be_visible()


def test_groups_colour_a_text_while_it_is_typed(tiny_page):
    open_one, service, _ = tiny_page
    run_id = list_runs(service.database)[-1]["run_id"]
    page = open_one(f"?run={run_id}&view=tokens&layer=0")
    part = page.get_by_test_id("fx-typing")
    part.get_by_text("Type a text and watch its groups").click()
    part.get_by_role("textbox").press_sequentially("The harbour was quiet.", delay=5)
    tokens = page.get_by_test_id("fx-typed").locator("span")
    expect(page.get_by_test_id("fx-typed")).to_have_text("The harbour was quiet.", timeout=60_000)
    answer = LiveTexts(service).read(run_id, "The harbour was quiet.", "test")
    for layer in (0, 1):
        set_layer(page, layer)
        own = np.frombuffer(base64.b64decode(answer["top"]), dtype=np.uint8).reshape(2, -1)[layer]
        expect(tokens).to_have_count(own.size)
        expect(tokens.first).to_have_attribute("data-shade", f"g{own[0]}")
        assert tokens.evaluate_all("all => all.map(one => one.dataset.shade)") == [f"g{group}" for group in own]
    expect(page.get_by_test_id("fx-typed-next")).to_contain_text("Next, under Focus:")
    part.get_by_role("textbox").fill("a" * 2001)
    expect(part.get_by_role("alert")).to_contain_text("at most 2,000 while typing", timeout=60_000)


@pytest.mark.long
def test_attention_of_a_token_is_drawn_by_layer_and_head(tiny_page):
    """Computed from the model, then the slider and the heads need no server; what Focus drops is dashed."""
    open_one, service, _ = tiny_page
    page = open_one(f"?run={list_runs(service.database)[-1]['run_id']}&view=tokens&layer=0")
    page.locator("span.fx-token").nth(200).click()
    part = page.get_by_test_id("fx-token-attention")
    part.get_by_role("button", name="Show attention").click()
    table = page.get_by_test_id("fx-token-attention-table")
    expect(table).to_be_visible(timeout=60_000)
    assert part.locator(".fx-arcs path").count() > 0
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    shown = [table.inner_text()]
    set_layer(page, 1)
    expect(part).to_contain_text("full attention in layer 1")
    shown.append(table.inner_text())
    part.get_by_label("Heads").select_option("3")
    expect(part).to_contain_text("layer 1, head 3")
    shown.append(table.inner_text())
    assert len(set(shown)) == 3
    assert [url for url in requests if "component_server" in url] == []
    stored_rows = [row for row in stored(service, shown_run(page)) if row["layer"] == 1]
    config = run_config(fetch_run(service.database, shown_run(page)))
    dropped = 0
    for row in table.locator("tbody tr").all():
        key = int(re.search(r"\d+", row.locator("button").get_attribute("title"))[0])
        kept = 200 - key <= config.window or key < config.num_sinks
        kept |= bool(stored_rows[200]["membership"] & stored_rows[key]["membership"])
        assert ("dropped" in row.inner_text()) == (not kept)
        dropped += not kept
    assert part.locator(".fx-arcs path[data-dropped]").count() <= dropped
    page.locator("span.fx-token").nth(150).click()  # another token follows by itself
    expect(part).to_contain_text("full attention in layer 1", timeout=60_000)
