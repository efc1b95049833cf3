"""The page's functions under stable names, for programs (`gradio_client`, HTTP) and for language models (MCP)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import gradio as gr

from focus_explorer.errors import InputError
from focus_explorer.usecases.analyze import AnalyzeRequest
from focus_explorer.usecases.analyze import analyze as analyze_text
from focus_explorer.usecases.budget import OF_THE_FILE, heads_setting
from focus_explorer.usecases.jobs import DEFECT, Job, done_here
from focus_explorer.usecases.names import known_to_page
from focus_explorer.usecases.request import UseCase
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.users import LOG
from focus_explorer.usecases.visitors import visitor_limits
from focus_explorer.web.requests import runs
from focus_explorer.web.requests.table import API
from focus_explorer.web.tabs.explore import MODEL_WORK
from focus_explorer.web.tabs.form import FIELDS
from focus_runtime.config import DECLARED

CALLED = {"num_sinks": "sinks"}  # parameters of `analyze` that are not called as their setting
ANALYZE = """Run full attention and Focus on a text, store the run and return its numbers.

Args:
    text: the text to explore.
{arguments}

Returns:
    run_id, perplexity, retained_pairs, dominance, milliseconds, config and more.
"""
READ: dict[str, Any] = {"concurrency_limit": 4, "concurrency_id": "api"}


class Page(gr.Blocks):
    """Gradio's page; a call with too few values is answered in one sentence, not with objects of Python and texts.

    Values that a function of ours has a default for may be left out at the end, so that calls of a program keep working
    when a function gets another argument.
    """

    def validate_inputs(self, block_fn: Any, inputs: list[Any]) -> None:
        """Add defaults to the values, and refuse a call with fewer than its function needs."""
        needed = len(block_fn.inputs)
        if block_fn.api_name and block_fn.fn is not None and len(inputs) < needed:
            parameters = [*inspect.signature(block_fn.fn).parameters.values()]
            left_out = [each.default for each in parameters[len(inputs) : needed]]
            if len(parameters) == needed and inspect.Parameter.empty not in left_out:
                inputs.extend(left_out)
        if len(inputs) < needed:
            problem = f"{block_fn.api_name or 'this function'} got {len(inputs)} of {needed} values"
            raise gr.Error(f"{problem}; /gradio_api/info lists them", print_exception=False)


def build(service: Service, request: AnalyzeRequest) -> None:
    """Register the functions; their names, arguments and answers are documented in docs/howto-api.md."""
    public = visitor_limits(service) is not None
    gr.api(readable_errors(_analyze(request).for_programs(service)), api_name="analyze", **MODEL_WORK)
    for name, use_case in API.items():
        if use_case.public or not public:
            gr.api(readable_errors(use_case.for_programs(service)), api_name=name, **READ)


def readable_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its InputErrors as one sentence; of a defect the log has the details, the client the fact."""

    @wraps(function)
    def guarded(*values: Any, **named: Any) -> Any:
        try:
            return function(*values, **named)
        except InputError as error:
            raise gr.Error(str(error), print_exception=False) from error
        except Exception as error:  # Gradio would print its message, which may quote a user's text
            LOG.exception("function failed", extra={"fields": {"function": function.__name__}})
            raise gr.Error(DEFECT, print_exception=False) from error

    return guarded


def _analyze(request: AnalyzeRequest) -> UseCase:
    """Analysis of a text, whose defaults are those of the page."""
    settings = {CALLED.get(name, name): name for name in FIELDS}
    more: dict[str, tuple[Any, str]] = {  # parameter: its default and what it is
        "model": (
            request.model,
            "embedded name, the page's model or Hugging Face id; a path where --allow-path names its folder",
        ),
        "centroids": (request.centroids, "a shipped name such as default, random, or the hash of an uploaded file"),
        **{called: (FIELDS[name], DECLARED[name].meaning) for called, name in settings.items()},
        "max_tokens": (4000, "longer texts are cut here; 0 means no cut"),
        "device": (request.device or "auto", "auto, cpu, cuda, cuda:N, mps or split"),
        "dtype": (request.dtype or "auto", "auto, float32, bfloat16 or float16"),
        "backend": (request.backend, "what computes Focus attention, auto for the fastest"),
        "heads": (
            OF_THE_FILE,
            "settings of single heads and growth of windows: file for the centroid file's, alike for none, or a run's "
            "id for those it was made with",
        ),
        "special_tokens": (
            request.special_tokens,
            "what the text begins with: auto for what the model's tokenizer puts before it, or none",
        ),
        "chat": (False, "whether the text is the turns of a chat, which go through the model's own template"),
    }

    def analyze(service: Service, text: str, **values: Any) -> dict:
        values = {settings.get(name, name): value for name, value in values.items()}
        values["max_tokens"] = values["max_tokens"] or None
        heads = heads_setting(service.database, values.pop("heads"))
        chosen = AnalyzeRequest(repeats=request.repeats, **values, **heads)
        chosen = known_to_page(service, text, chosen)

        def work(job: Job) -> str:
            return analyze_text(service, text, chosen, command="focus-explorer serve (API)", progress=job.step)

        return runs.run(service, done_here("analysis", work))

    arguments = "\n".join(f"    {name}: {meaning}." for name, (_, meaning) in more.items())
    analyze.__doc__ = ANALYZE.format(arguments=arguments)
    parameters = [*inspect.signature(analyze, eval_str=True).parameters.values()][:2]
    for name, (default, _) in more.items():
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(inspect.Parameter(name, kind, default=default, annotation=type(default)))
    analyze.__signature__ = inspect.Signature(parameters, return_annotation=dict)  # type: ignore[attr-defined]
    return UseCase(analyze, api="analyze")
