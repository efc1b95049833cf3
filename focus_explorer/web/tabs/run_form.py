"""The form of the Explore tab: model, centroids and settings of an analysis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from focus_explorer.settings import BACKENDS, DTYPES, SPECIAL_TOKENS
from focus_explorer.usecases.analyze import AnalyzeRequest
from focus_explorer.usecases.budget import ALL_ALIKE, OF_THE_FILE, heads_of
from focus_explorer.usecases.centroids.files import shipped_names, uploaded_centroids
from focus_explorer.usecases.centroids.fit import DrawnCentroids
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.visitors.limits import VisitorLimits
from focus_explorer.usecases.visitors.service import PublicNames, visitor_limits
from focus_explorer.web.tabs.device_field import device_field, list_devices
from focus_explorer.web.text import HEADS, HELP, LABELS

DEFAULT_LIMIT = 4000  # tokens
# Heads of a run that the page opened with are no longer meant once other centroids or another model are chosen.
NOT_OF_THE_RUN = f"heads => heads === '{ALL_ALIKE}' ? heads : '{OF_THE_FILE}'"
DRAWN = ("num_groups", "routing_dim", "seed")  # fields that random centroids alone have


def build(service: Service, request: AnalyzeRequest) -> dict[str, Any]:
    """Components of the form by their field of `AnalyzeRequest`.

    Args:
        service: whose centroid files are offered.
        request: what the form is filled with.
    """
    form = _model_and_pairs(service, request)
    with gr.Accordion(LABELS["more"], open=False) as more:
        form |= _more(request, visitor_limits(service))
        with gr.Group(visible=request.centroids == "random", elem_id="fe-random") as drawn, gr.Row():
            form |= _random_centroids(request)
    list_devices(more, form["device"])
    quiet: dict[str, Any] = {"show_progress": "hidden", "queue": False, "api_visibility": "private"}
    others = [form["centroids"].input, form["model"].input]
    gr.on(others, None, form["heads"], form["heads"], js=NOT_OF_THE_RUN, **quiet)
    form["centroids"].change(lambda name: gr.update(visible=name == "random"), form["centroids"], drawn, **quiet)
    return form


def _model_and_pairs(service: Service, request: AnalyzeRequest) -> dict[str, Any]:
    public = service.names if isinstance(service.names, PublicNames) else None
    with gr.Group():
        model = gr.Dropdown(
            [request.model] if public is None else sorted(public.models),
            value=request.model,
            label=LABELS["model"],
            info=HELP["model" if public is None else "public_model"],
            allow_custom_value=public is None,
            elem_id="fe-model",
        )
        centroids = gr.Dropdown(
            centroid_choices(service, request.centroids),
            value=request.centroids,
            label=LABELS["centroids"],
            info=HELP["centroids"],
            elem_id="fe-centroids",
        )
        with gr.Row():
            top_k, window = _number(1, "top_k"), _number(128, "window")
    return {"model": model, "centroids": centroids, "top_k": top_k, "window": window}


def _more(request: AnalyzeRequest, limits: VisitorLimits | None) -> dict[str, Any]:
    longest = DEFAULT_LIMIT if limits is None else min(DEFAULT_LIMIT, limits.tokens)
    with gr.Row():
        sinks, limit = _number(4, "sinks"), _number(longest, "limit")
    if limits is not None:
        limit.info = HELP["public_limit"].format(tokens=limits.tokens)
    assignment = gr.Radio(
        ["causal", "sinkhorn"],
        value="causal",
        label=LABELS["assignment"],
        info=HELP["assignment"],
        elem_id="fe-assignment",
    )
    with gr.Row():
        special = _choice(request.special_tokens, SPECIAL_TOKENS, "special_tokens")
        chat = gr.Checkbox(request.chat, label=LABELS["chat"], min_width=120, elem_id="fe-chat")
    heads = gr.Radio(
        heads_choices(None), value=OF_THE_FILE, label=LABELS["heads"], info=HELP["heads"], elem_id="fe-heads"
    )
    own = limits is None  # visitors compute where and how the page does
    device = device_field(
        (request.device or "auto") if own else "auto",
        label=LABELS["device"],
        info=HELP["device"],
        elem_id="fe-device",
        visible=own,
    )
    with gr.Row():
        dtype = _choice((request.dtype or "auto") if own else "auto", ["auto", *DTYPES], "dtype", visible=own)
        backend = _choice(request.backend, BACKENDS, "backend")
    return {
        "num_sinks": sinks,
        "max_tokens": limit,
        "special_tokens": special,
        "chat": chat,
        "assignment": assignment,
        "heads": heads,
        "device": device,
        "dtype": dtype,
        "backend": backend,
    }


def _random_centroids(request: AnalyzeRequest) -> dict[str, Any]:
    """Fields that `DRAWN` names."""
    usual = DrawnCentroids().config()
    return {
        "num_groups": _number(usual.num_groups, "groups"),
        "routing_dim": _number(usual.routing_dim, "routing_dim"),
        "seed": _number(request.seed, "seed"),
    }


def _number(value: int, name: str) -> gr.Number:
    return gr.Number(
        value, label=LABELS[name], info=HELP[name], precision=0, min_width=120, elem_id=f"fe-{name.replace('_', '-')}"
    )


def _choice(value: str, choices: Sequence[str], name: str, *, visible: bool = True) -> gr.Dropdown:
    listed = list(dict.fromkeys([*choices, value]))
    return gr.Dropdown(
        listed,
        value=value,
        label=LABELS[name],
        info=HELP[name],
        min_width=120,
        elem_id=f"fe-{name.replace('_', '-')}",
        visible=visible,
    )


def heads_choices(run_id: str | None) -> list[tuple[str, str]]:
    """(label, value) of the field of heads, see `heads_of`; the last one is for a run that the page opened with."""
    usual = [(HEADS["file"], OF_THE_FILE), (HEADS["alike"], ALL_ALIKE)]
    return usual if run_id is None else [*usual, (HEADS["run"], run_id)]


def read_form(service: Service, chosen: dict[str, Any]) -> AnalyzeRequest:
    """The request that a form holds.

    Args:
        service: whose database has the run whose heads may be meant.
        chosen: a value for each component of `build`.

    Raises:
        NotFoundError: there is no such run.
    """
    chosen = chosen | {"model": (chosen["model"] or "").strip(), "max_tokens": chosen["max_tokens"] or None}
    heads = heads_of(service.database, chosen.pop("heads", OF_THE_FILE))
    if chosen["centroids"] == "random":
        chosen["seed"] = chosen["seed"] or 0
    else:  # what they were drawn like is in their file
        for name in DRAWN:
            del chosen[name]
    return AnalyzeRequest(**chosen, **heads)


def centroid_choices(service: Service, preselected: str) -> list[tuple[str, str]]:
    """(label, value): shipped files, random, the preselected file, and every uploaded file by its hash."""
    files = [(f"{row['name']} ({row['sha256'][:8]})", row["sha256"]) for row in uploaded_centroids(service.database)]
    names = [*shipped_names(), "random", preselected]
    return list(dict.fromkeys([*((name, name) for name in names), *files]))
