"""`focus-explorer centroids`: list, check, import, rename, remove, push and pull files; copies with a change."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from focus_explorer.cli.options import add_action_database, add_place, add_settings, add_token_choice, print_note
from focus_explorer.errors import InputError
from focus_explorer.progress import stage_bar
from focus_explorer.usecases.centroids.cards import CentroidCards
from focus_explorer.usecases.centroids.copies import ImportRequest, copy_with, import_file
from focus_explorer.usecases.centroids.files import check_centroids, remove_file, rename_file
from focus_explorer.usecases.centroids.publish import prepare, pull, push, write_folder
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.tune import BalanceRequest, balance
from focus_explorer.words import counted


def add_options(parser: argparse.ArgumentParser) -> None:
    """The actions on files, and the database."""
    add_settings(parser, "db")
    actions = parser.add_subparsers(dest="action", required=True, parser_class=type(parser))
    check = actions.add_parser("check", help="validate a centroid file")
    check.add_argument("file", help=".safetensors, .pt or .pth, or the word default")
    check.add_argument("--model", help="also check that it fits this model")
    check.add_argument("--json", action="store_true", help="print one JSON object")
    check.set_defaults(run=_check)
    _add_import(actions)
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
    growing = actions.add_parser("grow-windows", help="write a copy whose windows grow with the position")
    growing.add_argument("file", help=".safetensors, .pt or .pth, or the name of a shipped file")
    growing.add_argument(
        "--from", type=int, default=1024, dest="first", metavar="TOKEN", help="windows grow from here (default: 1024)"
    )
    growing.add_argument(
        "--to",
        type=int,
        default=8192,
        dest="last",
        metavar="TOKEN",
        help="to here, in proportion to the position; the same as --from for windows of one length (default: 8192)",
    )
    growing.add_argument("--out", required=True, metavar="FILE", help="the new file (.safetensors)")
    growing.set_defaults(run=_grow_windows)
    _add_balance(actions)
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
    _add_push(actions)
    _add_pull(actions)


def _add_import(actions: Any) -> None:
    foreign = actions.add_parser("import", help="write a file of ours from centroids that other code saved")
    foreign.add_argument("file", help=".safetensors, .pt or .pth, or a folder of such files")
    foreign.add_argument("--out", required=True, metavar="FILE", help="the new file (.safetensors)")
    foreign.add_argument(
        "--model", help="the model that they are for: checks the fit and estimates column potentials that are missing"
    )
    foreign.add_argument("--groups", type=int, help="K, where shapes leave it open")
    foreign.add_argument("--window", type=int, help="local window in tokens, unless the file states it")
    foreign.add_argument("--top-k", type=int, help="groups a token belongs to (default: the file's, or 2)")
    foreign.add_argument("--temperature", type=float, help="divides the scores (default: the file's, or 0.1)")
    foreign.add_argument("--sinks", type=int, help="first tokens every token may attend to (default: the file's, or 4)")
    foreign.add_argument(
        "--layout",
        nargs="+",
        default=[],
        metavar="PART=LAYOUT",
        help="projection or centroids, =ours or =transposed, where shapes leave it open",
    )
    foreign.add_argument(
        "--map",
        nargs="+",
        default=[],
        metavar="PART=PATTERN",
        help="how the tensors of a part are called, such as 'projection=*.W_g.weight'; also centroids and potential",
    )
    foreign.add_argument("--json", action="store_true", help="print one JSON object")
    foreign.set_defaults(run=_import)


def _add_balance(actions: Any) -> None:
    balanced = actions.add_parser("balance", help="write a copy whose groups are of equal size on your text")
    balanced.add_argument("file", help=".safetensors, .pt or .pth, or the name of a shipped file")
    balanced.add_argument(
        "--text",
        nargs="+",
        required=True,
        metavar="NAME=FOLDER[:WEIGHT]",
        help="text by kind: text files, or folders of .txt files; a kind of weight 2 gives twice the sequences",
    )
    add_settings(balanced, "model")
    balanced.add_argument("--sequences", type=int, default=32, help="of all kinds of text together (default: 32)")
    balanced.add_argument("--seq-len", type=int, default=1024, metavar="TOKENS", help="of a sequence (default: 1024)")
    add_token_choice(balanced)
    add_place(balanced)
    balanced.add_argument("--out", required=True, metavar="FILE", help="the new file (.safetensors)")
    add_action_database(balanced)
    balanced.set_defaults(run=_balance)


def _add_push(actions: Any) -> None:
    push = actions.add_parser("push", help="put a file into a repository of a model hub, with a card")
    push.add_argument("file", help="its name, a path, or a folder of FocusModel.save_pretrained")
    push.add_argument("repo", help="user/repo; made where it is missing")
    push.add_argument("--private", action="store_true", help="make a repository that is missing a private one")
    push.add_argument("--branch", help="branch to commit to, made where it is missing (default: the main one)")
    push.add_argument("--message", help="of the commit")
    push.add_argument("--base-model", metavar="ID", help="hub id of the base model (default: what the file says)")
    push.add_argument("--licence", "--license", metavar="ID", help="licence of the centroids, such as apache-2.0")
    push.add_argument("--table", metavar="FILE", help="results of benchmarks/domains.py for this file, for the card")
    push.add_argument("--dry-run", metavar="FOLDER", help="write what would be sent to a new folder, and send nothing")
    add_action_database(push)
    push.set_defaults(run=_push)


def _add_pull(actions: Any) -> None:
    pull = actions.add_parser("pull", help="fetch a file from a repository of a model hub")
    pull.add_argument("repo", help="user/repo, or user/repo@revision")
    pull.add_argument("--revision", help="branch, tag or commit (default: the newest)")
    pull.add_argument("--sha256", metavar="HASH", help="refuse another file than the one of this hash")
    pull.add_argument("--out", metavar="FILE", help="copy it here too (.safetensors)")
    pull.add_argument("--json", action="store_true", help="print one JSON object")
    pull.set_defaults(run=_pull)


def _push(arguments: argparse.Namespace) -> None:
    from focus_explorer.exports.model_card import model_card

    publication = prepare(
        Service(arguments.db),
        arguments.file,
        arguments.repo,
        base_model=arguments.base_model,
        licence=arguments.licence,
        table=arguments.table,
    )
    for note in publication.notes:
        print(f"note: {note}", file=sys.stderr)
    card = model_card(publication)
    if arguments.dry_run is not None:
        write_folder(publication, card, arguments.dry_run)
        print(f"wrote {arguments.dry_run}; nothing was sent")
        return
    pushed = push(publication, card, private=arguments.private, branch=arguments.branch, message=arguments.message)
    print(f"pushed {pushed.name}, sha256 {publication.settings.sha256}\n{pushed.url}")


def _pull(arguments: argparse.Namespace) -> None:
    pulled = pull(arguments.repo, revision=arguments.revision, sha256=arguments.sha256, out=arguments.out)
    if arguments.json:
        print(json.dumps({"name": pulled.name, "sha256": pulled.sha256, "path": str(pulled.path)}, ensure_ascii=False))
    else:
        where = "is in the hub's cache" if arguments.out is None else f"was copied to {arguments.out}"
        print(f"{pulled.name}, sha256 {pulled.sha256}, {where}")


def _list(arguments: argparse.Namespace) -> None:
    files = CentroidCards(Service(arguments.db)).cards()
    if arguments.json:
        print(json.dumps(files, ensure_ascii=False))
        return
    for file in files:
        added = f"added {file['added'][:16]}" if file["added"] else "shipped"
        owner = f" by {file['owner']}" if file["owner"] else ""
        print(
            f"{file['sha256'][:16]}  K={file['num_groups']:<2} {counted(file['runs'], 'run'):>9}  {added}{owner}  "
            f"{file['name']}"
        )


def _rename(arguments: argparse.Namespace) -> None:
    rename_file(Service(arguments.db), arguments.file, arguments.name)


def _remove(arguments: argparse.Namespace) -> None:
    remove_file(Service(arguments.db), arguments.file)


def _text_sinks(arguments: argparse.Namespace) -> None:
    digest = copy_with(Service(), arguments.file, arguments.out, text_sinks=arguments.similarity)
    print(f"wrote {arguments.out}, sha256 {digest}")


def _grow_windows(arguments: argparse.Namespace) -> None:
    positions = (arguments.first, arguments.last)
    digest = copy_with(Service(), arguments.file, arguments.out, window_growth=positions)
    constant = " with windows of one length" if arguments.first == arguments.last else ""
    print(f"wrote {arguments.out}{constant}, sha256 {digest}")


def _balance(arguments: argparse.Namespace) -> None:
    request = BalanceRequest(
        file=arguments.file,
        text=tuple(arguments.text),
        out=arguments.out,
        model=arguments.model,
        sequences=arguments.sequences,
        seq_len=arguments.seq_len,
        special_tokens=arguments.special_tokens,
        device=arguments.device,
        dtype=arguments.dtype,
    )
    balanced = balance(Service(arguments.db), request, bar=stage_bar)
    for note in balanced.notes:
        print_note(note)
    print(f"wrote {arguments.out}, balanced on {counted(balanced.sequences, 'sequence')}, sha256 {balanced.sha256}")


def _import(arguments: argparse.Namespace) -> None:
    def show(table: list[str]) -> None:
        if not arguments.json:
            print("\n".join(table))

    request = ImportRequest(
        source=arguments.file,
        out=arguments.out,
        model=arguments.model,
        groups=arguments.groups,
        window=arguments.window,
        top_k=arguments.top_k,
        temperature=arguments.temperature,
        sinks=arguments.sinks,
        layouts=_pairs("--layout", arguments.layout),
        names=_pairs("--map", arguments.map),
    )
    imported = import_file(Service(), request, show=show)
    if arguments.json:
        print(json.dumps(asdict(imported), ensure_ascii=False))
        return
    for note in imported.notes:
        print_note(note)
    print(f"wrote {arguments.out}, sha256 {imported.sha256}")


def _pairs(option: str, words: list[str]) -> dict[str, str]:
    """PART=VALUE words as a dict."""
    for word in words:
        if "=" not in word:
            raise InputError(f"{option} is {word!r}", expected="PART=VALUE, such as projection=transposed")
    return dict(word.split("=", 1) for word in words)


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
