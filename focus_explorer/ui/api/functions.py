"""The page's functions under stable names, for programs (`gradio_client`, HTTP) and for language models (MCP)."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import gradio as gr

from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import InputError
from focus_explorer.exports.tables.write import table
from focus_explorer.services.centroids import CentroidCards
from focus_explorer.services.compare.runs import numbers
from focus_explorer.services.labels import change_tags, delete_run, label_run, undelete_run
from focus_explorer.services.service import AnalyzeRequest, Service
from focus_explorer.services.sql import run_sql
from focus_explorer.ui.api.views import view_functions
from focus_explorer.ui.tabs.explore import MODEL_WORK

READ: dict[str, Any] = {"concurrency_limit": 4, "concurrency_id": "api"}


def check_mcp() -> None:
    """Say so when the functions cannot be offered to language models.

    Raises:
        InputError: the `mcp` package is not installed.
    """
    if importlib.util.find_spec("mcp") is None:
        raise InputError("--mcp needs the package `mcp`", fix="install it with `pip install 'focus-explorer[mcp]'`")


def build(service: Service, request: AnalyzeRequest) -> None:
    """Register the functions; their names, arguments and answers are documented in docs/howto-api.md."""
    for name, function, options in (
        ("analyze", _analyze(service, request), MODEL_WORK),
        *((name, function, READ) for name, function in _readers(service).items()),
        *((name, function, READ) for name, function in view_functions(service).items()),
        *((name, function, READ) for name, function in _labels(service).items()),
    ):
        gr.api(_readable_errors(function), api_name=name, **options)


def _readable_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a user can put right reaches a client as its one sentence."""
    from functools import wraps

    @wraps(function)
    def guarded(*values: Any, **named: Any) -> Any:
        try:
            return function(*values, **named)
        except InputError as error:
            raise gr.Error(str(error), print_exception=False) from error

    return guarded


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value.isoformat() if hasattr(value, "isoformat") else value for key, value in row.items()}


def _analyze(service: Service, request: AnalyzeRequest) -> Callable[..., Any]:
    def analyze(
        text: str,
        model: str = request.model,
        centroids: str = request.centroids,
        top_k: int = 1,
        window: int = 128,
        sinks: int = 4,
        assignment: str = "causal",
        max_tokens: int = 4000,
    ) -> dict:
        """Run full attention and Focus on a text, store the run and return its numbers.

        Args:
            text: the text to explore.
            model: embedded model name, Hugging Face id, folder or .gguf file.
            centroids: default, random, or the hash of an uploaded file.
            top_k: groups a token belongs to.
            window: pairs at most this far apart always attend.
            sinks: first tokens that every token may attend to.
            assignment: causal or sinkhorn.
            max_tokens: longer texts are cut here; 0 means no cut.

        Returns:
            run_id, perplexity, retained_pairs, dominance, milliseconds, config and more.
        """
        asked = AnalyzeRequest(
            model=model,
            centroids=centroids,
            top_k=top_k,
            window=window,
            num_sinks=sinks,
            assignment=assignment,
            max_tokens=max_tokens or None,
        )
        return service.summary(service.analyze(text, asked, command="focus-explorer serve (API)"))

    return analyze


def _readers(service: Service) -> dict[str, Callable[..., Any]]:
    cards = CentroidCards(service)

    def runs() -> list:
        """List the stored runs, newest first, with perplexities, pairs kept, names and tags."""
        return [_plain(row) for row in service.runs()]

    def run(run_id: str) -> dict:
        """The numbers of one run.

        Args:
            run_id: as listed by runs.
        """
        return service.summary(run_id)

    def _rows(run_id: str, what: str) -> list:
        return [_plain(row) for row in table(service.database, run_id, what).to_pylist()]

    def groups(run_id: str) -> list:
        """Every group of every layer of a run: share of tokens, confidence, most frequent tokens.

        Args:
            run_id: as listed by runs.
        """
        return _rows(run_id, "groups")

    def layers(run_id: str) -> list:
        """Every layer of a run: largest group, pairs kept and pairs by cause.

        Args:
            run_id: as listed by runs.
        """
        return _rows(run_id, "layers")

    def tokens(run_id: str, first: int = 0, count: int = 500) -> list:
        """Tokens of a run with their losses and their groups in every layer.

        Args:
            run_id: as listed by runs.
            first: position of the first token wanted.
            count: number of tokens, at most 5000.
        """
        if first < 0 or not 1 <= count <= 5000:
            raise InputError(f"first is {first} and count {count}", expected="first from 0, count from 1 to 5000")
        fetch_run(service.database, run_id)
        rows = fetch(service.database, "token_table", run_id=run_id, first=first, last=first + count - 1)
        return [_plain(row) for row in rows.to_pylist()]

    def compare(first: str, second: str) -> dict:
        """The numbers of two runs side by side, and the settings that differ.

        Args:
            first: id of a run.
            second: id of another run.
        """
        return numbers(service, first, second)

    def centroids() -> list:
        """List the shipped and uploaded centroid files with how they were trained and their held-out results."""
        return cards.cards()

    def compare_centroids(first: str, second: str) -> dict:
        """What changed between two centroid files: settings, and the distance of matched groups in every layer.

        Args:
            first: sha256 of a file, as listed by centroids.
            second: sha256 of another file.
        """
        return cards.compare(first, second)

    def sql(query: str) -> dict:
        """Answer one SELECT statement (DuckDB) over the database; read-only, at most 10 seconds and 1000 rows.

        Args:
            query: one SELECT statement; docs/schema.md describes the tables.
        """
        return run_sql(service.database, query)

    return {
        "runs": runs,
        "run": run,
        "groups": groups,
        "layers": layers,
        "tokens": tokens,
        "compare": compare,
        "centroids": centroids,
        "compare_centroids": compare_centroids,
        "sql": sql,
    }


def _labels(service: Service) -> dict[str, Callable[..., Any]]:
    def rename(run_id: str, name: str) -> dict:
        """Give a run a name; an empty one removes it.

        Args:
            run_id: as listed by runs.
            name: at most 120 characters.
        """
        return label_run(service, run_id, name=name)

    def note(run_id: str, note: str) -> dict:
        """Write a note to a run; an empty one removes it.

        Args:
            run_id: as listed by runs.
            note: at most 4000 characters.
        """
        return label_run(service, run_id, note=note)

    def tag(run_id: str, add: str = "", remove: str = "") -> dict:
        """Add and remove tags of a run.

        Args:
            run_id: as listed by runs.
            add: words with commas between.
            remove: words with commas between.
        """
        return change_tags(service, run_id, add.split(","), remove.split(","))

    def delete(run_id: str) -> dict:
        """Hide a run at once; it is removed for good 30 days later, and undelete brings it back until then.

        Args:
            run_id: as listed by runs.
        """
        delete_run(service, run_id)
        return {"run_id": run_id, "deleted": True}

    def undelete(run_id: str) -> dict:
        """Bring a deleted run back.

        Args:
            run_id: the deleted run.
        """
        undelete_run(service, run_id)
        return {"run_id": run_id, "deleted": False}

    return {"rename": rename, "note": note, "tag": tag, "delete": delete, "undelete": undelete}
