"""The Runs tab: stored runs with links, and exports."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import gradio as gr

from focus_explorer.errors import InputError
from focus_explorer.exports.tables import FORMATS, SUFFIXES, WHAT
from focus_explorer.service import Service
from focus_explorer.ui.explore_tab import Explore, alert, done
from focus_explorer.ui.text import RUNS_INTRO
from focus_explorer.views.tables import runs_table


def build(service: Service, explore: Explore, tab: gr.Tab, blocks: gr.Blocks) -> None:
    """Lay out the tab; lists are read again whenever it is opened or a run finishes."""
    gr.HTML(f'<p class="fe-intro">{RUNS_INTRO}</p>', padding=False)
    with gr.Row():
        with gr.Column(scale=3, min_width=280):
            listing = gr.HTML(elem_id="fe-runs", padding=False)
        with gr.Column(scale=1, min_width=280, elem_classes="fe-form"):
            gr.HTML("<h2>Export a table</h2>", padding=False)
            run = gr.Dropdown([], label="Run", elem_id="fe-export-run")
            what = gr.Radio(list(WHAT), value="groups", label="Table", elem_id="fe-export-what")
            file_format = gr.Radio(list(FORMATS), value="csv", label="Format", elem_id="fe-export-format")
            make = gr.Button("Make the file", variant="primary", elem_id="fe-export-make")
            message = gr.HTML(elem_id="fe-export-message", padding=False)
            download = gr.DownloadButton("Download", visible=False, elem_id="fe-export-download")

    folder = tempfile.TemporaryDirectory(prefix="focus-export-")  # removed when the server ends

    def refresh(current: str | None) -> tuple[Any, Any]:
        try:
            rows = service.runs()
        except InputError as error:
            return alert(str(error)), gr.skip()
        choices = [(f"{row['title'][:48]} ({row['run_id']})", row["run_id"]) for row in rows]
        known = {row["run_id"] for row in rows}
        value = current if current in known else (rows[0]["run_id"] if rows else None)
        return runs_table(rows), gr.update(choices=choices, value=value)

    def export(run_id: str | None, table: str, chosen: str) -> tuple[Any, Any]:
        if not run_id:
            return alert("no run is chosen; explore a text first"), gr.update(visible=False)
        try:
            path = service.export(run_id, table, chosen, Path(folder.name) / f"{run_id}-{table}{SUFFIXES[chosen]}")
        except InputError as error:
            return alert(str(error)), gr.update(visible=False)
        size = path.stat().st_size
        return done(f"{path.name}, {size / 1024:,.0f} KB"), gr.update(value=str(path), visible=True)

    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    gr.on([tab.select, blocks.load], refresh, run, [listing, run], **quiet)
    explore.finished.change(
        refresh, explore.finished, [listing, run], **quiet
    )  # the run just made is the one to export
    make.click(export, [run, what, file_format], [message, download], show_progress_on=message, api_name="export")
    for choice in (run, what, file_format):
        choice.input(
            lambda: ("", gr.update(visible=False)),
            None,
            [message, download],
            show_progress="hidden",
            api_visibility="private",
        )
