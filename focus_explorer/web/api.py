"""The page's functions under stable names, for programs (`gradio_client`, HTTP) and for language models (MCP)."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import gradio as gr

from focus_explorer.errors import InputError
from focus_explorer.usecases.analyze import AnalyzeRequest
from focus_explorer.usecases.analyze import analyze as analyze_text
from focus_explorer.usecases.budget import OF_THE_FILE, heads_of
from focus_explorer.usecases.jobs import DEFECT, Job, done_here
from focus_explorer.usecases.names import known_to_page
from focus_explorer.usecases.request import UseCase
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.users import LOG
from focus_explorer.usecases.visitors import visitor_limits
from focus_explorer.web.requests import runs
from focus_explorer.web.requests.table import API
from focus_explorer.web.tabs.explore import MODEL_WORK

READ: dict[str, Any] = {"concurrency_limit": 4, "concurrency_id": "api"}


def check_mcp() -> None:
    """Raise an InputError where the package is missing that offers the functions to language models."""
    if importlib.util.find_spec("mcp") is None:
        raise InputError("--mcp needs the package `mcp`", fix="install it with `pip install 'focus-explorer[mcp]'`")


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

    def analyze(
        service: Service,
        text: str,
        model: str = request.model,
        centroids: str = request.centroids,
        top_k: int = 1,
        window: int = 128,
        sinks: int = 4,
        assignment: str = "causal",
        max_tokens: int = 4000,
        device: str = request.device or "auto",
        dtype: str = request.dtype or "auto",
        backend: str = request.backend,
        heads: str = OF_THE_FILE,
        special_tokens: str = request.special_tokens,
        chat: bool = False,
    ) -> dict:
        """Run full attention and Focus on a text, store the run and return its numbers.

        Args:
            text: the text to explore.
            model: embedded name, the page's model or Hugging Face id; a path where --allow-path names its folder.
            centroids: a shipped name such as default, random, or the hash of an uploaded file.
            top_k: groups a token belongs to.
            window: pairs at most this far apart always attend, in heads without a window of their own.
            sinks: first tokens that every token may attend to.
            assignment: causal or sinkhorn.
            max_tokens: longer texts are cut here; 0 means no cut.
            device: auto, cpu, cuda, cuda:N, mps or split.
            dtype: auto, float32, bfloat16 or float16.
            backend: what computes Focus attention, auto for the fastest.
            heads: settings of single heads and growth of windows: file for the centroid file's, alike for none, or a
                run's id for those it was made with.
            special_tokens: what the text begins with: auto for what the model's tokenizer puts before it, or none.
            chat: whether the text is the turns of a chat, which go through the model's own template.

        Returns:
            run_id, perplexity, retained_pairs, dominance, milliseconds, config and more.
        """
        chosen = AnalyzeRequest(
            model=model,
            centroids=centroids,
            top_k=top_k,
            window=window,
            num_sinks=sinks,
            assignment=assignment,
            max_tokens=max_tokens or None,
            device=device,
            dtype=dtype,
            backend=backend,
            repeats=request.repeats,
            special_tokens=special_tokens,
            chat=chat,
            **heads_of(service.database, heads),
        )
        chosen = known_to_page(service, text, chosen)

        def work(job: Job) -> str:
            return analyze_text(service, text, chosen, command="focus-explorer serve (API)", progress=job.step)

        return runs.run(service, done_here("analysis", work))

    return UseCase(analyze, api="analyze")
