"""`focus-explorer runs`: list, name, annotate, tag, delete and bring back stored runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from focus_explorer.cli.options import add_action_database, add_settings
from focus_explorer.usecases.labels import (
    KEEP_DAYS,
    all_runs,
    change_tags,
    delete_run,
    label_run,
    purge_deleted,
    undelete_run,
)
from focus_explorer.usecases.runs import list_runs
from focus_explorer.usecases.service import Service
from focus_explorer.words import counted

_EMPTY = "no runs yet; `focus-explorer analyze FILE` makes one"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of the list, and the actions on a run; without an action it lists."""
    add_settings(parser, "db")
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    parser.add_argument("--deleted", action="store_true", help="list deleted runs instead")
    parser.set_defaults(run=_list)
    actions = parser.add_subparsers(dest="action", parser_class=type(parser))
    _add(actions, "rename", "give a run a name", _rename).add_argument("name", help='its name; "" removes it')
    _add(actions, "note", "write a note to a run", _note).add_argument("note", help='its note; "" removes it')
    tag = _add(actions, "tag", "add tags to a run, or remove some", _tag)
    tag.add_argument("tags", nargs="*", help="words to add")
    tag.add_argument("--remove", nargs="+", default=[], help="words to remove")
    _add(actions, "delete", "hide a run at once; its rows are removed 30 days later", _delete)
    _add(actions, "undelete", "bring a deleted run back", _undelete)
    purge = actions.add_parser("purge", help="remove deleted runs for good")
    add_action_database(purge)
    purge.add_argument("--days", type=float, default=0.0, help="only those deleted so many days ago (default: 0)")
    purge.set_defaults(run=_purge)


def _add(actions: Any, name: str, text: str, work: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text)
    parser.add_argument("run_id", help="as listed by `focus-explorer runs`")
    add_action_database(parser)
    parser.set_defaults(run=work)
    return parser


def _list(arguments: argparse.Namespace) -> None:
    service = Service(arguments.db)
    if arguments.deleted:
        texts = ("config", "versions", "notes")
        rows = [row | {name: json.loads(row[name]) for name in texts} for row in all_runs(service) if row["deleted_at"]]
    else:
        rows = list_runs(service.database)
    if arguments.json:
        print(json.dumps(rows, ensure_ascii=False, default=str))
        return
    if not rows:
        print("no deleted runs" if arguments.deleted else _EMPTY)
    for row in rows:
        print(describe_run(row))


def describe_run(row: dict[str, Any]) -> str:
    """One line of the list."""
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


def _rename(arguments: argparse.Namespace) -> None:
    name = label_run(Service(arguments.db), arguments.run_id, name=arguments.name)["name"]
    print(f"{arguments.run_id} is named {name!r}" if name else f"{arguments.run_id} has no name")


def _note(arguments: argparse.Namespace) -> None:
    label_run(Service(arguments.db), arguments.run_id, note=arguments.note)
    print(f"the note of {arguments.run_id} is {'kept' if arguments.note.strip() else 'removed'}")


def _tag(arguments: argparse.Namespace) -> None:
    tags = change_tags(Service(arguments.db), arguments.run_id, arguments.tags, arguments.remove)["tags"]
    print(f"{arguments.run_id} has the tags {', '.join(tags)}" if tags else f"{arguments.run_id} has no tags")


def _delete(arguments: argparse.Namespace) -> None:
    delete_run(Service(arguments.db), arguments.run_id)
    print(
        f"{arguments.run_id} is hidden; `focus-explorer runs undelete {arguments.run_id}` brings it back within "
        f"{KEEP_DAYS} days, `focus-explorer runs purge` removes it now"
    )


def _undelete(arguments: argparse.Namespace) -> None:
    undelete_run(Service(arguments.db), arguments.run_id)
    print(f"{arguments.run_id} is back")


def _purge(arguments: argparse.Namespace) -> None:
    purged = purge_deleted(Service(arguments.db), days=arguments.days)
    print(f"{counted(len(purged), 'deleted run')} removed for good")
