"""`focus-explorer analyze` of a folder, JSONL or Parquet file, and `focus-explorer corpora`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from contextlib import redirect_stdout
from typing import Any

from focus_explorer.errors import InputError
from focus_explorer.settings import SETTINGS
from focus_runtime.corpus.source import GLOB, TEXT_COLUMN, is_corpus
from focus_runtime.measure.intervals import COARSE_BELOW

_ONLY = {
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
SHOWN = 10  # documents that were skipped, named in the summary


def add_options(parser: argparse.ArgumentParser) -> None:
    """What `analyze` takes for a corpus, beyond the options for a text."""
    group = parser.add_argument_group("for a folder, JSONL or Parquet file", "see docs/corpora.md")
    group.add_argument("--glob", help=f"which files of a folder (default: {GLOB})")
    group.add_argument("--text-column", help=f"JSONL key or Parquet column with the text (default: {TEXT_COLUMN})")
    group.add_argument("--name", help="what the corpus is called in lists (default: the source's name)")
    group.add_argument("--out", help="folder to write to (default: corpora, beside the database)")
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


def wanted(arguments: argparse.Namespace) -> bool:
    """Whether `analyze` was given a corpus.

    Raises:
        InputError: options for a corpus with a single text, or the other way round.
    """
    if is_corpus(os.path.expanduser(arguments.file)):
        for name, given in (("--repeats", arguments.repeats), ("--attention", arguments.attention)):
            if given:
                raise InputError(f"{name} is for a single text", fix="leave it out for a corpus")
        return True
    for name, default in _ONLY.items():
        if getattr(arguments, name) != default:
            raise InputError(
                f"--{name.replace('_', '-')} is for a folder, JSONL or Parquet file and {arguments.file} is none",
                fix="give a folder, or leave the option out",
            )
    return False


def analyze(arguments: argparse.Namespace, command: str) -> int:
    """Analyse a corpus and print its summary."""
    from focus_explorer.progress import document_bar
    from focus_explorer.services.analyze import AnalyzeRequest
    from focus_explorer.services.corpora import CorpusRequest, CorpusStopped, analyze_corpus

    how = AnalyzeRequest(
        model=arguments.model,
        centroids=arguments.centroids,
        top_k=arguments.top_k,
        window=arguments.window,
        num_sinks=arguments.sinks,
        assignment=arguments.assignment,
        max_tokens=arguments.max_tokens,
    )
    given = {name: getattr(arguments, name) for name in _ONLY if not name.startswith("no_")}
    request = CorpusRequest(
        source=arguments.file,
        how=how,
        tags=not arguments.no_tags,
        baseline=not arguments.no_baseline,
        **{name: value for name, value in given.items() if value is not None},
    )
    try:
        with document_bar() as counted, redirect_stdout(sys.stderr):  # Ray reports the death of a worker there
            summary = analyze_corpus(_service(arguments), request, command=command, counted=counted, announce=_announce)
    except CorpusStopped as stopped:
        print(f"{stopped}; go on with: {command}", file=sys.stderr)
        return 130
    print(json.dumps(summary, ensure_ascii=False) if arguments.json else describe(summary))
    return 0


def _announce(message: str) -> None:
    print(f"note: {message}", file=sys.stderr)


def describe(summary: dict[str, Any]) -> str:
    """A corpus for people."""
    config, full, focus = summary["config"], summary["perplexity"]["full"], summary["perplexity"]["focus"]
    even, far = 1 / config["num_groups"], summary["distant_pairs_kept"]
    tagger, chance = summary["settings"]["tagger"], summary["perplexity"].get("random")
    lines = [
        f"corpus                 {summary['corpus_id']}   {summary['name']}, {summary['documents']:,} documents, "
        f"{summary['num_tokens']:,} tokens, {summary['model']}",
        *([] if summary["status"] == "complete" else ["status                 not complete; the same command goes on"]),
        *_skipped(summary["skipped"]),
        f"setting                K={config['num_groups']}, top-k {config['top_k']}, window {config['window']}, "
        f"{config['num_sinks']} sinks, {config['assignment']} assignment, centroids {summary['centroids']}, "
        f"{'tags by ' + tagger if tagger else 'no tags'}",
        f"perplexity             full {_number(full)}, Focus {_number(focus)}"
        + (f", random centroids {_number(chance)}" if chance else "")
        + f"; {summary['scored_tokens']:,} scored tokens",
        f"loss difference        Focus {_number(summary['loss_difference'], '+.4f')} nats a token"
        + (f", random centroids {_number(summary['loss_difference_random'], '+.4f')}" if chance else ""),
        f"pairs kept             {_number(summary['retained_pairs'], '.1%')} of all"
        + (f", {_number(far, '.1%')} of the distant ones" if far else ""),
        f"largest group          {summary['dominance']:.1%} of all tokens, "
        f"{_number(summary['document_dominance'], '.1%')} within a document, means over layers (even would be "
        f"{even:.1%})",
        "                       in brackets: 95 % intervals over documents"
        + (f"; {summary['documents']} are too few to tell much" if summary["documents"] < COARSE_BELOW else ""),
    ]
    return "\n".join([*lines, *_time(summary), f"written to             {summary['folder']}"])


def _number(interval: dict[str, Any], form: str = ".3f") -> str:
    if interval["low"] is None:
        return f"{interval['value']:{form}} (one document)"
    return f"{interval['value']:{form}} ({interval['low']:{form}} to {interval['high']:{form}})"


def _skipped(skipped: list[dict[str, str]]) -> list[str]:
    if not skipped:
        return []
    kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(each["kind"] for each in skipped).most_common())
    lines = [f"skipped                {len(skipped):,}: {kinds}"]
    lines += [f"                       {each['name']}: {each['reason']}" for each in skipped[:SHOWN]]
    more = len(skipped) - SHOWN
    return lines + ([f"                       and {more:,} more, with --json"] if more > 0 else [])


def _time(summary: dict[str, Any]) -> list[str]:
    now = summary.get("this_time")
    if not now:
        return [f"time                   {summary['model_seconds']:,.1f} s in forward passes"]
    if not now["documents"]:
        return [f"time                   {now['seconds']:,.1f} s; all documents were there"]
    return [
        f"time                   {now['model_seconds']:,.1f} s in forward passes of "
        f"{now['document_seconds']:,.1f} s on {now['documents']:,} documents "
        f"({now['document_seconds'] / now['model_seconds'] - 1:+.1%}), {now['seconds']:,.1f} s in all, "
        f"{now['workers']} worker{'s' if now['workers'] > 1 else ''}"
    ]


def add_parser(commands: Any) -> None:
    """`corpora` and its actions; without an action it lists."""
    parser = commands.add_parser("corpora", help="list analysed corpora, newest first; show or delete one")
    _options(parser, default=SETTINGS["db"].default or None, json_default=False)
    parser.set_defaults(run=_list)
    actions = parser.add_subparsers(dest="action", parser_class=type(parser))
    for name, text, work in (
        ("show", "pooled numbers of a corpus, with --json those of every document too", _show),
        ("delete", "remove a corpus and its files for good", _delete),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("corpus_id", help="as listed by `focus-explorer corpora`")
        _options(action)
        action.set_defaults(run=work)


def _options(
    parser: argparse.ArgumentParser, default: Any = argparse.SUPPRESS, json_default: Any = argparse.SUPPRESS
) -> None:
    """After an action an option must not overwrite one given before the action."""
    parser.add_argument("--db", default=default, help=f"{SETTINGS['db'].help} (default: the user data folder)")
    parser.add_argument("--json", action="store_true", default=json_default, help="print JSON")


def _service(arguments: argparse.Namespace) -> Any:
    from focus_explorer.services.service import Service

    return Service(arguments.db)


def _list(arguments: argparse.Namespace) -> None:
    from focus_explorer.services.corpora import list_corpora

    rows = list_corpora(_service(arguments))
    if arguments.json:
        print(json.dumps(rows, ensure_ascii=False, default=str))
        return
    if not rows:
        print("no corpora yet; `focus-explorer analyze FOLDER` makes one")
    for row in rows:
        config, skipped = row["config"], len(row["skipped"])
        print(
            f"{row['corpus_id']}  {row['status']:<11}  {row['documents']:>7,} documents"
            + (f", {skipped:,} skipped" if skipped else "")
            + f"  {row['model_id']}  K={config['num_groups']} k={config['top_k']} w={config['window']}  {row['name']}"
        )


def _show(arguments: argparse.Namespace) -> None:
    from focus_explorer.data.corpus import CorpusData

    data = CorpusData(_service(arguments).database, arguments.corpus_id)
    summary = data.summary()
    if arguments.json:
        print(json.dumps(summary | {"per_document": data.per_document()}, ensure_ascii=False))
    else:
        print(describe(summary))


def _delete(arguments: argparse.Namespace) -> None:
    from focus_explorer.services.corpora import delete_corpus

    files = delete_corpus(_service(arguments), arguments.corpus_id)
    print(f"{arguments.corpus_id} is deleted" + ("" if files else "; its files were not there"))
