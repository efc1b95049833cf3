"""`focus-explorer corpora`: analysed corpora, their list and pooled numbers."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import Any

from focus_explorer.cli.options import add_action_database, add_settings
from focus_explorer.usecases.budget import other_settings
from focus_explorer.usecases.corpora.register import COARSE_BELOW, corpus_summary, delete_corpus, list_corpora
from focus_explorer.usecases.service import Service
from focus_explorer.words import counted

SHOWN = 10  # documents that were skipped, named in the summary


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of the list, and the actions `show` and `delete`; without an action it lists."""
    add_settings(parser, "db")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_list)
    actions = parser.add_subparsers(dest="action", parser_class=type(parser))
    for name, text, work in (
        ("show", "pooled numbers of a corpus, with --json those of every document too", _show),
        ("delete", "remove a corpus and its files for good", _delete),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("corpus_id", help="as listed by `focus-explorer corpora`")
        add_action_database(action)
        action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
        action.set_defaults(run=work)


def _list(arguments: argparse.Namespace) -> None:
    rows = list_corpora(Service(arguments.db))
    if arguments.json:
        print(json.dumps(rows, ensure_ascii=False, default=str))
        return
    if not rows:
        print("no corpora yet; `focus-explorer analyze FOLDER` makes one")
    for row in rows:
        config, skipped = row["config"], len(row["skipped"])
        print(
            f"{row['corpus_id']}  {row['status']:<11}  {counted(row['documents'], 'document'):>17}"
            + (f", {skipped:,} skipped" if skipped else "")
            + f"  {row['model_id']}  K={config['num_groups']} k={config['top_k']} w={config['window']}"
            + f"{other_settings(config)}  {row['name']}"
        )


def _show(arguments: argparse.Namespace) -> None:
    summary = corpus_summary(Service(arguments.db), arguments.corpus_id, documents=arguments.json)
    print(json.dumps(summary, ensure_ascii=False) if arguments.json else describe(summary))


def _delete(arguments: argparse.Namespace) -> None:
    files = delete_corpus(Service(arguments.db), arguments.corpus_id)
    print(f"{arguments.corpus_id} is deleted" + ("" if files else "; its files were not there"))


def describe(summary: dict[str, Any]) -> str:
    """Pooled numbers of a corpus in lines."""
    config, full, focus = summary["config"], summary["perplexity"]["full"], summary["perplexity"]["focus"]
    even, far = 1 / config["num_groups"], summary["distant_pairs_kept"]
    tagger, random = summary["settings"]["tagger"], summary["perplexity"].get("random")
    lines = [
        f"corpus                 {summary['corpus_id']}   {summary['name']}, "
        f"{counted(summary['documents'], 'document')}, "
        f"{counted(summary['num_tokens'], 'token')}, {summary['model']}",
        *([] if summary["status"] == "complete" else ["status                 not complete; the same command resumes"]),
        *_skipped(summary["skipped"]),
        f"setting                K={config['num_groups']}, top-k {config['top_k']}, window {config['window']}, "
        f"{counted(config['num_sinks'], 'sink')}, {config['assignment']} assignment{other_settings(config)}, "
        f"centroids {summary['centroids']}, "
        f"{'tags by ' + tagger if tagger else 'no tags'}"
        + (", no special tokens" if summary["settings"].get("special_tokens") == "none" else ""),
        f"perplexity             full {_number(full)}, Focus {_number(focus)}"
        + (f", random centroids {_number(random)}" if random else "")
        + f"; {counted(summary['scored_tokens'], 'scored token')}",
        f"loss difference        Focus {_number(summary['loss_difference'], '+.4f')} nats a token"
        + (f", random centroids {_number(summary['loss_difference_random'], '+.4f')}" if random else ""),
        f"pairs kept             {_number(summary['retained_pairs'], '.1%')} of all"
        + (f", {_number(far, '.1%')} of the distant ones" if far else ""),
        f"largest group          {summary['dominance']:.1%} of all tokens, "
        f"{_number(summary['document_dominance'], '.1%')} within a document, means over layers (even would be "
        f"{even:.1%})",
        f"                       in brackets: {_brackets(summary['documents'])}",
    ]
    lines += [f"note                   {note}" for note in summary.get("notes", [])]
    return "\n".join([*lines, *_time(summary), f"written to             {summary['folder']}"])


def _brackets(documents: int) -> str:
    if documents == 1:
        return "no interval, for one document has none"
    few = f"; {documents} are too few to tell much" if documents < COARSE_BELOW else ""
    return f"95 % intervals over documents{few}"


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
    latest = summary.get("this_time")
    if not latest:
        return [f"time                   {summary['model_seconds']:,.1f} s in forward passes"]
    if not latest["documents"]:
        return [f"time                   {latest['seconds']:,.1f} s; all documents were there"]
    passes, more = latest["model_seconds"], ""
    if passes:  # unknown where workers died after they had written all documents
        more = f" ({latest['document_seconds'] / passes - 1:+.1%})"
    return [
        f"time                   {passes:,.1f} s in forward passes of {latest['document_seconds']:,.1f} s on "
        f"{counted(latest['documents'], 'document')}{more}, {latest['seconds']:,.1f} s in all, "
        f"{counted(latest['workers'], 'worker')}"
    ]
