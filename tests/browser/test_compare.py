"""The parts of the Compare view as a person uses them, on a database of their own with two runs of one text."""

from __future__ import annotations

import shutil

import pytest
from playwright.sync_api import expect

from focus_explorer.comparing import grid_rows
from focus_explorer.lengths import lengths
from focus_explorer.pairing import beside
from focus_explorer.queries import fetch
from focus_explorer.service import AnalyzeRequest, Service
from tests.browser.conftest import opening, serving

pytestmark = [pytest.mark.browser, pytest.mark.model]
MEASURED = 240_000  # milliseconds a small measurement may take on a busy machine


@pytest.fixture(scope="module")
def pair(database, tmp_path_factory):
    """The shared run, and the same text at another setting: service, first run, second run."""
    path = tmp_path_factory.mktemp("compare") / "runs.duckdb"
    shutil.copyfile(database, path)
    service = Service(path)
    first = service.runs()[-1]["run_id"]
    text = "A letter came. <script>window.hacked = true</script> & “quotes” 🙂 مرحبا 你好\n" * 12
    second = service.analyze(text, AnalyzeRequest(top_k=2, window=32, repeats=1))
    return service, first, second


@pytest.fixture(scope="module")
def compare_url(pair):
    with serving("--db", pair[0].database.path, port=7961) as url:
        yield url


@pytest.fixture
def open_part(chromium, compare_url, pair):
    with opening(chromium, compare_url) as open_one:

        def open_it(part, **options):
            page = open_one(f"?run={pair[1]}&view=compare&part={part}", **options)
            return page, page.locator(f"[data-testid=fx-compare-{part}]")

        yield open_it


def done(page, part):
    page.wait_for_function(
        "part => document.querySelector(`[data-testid=fx-compare-${part}] .fx-job`).dataset.state === 'done'",
        arg=part, timeout=MEASURED,
    )  # fmt: skip


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
    page.reload()
    page.wait_for_selector("[data-testid=fx-header]")
    expect(line).to_contain_text("over 10 scored tokens")


def test_a_small_grid_is_measured_kept_and_drawn(open_part, pair):
    page, part = open_part("settings")
    expect(part.locator("[data-testid=fx-grid-empty]")).to_be_visible()
    assert part.get_by_label("Window", exact=True).input_value() == "8, 16, 64"
    part.get_by_label("Top-k", exact=True).fill("one")
    part.locator("[data-testid=fx-compare-start]").click()
    expect(part.get_by_role("alert")).to_contain_text("whole numbers")
    part.get_by_label("Top-k", exact=True).fill("1")
    part.get_by_label("Window", exact=True).fill("16")
    part.get_by_label("Repeats", exact=True).fill("1")
    part.locator("[data-testid=fx-compare-start]").click()
    expect(part.locator("[data-testid=fx-compare-stop]")).to_be_visible(timeout=20_000)
    done(page, "settings")
    cells = grid_rows(pair[0], pair[1])
    assert {cell["kind"] for cell in cells} == {"focus", "window", "random"}
    own = next(cell for cell in cells if cell["kind"] == "focus")
    shown = part.locator('[data-cell="focus/1/16"]')
    expect(shown).to_contain_text(f"{own['retained_pairs']:.0%}".replace("%", "\u00a0%"))
    expect(shown).to_contain_text("this run's setting")
    expect(part.locator("[data-testid=fx-pareto] .legend")).to_contain_text("Random centroids")
    page.reload()  # kept with the run
    page.wait_for_selector("[data-testid=fx-header]")
    expect(shown).to_be_visible(timeout=20_000)


def test_a_grid_can_be_stopped(open_part, pair):
    _, part = open_part("settings")
    before = len(grid_rows(pair[0], pair[1]))
    part.get_by_label("Repeats", exact=True).fill("50")
    part.locator("[data-testid=fx-compare-start]").click()
    part.locator("[data-testid=fx-compare-stop]").click(timeout=20_000)
    expect(part.get_by_role("status")).to_contain_text("Stopped", timeout=MEASURED)
    assert len(grid_rows(pair[0], pair[1])) == before


def test_two_runs_share_one_selection(open_part, pair):
    page, part = open_part("runs")
    found = beside(*pair)
    tokens = part.locator("[data-side=other] .fx-pair-token")
    expect(tokens.first).to_be_visible(timeout=20_000)
    layer = found["layers"][15]
    expect(part).to_contain_text(f"{layer['overlap'] * 100:.0f}\u00a0% in matched groups")
    changed = part.locator("[data-side=other] .fx-changed").count()
    part.locator("[data-testid=fx-select-changed]").click()
    assert part.locator("[data-side=mine] [data-selected]").count() == changed > 0
    tokens.nth(5).click()
    assert part.locator("[data-side=mine] [data-selected]").count() == 1
    expect(part.locator('[data-side=mine] [data-pos="5"]')).to_have_attribute("data-selected", "")
    page.get_by_role("tab", name="Tokens").click()
    expect(page.locator("[data-testid=fx-selection]")).to_contain_text("token 5")


def test_lengths_are_measured_and_shown(open_part, pair):
    page, part = open_part("lengths")
    part.get_by_label("Time to spend").select_option("10")
    part.locator("[data-testid=fx-compare-start]").click()
    done(page, "lengths")
    layer = lengths(pair[0], pair[1])["layers"]["15"]
    last = layer["points"][-1]["tokens"]
    expect(part.locator(".fx-verdict")).to_contain_text(f"At {last:,} tokens")
    assert part.locator("[data-testid=fx-crossover] .point").count() == 2 * len(layer["points"])
    page.locator("input[type=range]").first.press("ArrowRight")
    expect(part).to_contain_text("Layer 16 is not measured yet")


def test_both_texts_grow_and_are_coloured_by_the_open_layer(open_part):
    page, part = open_part("generation")
    part.get_by_label("Prompt").fill("The harbour was quiet. The boats lay side by side, and")
    part.get_by_label("Tokens to write").fill("6")
    part.locator("[data-testid=fx-compare-start]").click()
    done(page, "generation")
    for mode in ("full", "focus"):
        tokens = part.locator(f"[data-testid=fx-generated-{mode}] .fx-pair-token")
        expect(tokens).to_have_count(6)
        expect(part.locator(f"[data-testid=fx-generated-{mode}] [data-group]")).to_have_count(6)
    texts = [part.locator(f"[data-testid=fx-generated-{mode}]").inner_text() for mode in ("full", "focus")]
    assert texts[0] == texts[1]  # everything lies within the window of the run
