"""The Runs tab: stored runs to find, label, delete, reopen, compare and export; and a user's own SQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr
from fastapi import Response

from focus_explorer.usecases.labels import KEEP_DAYS, all_runs, delete_run, label_run, undelete_run
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.sql import EXAMPLES, Limits, run_sql
from focus_explorer.usecases.visitors import visitor_limits
from focus_explorer.views.payloads.runs import DeletedPayload, RunCardsPayload, SqlExamplesPayload
from focus_explorer.views.run import run_card
from focus_explorer.web.requests.dispatch import dispatch, guarded, packed
from focus_explorer.web.tabs.explore import Explore, browser_view
from focus_explorer.web.tabs.form import QUIET
from focus_explorer.web.text import PUBLIC_RUNS_INTRO, RUNS_INTRO

ON_LOAD = """
  const ask = (name) => (request) => server[name](request || {});
  const view = FocusRuns.create(element.querySelector('.fx-root'), {
    load: ask('load_runs'), label: ask('label'), remove: ask('remove'), restore: ask('restore'), ask: ask('ask'),
  });
  watch('value', () => view.load());
"""
ON_LOAD_SQL = """
  FocusSql.create(element.querySelector('.fx-root'), {
    query: (sql) => server.query({ sql }), examples: () => server.examples({}),
  });
"""


def build(service: Service, explore: Explore, tab: gr.Tab, blocks: gr.Blocks) -> None:
    """Lay out the tab; lists are read again whenever it is opened or a run finishes."""
    public = visitor_limits(service) is not None
    gr.HTML(f'<p class="fe-intro">{PUBLIC_RUNS_INTRO if public else RUNS_INTRO}</p>', padding=False)
    listing = browser_view("fe-runs", "FocusRuns", ON_LOAD, _server_functions(service))
    if not public:
        browser_view("fe-sql", "FocusSql", ON_LOAD_SQL, _sql_functions(service))

    def refresh() -> str:
        return str(time.time())  # the list reads itself again

    gr.on([tab.select, blocks.load], refresh, None, listing, **QUIET)
    explore.finished.then(refresh, None, listing, **QUIET)


def _server_functions(service: Service) -> list[Callable[..., Any]]:
    def load_runs(request: dict[str, Any]) -> dict[str, Any]:
        def cards() -> RunCardsPayload:
            return {"runs": [run_card(row) for row in all_runs(service)], "keep_days": KEEP_DAYS}

        return guarded(cards)

    def label(run: str, name: str = "", note: str = "", tags: Sequence[str] = ()) -> dict[str, Any]:
        return guarded(lambda: label_run(service, run, name=name, note=note, tags=tags))

    def remove(request: dict[str, Any]) -> dict[str, Any]:
        def work() -> DeletedPayload:
            delete_run(service, str(request.get("run")))
            return {"deleted": True}

        return guarded(work)

    def restore(request: dict[str, Any]) -> dict[str, Any]:
        def work() -> DeletedPayload:
            undelete_run(service, str(request.get("run")))
            return {"deleted": False}

        return guarded(work)

    def ask(request: dict[str, Any]) -> Response:
        return packed(guarded(lambda: dispatch(service, request)))

    return [load_runs, label, remove, restore, ask]


def _sql_functions(service: Service) -> list[Callable[..., Any]]:
    def query(request: dict[str, Any]) -> dict[str, Any]:
        return guarded(lambda: run_sql(service.database, str(request.get("sql") or "")))

    def examples(request: dict[str, Any]) -> SqlExamplesPayload:
        limits = Limits()
        return {"examples": list(EXAMPLES), "seconds": limits.seconds, "rows": limits.rows}

    return [query, examples]
