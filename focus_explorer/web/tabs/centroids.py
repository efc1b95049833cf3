"""The Centroids tab: upload with a validation report, every file as a card, what is inside and what changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from focus_explorer.errors import InputError
from focus_explorer.usecases.analyze import AnalyzeRequest
from focus_explorer.usecases.centroids.cards import CentroidCards
from focus_explorer.usecases.centroids.copies import use_budget
from focus_explorer.usecases.centroids.files import add_centroids, remove_file, rename_file, shipped_name
from focus_explorer.usecases.names import known_model
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.visitors import visitor_limits
from focus_explorer.views.payloads.centroids import CentroidCardsPayload
from focus_explorer.views.training import report_html
from focus_explorer.web.requests.dispatch import of_objects, renamed
from focus_explorer.web.tabs.explore import MODEL_WORK, OPEN_FORM, Explore, alert, guarded
from focus_explorer.web.tabs.form import centroid_choices
from focus_explorer.web.text import CENTROIDS_INTRO, LABELS, MESSAGES, PUBLIC_CENTROIDS_INTRO

ON_LOAD = """
const start = () => {
  if (!window.FocusFiles) { setTimeout(start, 30); return; }
  const ask = (name) => (request) => server[name](request || {});
  const view = FocusFiles.create(element.querySelector('.fx-root'), {
    load: ask('load_files'), detail: ask('file_detail'), compare: ask('compare_files'),
    use: ask('use_file_budget'), rename: ask('rename'), remove: ask('remove'),
  }, (used) => trigger('select', used), () => trigger('input'));
  watch('value', () => view.load());
};
start();
"""
SETTINGS = ("top_k", "window", "num_sinks")  # of the form that a measured budget goes with


def build(service: Service, request: AnalyzeRequest, explore: Explore, tab: gr.Tab, tabs: gr.Tabs) -> None:
    """Lay out the tab and connect uploads and chosen budgets to the Explore form.

    The list is read again whenever the tab is opened.

    Args:
        explore: form that an uploaded file is chosen in.
    """
    public = visitor_limits(service) is not None
    gr.HTML(f'<p class="fe-intro">{PUBLIC_CENTROIDS_INTRO if public else CENTROIDS_INTRO}</p>', padding=False)
    with gr.Row(elem_classes="fe-explore"):
        if not public:
            with gr.Column(scale=1, min_width=300):
                upload, report = _upload()
        with gr.Column(scale=3, min_width=280):
            listing = _listing(service, public=public)

    def add(path: str | None, model: str) -> tuple[Any, Any, Any]:
        """Check a centroid file made for a model, and keep it when it is one."""
        if path is None:
            return "", gr.skip(), gr.skip()
        try:
            added = add_centroids(service, path, Path(path).name, known_model(service, model))
            choices = gr.update(
                choices=centroid_choices(service, request.centroids), value=shipped_name(added.sha256) or added.sha256
            )
            return report_html(added.name, added.report, known=added.known), choices, str(time.time())
        except InputError as error:
            return alert(str(error)), gr.skip(), gr.skip()

    def choose(used: gr.EventData) -> tuple[Any, ...]:
        """Choose a file with the settings it was trained or its budget was measured at, and show the form."""
        choices = centroid_choices(service, request.centroids)
        return (
            gr.update(choices=choices, value=shipped_name(str(used.sha256)) or used.sha256),
            *(getattr(used, name) for name in SETTINGS),
            gr.update(selected="explore"),
        )

    listing.select(
        choose,
        None,
        [explore.centroids, *(explore.fields[name] for name in SETTINGS), tabs],
        show_progress="hidden",
        api_visibility="private",
    ).then(None, js=OPEN_FORM)

    def offered(chosen: str) -> Any:
        """The files as they are now; one that is gone is no longer chosen."""
        choices = centroid_choices(service, request.centroids)
        here = chosen in [value for _, value in choices]
        return gr.update(choices=choices, value=chosen if here else request.centroids)

    listing.input(
        offered, explore.centroids, explore.centroids, show_progress="hidden", queue=False, api_visibility="private"
    )
    if not public:
        upload.change(
            add,
            [upload, explore.model],
            [report, explore.centroids, listing],
            show_progress_on=report,
            api_name="upload_centroids",
            **MODEL_WORK,
        )
    tab.select(lambda: str(time.time()), None, listing, show_progress="hidden", api_visibility="private")


def _upload() -> tuple[gr.File, gr.HTML]:
    """The field for a file, and where it is told what is in it."""
    upload = gr.File(
        label=LABELS["upload"], file_types=[".safetensors", ".pt", ".pth"], type="filepath", elem_id="fe-upload"
    )
    return upload, gr.HTML(elem_id="fe-report", padding=False)


def _listing(service: Service, *, public: bool) -> gr.HTML:
    return gr.HTML(
        value="",
        html_template=f'<div class="fx-root"{" data-fixed" if public else ""}></div>',
        js_on_load=ON_LOAD,
        server_functions=of_objects(_server_functions(service, public=public)),
        elem_id="fe-centroid-list",
        padding=False,
        apply_default_css=False,
    )


def _server_functions(service: Service, *, public: bool) -> list[Callable[..., Any]]:

    def files_after(change: Callable[[], None]) -> dict[str, Any]:
        def files() -> CentroidCardsPayload:
            change()
            return {"files": service.part(CentroidCards).cards()}

        return guarded(files)

    def load_files(request: dict[str, Any]) -> dict[str, Any]:
        return files_after(lambda: None)

    def file_detail(request: dict[str, Any]) -> dict[str, Any]:
        return guarded(lambda: service.part(CentroidCards).detail(str(request.get("file"))))

    def compare_files(request: dict[str, Any]) -> dict[str, Any]:
        first, second = str(request.get("first")), str(request.get("second"))
        return guarded(lambda: service.part(CentroidCards).compare(first, second))

    def use_file_budget(request: dict[str, Any]) -> dict[str, Any]:
        return guarded(lambda: use_budget(service, str(request.get("file")), request.get("point")))  # type: ignore[arg-type]

    def rename(request: dict[str, Any]) -> dict[str, Any]:
        return files_after(lambda: rename_file(service, str(request.get("file")), str(request.get("name") or "")))

    def remove(request: dict[str, Any]) -> dict[str, Any]:
        return files_after(lambda: remove_file(service, str(request.get("file"))))

    def fixed(request: dict[str, Any]) -> dict[str, Any]:
        return {"error": MESSAGES["fixed"]}

    reading = [load_files, file_detail, compare_files]
    changing = [use_file_budget, rename, remove]
    return [*reading, *([renamed(fixed, each.__name__) for each in changing] if public else changing)]
