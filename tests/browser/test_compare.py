"""The parts of the Compare view as a person uses them, with runs of one text and another."""

from __future__ import annotations

import re
from math import exp
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from focus_explorer.data.queries import fetch
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.compare.costs import explained, measured_heads, most_hurt
from focus_explorer.usecases.compare.lengths import lengths, measure_lengths
from focus_explorer.usecases.compare.runs import compare_runs
from focus_explorer.usecases.compare.settings import grid_rows
from focus_explorer.usecases.compare.what_if import WhatIfs
from focus_explorer.usecases.runs import list_runs, run_summary
from focus_runtime.budget import HeadException
from tests.browser.conftest import reopen

pytestmark = [pytest.mark.browser, pytest.mark.model]
MEASURED = 240_000  # milliseconds a small measurement may take on a busy machine
OTHER_TEXT = "The harbour was quiet, and the boats lay side by side. " * 4


@pytest.fixture
def open_part(open_page, pair):
    def open_it(part, run=None, with_run="", **options):
        query = f"?run={run or pair[1]}&view=compare&part={part}{with_run and '&with='}{with_run}"
        page = open_page(query, **options)
        return page, page.locator(f"[data-testid=fx-compare-{part}]")

    return open_it


def address(page, name):
    return page.evaluate("name => new URLSearchParams(location.search).get(name)", name)


def done(page, part):
    page.wait_for_function(
        "part => document.querySelector(`[data-testid=fx-compare-${part}] .fx-job`).dataset.state === 'done'",
        arg=part,
        timeout=MEASURED,
    )


def test_selected_tokens_show_their_mean_loss_difference(open_part, pair):
    page, _ = open_part("overview")
    line = page.locator("[data-testid=fx-selected-loss]")
    expect(line).to_have_text("")
    page.locator("[data-testid=fx-select-hurt]").click()
    rows = fetch(pair[0].database, "losses", run_id=pair[1]).to_pylist()
    nll = {mode: [row["nll"] for row in rows if row["mode"] == mode] for mode in ("full", "focus")}
    worst = sorted((b - a for a, b in zip(nll["full"], nll["focus"], strict=True)), reverse=True)[:10]
    expect(line).to_contain_text(f"+{sum(worst) / 10:.3f} nats per token on average over 10 scored tokens")
    assert page.locator(".fx-ranked-token[data-selected]").count() == 10
    reopen(page)
    expect(line).to_contain_text("over 10 scored tokens")


@pytest.mark.long
def test_a_small_grid_is_measured_kept_and_drawn_and_a_larger_one_stopped(tiny_page):
    open_one, service, _ = tiny_page
    run_id = list_runs(service.database)[-1]["run_id"]
    page = open_one(f"?run={run_id}&view=compare&part=settings")
    part = page.locator("[data-testid=fx-compare-settings]")
    expect(part.locator("[data-testid=fx-grid-empty]")).to_be_visible()
    assert part.get_by_label("Window", exact=True).input_value() == "8, 32, 128"
    part.get_by_label("Top-k", exact=True).fill("one")
    part.locator("[data-testid=fx-compare-start]").click()
    expect(part.get_by_role("alert")).to_contain_text("whole numbers")
    part.get_by_label("Top-k", exact=True).fill("1")
    part.get_by_label("Window", exact=True).fill("8")
    part.get_by_label("Repeats", exact=True).fill("5")  # long enough that Stop is seen
    part.locator("[data-testid=fx-compare-start]").click()
    expect(part.locator("[data-testid=fx-compare-stop]")).to_be_visible(timeout=20_000)
    done(page, "settings")
    cells = grid_rows(service, run_id)
    assert {cell["kind"] for cell in cells} == {"focus", "window", "random"}
    own = next(cell for cell in cells if cell["kind"] == "focus")
    shown = part.locator('[data-cell="focus/1/8"]')
    expect(shown).to_contain_text(f"{own['retained_pairs']:.0%}".replace("%", "\u00a0%"))
    expect(shown).to_contain_text("this run's setting")
    expect(part.locator("[data-testid=fx-pareto] .legend")).to_contain_text("Random centroids")
    drawn = {
        trace["name"]: trace
        for trace in page.evaluate(
            "() => document.querySelector('[data-testid=fx-pareto]').data.map(t => "
            "({name: t.name, x: [...t.x], y: [...t.y], high: t.error_y && [...t.error_y.array]}))"
        )
    }
    names = {"focus": "Focus, this run's centroids", "window": "Window and sinks only", "random": "Random centroids"}
    assert drawn["Full attention"]["y"] == pytest.approx([own["perplexity_full"]])
    for cell in cells:
        point = drawn[names[cell["kind"]]]
        assert point["x"] == pytest.approx([cell["attention_focus"] / cell["attention_full"]])
        assert point["y"] == pytest.approx([cell["perplexity_focus"]])
        high = cell["perplexity_full"] * exp(cell["delta_high"])
        assert point["high"] == pytest.approx([high - cell["perplexity_focus"]], rel=1e-6, abs=1e-6)
    reopen(page)  # kept with the run
    expect(shown).to_be_visible(timeout=20_000)
    part.get_by_label("Window", exact=True).fill("16, 32, 64, 128")
    part.get_by_label("Repeats", exact=True).fill("50")
    part.locator("[data-testid=fx-compare-start]").click()
    part.locator("[data-testid=fx-compare-stop]").click(timeout=20_000)
    expect(part.get_by_role("status")).to_contain_text("Stopped", timeout=MEASURED)
    assert len(grid_rows(service, run_id)) < 5 * len(cells)


@pytest.mark.long
def test_why_a_token_is_hurt_is_measured_drawn_and_linked(tiny_page):
    open_one, service, text = tiny_page
    model = list_runs(service.database)[-1]["model_id"]
    chosen = AnalyzeRequest(model=model, centroids="random", top_k=1, window=8, repeats=1, max_tokens=300)
    run_id = analyze(service, text.read_text(), chosen)  # of its own: random centroids are measured too
    page = open_one(f"?run={run_id}&view=compare")
    button = page.locator("[data-testid=fx-why]").first
    token = int(re.search(r"token ([\d,]+)", button.get_attribute("aria-label"))[1].replace(",", ""))
    assert token == most_hurt(service, run_id)
    button.click()
    part = page.locator("[data-testid=fx-compare-links]")
    items = part.locator("[data-testid=fx-missing-links] li")
    expect(items.first).to_be_visible(timeout=MEASURED)
    found = explained(service, run_id, token)
    verified = [link for link in found["links"] if link["nll"] is not None]
    assert items.count() == len(verified)
    best = verified[0]
    expect(items.first).to_contain_text(f"layer {best['layer']}, query head {best['head']}")
    expect(items.first).to_contain_text(f"{found['nll_focus'] - best['nll']:.2f}")
    verdict = part.locator("[data-testid=fx-links-verdict]")
    expect(verdict).to_contain_text(f"it to {found['nll_together']:.2f} nats")
    assert part.locator(".fx-arcs path").count() == len(verified)
    shown = part.locator("[data-kind=target]")
    expect(shown).to_have_attribute("data-pos", str(token))
    items.first.get_by_role("button").hover()
    assert part.locator(".fx-arcs path.fx-marked").get_attribute("data-number") == "0"
    reopen(page)  # the address names the token, and what was found is kept
    assert address(page, "why") == str(token)
    expect(items.first).to_be_visible(timeout=20_000)
    items.first.get_by_role("button").click()
    expect(page.locator("[data-testid=fx-tokens]")).to_be_visible()
    assert address(page, "layer") == str(best["layer"])
    expect(page.locator("[data-testid=fx-selection]")).to_contain_text(f"{best['query']} to {best['key']}")


def test_two_runs_share_one_selection(open_part, pair):
    page, part = open_part("runs")
    compared = compare_runs(*pair)
    tokens = part.locator("[data-side=other] .fx-pair-token")
    expect(tokens.first).to_be_visible(timeout=20_000)
    layer = compared["layers"][15]
    expect(part).to_contain_text(f"{layer['overlap'] * 100:.0f}\u00a0% in matched groups")
    changed = part.locator("[data-side=other] .fx-changed").count()
    part.locator("[data-testid=fx-select-changed]").click()
    assert part.locator("[data-side=own] [data-selected]").count() == changed > 0
    tokens.nth(5).click()
    assert part.locator("[data-side=own] [data-selected]").count() == 1
    expect(part.locator('[data-side=own] [data-pos="5"]')).to_have_attribute("data-selected", "")
    page.get_by_role("tab", name="Tokens").click()
    expect(page.locator("[data-testid=fx-selection]")).to_contain_text("token 5")


def test_a_link_opens_the_run_it_names_for_comparison(open_part, pair):
    service, first, second = pair
    page, part = open_part("runs", with_run=second)  # "twin", the newer one, would come first by itself
    choice = part.get_by_label("Other run", exact=True)
    expect(part.locator("[data-side=other] .fx-pair-token").first).to_be_visible(timeout=20_000)
    expect(choice).to_have_value(second)
    delta = compare_runs(service, first, second)["difference"]["mean"]
    expect(part).to_contain_text(f"{abs(delta):.3f} nats per token")
    reopen(page)
    expect(choice).to_have_value(second, timeout=20_000)
    choice.select_option("twin")
    page.wait_for_function("() => new URLSearchParams(location.search).get('with') === 'twin'")
    page.get_by_role("radio", name="Other settings").check()
    assert address(page, "with") is None
    page.get_by_role("radio", name="Another run").check()
    assert address(page, "with") == "twin"
    page.get_by_role("tab", name="Tokens").click()
    assert address(page, "with") is None


@pytest.mark.long
def test_runs_of_different_texts_show_their_numbers(open_part, pair):
    service, first, _ = pair
    elsewhere = analyze(service, OTHER_TEXT, AnalyzeRequest(centroids="novels", top_k=2, window=8, repeats=1))
    page, part = open_part("runs", with_run=elsewhere)
    table = part.locator("[data-testid=fx-run-numbers]")
    expect(table).to_contain_text(elsewhere, timeout=20_000)
    expect(part).to_contain_text("cannot be matched token by token")
    expect(part.locator(".fx-pair-token")).to_have_count(0)
    for number, run in enumerate((run_summary(service.database, first), run_summary(service.database, elsewhere))):
        cells = {
            row[0]: row[number + 1]
            for row in table.locator("tr").evaluate_all(
                "rows => rows.map(row => [...row.cells].map(cell => cell.innerText.replace('?', '').trim()))"
            )
        }
        assert cells["Perplexity, Focus"] == f"{run['perplexity']['focus']:.2f}"
        assert cells["Pairs kept"] == f"{run['retained_pairs'] * 100:.1f}\u00a0%"
        assert cells["Tokens"] == str(run["num_tokens"])
    expect(table.get_by_role("row", name=re.compile("Top-k.*differs"))).to_contain_text("2")
    assert address(page, "with") == elsewhere
    part.get_by_label("Other run", exact=True).select_option(pair[2])
    expect(part.locator("[data-side=other] .fx-pair-token").first).to_be_visible(timeout=20_000)
    expect(table).to_contain_text(pair[2])  # the same text: the numbers stand above what is matched token by token
    expect(part).not_to_contain_text("cannot be matched token by token")


def test_a_link_to_a_run_that_is_gone_says_so(open_part, pair):
    page, part = open_part("runs", with_run="nope")
    expect(part.get_by_role("alert")).to_contain_text("no run 'nope'", timeout=20_000)
    assert address(page, "with") is None
    part.get_by_label("Other run", exact=True).select_option(pair[2])
    expect(part.locator("[data-side=other] .fx-pair-token").first).to_be_visible(timeout=20_000)


def test_tokens_of_two_runs_are_reached_and_chosen_by_keyboard(open_part):
    page, part = open_part("runs")
    own_text = part.locator("[data-side=own]")
    expect(own_text.locator(".fx-pair-token").first).to_be_visible(timeout=20_000)
    assert part.locator('.fx-pair-token[tabindex="0"]').count() == 2  # one for each text
    own_text.locator('[tabindex="0"]').focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
    here = page.locator(":focus")
    expect(here).to_have_attribute("data-pos", "2")
    assert re.search(r"token 2: group [A-H] here, [A-H] there", here.get_attribute("aria-label"))
    expect(page.locator("[data-testid=fx-tooltip]:visible")).to_contain_text("token 2:")
    page.keyboard.press("Enter")
    for side in ("own", "other"):
        expect(part.locator(f"[data-side={side}] [aria-selected=true]")).to_have_count(1)
        expect(part.locator(f"[data-side={side}] [data-pos='2']")).to_have_attribute("data-selected", "")
    expect(here).to_have_attribute("data-pos", "2")
    top = here.evaluate("node => node.getBoundingClientRect().top")
    page.keyboard.press("ArrowDown")
    assert here.evaluate("node => node.getBoundingClientRect().top") > top
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Home")
    expect(here).to_have_attribute("data-pos", "0")
    assert own_text.locator('[tabindex="0"]').count() == 1


@pytest.mark.long
def test_peak_memory_is_shown_where_it_was_measured(open_part, pair):
    page, _ = open_part("overview")
    rows = fetch(pair[0].database, "timings", run_id=pair[1]).to_pylist()
    cells = page.locator("[data-testid=fx-compare] [data-label='Peak memory']")
    for mode, cell in zip(("full", "focus"), cells.all(), strict=True):
        peak = max(row["peak_memory_bytes"] for row in rows if row["mode"] == mode)
        words = f"{peak / 2**30:.2f}\u00a0GiB" if peak >= 2**30 else f"{peak / 2**20:,.0f}\u00a0MiB"
        expect(cell).to_have_text(words)
    page.get_by_role("button", name="Peak memory").focus()
    expect(page.locator("[data-testid=fx-tooltip]:visible")).to_contain_text("Largest memory")
    other, _ = open_part("overview", run="twin")
    expect(other.locator("[data-testid=fx-compare] [data-label='Peak memory']")).to_have_text(["not measured"] * 2)


@pytest.mark.long
def test_lengths_are_measured_and_shown(open_part, pair):
    page, part = open_part("lengths")
    part.get_by_label("Time to spend").select_option("10")
    part.locator("[data-testid=fx-compare-start]").click()
    done(page, "lengths")
    layer = lengths(pair[0], pair[1])["layers"]["15"]
    last = layer["points"][-1]["tokens"]
    expect(part.locator(".fx-verdict")).to_contain_text(f"At {last:,} tokens")
    expect(part.locator("[data-testid=fx-crossover] .point")).to_have_count(2 * len(layer["points"]))
    page.locator("input[type=range]").first.press("ArrowRight")
    expect(part).to_contain_text("Layer 16 is not measured yet")


@pytest.mark.long
@pytest.mark.slow
def test_lengths_are_said_with_what_the_heads_of_the_layer_have(tiny_page):
    open_one, service, _ = tiny_page
    own = (HeadException(layer=0, full=True), HeadException(layer=1, head=0, top_k=0, window=20))
    model = list_runs(service.database)[-1]["model_id"]
    how = AnalyzeRequest(
        model=model, centroids="random", top_k=1, window=8, repeats=1, budget=own, window_growth=(64, 256)
    )
    run_id = analyze(service, OTHER_TEXT, how)
    said = {
        0: "Full attention. 5 repeats",
        1: "Head 0: no groups, window 20; head 1: top-k 1, window 8; windows grow from token 64 to 256. 5 repeats",
    }
    for layer, words in said.items():
        measure_lengths(service, run_id, layer, seconds=1)
        page = open_one(f"?run={run_id}&view=compare&part=lengths&layer={layer}")
        expect(page.locator("[data-testid=fx-compare-lengths] .fx-verdict")).to_contain_text(words)


def test_both_texts_grow_and_are_coloured_by_the_open_layer(tiny_page):
    open_one, service, _ = tiny_page
    model = list_runs(service.database)[-1]["model_id"]
    run_id = analyze(service, OTHER_TEXT, AnalyzeRequest(model=model, centroids="random", window=200, repeats=1))
    page = open_one(f"?run={run_id}&view=compare&part=generation")
    part = page.locator("[data-testid=fx-compare-generation]")
    page.evaluate("""() => {
        window.seen = { full: [], focus: [] };
        for (const mode of ["full", "focus"]) {
            const body = document.querySelector(`[data-testid=fx-generated-${mode}]`);
            const note = () => window.seen[mode].push(body.querySelectorAll(".fx-pair-token").length);
            new MutationObserver(note).observe(body, { childList: true });
        }
    }""")
    part.get_by_label("Prompt").fill("The harbour was quiet. The boats lay side by side, and")
    part.get_by_label("Tokens to write").fill("130")
    part.locator("[data-testid=fx-compare-start]").click()
    done(page, "generation")
    for mode, counts in page.evaluate("window.seen").items():
        expect(part.locator(f"[data-testid=fx-generated-{mode}] .fx-pair-token")).to_have_count(130)
        expect(part.locator(f"[data-testid=fx-generated-{mode}] [data-group]")).to_have_count(130)
        assert counts[-1] == 130
        assert any(0 < count < 130 for count in counts), (mode, counts)
        assert counts == sorted(counts)  # what is written stays
    texts = [part.locator(f"[data-testid=fx-generated-{mode}]").inner_text() for mode in ("full", "focus")]
    assert texts[0] == texts[1]  # everything lies within the window of the run
    focus = part.locator("[data-testid=fx-generated-focus]")
    focus.locator('[tabindex="0"]').focus()
    page.keyboard.press("End")
    here = page.locator(":focus")
    label = here.get_attribute("data-label")
    assert here.get_attribute("aria-label").endswith(f"token 130, group {label} in layer 1")
    expect(page.locator("[data-testid=fx-tooltip]:visible")).to_have_text(f"group {label} in layer 1")
    part.get_by_label("Show group letters").check()
    letter = focus.locator('[tabindex="0"]').evaluate("node => getComputedStyle(node, '::after').content")
    assert letter.strip('"') == label


def test_heads_are_measured_drawn_and_opened(tiny_page):
    open_one, service, _ = tiny_page
    run_id = list_runs(service.database)[-1]["run_id"]
    page = open_one(f"?run={run_id}&view=compare&part=heads")
    part = page.get_by_test_id("fx-compare-heads")
    part.get_by_role("button", name="Measure heads").click()
    rows = part.get_by_test_id("fx-heads-table").locator("tbody tr")
    expect(rows.first).to_contain_text("layer", timeout=60_000)
    found = measured_heads(service, run_id)
    measured = [head for head in found["heads"] if head["nll"] is not None]
    expect(rows).to_have_count(len(measured))
    first = measured[0]
    expect(rows.first).to_contain_text(f"layer {first['layer']}, head {first['head']}")
    change = (first["nll"] - found["nll_focus"]) * 1000
    expect(rows.first).to_contain_text(f"{abs(change):.1f}")
    expect(part.locator("[data-testid=fx-head-costs] .main-svg").first).to_be_visible()
    expect(part.get_by_role("button", name="Measure them again")).to_be_visible()


def test_changes_are_made_listed_undone_and_saved(tiny_page):
    open_one, service, _ = tiny_page
    run_id = list_runs(service.database)[-1]["run_id"]
    page = open_one(f"?run={run_id}&view=compare&part=whatIf&layer=1&sel=t20i")
    part, changes = page.get_by_test_id("fx-compare-what-if"), page.get_by_test_id("fx-changes").locator("li")
    part.get_by_label("Change", exact=True).select_option("silence")
    part.get_by_label("Group", exact=True).select_option("A")
    part.get_by_role("button", name="Apply").click()
    verdict = part.get_by_test_id("fx-what-if-verdict")
    expect(verdict).to_contain_text("Perplexity", timeout=60_000)
    expect(changes).to_have_count(1)
    expect(changes.first).to_contain_text("layer 1: group A silent")
    found = service.part(WhatIfs).measure(run_id, ["silence:1:A"])
    expect(verdict).to_contain_text(f"{exp(found['nll_after']):.1f}")
    expect(part.get_by_test_id("fx-pair-changes")).to_contain_text("0 pairs gained")
    expect(part.locator("[data-testid=fx-pair-changes-plot] .main-svg").first).to_be_visible()
    part.get_by_label("Change", exact=True).select_option("see")
    part.get_by_label("Layer", exact=True).select_option("all")
    part.get_by_label("Token", exact=True).fill("60")
    part.get_by_label("sees token").fill("70")
    part.get_by_role("button", name="Apply").click()
    expect(part.get_by_role("alert")).to_contain_text("a token cannot see a later one")
    expect(changes).to_have_count(1)  # what is refused is not in force
    part.get_by_label("sees token").fill("5")
    part.get_by_role("button", name="Apply").click()
    expect(changes).to_have_count(2)
    assert parse_qs(urlsplit(page.url).query)["set"] == ["silence:1:A,see:all:60:5"]
    expect(part.locator(".fx-command code")).to_have_text(
        f"focus-explorer what-if {run_id} --set silence:1:A --set see:all:60:5 --save"
    )
    part.get_by_role("button", name="Undo").click()
    expect(changes).to_have_count(1)
    expect(part.get_by_role("button", name="Save as a run")).to_be_enabled()
    part.get_by_role("button", name="Save as a run").click()
    part.get_by_role("button", name="Open it").click(timeout=60_000)
    expect(page.get_by_test_id("fx-header")).to_contain_text("What if: silence:1:A")
    expect(page.get_by_test_id("fx-header")).to_contain_text("Changed by hand: silence:1:A")


def test_a_budget_is_in_words_and_a_token_has_the_groups_of_the_heads_shown(tiny_page):
    open_one, service, _ = tiny_page
    usual = list_runs(service.database)[-1]
    budget = (
        HeadException(layer=0, query_head=0, full=True),
        HeadException(layer=0, query_head=1, top_k=0),
        HeadException(layer=0, query_head=2, top_k=2),
        HeadException(layer=1, top_k=2),
    )
    chosen = AnalyzeRequest(model=usual["model_id"], centroids="random", top_k=1, window=8, repeats=1, budget=budget)
    own = analyze(service, OTHER_TEXT, chosen)
    page = open_one(f"?run={own}&layer=0&view=compare&part=runs&with={usual['run_id']}")
    row = page.get_by_test_id("fx-run-numbers").locator("tr", has_text="Budget")
    alone = "1 query head without groups, 1 query head with another top-k"
    words = f"1 layer with another top-k, 1 query head in full, {alone}"
    expect(row.locator("th, td")).to_have_text([re.compile("^Budget"), words, "none"], timeout=20_000)
    page.get_by_role("radio", name="Other settings").check()
    expect(page.get_by_test_id("fx-grid-budget")).to_contain_text("heads with full attention stay full, also in")
    page.get_by_role("tab", name="Tokens").click()
    page.locator("#fx-token-20").click()
    groups = page.get_by_test_id("fx-detail").locator(".fx-tooltip-row", has_text="Groups in this layer")
    heads = page.get_by_test_id("fx-detail").locator(".fx-head-choice select")
    for number, shown in enumerate(("no group: full attention", "no group: these heads use none", 2, 1)):
        heads.select_option(index=number)
        if isinstance(shown, str):
            expect(groups).to_contain_text(shown)
        else:
            expect(groups.locator(".fx-chip")).to_have_count(shown)
    other = open_one(f"?run={usual['run_id']}&view=compare&part=settings")
    expect(other.get_by_test_id("fx-compare-settings")).to_be_visible(timeout=20_000)
    expect(other.get_by_test_id("fx-grid-budget")).to_be_hidden()
