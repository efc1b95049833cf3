"""The Runs tab: stored runs to find, label, delete, reopen, compare and export; and a user's own SQL."""

from __future__ import annotations

import time
from collections.abc import Sequence

import gradio as gr

from focus_explorer.usecases.labels import KEEP_DAYS, all_runs, delete_run, label_run
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.sql import EXAMPLES, Limits, run_sql
from focus_explorer.usecases.visitors import visitor_limits
from focus_explorer.views.payloads import runs as payloads
from focus_explorer.views.run import run_card
from focus_explorer.web.requests.dispatch import asking, component_functions
from focus_explorer.web.tabs.explore import Explore, browser_view, restore
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
    functions = component_functions(service, load_runs, label, remove, restore)
    listing = browser_view("fe-runs", "FocusRuns", ON_LOAD, [*functions, asking(service)])
    if not public:
        browser_view("fe-sql", "FocusSql", ON_LOAD_SQL, component_functions(service, query, examples))

    def refresh() -> str:
        return str(time.time())  # the list reads itself again

    gr.on([tab.select, blocks.load], refresh, None, listing, **QUIET)
    explore.finished.then(refresh, None, listing, **QUIET)


def load_runs(service: Service) -> payloads.RunCardsPayload:
    """Kept and deleted runs."""
    return {"runs": [run_card(row) for row in all_runs(service)], "keep_days": KEEP_DAYS}


def label(
    service: Service, run: str, name: str = "", note: str = "", tags: Sequence[str] = ()
) -> payloads.RunLabelPayload:
    return label_run(service, run, name=name, note=note, tags=tags)


def remove(service: Service, run: str) -> payloads.DeletedPayload:
    """Hide a run, which can be brought back for a while."""
    delete_run(service, run)
    return {"deleted": True}


def query(service: Service, sql: str = "") -> payloads.SqlResultPayload:
    """Answer a user's own statement."""
    return run_sql(service.database, sql)


def examples(service: Service) -> payloads.SqlExamplesPayload:
    """Statements to begin with, and the limits of all."""
    limits = Limits()
    return {"examples": list(EXAMPLES), "seconds": limits.seconds, "rows": limits.rows}
