"""The Centroids tab: upload with a validation report, every file as a card, what is inside and what changed."""

from __future__ import annotations

import time
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
from focus_explorer.views.payloads import centroids as payloads
from focus_explorer.views.training import report_html
from focus_explorer.web.requests.dispatch import component_functions
from focus_explorer.web.tabs.explore import MODEL_WORK, OPEN_FORM, Explore, alert, browser_view
from focus_explorer.web.tabs.form import QUIET, centroid_choices
from focus_explorer.web.text import CENTROIDS_INTRO, LABELS, MESSAGES, PUBLIC_CENTROIDS_INTRO

ON_LOAD = """
  const ask = (name) => (request) => server[name](request || {});
  const view = FocusFiles.create(element.querySelector('.fx-root'), {
    load: ask('load_files'), detail: ask('file_detail'), compare: ask('compare_files'),
    use: ask('use_file_budget'), rename: ask('rename'), remove: ask('remove'),
  }, (used) => trigger('select', used), () => trigger('input'));
  watch('value', () => view.load());
"""
SETTINGS = ("top_k", "window", "num_sinks")  # of the form that a measured budget goes with


def build(service: Service, request: AnalyzeRequest, explore: Explore, tab: gr.Tab, tabs: gr.Tabs) -> None:
    """Lay out the tab and connect uploads and chosen budgets to the Explore form."""
    public = visitor_limits(service) is not None
    gr.HTML(f'<p class="fe-intro">{PUBLIC_CENTROIDS_INTRO if public else CENTROIDS_INTRO}</p>', padding=False)
    with gr.Row(elem_classes="fe-explore"):
        if not public:
            with gr.Column(scale=1, min_width=300):
                upload = gr.File(
                    label=LABELS["upload"],
                    file_types=[".safetensors", ".pt", ".pth"],
                    type="filepath",
                    elem_id="fe-upload",
                )
                report = gr.HTML(elem_id="fe-report", padding=False)
        with gr.Column(scale=3, min_width=280):
            functions = component_functions(
                service, load_files, file_detail, compare_files, use_file_budget, rename, remove
            )
            fixed = " data-fixed" if public else ""
            listing = browser_view("fe-centroid-list", "FocusFiles", ON_LOAD, functions, fixed)

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
        choose, None, [explore.fields["centroids"], *(explore.fields[name] for name in SETTINGS), tabs], **QUIET
    ).then(None, js=OPEN_FORM)

    def offered(chosen: str) -> Any:
        """The files as they are now; one that is gone is no longer chosen."""
        choices = centroid_choices(service, request.centroids)
        here = chosen in [value for _, value in choices]
        return gr.update(choices=choices, value=chosen if here else request.centroids)

    listing.input(offered, explore.fields["centroids"], explore.fields["centroids"], queue=False, **QUIET)
    if not public:
        upload.change(
            add,
            [upload, explore.fields["model"]],
            [report, explore.fields["centroids"], listing],
            show_progress_on=report,
            api_name="upload_centroids",
            **MODEL_WORK,
        )
    tab.select(lambda: str(time.time()), None, listing, **QUIET)


def load_files(service: Service) -> payloads.CentroidCardsPayload:
    return {"files": service.part(CentroidCards).cards()}


def file_detail(service: Service, file: str) -> payloads.CentroidDetailPayload:
    return service.part(CentroidCards).detail(file)


def compare_files(service: Service, first: str, second: str) -> payloads.CentroidChangesPayload:
    return service.part(CentroidCards).compare(first, second)


def use_file_budget(service: Service, file: str, point: int) -> payloads.UsedBudgetPayload:
    """Keep a copy of a file with one of its measured budgets."""
    _check_changeable(service)
    return use_budget(service, file, point)


def rename(service: Service, file: str, name: str = "") -> payloads.CentroidCardsPayload:
    _check_changeable(service)
    rename_file(service, file, name)
    return load_files(service)


def remove(service: Service, file: str) -> payloads.CentroidCardsPayload:
    _check_changeable(service)
    remove_file(service, file)
    return load_files(service)


def _check_changeable(service: Service) -> None:
    if visitor_limits(service) is not None:
        raise InputError(MESSAGES["fixed"])
