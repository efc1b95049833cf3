"""The Explore tab: a form, progress by stage, and the browser component that draws a run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from typing import Any

import gradio as gr
from fastapi import Response

from focus_explorer.errors import InputError, TextError
from focus_explorer.usecases.analyze import AnalyzeRequest, FirstRun, analyze
from focus_explorer.usecases.jobs import Job, JobRunner
from focus_explorer.usecases.labels import deleted_runs, undelete_run
from focus_explorer.usecases.names import known_to_page
from focus_explorer.usecases.request import Payload
from focus_explorer.usecases.run_payload import load_run_of
from focus_explorer.usecases.runs import list_runs, mask_blocks, run_text
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.texts import SAMPLES, sample_of, sample_text
from focus_explorer.views.payloads.runs import DeletedPayload, MaskPayload
from focus_explorer.web.requests.dispatch import KeptAnswers, asking, component_functions
from focus_explorer.web.tabs import form as explore_form
from focus_explorer.web.tabs.form import FIELDS, QUIET, centroid_choices, heads_choices, read_form
from focus_explorer.web.text import BUTTONS, LABELS, MESSAGES, TAGLINE

POLL_SECONDS = 0.3  # between two looks at the first run
LOOK_SECONDS = 0.1  # between two looks at an analysis
MOST_ANALYSES = 64  # that wait or run for one page
MODEL_WORK: dict[str, Any] = {"concurrency_id": "model", "concurrency_limit": 1}
ONCE_LOADED = """
const start = () => {{
  if (!window.{script}) {{ setTimeout(start, 30); return; }}{start}}};
start();
"""
ON_LOAD = """
  const root = element.querySelector('.fx-root');
  const ask = (name) => (run, layer, part) => server[name]({ run, layer, part });  // it takes one argument
  const view = FocusExplorer.create(root, {
    load_run: ask('load_run'), load_mask: ask('load_mask'), restore: ask('restore'),
    ask: (request) => server.ask(request),
  });
  // The run of the link is opened at once: the page's own load event comes a second later.
  let shown = new URLSearchParams(location.search).get('run');
  if (shown) view.open(shown);
  const open = () => {
    // a run's id; after it "timing" and a number, or "timed", where its repeats are timed after it was stored
    const [requested, timing] = (props.value || '').split(' ');
    if (!requested || props.value === shown) return;
    const same = shown && shown.split(' ')[0] === requested;
    if (same && timing) { shown = props.value; view.renewTimings(requested, timing === 'timing'); return; }
    // On a narrow screen the form lay below what it fills.
    if (shown && matchMedia('(max-width: 700px)').matches) root.scrollIntoView();
    shown = props.value;
    view.open(requested, timing === 'timing');
  };
  watch('value', open);
  open();
"""
OPEN_FORM = "() => window.FocusForm.open()"  # for tabs that fill the form
# Fields that a run of the link fills.
LIKE_RUN = ("model", "centroids", *FIELDS, "special_tokens", "heads")
TEXT_FIELDS = ("text", "sample")  # that every opened run fills
LONGEST_FILL = 200_000  # characters of a run's text put into the form; a longer one leaves it empty
# The load event answers after the reader may have begun to fill the form: what was changed by then stays.
FILL_UNTOUCHED = """
(run, ...shown) => {{
  const names = {names}, usual = {usual};
  return shown.map((value, at) => (run && names[at] in run && value === usual[at] ? run[names[at]] : value));
}}
"""


@dataclass(slots=True)
class Explore:
    """Components other tabs talk to."""

    view: gr.HTML
    finished: gr.events.Dependency  # an analysis from the form, however it ended
    like_run: gr.JSON  # what an opened run fills the form with: {field: value}, hidden
    fields: dict[str, Any]  # of the form: name -> component, settings and `TEXT_FIELDS`
    notice: gr.HTML  # problems of opening the page
    first: gr.HTML  # progress of the first run
    retry: gr.Button


def alert(message: str) -> str:
    """One readable problem, announced to screen readers."""
    return f'<div class="fe-alert" role="alert">{escape(message[:1].upper() + message[1:])}.</div>'


def done(message: str) -> str:
    """Quiet confirmation."""
    return f'<div class="fe-done" role="status">{escape(message)}</div>'


def browser_view(
    elem_id: str, script: str, start: str, functions: list[Callable[[Any], Response]], attributes: str = ""
) -> gr.HTML:
    """A part of the page that a script of ours draws: the global `script` is defined once the page's script is loaded.

    `start` is JavaScript that runs then, with Gradio's `element`, `props`, `server` and `watch`.
    """
    return gr.HTML(
        value="",
        html_template=f'<div class="fx-root"{attributes}></div>',
        js_on_load=ONCE_LOADED.format(script=script, start=start),
        server_functions=functions,
        elem_id=elem_id,
        padding=False,
        apply_default_css=False,
    )


def _bar(stage: str, fraction: float) -> str:
    percent = round(100 * fraction)
    return (
        f'<div class="fe-progress" role="progressbar" aria-valuemin="0" aria-valuemax="100" aria-valuenow="{percent}" '
        f'aria-label="{escape(stage)}"><span>{escape(stage)}</span><i style="width:{percent}%"></i></div>'
    )


def build(service: Service, request: AnalyzeRequest) -> Explore:
    """Lay out the tab."""
    with gr.Row(elem_classes="fe-explore"):
        with gr.Column(scale=1, min_width=300, elem_classes="fe-form", elem_id="fe-explore-form"):
            gr.HTML(f'<p class="fe-intro">{TAGLINE}</p>', padding=False)
            text = gr.Textbox(
                label=LABELS["text"],
                lines=8,
                max_lines=12,
                placeholder=LABELS["placeholder"],
                elem_id="fe-text",
                value=sample_text("Novel"),
            )
            sample = gr.Radio(list(SAMPLES), value="Novel", label=LABELS["sample"], elem_id="fe-sample")
            with gr.Row(elem_classes="fe-count"):
                count = gr.HTML(elem_id="fe-tokens", padding=False)
                whole = gr.Button(BUTTONS["whole"], size="sm", visible=False, elem_id="fe-whole", min_width=100)
            with gr.Row():
                run = gr.Button(BUTTONS["explore"], variant="primary", elem_id="fe-run", scale=2)
                stop = gr.Button(BUTTONS["stop"], elem_id="fe-stop", scale=1, interactive=False)
            status = gr.HTML(elem_id="fe-status", padding=False)
            form = explore_form.build(service, request)
        with gr.Column(scale=3, min_width=280):
            notice = gr.HTML(elem_id="fe-notice", padding=False)
            first = gr.HTML(visible=False, elem_id="fe-first", padding=False)
            retry = gr.Button(BUTTONS["retry"], visible=False, elem_id="fe-retry")
            kept = KeptAnswers(lambda: service.database.state())
            functions = [
                *component_functions(service, load_run, kept=kept),
                *component_functions(service, load_mask, restore),
                asking(service),
            ]
            view = browser_view("fe-view", "FocusExplorer", ON_LOAD, functions)
    like_run = gr.JSON(visible=False)
    runner = Runner(service, tuple(form), repeats=request.repeats)
    sample.input(sample_text, sample, text, **QUIET)
    explore_form.show_count(service, text, form, like_run, count, whole)
    run.click(lambda: _bar(MESSAGES["waiting"], 0.0), None, status, queue=False, **QUIET)
    finished = run.click(
        runner.analyze,
        [text, *form.values()],
        [status, view, stop],
        api_name="analyze_form",
        concurrency_limit=None,  # whoever waits for the model is told how long: see FairLock
        **QUIET,
    )
    stop.click(runner.stop, None, stop, queue=False, **QUIET)
    fields = {"text": text, "sample": sample, **form}
    return Explore(view, finished, like_run, fields, notice, first, retry)


def load_run(service: Service, run: str) -> Payload:
    """What every view needs of a run."""
    return load_run_of(service, run)


def load_mask(service: Service, run: str, layer: int, part: int = 0) -> MaskPayload:
    """Pairs of one layer in blocks."""
    return mask_blocks(service.database, run, layer, part)


def restore(service: Service, run: str) -> DeletedPayload:
    undelete_run(service, run)
    return {"deleted": False}


class Runner:
    """Analyses started from the form, whose fields are named in their order; each stops at its next stage."""

    def __init__(self, service: Service, fields: Sequence[str], repeats: int | None = None) -> None:
        self.service, self.fields, self.repeats = service, fields, repeats
        self._jobs = JobRunner(most_live=MOST_ANALYSES, busy=(MESSAGES["full"], "try again in a few minutes"))
        self._latest: dict[str, Job] = {}  # by session, while it is shown

    def stop(self, request: gr.Request) -> Any:
        """Stop the analysis that this visitor started last."""
        job = self._latest.get(request.session_hash or "")
        if job is not None:
            job.stop()
        return gr.update(interactive=False)

    async def analyze(self, text: str, request: gr.Request, *values: Any) -> AsyncIterator[tuple[Any, Any, Any]]:
        """Analyse a text with the form's values; yields progress, the run's id at last, and the state of Stop."""
        form = dict(zip(self.fields, values, strict=True))

        def work(job: Job) -> str:
            def stored(run_id: str) -> None:
                repeats = job.partial.get("repeats", 0) + 1
                job.partial |= {"repeats": repeats, "view": f"{run_id} timing {repeats}"}

            chosen = replace(read_form(self.service, form), repeats=self.repeats)
            return analyze(
                self.service,
                text,
                known_to_page(self.service, text, chosen),
                command="focus-explorer serve",
                progress=job.step,
                stored=stored,
            )

        session = request.session_hash or ""
        try:
            job = self._jobs.start(object(), work, kind="analysis")  # one before may still wind down
        except InputError as error:
            yield alert(str(error)), gr.skip(), self._stop_button(session)
            return
        self._latest[session] = job
        try:
            yield _bar(MESSAGES["starting"], 0.0), gr.skip(), self._stop_button(session)
            async for status, view in _report(job):
                if not job.live:
                    self._forget(session, job)
                yield status, view, gr.skip() if job.live else self._stop_button(session)
        finally:
            job.stop()  # the page may have been closed: the analysis ends at its next stage
            self._forget(session, job)

    def _stop_button(self, session: str) -> Any:
        return gr.update(interactive=session in self._latest)

    def _forget(self, session: str, job: Job) -> None:
        """Keep the session's Stop where another analysis was started meanwhile."""
        if self._latest.get(session) is job:
            del self._latest[session]


async def _report(job: Job) -> AsyncIterator[tuple[Any, Any]]:
    """What the form shows while a job runs and when it has ended. No thread waits for it, however many are in line."""
    seen, shown = -1, None  # what the view shows of a run whose timings are still repeated
    while job.live:
        if seen != (seen := job.version) and job.state == "running":
            before, shown = shown, job.partial.get("view")
            yield _bar(job.stage, job.fraction), gr.skip() if shown == before else shown
        await asyncio.sleep(LOOK_SECONDS)
    if job.state == "done":
        yield done(MESSAGES["explored"]), f"{job.result} timed" if shown else job.result
    elif job.state == "stopped":
        yield done(MESSAGES["stopped"]), gr.skip()
    elif isinstance(job.error, InputError):
        yield alert(job.message), gr.skip()
    else:
        yield alert(MESSAGES["defect"]), gr.skip()
        assert job.error is not None
        raise job.error


def connect_load(blocks: gr.Blocks, service: Service, request: AnalyzeRequest, explore: Explore) -> None:
    """Open the run named in the link, or the newest one; a run named in a link also fills the form."""
    filled = (*TEXT_FIELDS, *LIKE_RUN)
    fields = [explore.fields[name] for name in filled]
    usual = [field.value for field in fields]

    def initial(page: gr.Request) -> tuple[Any, Any, Any, Any, Any]:
        run_id = page.query_params.get("run") if page else None
        try:
            with service.database.read():  # once: opening the file takes longer than most reads
                choices = centroid_choices(service, request.centroids)
                runs = {run["run_id"]: run for run in list_runs(service.database)}
                deleted = {run["run_id"] for run in deleted_runs(service)}
                opened = run_id if run_id in runs else next(iter(runs), "")
                like = _text_of(service, opened) if opened else {}
        except InputError as error:
            return gr.skip(), alert(str(error)), gr.skip(), gr.skip(), gr.skip()
        offered = gr.update(choices=choices)
        if run_id in runs:
            like |= _like_run(runs[run_id], [value for _, value in choices])
            heads = gr.update(choices=heads_choices(like.get("heads")))
            return run_id, gr.skip(), offered, heads, like
        if run_id in deleted:  # the view offers to bring it back
            return run_id, gr.skip(), offered, gr.skip(), gr.skip()
        notice = alert(MESSAGES["other_run"].format(run=run_id)) if run_id else gr.skip()
        return opened, notice, offered, gr.skip(), like

    loaded = blocks.load(
        initial,
        None,
        [explore.view, explore.notice, explore.fields["centroids"], explore.fields["heads"], explore.like_run],
        **QUIET,
    )
    loaded.then(
        None,
        [explore.like_run, *fields],
        fields,
        js=FILL_UNTOUCHED.format(names=json.dumps(filled), usual=json.dumps(usual)),
        **QUIET,
    )
    _connect_first_run(blocks, service, request, explore)


def _connect_first_run(blocks: gr.Blocks, service: Service, request: AnalyzeRequest, explore: Explore) -> None:
    """Show every visitor of an empty database how far its first run is, and open it when it is done."""
    outputs = [explore.first, explore.retry, explore.view]

    async def follow(*, retry: bool) -> AsyncIterator[tuple[Any, Any, Any]]:
        try:
            job = service.part(FirstRun).job(request, retry=retry)
        except InputError:  # the form's status shows it
            job = None
        hidden = gr.update(visible=False)
        if job is None:
            yield hidden, hidden, gr.skip()
            return
        shown = None
        while job.live:
            if shown != (shown := (job.stage, job.fraction)):
                words = f"<p>{escape(MESSAGES['sample'])}</p>{_bar(*shown)}"
                yield gr.update(value=words, visible=True), hidden, gr.skip()
            await asyncio.sleep(POLL_SECONDS)
        if job.state == "done":
            yield hidden, hidden, job.result
        else:
            yield gr.update(value=alert(job.message), visible=True), gr.update(visible=True), gr.skip()

    blocks.load(partial(follow, retry=False), None, outputs, concurrency_limit=None, **QUIET)
    explore.retry.click(partial(follow, retry=True), None, outputs, concurrency_limit=None, **QUIET)


def _text_of(service: Service, run_id: str) -> dict[str, Any]:
    """Values of the form that hold a run's text, so that Explore never means another one than is shown."""
    try:
        text = run_text(service.database, run_id)
    except TextError:  # rows that do not add up to a text: a damaged database
        text = ""
    text = text if len(text) <= LONGEST_FILL else ""
    return {"text": text, "sample": sample_of(text) if text else None}


def _like_run(run: dict[str, Any], centroids: list[str]) -> dict[str, Any]:
    """Values of the form that explore another text like this run; its centroids and heads only if those are offered."""
    values = {"model": run["model_id"], **run["config"]}
    if run["special_tokens"] is not None:
        values["special_tokens"] = run["special_tokens"]
    same = [name for name in (run["centroids_name"], run["centroids_sha256"]) if name in centroids]
    if same:
        values |= {"centroids": same[0], "heads": run["run_id"]}
    return {name: values[name] for name in LIKE_RUN if name in values}
