"""More settings of the form: heads, device, precision, backend, and how random centroids are drawn."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.runs import list_runs
from focus_runtime.budget import HeadException
from tests.browser.conftest import HARBOUR, unfold

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def choose(page, field, label):
    page.locator(f"#fe-{field} input").click()
    page.get_by_role("option", name=label, exact=True).click()


def choose_cpu(page):
    page.locator("#fe-device input").click()
    expect(page.get_by_role("option", name="auto (")).to_be_visible(timeout=60_000)  # what auto takes on this machine
    cpu = page.get_by_role("option", name="cpu (")
    expect(cpu).to_contain_text("GB)")
    cpu.click()


def test_what_a_device_lacks_is_one_line_and_what_was_chosen_runs_and_is_shown(tiny_page):
    open_one, service, _ = tiny_page
    page = open_one()
    unfold(page.get_by_text("More settings").first)
    choose_cpu(page)
    choose(page, "dtype", "float16")
    page.locator("#fe-run").click()
    alert = page.locator("#fe-status [role=alert]")
    expect(alert).to_contain_text("does not compute in float16", timeout=60_000)
    expect(alert).to_contain_text("leave the precision to auto")

    choose(page, "dtype", "bfloat16")
    choose(page, "backend", "decomposed")
    for field, value in {"groups": "6", "routing-dim": "8", "seed": "5"}.items():
        page.locator(f"#fe-{field} input").fill(value)
    page.locator("#fe-run").click()
    header = page.get_by_test_id("fx-header")
    expect(header).to_contain_text("decomposed", timeout=60_000)
    for part in ("cpu", "bfloat16", "seed 5"):
        expect(header).to_contain_text(part)
    run = list_runs(service.database)[0]
    config = run["config"]
    assert (run["device"], run["dtype"], run["backend"]) == ("cpu", "bfloat16", "decomposed")
    assert (config["num_groups"], config["routing_dim"]) == (6, 8)
    page.get_by_role("button", name="Another text").click()
    choose(page, "centroids", "default")
    expect(page.locator("#fe-groups input")).to_be_hidden()


@pytest.mark.long
def test_another_text_has_the_heads_of_the_run_until_other_centroids_are_chosen(tiny_page):
    open_one, service, _ = tiny_page
    model = list_runs(service.database)[-1]["model_id"]
    own = {"budget": (HeadException(layer=0, window=2),), "window_growth": (4, 64)}
    how = AnalyzeRequest(model=model, centroids="random", top_k=1, window=8, repeats=1, **own)
    opened = analyze(service, HARBOUR[:300], how)
    page = open_one(f"?run={opened}", fresh=True)
    page.get_by_role("button", name="Another text").click()
    unfold(page.get_by_text("More settings").first)
    expect(page.get_by_label("Of the opened run")).to_be_checked()
    page.locator("#fe-text textarea").fill(HARBOUR[:420])
    page.locator("#fe-run").click()
    expect(page.locator("#fe-status")).to_contain_text("Done", timeout=60_000)
    config = list_runs(service.database)[0]["config"]
    assert config["window_growth"] == [4, 64]
    assert config["budget"] == [{"layer": 0, "window": 2}]
    page.get_by_role("button", name="Another text").click()
    choose(page, "centroids", "default")
    expect(page.get_by_label("Of the file")).to_be_checked()
