"""Budgets as users give and read them: JSON files, and words for what a configuration has."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import ConfigError, InputError
from focus_explorer.usecases.runs import run_config
from focus_explorer.words import counted
from focus_runtime.budget import EXPECTED, HeadException, budget_digest, read_budget
from focus_runtime.config import CONSTANT, growth_words
from focus_runtime.store.database import Database

NONE = "none"
OF_THE_FILE, ALL_ALIKE = "file", "alike"  # whose budget and growth of windows an analysis has; otherwise a run's id
SHOWN_DIGITS = 6  # of a budget's digest in labels
MAX_BYTES = 4 * 2**20  # every head of a thousand layers is far below


def budget_of(source: str | None) -> tuple[HeadException, ...] | None:
    """The budget a user names.

    Args:
        source: a JSON file as in docs/centroid-files.md, or the word none; None keeps the centroid file's.

    Returns:
        Its exceptions, none for the word none; None keeps the centroid file's.

    Raises:
        InputError: there is no such file, or it is not a budget.
    """
    if source is None:
        return None
    if source == NONE:
        return ()
    path = Path(os.path.expanduser(source))
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{source} has {path.stat().st_size:,} bytes", expected="a budget, a JSON file")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot read the budget {source}: {error.strerror}", expected=f"a JSON file, or the word {NONE}"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{source} is not text in UTF-8", expected="a budget, a JSON file") from error
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:  # of a number with thousands of digits a plain ValueError
        where = f" (line {error.lineno}: {error.msg})" if isinstance(error, json.JSONDecodeError) else ""
        raise InputError(f"{source} is not JSON{where}", expected=f"a list of exceptions, {EXPECTED}") from error
    try:
        return read_budget(values)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def heads_of(database: Database, source: str) -> dict[str, Any]:
    """Budget and growth of windows that a page's field names.

    Args:
        database: with the run.
        source: "file" for the centroid file's own, "alike" for no budget and windows of one length, or the id of a run
            for those it was made with.

    Returns:
        Fields of `AnalyzeRequest`.

    Raises:
        NotFoundError: it is neither, and there is no such run.
    """
    if source == OF_THE_FILE:
        return {}
    if source == ALL_ALIKE:
        return {"budget": (), "window_growth": CONSTANT}
    config = run_config(fetch_run(database, source))
    return {"budget": config.budget, "window_growth": config.growth}


def exception_words(entry: HeadException) -> str:
    """One exception, such as "layer 8, head 0: full attention"."""
    settings = [f"top-k {entry.top_k}"] * (entry.top_k is not None)
    settings += [f"window {entry.window}"] * (entry.window is not None)
    return f"{entry.place}: " + ("full attention" if entry.full else ", ".join(settings))


def budget_words(budget: Sequence[HeadException]) -> str:
    """A whole budget in one line."""
    return "; ".join(exception_words(entry) for entry in budget)


def budget_name(entries: Sequence[Any]) -> str:
    """How labels call a budget, such as "budget of 3 exceptions (9f3ac1)"; the digits begin those of `budget_id`.

    Args:
        entries: its exceptions as JSON has them.
    """
    return f"budget of {counted(len(entries), 'exception')} ({budget_digest(entries)[:SHOWN_DIGITS]})"


def other_settings(config: Mapping[str, Any]) -> str:
    """What follows a setting whose windows grow or that has text sinks, factors or a budget, such as ", budget of 3
    exceptions (9f3ac1)".

    Args:
        config: a configuration as JSON.
    """
    budget = f", {budget_name(config['budget'])}" if config.get("budget") else ""
    grows = f", windows {growth_words(config['window_growth'])}" if config.get("window_growth") else ""
    sinks = "" if config.get("text_sinks") is None else f", text sinks {text_sinks_words(config['text_sinks'])}"
    factors = ", factors of the logits" if config.get("logit_factors") else ""
    return grows + sinks + factors + budget


def text_sinks_words(similarity: float | None) -> str:
    """From which similarity a token is a sink in the middle of a text, in words."""
    return "none" if similarity is None else f"from a cosine similarity of {similarity:g}"


def kept_budget(config: Mapping[str, Any]) -> str:
    """What readers of other settings of a run must know of its budget, in a sentence; "" where it has none.

    Args:
        config: of the run, as JSON.
    """
    budget = read_budget(config.get("budget") or [])
    if not budget:
        return ""
    full = sum(entry.full for entry in budget)
    return (
        f"The run's {budget_name(config['budget'])} is in force at every setting: layers and heads keep what it gives "
        "them" + (f", {full} of them full attention, without groups too" if full else "") + "."
    )
