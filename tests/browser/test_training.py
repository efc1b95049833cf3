"""The Training tab as a person meets it: start on a tiny model, watch the curve grow, stop, continue, use."""

from __future__ import annotations

import base64
import math
from dataclasses import replace

import numpy as np
import pytest
from playwright.sync_api import expect

from focus_explorer.usecases.centroids.files import uploaded_centroids
from focus_explorer.usecases.training.processes import Trainings
from focus_explorer.usecases.training.request import snapshots_of
from focus_runtime.config import FocusConfig
from focus_runtime.fit.settings import TrainStep
from focus_runtime.fit.validation import Evaluation
from focus_runtime.store.training import TrainingInfo, TrainingRecorder
from tests.browser.conftest import unfold

pytestmark = [pytest.mark.browser, pytest.mark.long]
STEPS = 120
RUN = "[data-testid=fx-training-status]"


def open_tab(open_one, **look):
    page = open_one(**look)
    unfold(page.get_by_role("tab", name="Training"))
    return page


def start(page, text, name, steps):
    page.locator("#fe-train-files input[type=file]").set_input_files(text)
    for field, value in {"name": name, "steps": str(steps), "groups": "3"}.items():
        page.locator(f"#fe-train-{field} :is(input, textarea)").fill(value)
    unfold(page.get_by_text("More settings").last)
    for field, value in {"seq_len": "64", "window": "8"}.items():
        page.locator(f"#fe-train-{field} input").fill(value)
    page.locator("#fe-train-start").click()


def points(page):
    return page.evaluate("document.querySelector('[data-testid=fx-curve-loss]').data?.[0].x.length ?? 0")


def shown_range(page, chart):
    return page.evaluate(f"document.querySelector('[data-testid=fx-curve-{chart}]').layout.xaxis.range.map(Math.round)")


def test_start_watch_zoom_stop_continue_and_use(tiny_page):
    open_one, service, text = tiny_page
    before = {file["sha256"] for file in uploaded_centroids(service.database)}
    page = open_tab(open_one)
    if not Trainings(service).rows():
        expect(page.locator("#fe-training")).to_contain_text("No training yet")
    pace = text.parent / "pace"  # else a fast machine would be done before Stop is pressed
    pace.touch()
    start(page, text, "harbour", STEPS)
    expect(page.locator(RUN)).to_have_text("running", timeout=120_000)
    expect(page.locator("#fe-training")).to_contain_text("left", timeout=60_000)
    page.wait_for_function(
        "document.querySelector('[data-testid=fx-curve-loss]').data?.[0].x.length > 20", timeout=60_000
    )
    for chart in ("loss", "perplexity", "dominance", "retained_pairs", "tokens_per_second"):
        assert page.locator(f"[data-testid=fx-curve-{chart}] .main-svg").first.bounding_box()["height"] > 150
    expect(page.locator("[data-testid=fx-curve-dominance]")).to_contain_text("1.5 × even: 50")

    page.locator("#fe-train-start").click()  # one at a time
    expect(page.locator("#fe-train-status [role=alert]")).to_contain_text("harbour is still running", timeout=60_000)

    page.locator("[data-testid=fx-curve-loss]").scroll_into_view_if_needed()
    everything = shown_range(page, "loss")
    box = page.locator("[data-testid=fx-curve-loss] .nsewdrag").first.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.2 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], middle, steps=4)
    page.mouse.up()
    page.wait_for_function(
        "all => document.querySelector('[data-testid=fx-curve-loss]').layout.xaxis.range[0] > all[0]", arg=everything
    )
    zoomed, seen = shown_range(page, "loss"), points(page)
    page.wait_for_function(
        "n => document.querySelector('[data-testid=fx-curve-loss]').data[0].x.length > n", arg=seen, timeout=60_000
    )
    assert shown_range(page, "loss") == zoomed == shown_range(page, "dominance")

    page.get_by_test_id("fx-training-stop").click()
    expect(page.locator(RUN)).to_have_text("stopped", timeout=60_000)
    row = Trainings(service).rows()[0]
    assert 0 < row["step"] < STEPS
    # the page asks for a training that does not run every few seconds only
    expect(page.locator("#fe-training")).to_contain_text(f"Step {row['step']:,} of {STEPS:,}", timeout=30_000)

    pace.unlink()
    page.get_by_test_id("fx-training-resume").click()  # a fast machine is done before the page asks again
    expect(page.locator(RUN)).to_have_text("done", timeout=300_000)
    assert Trainings(service).rows()[0]["step"] == STEPS
    watch_the_film(page, service, Trainings(service).rows()[0])
    page.get_by_test_id("fx-training-use").click()
    expect(page.locator("#fe-run")).to_be_visible(timeout=60_000)
    [file] = [file for file in uploaded_centroids(service.database) if file["sha256"] not in before]
    assert file["name"] == "harbour"
    expect(page.locator("#fe-centroids input")).to_have_value(f"harbour ({file['sha256'][:8]})")


def watch_the_film(page, service, row):
    """Its frames are the kept files; the text has the groups of the answer, and the mask changes with the frame."""
    page.emulate_media(reduced_motion="no-preference")  # else it waits for Play
    page.get_by_test_id("fx-film-make").click()
    steps = [*sorted(snapshots_of(row["out"])), STEPS]
    assert len(steps) == 24  # every five steps
    expect(page.get_by_test_id("fx-film-step")).to_have_text(f"step {STEPS}", timeout=60_000)  # played to its end
    expect(page.get_by_test_id("fx-film-play")).to_have_text("Play")
    film = Trainings(service).film(row["training_id"], None, "Novel")
    tops = np.frombuffer(base64.b64decode(film["top"]), dtype=np.uint8).reshape(len(steps), -1)
    picture = "document.querySelector('[data-testid=fx-film-mask]').toDataURL()"
    last = page.evaluate(picture)
    for frame in (0, len(steps) - 1):
        page.get_by_test_id("fx-film-frame").fill(str(frame))
        expect(page.get_by_test_id("fx-film-words")).to_contain_text(f"After step {steps[frame]},")
        shades = page.locator(".fx-film-token").evaluate_all("nodes => nodes.map((node) => node.dataset.shade)")
        assert shades == [f"g{group}" for group in tops[frame]]
        assert (page.evaluate(picture) == last) == (frame == len(steps) - 1)
    other = next(layer for layer in film["layers"] if layer != film["layer"])
    page.get_by_test_id("fx-film-layer").select_option(str(other))
    expect(page.get_by_test_id("fx-film-layer")).to_have_value(str(other))
    expect(page.locator(".fx-film .fx-progress")).to_have_count(0)


def record(service, name, loss, *, twin=False, held_out=False, layers=False, **settings):
    """A finished training of 40 steps whose loss falls from `loss`, and one with full attention for a twin.

    With `held_out` two domains are scored every ten steps. With `layers` it is the layer error that falls.
    `settings` are those of the training.
    """
    info = TrainingInfo(
        name=name,
        kind="centroids",
        model_id="tiny",
        model_fingerprint="f",
        steps=40,
        seed=0,
        device="cpu",
        dtype="float32",
        config=FocusConfig(num_groups=4, top_k=1).to_dict(),
        settings=settings,
    )
    with TrainingRecorder(service.database, info) as recorder:
        for number in range(1, 41):
            row = TrainStep(number, loss - number / 50, 0.3, 0.35, 0.4, 1e-3, 900.0)
            row = replace(row, loss=math.nan, layer_error=row.loss) if layers else row
            recorder.step(row)
            if held_out and number % 10 == 0:
                scores = {"novels": loss - number / 40, "code": loss - 1}
                recorder.evaluation(Evaluation(number, scores, {"novels": 9, "code": 9}, 0.3, 0.4))
    if twin:  # as earlier versions recorded
        with service.database.write() as connection:
            connection.execute(
                "INSERT INTO training_steps SELECT * REPLACE ('full' AS mode, loss - 0.1 AS loss, NULL AS dominance) "
                "FROM training_steps WHERE training_id = ?",
                [recorder.training_id],
            )


def test_curves_of_recorded_trainings(tiny_page):
    open_one, service, _ = tiny_page
    record(service, "first", 4.0)
    record(service, "second", 5.0, twin=True, hard=True)
    record(service, "scored", 4.0, held_out=True)
    record(service, "layer by layer", 0.9, layers=True)
    page = open_tab(open_one, query="?__theme=dark", size="narrow", scheme="dark")
    two_lie_over_each_other(page)
    one_layer_by_layer_has_a_curve_of_its_own(page)
    scores_on_held_out_text_are_points_of_their_own(page)


def two_lie_over_each_other(page):
    listed = page.locator("[data-testid=fx-training-list]")
    expect(listed).to_contain_text("first", timeout=60_000)
    listed.get_by_role("button", name="second").click()
    expect(page.locator("[data-testid=fx-training-values] tbody tr")).to_have_count(1)
    listed.get_by_label("first").first.check()
    rows = page.locator("[data-testid=fx-training-values] tbody tr")
    expect(rows).to_have_count(2, timeout=30_000)
    hint = page.get_by_role("button", name="What does “Loss” mean?")
    hint.focus()
    ways = "under the hard mask (second); with the soft gate (first)"
    expect(page.locator(".fx-tooltip-text")).to_contain_text(ways)
    hint.blur()
    expect(rows.first).to_contain_text("4.390")  # mean of 5 - step / 50 over the last 20 steps
    page.wait_for_function("document.querySelector('[data-testid=fx-curve-loss]').data?.length === 6", timeout=30_000)
    lines = page.evaluate("document.querySelector('[data-testid=fx-curve-loss]').data.map((t) => t.line)")
    assert [line["dash"] for line in lines] == ["solid", "solid", "dash", "dash", "solid", "solid"]
    assert len({line["color"] for line in lines}) == 2
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


def scores_on_held_out_text_are_points_of_their_own(page):
    page.locator("[data-testid=fx-training-list]").get_by_role("button", name="scored").click(timeout=60_000)
    page.wait_for_function("document.querySelector('[data-testid=fx-curve-loss]').data?.length === 4", timeout=90_000)
    drawn = page.evaluate("document.querySelector('[data-testid=fx-curve-loss]').data.map((t) => [t.mode, t.x.length])")
    assert sorted(drawn) == [["lines", 40], ["lines", 40], ["lines+markers", 4], ["lines+markers", 4]]
    expect(page.locator(".fx-curves-help")).to_contain_text("Points: held-out text")
    assert page.evaluate("document.querySelector('[data-testid=fx-curve-dominance]').data.length") == 3
    chart = page.locator("[data-testid=fx-curve-loss] .nsewdrag").first
    at = page.evaluate("document.querySelector('[data-testid=fx-curve-loss]')._fullLayout.xaxis.d2p(20)")
    tooltip = page.locator("#fe-training .fx-tooltip")
    for attempt in range(30):  # a chart that is drawn once more, when a curve is read again, forgets the pointer
        chart.scroll_into_view_if_needed()  # the list of earlier trainings may have pushed it below the window
        box = chart.bounding_box()
        page.mouse.move(box["x"] + at, box["y"] + box["height"] / 2 + attempt % 2)
        page.wait_for_timeout(500)
        if "scored, held-out code" in (tooltip.text_content() or ""):
            break
    expect(tooltip).to_contain_text("scored, held-out code")
    expect(page.locator("#fe-training .fx-tooltip")).to_contain_text("scored, held-out novels")


def one_layer_by_layer_has_a_curve_of_its_own(page):
    listed = page.locator("[data-testid=fx-training-list]")
    listed.get_by_role("button", name="layer by layer").click(timeout=60_000)
    page.wait_for_function(
        "document.querySelector('[data-testid=fx-curve-layer_error]').data?.length === 2", timeout=30_000
    )
    headings = page.locator(".fx-curves h3")
    expect(headings.filter(has_text="Layer error", visible=True)).to_have_count(1)
    values = page.locator("[data-testid=fx-training-values]")
    expect(values.locator("td[data-label='Layer error']")).to_have_text("0.2900")  # mean of 0.9 - step / 50, 20 steps
    expect(values.locator("td[data-label=Perplexity]")).to_have_count(0)
    for hidden in ("Loss", "Perplexity"):
        expect(headings.filter(has_text=hidden, visible=True)).to_have_count(0)
    listed.get_by_label("first").first.check()
    expect(headings.filter(has_text="Loss", visible=True)).to_have_count(1, timeout=30_000)
    expect(values.locator("td[data-label=Perplexity]").first).to_have_text("–")
    page.wait_for_function("document.querySelector('[data-testid=fx-curve-loss]').data?.length === 2", timeout=30_000)


def test_a_recipe_fills_the_form_and_an_early_end_without_held_out_text_is_refused(tiny_page):
    open_one, _, text = tiny_page
    page = open_tab(open_one)
    unfold(page.get_by_text("More settings").last)
    for recipe, values in (("paper", ("8", "128", "0", "paper")), ("ours", ("4", "128", "4", "log"))):
        page.locator("#fe-train-recipe").get_by_label(recipe, exact=True).check()
        for field, value in zip(("groups", "window", "sinks"), values, strict=False):
            expect(page.locator(f"#fe-train-{field} input")).to_have_value(value)
        expect(page.locator("#fe-train-gate").get_by_label(values[-1], exact=True)).to_be_checked()
    patience = page.locator("#fe-train-patience input")
    patience.fill("3")
    patience.blur()
    unfold(page.get_by_text("More settings").last)
    expect(patience).to_be_hidden()
    start(page, text, "patient", 30)
    expect(page.locator("#fe-train-status [role=alert]")).to_contain_text("held-out text", timeout=60_000)


def test_a_problem_of_the_process_is_one_message(tiny_page):
    open_one, _, text = tiny_page
    page = open_tab(open_one)
    page.locator("#fe-train-model input").fill("who-knows")
    page.keyboard.press("Enter")
    start(page, text, "nobody", 30)
    expect(page.locator("#fe-training [role=alert]")).to_contain_text("who-knows", timeout=120_000)
    assert "Traceback" not in page.locator("body").inner_text()
