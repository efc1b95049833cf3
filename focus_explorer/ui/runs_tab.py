"""The Runs tab: stored runs to find, label, delete, reopen and compare; exports; and a user's own SQL."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from focus_explorer.errors import InputError
from focus_explorer.exports.tables import FORMATS, SUFFIXES, WHAT
from focus_explorer.run_labels import KEEP_DAYS, all_runs, delete_run, label_run, undelete_run
from focus_explorer.service import Service
from focus_explorer.sql import EXAMPLES, Limits, run_sql
from focus_explorer.ui.explore_tab import Explore, alert, done, guarded
from focus_explorer.ui.text import BUTTONS, LABELS, RUNS_INTRO, SAID
from focus_explorer.views.files import run_card

ON_LOAD = """
const start = () => {
  if (!window.FocusRuns) { setTimeout(start, 30); return; }
  const ask = (name) => (asked) => server[name](asked || {});
  const view = FocusRuns.create(element.querySelector('.fx-root'), {
    load: ask('load_runs'), label: ask('label'), remove: ask('remove'), restore: ask('restore'),
  });
  watch('value', () => view.load());
};
start();
"""
ON_LOAD_SQL = """
const start = () => {
  if (!window.FocusSql) { setTimeout(start, 30); return; }
  FocusSql.create(element.querySelector('.fx-root'), {
    query: (sql) => server.query({ sql }), examples: () => server.examples({}),
  });
};
start();
"""


def build(service: Service, explore: Explore, tab: gr.Tab, blocks: gr.Blocks) -> None:
    """Lay out the tab; lists are read again whenever it is opened or a run finishes."""
    gr.HTML(f'<p class="fe-intro">{RUNS_INTRO}</p>', padding=False)
    with gr.Row(elem_classes="fe-explore"):
        with gr.Column(scale=3, min_width=280):
            listing = gr.HTML(
                value="", html_template='<div class="fx-root"></div>', js_on_load=ON_LOAD,
                server_functions=_server_functions(service), elem_id="fe-runs", padding=False, apply_default_css=False,
            )  # fmt: skip
        with gr.Column(scale=1, min_width=280, elem_classes="fe-form"):
            run, message, download = _export_form(service)
    gr.HTML(
        value="", html_template='<div class="fx-root"></div>', js_on_load=ON_LOAD_SQL,
        server_functions=_sql_functions(service), elem_id="fe-sql", padding=False, apply_default_css=False,
    )  # fmt: skip

    def refresh(current: str | None, page: gr.Request) -> tuple[Any, Any]:
        try:
            rows = service.runs()
        except InputError:  # the list itself says what is wrong
            return str(time.time()), gr.skip()
        choices = [(_label(row), row["run_id"]) for row in rows]
        known = {row["run_id"] for row in rows}
        linked = page.query_params.get("run") if page else None  # what the link of this page opened
        value = next((run for run in (current, linked) if run in known), rows[0]["run_id"] if rows else None)
        return str(time.time()), gr.update(choices=choices, value=value)

    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    gr.on([tab.select, blocks.load], refresh, run, [listing, run], **quiet)
    # the run just made is the one to export
    explore.finished.change(refresh, explore.finished, [listing, run], **quiet)
    run.input(lambda: ("", gr.update(visible=False)), None, [message, download], **quiet)


def _label(row: dict[str, Any]) -> str:
    """What tells a run from the others comes first: titles of one text are the same."""
    config = row["config"]
    made = row["created_at"].strftime("%d %b %H:%M")
    title = (row["name"] or row["title"])[:40]
    return f"k={config['top_k']}, w={config['window']}, {row['num_tokens']:,} tokens, {made}: {title}"


def _export_form(service: Service) -> tuple[gr.Dropdown, gr.HTML, gr.DownloadButton]:
    gr.HTML(f"<h2>{LABELS['export_title']}</h2>", padding=False)
    run = gr.Dropdown([], label=LABELS["export_run"], elem_id="fe-export-run")
    what = gr.Radio(list(WHAT), value="groups", label=LABELS["export_table"], elem_id="fe-export-what")
    file_format = gr.Radio(list(FORMATS), value="csv", label=LABELS["export_format"], elem_id="fe-export-format")
    make = gr.Button(BUTTONS["export"], variant="primary", elem_id="fe-export-make")
    message = gr.HTML(elem_id="fe-export-message", padding=False)
    download = gr.DownloadButton(BUTTONS["download"], visible=False, elem_id="fe-export-download")
    folder = tempfile.TemporaryDirectory(prefix="focus-export-")  # removed when the server ends

    def export(run_id: str | None, table: str, chosen: str) -> tuple[Any, Any]:
        """Write one table of a run to a file: its id, the table and the format, as the Runs tab offers them."""
        if not run_id:
            return alert(SAID["no_run"]), gr.update(visible=False)
        try:
            path = service.export(run_id, table, chosen, Path(folder.name) / f"{run_id}-{table}{SUFFIXES[chosen]}")
        except InputError as error:
            return alert(str(error)), gr.update(visible=False)
        said = SAID["exported"].format(name=path.name, size=path.stat().st_size / 1024)
        return done(said), gr.update(value=str(path), visible=True)

    make.click(export, [run, what, file_format], [message, download], show_progress_on=message, api_name="export")
    for choice in (what, file_format):
        choice.input(
            lambda: ("", gr.update(visible=False)), None, [message, download], show_progress="hidden",
            api_visibility="private",
        )  # fmt: skip
    return run, message, download


def _server_functions(service: Service) -> list[Callable[..., Any]]:
    def load_runs(asked: dict[str, Any]) -> dict[str, Any]:
        return guarded(lambda: {"runs": [run_card(row) for row in all_runs(service)], "keep_days": KEEP_DAYS})

    def label(asked: dict[str, Any]) -> dict[str, Any]:
        tags = [str(tag) for tag in asked.get("tags") or []]
        return guarded(
            lambda: label_run(
                service,
                str(asked.get("run")),
                name=str(asked.get("name") or ""),
                note=str(asked.get("note") or ""),
                tags=tags,
            )
        )

    def remove(asked: dict[str, Any]) -> dict[str, Any]:
        def work() -> dict[str, Any]:
            delete_run(service, str(asked.get("run")))
            return {"deleted": True}

        return guarded(work)

    def restore(asked: dict[str, Any]) -> dict[str, Any]:
        def work() -> dict[str, Any]:
            undelete_run(service, str(asked.get("run")))
            return {"deleted": False}

        return guarded(work)

    return [load_runs, label, remove, restore]


def _sql_functions(service: Service) -> list[Callable[..., Any]]:
    def query(asked: dict[str, Any]) -> dict[str, Any]:
        return guarded(lambda: run_sql(service.database, str(asked.get("sql") or "")))

    def examples(asked: dict[str, Any]) -> dict[str, Any]:
        limits = Limits()
        return {"examples": [list(pair) for pair in EXAMPLES], "seconds": limits.seconds, "rows": limits.rows}

    return [query, examples]
