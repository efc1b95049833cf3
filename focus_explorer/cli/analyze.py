"""`focus-explorer analyze`: a text, or a corpus of many, with full attention and with Focus."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from focus_explorer.cli.corpora import describe as describe_corpus
from focus_explorer.cli.options import (
    add_changes,
    add_compute,
    add_focus_settings,
    add_random_centroids,
    add_settings,
    add_token_choice,
    command_line,
    print_note,
    window_growth_of,
)
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
from focus_explorer.usecases.budget import budget_of, other_settings
from focus_explorer.usecases.runs import run_summary
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.texts import read_text_file, read_text_stream
from focus_explorer.words import counted, tokens_in_words

_CORPUS_ONLY = {
    "glob": None,
    "text_column": None,
    "name": None,
    "out": None,
    "engine": None,
    "address": None,
    "workers": None,
    "gpus_per_worker": None,
    "threads": None,
    "no_tags": False,
    "no_baseline": False,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options for a text, then those for a corpus alone."""
    parser.add_argument(
        "file", help="a UTF-8 text file, - for standard input, or a corpus: a folder, a .jsonl or a .parquet file"
    )
    add_settings(parser, "model", "centroids", "db")
    add_focus_settings(parser)
    add_changes(parser)
    add_compute(parser)
    add_random_centroids(parser)
    add_token_choice(parser)
    parser.add_argument("--max-tokens", type=int, help="cut the text to this many tokens")
    parser.add_argument(
        "--chat", action="store_true", help="the text is the turns of a chat: put them through the model's own template"
    )
    parser.add_argument("--repeats", type=int, help="timed repeats (default: 5, or 3 when they take long)")
    parser.add_argument(
        "--attention",
        action="store_true",
        help="also measure where full attention goes under the mask, and its strongest links: one more, slower pass",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    _add_corpus_options(parser)
    parser.set_defaults(run=run)


def _add_corpus_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("for a folder, JSONL or Parquet file", "see docs/corpora.md")
    group.add_argument("--glob", help=f"which files of a folder (default: {GLOB})")
    group.add_argument("--text-column", help=f"JSONL key or Parquet column with the text (default: {TEXT_COLUMN})")
    group.add_argument("--name", help="what the corpus is called in lists (default: the source's name)")
    group.add_argument("--out", help="folder to write to (default: corpora, next to the database)")
    group.add_argument("--engine", choices=("local", "ray"), help="this process, or Ray workers (default: local)")
    group.add_argument(
        "--address",
        help="of a Ray cluster; --out must be storage that all of it shares (default: a Ray on this machine alone)",
    )
    group.add_argument("--workers", type=int, help="Ray workers, each with a model of its own (default: 2)")
    group.add_argument("--gpus-per-worker", type=float, help="GPUs of each worker, such as 1 or 0.5 (default: 0)")
    group.add_argument("--threads", type=int, help="torch threads of each worker (default: all cores; 1 with Ray)")
    group.add_argument("--no-tags", action="store_true", help="leave out parts of speech and sentences")
    group.add_argument("--no-baseline", action="store_true", help="leave out the pass with random centroids")


def run(arguments: argparse.Namespace) -> int:
    """Analyse a text or a corpus and print its summary; returns the exit status."""
    if _is_corpus(arguments):
        return _analyze_corpus(arguments, command_line())
    text = _read(arguments.file)
    request = _request(arguments)
    service = Service(arguments.db)
    with stage_bar() as progress:
        run_id = analyze(service, text, request, command=command_line(), progress=progress, announce=print_note)
    if arguments.attention:
        from focus_explorer.usecases.pairs import measure_attention

        with stage_bar() as progress:
            measure_attention(service, run_id, progress=progress)
    summary = run_summary(service.database, run_id)
    print(json.dumps(summary, ensure_ascii=False) if arguments.json else _describe(summary))
    return 0


def _request(arguments: argparse.Namespace) -> AnalyzeRequest:
    return AnalyzeRequest(
        model=arguments.model,
        centroids=arguments.centroids,
        top_k=arguments.top_k,
        window=arguments.window,
        num_sinks=arguments.sinks,
        window_growth=window_growth_of(arguments),
        assignment=arguments.assignment,
        budget=budget_of(arguments.budget),
        max_tokens=arguments.max_tokens,
        special_tokens=arguments.special_tokens,
        chat=arguments.chat,
        repeats=arguments.repeats,
        device=arguments.device,
        dtype=arguments.dtype,
        backend=arguments.backend,
        num_groups=arguments.groups,
        routing_dim=arguments.routing_dim,
        seed=arguments.seed,
        changes=tuple(arguments.set),
    )


def _read(source: str) -> str:
    if source == "-":
        return read_text_stream(sys.stdin.buffer, "standard input")
    return read_text_file(Path(os.path.expanduser(source)))


def _is_corpus(arguments: argparse.Namespace) -> bool:
    # Options for a corpus are refused with a single text, and the other way round.
    if is_corpus(os.path.expanduser(arguments.file)):
        single = {"--repeats": arguments.repeats, "--attention": arguments.attention, "--set": arguments.set}
        single["--chat"] = arguments.chat
        for name, given in single.items():
            if given:
                raise InputError(f"{name} is for a single text", fix="leave it out for a corpus")
        return True
    for name, default in _CORPUS_ONLY.items():
        if getattr(arguments, name) != default:
            raise InputError(
                f"--{name.replace('_', '-')} is for a folder, JSONL or Parquet file and {arguments.file} is none",
                fix="give a folder, or leave the option out",
            )
    return False


def _analyze_corpus(arguments: argparse.Namespace, command: str) -> int:
    from focus_explorer.usecases.corpora.analyze import analyze_corpus  # imports torch, which `--help` does not need

    given = {name: getattr(arguments, name) for name in _CORPUS_ONLY if not name.startswith("no_")}
    request = CorpusRequest(
        source=arguments.file,
        how=_request(arguments),
        tags=not arguments.no_tags,
        baseline=not arguments.no_baseline,
        **{name: value for name, value in given.items() if value is not None},
    )
    try:
        with document_bar() as counted, redirect_stdout(sys.stderr):  # Ray reports the death of a worker there
            summary = analyze_corpus(
                Service(arguments.db), request, command=command, counted=counted, announce=print_note
            )
    except CorpusStopped as stopped:
        print(f"{stopped}; continue with: {command}", file=sys.stderr)
        return 130
    print(json.dumps(summary, ensure_ascii=False) if arguments.json else describe_corpus(summary))
    return 0


def _describe(summary: Mapping[str, Any]) -> str:
    config, times = summary["config"], summary["milliseconds"]
    full, focus = summary["perplexity"]["full"], summary["perplexity"]["focus"]
    even = 1 / config["num_groups"]
    kept = summary["distant_pairs_kept"]

    def row(stage: str, label: str) -> str:
        a, b = times[stage]["full"], times[stage]["focus"]
        ratio = a["median"] / b["median"]
        once = a["repeats"] == 1
        full_ms, focus_ms = (
            f"{of['median']:,.0f} ms" + ("" if once else f" ({of['low']:,.0f} to {of['high']:,.0f})") for of in (a, b)
        )
        repeats = "timed once" if once else f"{a['repeats']} repeats"
        return f"{label:<22} full {full_ms}, Focus {focus_ms}, {repeats}: {ratio:.2f}x as fast"

    lines = [
        f"run                    {summary['run_id']}   "
        f"{tokens_in_words(summary['num_tokens'], summary['added_tokens'])}, {summary['model']}, "
        f"{summary['device']}, {summary['dtype']}",
        f"setting                K={config['num_groups']}, top-k {config['top_k']}, window {config['window']}, "
        f"{counted(config['num_sinks'], 'sink')}, {config['assignment']} assignment{other_settings(config)}, "
        f"centroids {summary['centroids']}, "
        f"backend {summary['backend']}",
        f"perplexity             full {full:.3f}, Focus {focus:.3f} ({focus / full - 1:+.2%}), "
        f"{counted(summary['scored_tokens'], 'scored token')}",
        f"pairs kept             {summary['retained_pairs']:.1%} of all"
        + (f", {kept:.1%} of the distant ones" if kept is not None else ""),
        f"largest group          {summary['dominance']:.1%} of tokens, mean over layers (even would be {even:.1%})",
        row("end_to_end", "forward pass"),
        row("attention", "attention with routing"),
        *(f"note                   {note}" for note in summary["notes"]),
        f"stored in              {summary['db']}",
    ]
    return "\n".join(lines)
