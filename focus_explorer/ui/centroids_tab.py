"""The Centroid files tab: upload with a validation report, and the files there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from focus_explorer.errors import InputError
from focus_explorer.service import AnalyzeRequest, Service
from focus_explorer.ui.explore_tab import MODEL_WORK, Explore, alert, centroid_choices
from focus_explorer.ui.text import CENTROIDS_INTRO
from focus_explorer.views.tables import centroid_table, report_html


def build(service: Service, request: AnalyzeRequest, explore: Explore, tab: gr.Tab) -> None:
    """Lay out the tab and connect the upload to the Explore form; the list is read again whenever it is opened."""
    gr.HTML(f'<p class="fe-intro">{CENTROIDS_INTRO}</p>', padding=False)
    with gr.Row():
        with gr.Column(scale=1, min_width=300):
            upload = gr.File(
                label="Centroid file", file_types=[".safetensors", ".pt", ".pth"], type="filepath", elem_id="fe-upload"
            )
            report = gr.HTML(elem_id="fe-report", padding=False)
        with gr.Column(scale=2, min_width=280):
            listing = gr.HTML(elem_id="fe-centroid-list", padding=False)

    def add(path: str | None, model: str) -> tuple[Any, Any, Any]:
        if path is None:
            return "", gr.skip(), gr.skip()
        try:
            name = Path(path).name
            lines = service.add_centroids(path, name, model)
            choices = gr.update(
                choices=centroid_choices(service, request.centroids), value=service.centroid_files()[0]["sha256"]
            )
            return report_html(name, lines), choices, listing_html(service)
        except InputError as error:
            return alert(str(error)), gr.skip(), gr.skip()

    upload.change(
        add, [upload, explore.model], [report, explore.centroids, listing], show_progress_on=report,
        api_name="upload_centroids", **MODEL_WORK,
    )  # fmt: skip
    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    gr.on(None, lambda: listing_html(service), None, listing, **quiet)
    tab.select(lambda: listing_html(service), None, listing, **quiet)


def listing_html(service: Service) -> str:
    """The shipped file and every uploaded one."""
    try:
        return centroid_table(service.shipped_centroids() + service.centroid_files())
    except InputError as error:
        return alert(str(error))
