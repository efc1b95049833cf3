"""`focus-explorer runs` and `corpora`: list, name, annotate, tag, show, delete and bring back what is stored."""

from __future__ import annotations

from collections import Counter
from typing import Any

from focus_explorer.cli.options import Action, command, print_result
from focus_explorer.usecases import labels
from focus_explorer.usecases.request import Listing, OnDatabase, argument, option
from focus_explorer.usecases.runs import list_runs
from focus_explorer.usecases.service import Service
from focus_explorer.words import counted
from focus_runtime.config import setting_words

SHOWN = 10  # documents that were skipped, named in the summary


class ListRuns(Listing):
    deleted: bool = option(False, "list deleted runs instead")


class OfRun(OnDatabase):
    run_id: str = argument("as listed by `focus-explorer runs`")


class Rename(OfRun):
    name: str = argument('its name; "" removes it')


class Note(OfRun):
    note: str = argument('its note; "" removes it')


class Tag(OfRun):
    tags: tuple[str, ...] = argument("words to add", nargs="*")
    remove: tuple[str, ...] = option((), "words to remove")


class Purge(OnDatabase):
    days: float = option(0.0, "only those deleted so many days ago (default: 0)")


class OfCorpus(Listing):
    corpus_id: str = argument("as listed by `focus-explorer corpora`")


def _list_runs(options: ListRuns) -> None:
    rows = list_runs(Service(options.db).database, deleted=options.deleted)
    none = "no deleted runs" if options.deleted else "no runs yet; `focus-explorer analyze FILE` makes one"
    print_result(options, rows, lambda rows: "\n".join(map(describe_run, rows)) or none)


def describe_run(row: dict[str, Any]) -> str:
    tags = f"  [{', '.join(row['tags'])}]" if row["tags"] else ""
    budget = "  budget" if row["config"].get("budget") else ""
    added = f" with {' '.join(row['added_tokens'])}" if row["added_tokens"] else ""
    deleted = f"  deleted {row['deleted_at']:%Y-%m-%d}" if row["deleted_at"] else ""
    return (
        f"{row['run_id']}  {row['num_tokens']:>7,} tokens{added}  {row['model_id']}  K={row['config']['num_groups']} "
        f"k={row['config']['top_k']} w={row['config']['window']}{budget}  perplexity "
        f"{row['perplexity_full']:.2f} -> {row['perplexity_focus']:.2f}  pairs "
        f"{row['retained_pairs']:.0%}  {row['name'] or row['title'][:40]}"
        f"{tags}{deleted}"
    )


def _rename(options: Rename) -> None:
    name = labels.label_run(Service(options.db), options.run_id, name=options.name)["name"]
    print(f"{options.run_id} is named {name!r}" if name else f"{options.run_id} has no name")


def _note(options: Note) -> None:
    labels.label_run(Service(options.db), options.run_id, note=options.note)
    print(f"the note of {options.run_id} is {'kept' if options.note.strip() else 'removed'}")


def _tag(options: Tag) -> None:
    tags = labels.change_tags(Service(options.db), options.run_id, options.tags, options.remove)["tags"]
    print(f"{options.run_id} has the tags {', '.join(tags)}" if tags else f"{options.run_id} has no tags")


def _delete(options: OfRun) -> None:
    labels.delete_run(Service(options.db), options.run_id)
    print(
        f"{options.run_id} is hidden; `focus-explorer runs undelete {options.run_id}` brings it back within "
        f"{labels.KEEP_DAYS} days, `focus-explorer runs purge` removes it now"
    )


def _undelete(options: OfRun) -> None:
    labels.undelete_run(Service(options.db), options.run_id)
    print(f"{options.run_id} is back")


def _purge(options: Purge) -> None:
    purged = labels.purge_deleted(Service(options.db), days=options.days)
    print(f"{counted(len(purged), 'deleted run')} removed for good")


def _list_corpora(options: Listing) -> None:
    from focus_explorer.usecases.corpora.register import list_corpora

    none = "no corpora yet; `focus-explorer analyze FOLDER` makes one"
    rows = list_corpora(Service(options.db))
    print_result(options, rows, lambda rows: "\n".join(map(_corpus_line, rows)) or none)


def _corpus_line(row: dict[str, Any]) -> str:
    skipped = len(row["skipped"])
    return (
        f"{row['corpus_id']}  {row['status']:<11}  {counted(row['documents'], 'document'):>17}"
        + (f", {skipped:,} skipped" if skipped else "")
        + f"  {row['model_id']}  {setting_words(row['config'])}  {row['name']}"
    )


def _show_corpus(options: OfCorpus) -> None:
    from focus_explorer.usecases.corpora.register import corpus_summary

    summary = corpus_summary(Service(options.db), options.corpus_id, documents=options.as_json)
    print_result(options, summary, describe_corpus)


def _delete_corpus(options: OfCorpus) -> None:
    from focus_explorer.usecases.corpora.register import delete_corpus

    files = delete_corpus(Service(options.db), options.corpus_id)
    print(f"{options.corpus_id} is deleted" + ("" if files else "; its files were not there"))


def describe_corpus(summary: dict[str, Any]) -> str:
    config, full, focus = summary["config"], summary["perplexity"]["full"], summary["perplexity"]["focus"]
    even, far = 1 / config["num_groups"], summary["distant_pairs_kept"]
    tagger, random = summary["settings"]["tagger"], summary["perplexity"].get("random")
    lines = [
        f"corpus                 {summary['corpus_id']}   {summary['name']}, "
        f"{counted(summary['documents'], 'document')}, {counted(summary['num_tokens'], 'token')}, {summary['model']}",
        *([] if summary["status"] == "complete" else ["status                 not complete; the same command resumes"]),
        *_skipped(summary["skipped"]),
        f"setting                {setting_words(config)}, centroids {summary['centroids']}, "
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
    from focus_explorer.usecases.corpora.register import COARSE_BELOW

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


COMMANDS = {
    "runs": command(
        ListRuns,
        _list_runs,
        [
            Action("rename", "give a run a name", Rename, _rename),
            Action("note", "write a note to a run", Note, _note),
            Action("tag", "add tags to a run, or remove some", Tag, _tag),
            Action("delete", "hide a run at once; its rows are removed 30 days later", OfRun, _delete),
            Action("undelete", "bring a deleted run back", OfRun, _undelete),
            Action("purge", "remove deleted runs for good", Purge, _purge),
        ],
    ),
    "corpora": command(
        Listing,
        _list_corpora,
        [
            Action(
                "show", "pooled numbers of a corpus, with --json those of every document too", OfCorpus, _show_corpus
            ),
            Action("delete", "remove a corpus and its files for good", OfCorpus, _delete_corpus),
        ],
    ),
}
