"""`focus-explorer compare`: a text at several settings, as the page's Compare view measures and stores it."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from focus_explorer.cli.options import (
    add_budget,
    add_compute,
    add_settings,
    add_window_growth,
    command_line,
    print_note,
    window_growth_of,
)
from focus_explorer.errors import InputError
from focus_explorer.progress import stage_bar
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.budget import budget_of, kept_budget
from focus_explorer.usecases.centroids.files import pinned_name
from focus_explorer.usecases.compare.settings import NAMES, REPEATS, grid, measure_grid
from focus_explorer.usecases.runs import list_runs, run_summary
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.texts import read_text_file
from focus_explorer.words import counted, ends


def add_options(parser: argparse.ArgumentParser) -> None:
    """Text, grid of settings, model and centroids."""
    parser.add_argument("text", help="a UTF-8 text file, which is explored first, or the id of a stored run")
    parser.add_argument("--top-k", help="groups a token belongs to, such as 1,2 (default: values that suit the text)")
    parser.add_argument("--window", help="window sizes, such as 64,128 (default: values that suit the text)")
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"timed repeats (default: {REPEATS})")
    parser.add_argument("--max-tokens", type=int, help="cut the text to this many tokens")
    add_settings(parser, "model", "centroids", "db")
    add_budget(parser)
    add_window_growth(parser)
    add_compute(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def _values(text: str | None, option: str) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise InputError(f"{option} is {text!r}", expected="whole numbers such as 1,2") from error


def run(arguments: argparse.Namespace) -> None:
    """Explore the text where it is not a stored run, measure the grid, print it."""
    top_k, window = _values(arguments.top_k, "--top-k"), _values(arguments.window, "--window")
    service = Service(arguments.db)
    arguments.centroids = pinned_name(service, arguments.centroids)  # the run and the grid are made with the same
    with stage_bar() as progress:
        run_id = _run_of(service, arguments, progress)
        stored = run_id == arguments.text
        suggested = grid(service, run_id)["suggested"]
        measure_grid(
            service,
            run_id,
            suggested["top_k"] if top_k is None else top_k,
            suggested["window"] if window is None else window,
            repeats=arguments.repeats,
            centroids=None if stored else arguments.centroids,
            progress=progress,
        )
    config = run_summary(service.database, run_id)["config"]
    result = {
        "run_id": run_id,
        "cells": grid(service, run_id)["cells"],
        "note": kept_budget(config) or None,
        "db": str(service.database.path),
    }
    print(json.dumps(result, ensure_ascii=False) if arguments.json else describe(result))


def _run_of(service: Service, arguments: argparse.Namespace, progress: Any) -> str:
    text = str(arguments.text)
    if not os.path.exists(os.path.expanduser(text)) and text in {run["run_id"] for run in list_runs(service.database)}:
        if (arguments.device, arguments.dtype, arguments.backend) != ("auto", "auto", "auto"):
            raise InputError(
                f"{text} is a stored run, which is measured in its own precision and by its own backend",
                fix="leave --device, --dtype and --backend out, or give the text's file",
            )
        if arguments.budget is not None or arguments.window_growth is not None:
            raise InputError(
                f"{text} is a stored run, which is measured with its own budget and growth of windows",
                fix="leave --budget and --window-growth out, or give the text's file",
            )
        return text
    request = AnalyzeRequest(
        model=arguments.model,
        centroids=arguments.centroids,
        window_growth=window_growth_of(arguments),
        budget=budget_of(arguments.budget),
        max_tokens=arguments.max_tokens,
        repeats=1,
        device=arguments.device,
        dtype=arguments.dtype,
        backend=arguments.backend,
    )
    return analyze(
        service,
        read_text_file(Path(os.path.expanduser(text))),
        request,
        command=command_line(),
        progress=progress,
        announce=print_note,
    )


def describe(result: dict[str, Any]) -> str:
    """A line for each cell: predictions, pairs and time at the same setting."""
    lines = [f"run {result['run_id']}"]
    for cell in result["cells"]:
        setting = (f"top-k {cell['top_k']}, " if cell["top_k"] else "") + f"window {cell['window_size']}"
        lines.append(
            f"{NAMES[cell['kind']]:<21} {setting:<22} perplexity {cell['perplexity_full']:.3f} -> "
            f"{cell['perplexity_focus']:.3f}, {cell['delta_mean']:+.4f} nats a token "
            f"({ends(cell['delta_low'], cell['delta_high'], '+.4f')}, {counted(cell['scored'], 'token')}), "
            f"{cell['retained_pairs']:.0%} of pairs, attention "
            f"{cell['attention_full']:,.1f} -> {cell['attention_focus']:,.1f} ms (median of {cell['repeats']})"
        )
    notes = [f"note: {result['note']}"] if result["note"] else []
    return "\n".join([*lines, *notes, f"stored in {result['db']}"])
