"""`focus-explorer db`: check, copy, put back and save a database."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from focus_explorer import settings
from focus_explorer.cli.options import add_action_database, add_settings
from focus_explorer.usecases.care import Findings, backup, check, repair, restore
from focus_explorer.words import counted


def add_options(parser: argparse.ArgumentParser) -> None:
    """The action, its files and the database."""
    add_settings(parser, "db")
    actions = parser.add_subparsers(dest="action", required=True, parser_class=type(parser))
    checked = actions.add_parser("check", help="read every value, and look whether every run has its parts")
    checked.add_argument("--json", action="store_true", help="print one JSON object")
    copied = actions.add_parser("backup", help="copy the database, also while it is in use")
    copied.add_argument("file", metavar="FILE", help="the copy; an earlier one of that name is replaced")
    back = actions.add_parser("restore", help="put a copy in the place of the database, which is kept beside it")
    back.add_argument("file", metavar="FILE", help="the copy")
    saved = actions.add_parser("repair", help="copy all whole runs of a damaged database into a new one")
    saved.add_argument("--out", required=True, metavar="FILE", help="the new database")
    for action in (checked, copied, back, saved):
        add_action_database(action)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int | None:
    """Do one of them and say what was found."""
    path = Path(arguments.db or settings.default_database())
    if arguments.action == "backup":
        print(f"{arguments.file}: {backup(path, arguments.file):,} bytes, all of {path}")
        return None
    if arguments.action == "restore":
        kept = restore(path, arguments.file)
        print(f"{path} is the copy now" + (f"; what was there is {kept}" if kept else ""))
        return None
    if arguments.action == "check":
        found = check(path)
        if arguments.json:
            print(json.dumps({"whole": found.whole, **_plain(found)}))
            return 0 if found.whole else 1
    else:
        found = repair(path, arguments.out)
    _tell(found, "whole" if arguments.action == "check" else "saved")
    return 0 if found.whole else 1


def _plain(found: Findings) -> dict[str, object]:
    return {"rows": found.rows, "damaged": found.damaged, "runs": len(found.runs), "broken": found.broken}


def _tell(found: Findings, what: str) -> None:
    print(f"{counted(len(found.runs), 'run')} {what}, {len(found.broken)} not")
    for run_id in found.broken:
        print(f"not whole: run {run_id}", file=sys.stderr)
    for table, problem in found.damaged.items():
        print(f"damaged: table {table}: {problem}", file=sys.stderr)
