"""`focus-explorer analyze` and `compare`: a text, or a corpus of many, at one setting or at several."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Literal

from focus_explorer.cli.options import command, command_line, fill, flag_of, print_note, print_result
from focus_explorer.cli.runs import describe_corpus
from focus_explorer.errors import InputError
from focus_explorer.progress import document_bar, stage_bar
from focus_explorer.usecases.analyze import (
    GLOB,
    TEXT_COLUMN,
    AnalyzeRequest,
    CorpusRequest,
    CorpusStopped,
    analyze,
    is_corpus,
)
from focus_explorer.usecases.budget import kept_budget
from focus_explorer.usecases.centroids.files import pinned_name
from focus_explorer.usecases.compare.settings import NAMES, REPEATS, grid, measure_grid
from focus_explorer.usecases.pairs import measure_attention
from focus_explorer.usecases.request import (
    AsJson,
    Changed,
    Computed,
    File,
    FocusOptions,
    Numbers,
    OfModel,
    OnDatabase,
    Settings,
    TextBegins,
    argument,
    details,
    focus_settings,
    numbers,
    option,
)
from focus_explorer.usecases.runs import list_runs, run_summary
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.texts import read_text_file, read_text_stream
from focus_explorer.words import counted, ends, tokens_in_words
from focus_runtime.config import setting_words

RANDOM = ("for --centroids random",)
WHOLE = "whole numbers such as 1,2"
CORPUS = ("for a folder, JSONL or Parquet file", "see docs/corpora.md")


class AnalyzeOptions(OfModel, OnDatabase, FocusOptions, Changed, Computed, TextBegins, AsJson):
    file: File = argument("a UTF-8 text file, - for standard input, or a corpus: a folder, a .jsonl or a .parquet file")
    max_tokens: int | None = option(None, "cut the text to this many tokens")
    chat: bool = option(False, "the text is the turns of a chat: put them through the model's own template")
    repeats: int | None = option(None, "timed repeats (default: 5, or 3 when they take long)")
    attention: bool = option(
        False, "also measure where full attention goes under the mask, and its strongest links: one more, slower pass"
    )
    num_groups: int | None = option(
        None, "K, groups in every layer (default: 8, as in the shipped files)", flag="--groups", group=RANDOM
    )
    routing_dim: int | None = option(None, "d_g, width of the routing space (default: 16)", group=RANDOM)
    seed: int = option(0, "of the draw", group=RANDOM)
    glob: str | None = option(None, f"which files of a folder (default: {GLOB})", group=CORPUS)
    text_column: str | None = option(
        None, f"JSONL key or Parquet column with the text (default: {TEXT_COLUMN})", group=CORPUS
    )
    name: str | None = option(None, "what the corpus is called in lists (default: the source's name)", group=CORPUS)
    out: File | None = option(None, "folder to write to (default: corpora, next to the database)", group=CORPUS)
    engine: Literal["local", "ray"] | None = option(None, "this process, or Ray workers (default: local)", group=CORPUS)
    address: str | None = option(
        None,
        "of a Ray cluster; --out must be storage that all of it shares (default: a Ray on this machine alone)",
        group=CORPUS,
    )
    workers: int | None = option(None, "Ray workers, each with a model of its own (default: 2)", group=CORPUS)
    gpus_per_worker: float | None = option(None, "GPUs of each worker, such as 1 or 0.5 (default: 0)", group=CORPUS)
    threads: int | None = option(None, "torch threads of each worker (default: all cores; 1 with Ray)", group=CORPUS)
    no_tags: bool = option(False, "leave out parts of speech and sentences", group=CORPUS)
    no_baseline: bool = option(False, "leave out the pass with random centroids", group=CORPUS)

    @property
    def of_corpus(self) -> dict[str, Any]:
        """Options that were given and are for a corpus."""
        fields = type(self).model_fields
        given = {name: getattr(self, name) for name in fields if details(fields[name]).get("group") == CORPUS}
        return {name: value for name, value in given.items() if value != fields[name].default}

    @property
    def how(self) -> AnalyzeRequest:
        return fill(AnalyzeRequest, self)


def run_analyze(options: AnalyzeOptions) -> int:
    """Analyse a text or a corpus and print its summary; returns the exit status."""
    if is_corpus(os.path.expanduser(options.file)):
        return _analyze_corpus(options, command_line())
    for name in options.of_corpus:
        raise InputError(
            f"--{name.replace('_', '-')} is for a folder, JSONL or Parquet file and {options.file} is none",
            fix="give a folder, or leave the option out",
        )
    if options.file == "-":
        text = read_text_stream(sys.stdin.buffer, "standard input")
    else:
        text = read_text_file(Path(os.path.expanduser(options.file)))
    service = Service(options.db)
    with stage_bar() as progress:
        run_id = analyze(service, text, options.how, command=command_line(), progress=progress, announce=print_note)
    if options.attention:
        with stage_bar() as progress:
            measure_attention(service, run_id, progress=progress)
    print_result(options, run_summary(service.database, run_id), describe_run)
    return 0


def _analyze_corpus(options: AnalyzeOptions, command: str) -> int:
    from focus_explorer.usecases.corpora.analyze import analyze_corpus  # imports torch, which `--help` does not need

    of_text = {"repeats": options.repeats, "attention": options.attention, "set": options.changes, "chat": options.chat}
    for name, given in of_text.items():
        if given:
            raise InputError(f"--{name} is for a single text", fix="leave it out for a corpus")
    chosen = options.of_corpus
    request = CorpusRequest(
        source=options.file,
        how=options.how,
        tags=not chosen.pop("no_tags", False),
        baseline=not chosen.pop("no_baseline", False),
        **chosen,
    )
    try:
        with document_bar() as counted, redirect_stdout(sys.stderr):  # Ray reports the death of a worker there
            summary = analyze_corpus(
                Service(options.db), request, command=command, counted=counted, announce=print_note
            )
    except CorpusStopped as stopped:
        print(f"{stopped}; continue with: {command}", file=sys.stderr)
        return 130
    print_result(options, summary, describe_corpus)
    return 0


def describe_run(summary: Mapping[str, Any]) -> str:
    config = summary["config"]
    full, focus = summary["perplexity"]["full"], summary["perplexity"]["focus"]
    kept = summary["distant_pairs_kept"]
    lines = [
        f"run                    {summary['run_id']}   "
        f"{tokens_in_words(summary['num_tokens'], summary['added_tokens'])}, {summary['model']}, "
        f"{summary['device']}, {summary['dtype']}",
        f"setting                {setting_words(config)}, centroids {summary['centroids']}, "
        f"backend {summary['backend']}",
        f"perplexity             full {full:.3f}, Focus {focus:.3f} ({focus / full - 1:+.2%}), "
        f"{counted(summary['scored_tokens'], 'scored token')}",
        f"pairs kept             {summary['retained_pairs']:.1%} of all"
        + (f", {kept:.1%} of the distant ones" if kept is not None else ""),
        f"largest group          {summary['dominance']:.1%} of tokens, mean over layers (even would be "
        f"{1 / config['num_groups']:.1%})",
        _times("forward pass", summary["milliseconds"]["end_to_end"]),
        _times("attention with routing", summary["milliseconds"]["attention"]),
        *(f"note                   {note}" for note in summary["notes"]),
        f"stored in              {summary['db']}",
    ]
    return "\n".join(lines)


def _times(label: str, times: Mapping[str, Any]) -> str:
    full, focus = times["full"], times["focus"]
    once = full["repeats"] == 1
    full_ms, focus_ms = (
        f"{of['median']:,.0f} ms" + ("" if once else f" ({of['low']:,.0f} to {of['high']:,.0f})")
        for of in (full, focus)
    )
    repeats = "timed once" if once else f"{full['repeats']} repeats"
    ratio = full["median"] / focus["median"]
    return f"{label:<22} full {full_ms}, Focus {focus_ms}, {repeats}: {ratio:.2f}x as fast"


class CompareOptions(OfModel, OnDatabase, FocusOptions, Computed, AsJson):
    settings: Settings = focus_settings("top_k", "window")
    text: File = argument("a UTF-8 text file, which is explored first, or the id of a stored run")
    top_k: Numbers | None = numbers(
        None, "groups a token belongs to, such as 1,2 (default: values that suit the text)", WHOLE
    )
    window: Numbers | None = numbers(None, "window sizes, such as 64,128 (default: values that suit the text)", WHOLE)
    repeats: int = option(REPEATS, "timed repeats")
    max_tokens: int | None = option(None, "cut the text to this many tokens")


def run_compare(options: CompareOptions) -> None:
    service = Service(options.db)
    centroids = pinned_name(service, options.centroids)  # the run and the grid are made with the same
    with stage_bar() as progress:
        stored = _is_stored_run(service, options)
        run_id = options.text if stored else _explored(service, options, centroids, progress)
        suggested = grid(service, run_id)["suggested"]
        measure_grid(
            service,
            run_id,
            suggested["top_k"] if options.top_k is None else options.top_k,
            suggested["window"] if options.window is None else options.window,
            repeats=options.repeats,
            centroids=None if stored else centroids,
            progress=progress,
        )
    config = run_summary(service.database, run_id)["config"]
    result = {
        "run_id": run_id,
        "cells": grid(service, run_id)["cells"],
        "note": kept_budget(config) or None,
        "db": str(service.database.path),
    }
    print_result(options, result, describe_grid)


def _is_stored_run(service: Service, options: CompareOptions) -> bool:
    """Whether the text is the id of a stored run, which is measured as it was made."""
    text = options.text
    if os.path.exists(os.path.expanduser(text)) or text not in {run["run_id"] for run in list_runs(service.database)}:
        return False
    if (options.device, options.dtype, options.backend) != ("auto", "auto", "auto"):
        raise InputError(
            f"{text} is a stored run, which is measured in its own precision and by its own backend",
            fix="leave --device, --dtype and --backend out, or give the text's file",
        )
    for name in options.settings.chosen():
        raise InputError(
            f"{text} is a stored run, which is measured with its own settings",
            fix=f"leave {flag_of(name)} out, or give the text's file",
        )
    return True


def _explored(service: Service, options: CompareOptions, centroids: str, progress: Any) -> str:
    of_grid: dict[str, Any] = {"top_k": None, "window": None}
    request = fill(AnalyzeRequest, options, centroids=centroids, repeats=1, **of_grid)
    text = read_text_file(Path(os.path.expanduser(options.text)))
    return analyze(service, text, request, command=command_line(), progress=progress, announce=print_note)


def describe_grid(result: dict[str, Any]) -> str:
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


COMMANDS = {"analyze": command(AnalyzeOptions, run_analyze), "compare": command(CompareOptions, run_compare)}
