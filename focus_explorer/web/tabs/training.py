"""The Training tab: a form that starts a training, and the browser component that lists and watches them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gradio as gr

from focus_explorer.errors import InputError
from focus_explorer.usecases.analyze import AnalyzeRequest
from focus_explorer.usecases.names import known_model
from focus_explorer.usecases.request import Payload
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.training.processes import Trainings
from focus_explorer.usecases.training.request import GROUPS, TrainRequest, recipe_values
from focus_explorer.views.payloads import centroids as payloads
from focus_explorer.web.requests.dispatch import component_functions
from focus_explorer.web.tabs.explore import OPEN_FORM, Explore, alert, browser_view, done
from focus_explorer.web.tabs.form import QUIET, centroid_choices, device_field, list_devices
from focus_explorer.web.text import BUTTONS, LABELS, MESSAGES, TRAIN_HELP, TRAIN_LABELS, TRAINING_INTRO

ON_LOAD = """
  const ask = (name) => (request) => server[name](request || {});
  const view = FocusTraining.create(element.querySelector('.fx-root'), {
    load: ask('load_trainings'), stop: ask('stop_training'), resume: ask('resume_training'), use: ask('use_training'),
    film: ask('training_film'),
  }, (chosen) => trigger('select', chosen));
  let shown = null;
  watch('value', () => { if (props.value && props.value !== shown) { shown = props.value; view.expect(shown); } });
"""
# Programs name the fields of `start_training` by place, so new ones are added at the end.
FIELDS = (
    *("name", "model", "groups", "top_k", "steps", "seq_len", "batch", "window", "sinks", "lr", "gate", "dtype"),
    *("seed", "device", "loss", "hard_steps", "val_every", "patience", "domains", "recipe"),
)
OTHERS = ("name", "model", "lr", "gate", "dtype", "device", "loss", "domains", "recipe")
WHOLE = [name for name in FIELDS if name not in OTHERS]  # fields of whole numbers
FRAMES = 24  # files that a training keeps on the way, for its film
FILM_TEXT = "Novel"
DEFAULTS = TrainRequest(
    text=(), out="", name="my centroids", groups=GROUPS, top_k=1, dtype="auto", checkpoint_every=25
)  # steps of a minute are common on a CPU: 25 of them are soon lost


def build(service: Service, request: AnalyzeRequest, explore: Explore, tabs: gr.Tabs) -> None:
    """Lay out the tab; a finished training is chosen on the Explore page from here."""
    gr.HTML(f'<p class="fe-intro">{TRAINING_INTRO}</p>', padding=False)
    with gr.Row(elem_classes="fe-explore"):
        with gr.Column(scale=1, min_width=300, elem_classes="fe-form"):
            files = _files("files", 120)
            inputs, held_out = _form(request)
            start = gr.Button(BUTTONS["train"], variant="primary", elem_id="fe-train-start")
            status = gr.HTML(elem_id="fe-train-status", padding=False)
        with gr.Column(scale=3, min_width=280):
            functions = component_functions(
                service, load_trainings, stop_training, resume_training, use_training, training_film
            )
            view = browser_view("fe-training", "FocusTraining", ON_LOAD, functions)

    def begin(paths: list[str] | None, val: list[str] | str | None, *values: Any) -> tuple[Any, Any]:
        """Start a training; the arguments follow the order of the Training tab's form."""
        try:
            fields = dict(zip(FIELDS, values, strict=True))
            fields["model"] = known_model(service, " ".join((fields["model"] or "").split()))
            held_out_texts = [val] if isinstance(val, str) else val or []  # one file alone, as programs may send it
            out = service.part(Trainings).start(
                _request(fields),
                paths or [],
                held_out_texts,
                domains=bool(fields["domains"]),
                name=lambda option: TRAIN_LABELS.get(option, option),
            )
        except InputError as error:
            return alert(str(error)), gr.skip()
        return done(MESSAGES["training"]), out

    def choose(chosen: gr.EventData) -> tuple[Any, Any, Any]:
        choices = centroid_choices(service, request.centroids)
        return (
            gr.update(choices=choices, value=chosen.sha256),
            gr.update(value=chosen.model),
            gr.update(selected="explore"),
        )

    start.click(
        begin,
        [files, held_out, *inputs],
        [status, view],
        show_progress_on=status,
        concurrency_id="training",
        concurrency_limit=1,
        api_name="start_training",
    )
    view.select(choose, None, [explore.fields["centroids"], explore.fields["model"], tabs], **QUIET).then(
        None, js=OPEN_FORM
    )


def _files(name: str, height: int) -> gr.File:
    return gr.File(
        label=TRAIN_HELP[name],
        file_types=[".txt"],
        file_count="multiple",
        type="filepath",
        height=height,
        elem_id=f"fe-train-{name}",
    )


def _form(request: AnalyzeRequest) -> tuple[list[Any], gr.File]:
    def named(name: str) -> dict[str, Any]:
        return {"label": TRAIN_LABELS[name], "info": TRAIN_HELP[name], "elem_id": f"fe-train-{name}"}

    def numbers(*names: str) -> None:
        for name in names:
            precision = None if name == "lr" else 0
            made[name] = gr.Number(getattr(DEFAULTS, name) or 0, precision=precision, min_width=120, **named(name))

    def choice(name: str, *choices: str) -> None:
        made[name] = gr.Radio([*choices], value=getattr(DEFAULTS, name), **named(name))

    made: dict[str, Any] = {}
    with gr.Group():
        made["name"] = gr.Textbox(DEFAULTS.name, **named("name"))
        made["model"] = gr.Dropdown([request.model], value=request.model, allow_custom_value=True, **named("model"))
        with gr.Row():
            numbers("groups", "top_k")
        numbers("steps")
        choice("recipe", "ours", "paper")
    with gr.Accordion(LABELS["more"], open=False) as more:
        for pair in (("seq_len", "batch"), ("window", "sinks"), ("lr", "seed")):
            with gr.Row():
                numbers(*pair)
        choice("loss", "lm", "distil", "both", "layers")
        choice("gate", "log", "paper")
        numbers("hard_steps")
        choice("dtype", "auto", "float32", "bfloat16")
        made["device"] = device_field(request.device or "auto", **named("device"))
        held_out = _files("val", 110)
        with gr.Row():
            numbers("val_every", "patience")
        made["domains"] = gr.Checkbox(False, **named("domains"))
    list_devices(more, made["device"], training=True)
    by_recipe = ("groups", "window", "sinks", "gate")  # what else a recipe decides is not in the form
    made["recipe"].input(
        lambda name: [recipe_values(name)[option] for option in by_recipe],
        made["recipe"],
        [made[option] for option in by_recipe],
        **QUIET,
    )
    return [made[name] for name in FIELDS], held_out


def _request(values: dict[str, Any]) -> TrainRequest:
    for name in (*WHOLE, "lr"):
        if values[name] is None:
            expected = "a number such as 0.003" if name == "lr" else "a whole number"
            raise InputError(f"{TRAIN_LABELS[name]} is empty", expected=expected)
    recipe = values["recipe"] or DEFAULTS.recipe
    chosen = recipe_values(recipe) | {name: int(values[name]) for name in WHOLE}
    chosen |= {name: values[name] for name in ("gate", "dtype", "loss")}
    chosen |= {name: " ".join((values[name] or "").split()) for name in ("name", "model")}
    chosen |= {
        "recipe": recipe,
        "lr": float(values["lr"]),
        "val_every": chosen["val_every"] or None,
        "device": values["device"] or "auto",
        "snapshots": max(1, round(chosen["steps"] / FRAMES)),
    }
    return replace(DEFAULTS, **chosen)


def load_trainings(service: Service, shown: dict[str, dict[str, int]] | None = None) -> payloads.TrainingsPayload:
    """Trainings, and the new steps of those that are shown."""
    return service.part(Trainings).payload(shown or {})


def stop_training(service: Service, id: str | None = None) -> Payload:
    """Stop a training, the one started last when None."""
    service.part(Trainings).stop(id)
    return {"asked": True}


def resume_training(service: Service, id: str) -> payloads.ResumedTrainingPayload:
    return {"out": service.part(Trainings).resume(id)}


def use_training(service: Service, id: str) -> payloads.UsedTrainingPayload:
    """Make the result of a training a centroid file."""
    return service.part(Trainings).use(id)


def training_film(service: Service, id: str, layer: int | None = None, text: str = FILM_TEXT) -> payloads.FilmPayload:
    """Groups of a text under the files a training kept."""
    return service.part(Trainings).film(id, layer, text)
