"""What the Explore form's analysis tells its page, step by step."""

from __future__ import annotations

import asyncio
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.runs import list_runs
from focus_explorer.web.tabs import explore
from focus_explorer.web.tabs.explore import Runner
from focus_explorer.web.text import MESSAGES
from focus_runtime.run import text as engine
from tests.explorer.conftest import TEXT

pytestmark = pytest.mark.slow

FORM = {"centroids": "random", "top_k": 1, "window": 8, "num_sinks": 2, "max_tokens": None, "num_groups": 5, "seed": 0}
REPEATS = 10  # long enough to be seen between two looks
VISITOR = SimpleNamespace(session_hash="a visitor")


async def collected(steps):
    return [step async for step in steps]


def run(work):
    """In a thread of its own: tests in a browser keep a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def shown(service, model_folder, repeats):
    """What an analysis shows: values of the view, and its last message."""
    form = {"model": model_folder, **FORM}
    steps = run(collected(Runner(service, tuple(form), repeats).analyze(TEXT, VISITOR, *form.values())))
    views = [view for _, view, _ in steps if isinstance(view, str)]
    return views, steps[-1][0]


@contextmanager
def model_in_use(service, model_folder):
    """Somebody else works with the model."""
    held, free = threading.Event(), threading.Event()

    def hold():
        with service.models.lease(model_folder):
            held.set()
            free.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert held.wait(60)
        yield
    finally:
        free.set()
        holder.join()


def test_a_short_text_is_shown_when_it_is_done(service, model_folder):
    views, message = shown(service, model_folder, repeats=3)
    assert len(views) == 1
    assert " " not in views[0]
    assert MESSAGES["explored"] in message


def test_who_waits_is_told_the_place_in_line_and_can_stop(service, model_folder):
    form = {"model": model_folder, **FORM}
    runner = Runner(service, tuple(form), 1)

    async def wait_in_line():
        seen = []
        async for bar, _, _ in runner.analyze(TEXT, VISITOR, *form.values()):
            seen.append(bar)
            if "before you" in bar:
                runner.stop(VISITOR)
        return seen

    with model_in_use(service, model_folder):
        seen = run(wait_in_line())
    assert re.search(r"Waiting for the model: 1 before you", "".join(seen))
    assert MESSAGES["stopped"] in seen[-1]


def test_a_second_analysis_of_a_page_keeps_its_stop_when_the_first_ends(service, model_folder):
    form = {"model": model_folder, **FORM}
    runner = Runner(service, tuple(form), 1)

    async def both():
        first, second = (runner.analyze(TEXT, VISITOR, *form.values()) for _ in range(2))
        shown = [await anext(first), await anext(second)]
        await first.aclose()
        runner.stop(VISITOR)
        return [*shown, *await collected(second)]

    with model_in_use(service, model_folder):
        *_, last = run(both())
    assert MESSAGES["stopped"] in last[0]
    assert last[2]["interactive"] is False


def test_too_many_are_refused_in_words(monkeypatch, service, model_folder):
    monkeypatch.setattr(explore, "MOST_ANALYSES", 0)
    views, message = shown(service, model_folder, repeats=1)
    assert views == []
    assert "too many texts wait for the model already" in message.lower()


def test_a_long_text_is_shown_before_its_timings_are_repeated(monkeypatch, service, model_folder):
    monkeypatch.setattr(engine, "LONG_TIMING_SECONDS", 0.0)
    monkeypatch.setattr(explore, "LOOK_SECONDS", 0.001)
    views, message = shown(service, model_folder, repeats=REPEATS)
    run = views[0].split()[0]
    assert views[-1] == f"{run} timed"
    # a step that follows at once may be all that is seen of the one before
    assert views[:-1]
    assert set(views[:-1]) <= {f"{run} timing {repeats}" for repeats in range(1, REPEATS + 1)}
    assert MESSAGES["explored"] in message


def test_heads_of_an_opened_run_are_those_of_another_text(service, model_folder):
    how = AnalyzeRequest(model=model_folder, centroids="random", window=8, num_sinks=0, repeats=1, window_growth=(4, 9))
    opened = analyze(service, TEXT, how)
    growth = {}
    for heads in (opened, "file", "alike"):
        form = {"model": model_folder, "heads": heads, **FORM}
        *_, last = run(collected(Runner(service, tuple(form), 1).analyze(TEXT[:90], VISITOR, *form.values())))
        growth[heads] = list_runs(service.database)[0]["config"].get("window_growth")
        assert MESSAGES["explored"] in last[0]
    assert growth == {opened: [4, 9], "file": None, "alike": None}


def test_heads_of_a_run_that_is_gone_are_one_message(service, model_folder):
    form = {"model": model_folder, "heads": "nobody", **FORM}
    *_, last = run(collected(Runner(service, tuple(form), 1).analyze(TEXT, VISITOR, *form.values())))
    assert "There is no run &#x27;nobody&#x27;" in last[0]
