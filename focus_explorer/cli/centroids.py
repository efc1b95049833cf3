"""`focus-explorer centroids`: list, check, rename and remove centroid files, and make copies with other settings."""

from __future__ import annotations

import argparse
import json

from focus_explorer.cli.options import add_action_database, add_settings
from focus_explorer.services.centroids.cards import CentroidCards
from focus_explorer.services.centroids.files import check_centroids, copy_with_text_sinks
from focus_explorer.services.centroids.own_files import remove_file, rename_file
from focus_explorer.services.service import Service


def add_options(parser: argparse.ArgumentParser) -> None:
    """The actions on files, and the database."""
    add_settings(parser, "db")
    actions = parser.add_subparsers(dest="action", required=True, parser_class=type(parser))
    check = actions.add_parser("check", help="validate a centroid file")
    check.add_argument("file", help=".safetensors, .pt or .pth, or the word default")
    check.add_argument("--model", help="also check that it fits this model")
    check.add_argument("--json", action="store_true", help="print one JSON object")
    check.set_defaults(run=_check)
    sinks = actions.add_parser("text-sinks", help="write a copy that also keeps sinks in the middle of a text")
    sinks.add_argument("file", help=".safetensors, .pt or .pth, or the name of a shipped file")
    sinks.add_argument(
        "--similarity",
        type=float,
        default=0.85,
        help="tokens whose input of a layer is at least so similar (cosine) to the first token's (default: 0.85)",
    )
    sinks.add_argument("--out", required=True, metavar="FILE", help="the new file (.safetensors)")
    sinks.set_defaults(run=_text_sinks)
    listed = actions.add_parser("list", help="every shipped and uploaded file, and how many runs used it")
    add_action_database(listed)
    listed.add_argument("--json", action="store_true", help="print a JSON list")
    listed.set_defaults(run=_list)
    rename = actions.add_parser("rename", help="give an uploaded file another name")
    rename.add_argument("file", help="its name, or its sha256")
    rename.add_argument("name", help="the new name")
    add_action_database(rename)
    rename.set_defaults(run=_rename)
    remove = actions.add_parser("remove", help="remove an uploaded file and its copy; runs made with it stay")
    remove.add_argument("file", help="its name, or its sha256")
    add_action_database(remove)
    remove.set_defaults(run=_remove)


def _list(arguments: argparse.Namespace) -> None:
    files = CentroidCards(Service(arguments.db)).cards()
    if arguments.json:
        print(json.dumps(files, ensure_ascii=False))
        return
    for file in files:
        added = f"added {file['added'][:16]}" if file["added"] else "shipped"
        owner = f" by {file['owner']}" if file["owner"] else ""
        print(
            f"{file['sha256'][:16]}  K={file['num_groups']:<2} {file['runs']:>4} runs  {added}{owner}  {file['name']}"
        )


def _rename(arguments: argparse.Namespace) -> None:
    rename_file(Service(arguments.db), arguments.file, arguments.name)


def _remove(arguments: argparse.Namespace) -> None:
    remove_file(Service(arguments.db), arguments.file)


def _text_sinks(arguments: argparse.Namespace) -> None:
    digest = copy_with_text_sinks(Service(), arguments.file, arguments.similarity, arguments.out)
    print(f"wrote {arguments.out}, sha256 {digest}")


def _check(arguments: argparse.Namespace) -> None:
    centroids, report = check_centroids(Service(), arguments.file, arguments.model)
    if arguments.json:
        result = {
            "sha256": centroids.sha256,
            "config": centroids.config.to_dict(),
            "base_model": centroids.base_model,
            "layers": sorted(centroids.routers),
            "training": centroids.training,
            "report": report,
        }
        print(json.dumps(result, ensure_ascii=False))
    else:
        print("\n".join([f"{arguments.file} is a valid centroid file", *report, f"sha256 {centroids.sha256}"]))
