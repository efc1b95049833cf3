"""More settings of the form: device, precision, backend, and how random centroids are drawn."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from focus_explorer.services.runs import list_runs

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


def test_what_was_chosen_runs_and_is_shown(tiny_page):
    open_one, service, _ = tiny_page
    page = open_one()
    page.get_by_text("More settings").first.click()
    choose_cpu(page)
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


def test_only_random_centroids_are_drawn(tiny_page):
    page = tiny_page[0]()
    page.get_by_text("More settings").first.click()
    expect(page.locator("#fe-groups input")).to_be_visible()
    choose(page, "centroids", "default")
    expect(page.locator("#fe-groups input")).to_be_hidden()


def test_what_a_device_lacks_is_one_line(tiny_page):
    page = tiny_page[0]()
    page.get_by_text("More settings").first.click()
    choose_cpu(page)
    choose(page, "dtype", "float16")
    page.locator("#fe-run").click()
    alert = page.locator("#fe-status [role=alert]")
    expect(alert).to_contain_text("does not compute in float16", timeout=60_000)
    expect(alert).to_contain_text("leave the precision to auto")
