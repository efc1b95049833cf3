"""The form of the Explore tab: model, centroids and settings of an analysis, and how long its text is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from focus_explorer.errors import InputError
from focus_explorer.settings import BACKENDS, DTYPES, SPECIAL_TOKENS
from focus_explorer.usecases.analyze import AnalyzeRequest
from focus_explorer.usecases.budget import ALL_ALIKE, OF_THE_FILE, heads_setting
from focus_explorer.usecases.centroids.files import SHIPPED_CENTROIDS, uploaded_centroids
from focus_explorer.usecases.centroids.ready import random_config
from focus_explorer.usecases.models import device_choices
from focus_explorer.usecases.names import known_model
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.texts import count_tokens
from focus_explorer.usecases.visitors import PublicNames, VisitorLimits, visitor_limits
from focus_explorer.web.text import FORM, HEADS, LABELS, MESSAGES, PUBLIC_FORM
from focus_explorer.words import counted
from focus_runtime.config import DECLARED, SETTINGS, FocusConfig

DEFAULT_LIMIT = 4000  # tokens
# Heads of a run that the page opened with are no longer meant once other centroids or another model are chosen.
NOT_OF_THE_RUN = f"heads => heads === '{ALL_ALIKE}' ? heads : '{OF_THE_FILE}'"
OF_HEADS = {"budget", "window_growth"}  # settings that the field of heads chooses
FILE_ALONE = {"logit_factors"}  # settings that the page takes from the centroid file
FIELDS: dict[str, Any] = {  # setting -> first value of its field
    name: getattr(FocusConfig(top_k=1), name) for name in SETTINGS if name not in OF_HEADS | FILE_ALONE
}
DRAWN = ("num_groups", "routing_dim", "seed")  # fields that only random centroids have
ELEMENTS = {"max_tokens": "limit", "num_groups": "groups", "num_sinks": "sinks"}  # where an id is not the field's name
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
# The text of the run that the page opened with is not sent: it is known, and a tokenizer takes seconds to import.
SENT = "(words, model, limit, special, run) => [run && run.text === words ? '' : words, model, limit, special, null]"


class _Form(dict[str, Any]):
    """Components by their field of `AnalyzeRequest`."""

    def add(self, kind: Any, name: str, value: Any, **how: Any) -> None:
        """Lay out a component for a field; its label and meaning are those of `FORM` or of the setting."""
        if name in FORM:
            label, meaning = FORM[name]
        else:
            label, words = DECLARED[name].title, DECLARED[name].meaning
            meaning = words[:1].upper() + words[1:]
        element = f"fe-{ELEMENTS.get(name, name).replace('_', '-')}"
        self[name] = kind(value=value, label=label, elem_id=element, **{"info": meaning} | how)

    def setting(self, name: str) -> None:
        """A setting of Focus: one of its choices, or a whole number."""
        if choices := DECLARED[name].choices:
            self.add(gr.Radio, name, FIELDS[name], choices=list(choices))
        else:
            self.number(name, FIELDS[name])

    def number(self, name: str, value: int, **how: Any) -> None:
        """A whole number."""
        self.add(gr.Number, name, value, precision=0, min_width=120, **how)

    def choice(self, name: str, value: str, choices: Sequence[str], **how: Any) -> None:
        """One of the choices, or the value that the page was started with."""
        self.add(gr.Dropdown, name, value, choices=list(dict.fromkeys([*choices, value])), min_width=120, **how)


def build(service: Service, request: AnalyzeRequest) -> dict[str, Any]:
    """Components of the form by their field of `AnalyzeRequest`, filled with the request."""
    public = service.names if isinstance(service.names, PublicNames) else None
    form = _Form()
    with gr.Group():
        if public is None:
            form.add(gr.Dropdown, "model", request.model, choices=[request.model], allow_custom_value=True)
        else:
            models = sorted(public.models)
            form.add(gr.Dropdown, "model", request.model, choices=models, info=PUBLIC_FORM["model"])
        form.add(gr.Dropdown, "centroids", request.centroids, choices=centroid_choices(service, request.centroids))
        with gr.Row():
            form.setting("top_k")
            form.setting("window")
    with gr.Accordion(LABELS["more"], open=False) as more:
        _more(form, request, visitor_limits(service))
        with gr.Group(visible=request.centroids == "random", elem_id="fe-random") as drawn, gr.Row():
            usual = random_config(AnalyzeRequest())
            form.number("num_groups", usual.num_groups)
            form.number("routing_dim", usual.routing_dim)
            form.number("seed", request.seed)
    list_devices(more, form["device"])
    others = [form["centroids"].input, form["model"].input]
    gr.on(others, None, form["heads"], form["heads"], js=NOT_OF_THE_RUN, queue=False, **QUIET)
    form["centroids"].change(
        lambda name: gr.update(visible=name == "random"), form["centroids"], drawn, queue=False, **QUIET
    )
    return form


def _more(form: _Form, request: AnalyzeRequest, limits: VisitorLimits | None) -> None:
    with gr.Row():
        form.setting("num_sinks")
        if limits is None:
            form.number("max_tokens", DEFAULT_LIMIT)
        else:
            meaning = PUBLIC_FORM["max_tokens"].format(tokens=limits.tokens)
            form.number("max_tokens", min(DEFAULT_LIMIT, limits.tokens), info=meaning)
    for name in [name for name in FIELDS if name not in form]:
        form.setting(name)
    with gr.Row():
        form.choice("special_tokens", request.special_tokens, SPECIAL_TOKENS)
        form.add(gr.Checkbox, "chat", request.chat, min_width=120)
    form.add(gr.Radio, "heads", OF_THE_FILE, choices=heads_choices(None))
    own = limits is None  # visitors compute where and how the page does
    form.choice("device", (own and request.device) or "auto", ["auto", "cpu"], visible=own)
    with gr.Row():
        form.choice("dtype", (own and request.dtype) or "auto", ["auto", *DTYPES], visible=own)
        form.choice("backend", request.backend, BACKENDS)


def device_field(value: str, *, label: str, info: str, elem_id: str) -> gr.Dropdown:
    """The dropdown of a device in another form; `list_devices` fills it."""
    listed = list(dict.fromkeys(["auto", "cpu", value]))
    return gr.Dropdown(listed, value=value, label=label, info=info, min_width=120, elem_id=elem_id)


def list_devices(opened: gr.Accordion, field: gr.Dropdown, *, training: bool = False) -> None:
    """Offer this machine's devices once the accordion is opened: at the page's start, importing torch takes seconds."""
    opened.expand(lambda: gr.update(choices=device_choices(training=training)), None, field, **QUIET)


def heads_choices(run_id: str | None) -> list[tuple[str, str]]:
    """(label, value) of the field of heads, see `heads_setting`; the last is for a run that the page opened with."""
    usual = [(HEADS["file"], OF_THE_FILE), (HEADS["alike"], ALL_ALIKE)]
    return usual if run_id is None else [*usual, (HEADS["run"], run_id)]


def centroid_choices(service: Service, preselected: str) -> list[tuple[str, str]]:
    """(label, value): shipped files, random, the preselected file, and every uploaded file by its hash."""
    files = [(f"{row['name']} ({row['sha256'][:8]})", row["sha256"]) for row in uploaded_centroids(service.database)]
    names = [*SHIPPED_CENTROIDS, "random", preselected]
    return list(dict.fromkeys([*((name, name) for name in names), *files]))


def read_form(service: Service, chosen: dict[str, Any]) -> AnalyzeRequest:
    """The request that a form holds, from a value for each component of `build`."""
    chosen = chosen | {"model": (chosen["model"] or "").strip(), "max_tokens": chosen["max_tokens"] or None}
    heads = heads_setting(service.database, chosen.pop("heads", OF_THE_FILE))
    if chosen["centroids"] == "random":
        chosen["seed"] = chosen["seed"] or 0
    else:  # what they were drawn like is in their file
        for name in DRAWN:
            del chosen[name]
    return AnalyzeRequest(**chosen, **heads)


def show_count(
    service: Service, text: gr.Textbox, form: dict[str, Any], like_run: gr.JSON, count: gr.HTML, whole: gr.Button
) -> None:
    """Count the text's tokens while it is typed; where it will be cut, `whole` takes the limit away."""
    model, limit, special_tokens = form["model"], form["max_tokens"], form["special_tokens"]
    fixed = visitor_limits(service) is not None

    def said(words: str, name: str | None, most: float | None, special: str, _: Any) -> tuple[str, Any]:
        tokens = _count(service, name or "", words, special) if words else None
        cut = bool(tokens and most and tokens > most)
        if tokens is None:
            return "", gr.update(visible=False)
        there = counted(tokens, "token")
        line = MESSAGES["cut"].format(tokens=there, limit=int(most or 0)) if cut else there
        return line, gr.update(visible=cut and not fixed)

    # `change`, for Gradio keeps the first `input` after it filled a field to itself.
    gr.on(
        [text.change, model.change, limit.change, special_tokens.change],
        said,
        [text, model, limit, special_tokens, like_run],
        [count, whole],
        js=SENT,
        trigger_mode="always_last",
        **QUIET,
    )
    whole.click(lambda: 0, None, limit, **QUIET)


def _count(service: Service, name: str, words: str, special: str) -> int | None:
    try:
        if service.names is not None:
            service.names.text(words)
        return count_tokens(service, known_model(service, name), words, special)
    except InputError:
        return None
