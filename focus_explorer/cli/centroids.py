"""`focus-explorer centroids`: list, check, import, rename, remove, push and pull files; copies with a change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from focus_explorer.cli.options import Action, command, fill, print_note, print_result
from focus_explorer.progress import stage_bar
from focus_explorer.usecases.centroids.cards import CentroidCards
from focus_explorer.usecases.centroids.copies import ImportRequest, copy_with, import_file
from focus_explorer.usecases.centroids.files import check_centroids, remove_file, rename_file
from focus_explorer.usecases.centroids.publish import prepare, pull, push, write_folder
from focus_explorer.usecases.request import SHIPPED, AsJson, File, Listing, NewFile, OnDatabase, argument, option
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.tune import BalanceRequest, balance
from focus_explorer.words import counted

UPLOADED = "its name, or its sha256"


class Check(AsJson):
    file: File = argument(".safetensors, .pt or .pth, or the word default")
    model: File | None = option(None, "also check that it fits this model")


def run_check(options: Check) -> None:
    centroids, report = check_centroids(Service(), options.file, options.model)
    result = {
        "sha256": centroids.sha256,
        "config": centroids.config.to_dict(),
        "base_model": centroids.base_model,
        "layers": sorted(centroids.routers),
        "training": centroids.training,
        "report": report,
    }
    lines = [f"{options.file} is a valid centroid file", *report, f"sha256 {centroids.sha256}"]
    print_result(options, result, lambda _: "\n".join(lines))


def run_list(options: Listing) -> None:
    files = CentroidCards(Service(options.db)).cards()
    print_result(options, files, lambda files: "\n".join(map(_file_line, files)))


def _file_line(file: Any) -> str:
    added = f"added {file['added'][:16]}" if file["added"] else "shipped"
    owner = f" by {file['owner']}" if file["owner"] else ""
    return (
        f"{file['sha256'][:16]}  K={file['num_groups']:<2} {counted(file['runs'], 'run'):>9}  {added}{owner}  "
        f"{file['name']}"
    )


class Remove(OnDatabase):
    file: File = argument(UPLOADED)


class Rename(Remove):
    name: str = argument("the new name")


def run_import(options: ImportRequest) -> None:
    """Write a file of ours, after the table of what becomes what."""

    def show(table: list[str]) -> None:
        if not options.as_json:
            print("\n".join(table))

    imported = import_file(Service(), options, show=show)
    if not options.as_json:
        _print_notes(imported.notes)
    print_result(options, asdict(imported), lambda _: f"wrote {options.out}, sha256 {imported.sha256}")


def _print_notes(notes: Iterable[str]) -> None:
    for note in notes:
        print_note(note)


class TextSinks(NewFile):
    file: File = argument(SHIPPED)
    similarity: float = option(
        0.85, "tokens whose input of a layer is at least so similar (cosine) to the first token's"
    )


def run_text_sinks(options: TextSinks) -> None:
    digest = copy_with(Service(), options.file, options.out, text_sinks=options.similarity)
    print(f"wrote {options.out}, sha256 {digest}")


class GrowWindows(NewFile):
    file: File = argument(SHIPPED)
    first: int = option(1024, "windows grow from here", flag="--from", metavar="TOKEN")
    last: int = option(
        8192,
        "to here, in proportion to the position; the same as --from for windows of one length",
        flag="--to",
        metavar="TOKEN",
    )


def run_grow_windows(options: GrowWindows) -> None:
    positions = (options.first, options.last)
    digest = copy_with(Service(), options.file, options.out, window_growth=positions)
    constant = " with windows of one length" if options.first == options.last else ""
    print(f"wrote {options.out}{constant}, sha256 {digest}")


def run_balance(options: BalanceRequest) -> None:
    balanced = balance(Service(options.db), options, bar=stage_bar)
    _print_notes(balanced.notes)
    print(f"wrote {options.out}, balanced on {counted(balanced.sequences, 'sequence')}, sha256 {balanced.sha256}")


class Push(OnDatabase):
    file: File = argument("its name, a path, or a folder of FocusModel.save_pretrained")
    repo: str = argument("user/repo; made where it is missing")
    private: bool = option(False, "make a repository that is missing a private one")
    branch: str | None = option(None, "branch to commit to, made where it is missing (default: the main one)")
    message: str | None = option(None, "of the commit")
    base_model: str | None = option(None, "hub id of the base model (default: what the file says)", metavar="ID")
    licence: str | None = option(
        None, "licence of the centroids, such as apache-2.0", flag=("--licence", "--license"), metavar="ID"
    )
    table: File | None = option(None, "results of benchmarks/domains.py for this file, for the card", metavar="FILE")
    dry_run: File | None = option(None, "write what would be sent to a new folder, and send nothing", metavar="FOLDER")


def run_push(options: Push) -> None:
    from focus_explorer.exports.model_card import model_card

    publication = fill(prepare, options, service=Service(options.db))
    _print_notes(publication.notes)
    card = model_card(publication)
    if options.dry_run is not None:
        write_folder(publication, card, options.dry_run)
        print(f"wrote {options.dry_run}; nothing was sent")
        return
    name, url = fill(push, options, publication=publication, card=card)
    print(f"pushed {name}, sha256 {publication.settings.sha256}\n{url}")


class Pull(AsJson):
    repo: str = argument("user/repo, or user/repo@revision")
    revision: str | None = option(None, "branch, tag or commit (default: the newest)")
    sha256: str | None = option(None, "refuse another file than the one of this hash", metavar="HASH")
    out: File | None = option(None, "copy it here too (.safetensors)", metavar="FILE")


def run_pull(options: Pull) -> None:
    """Fetch the file into the hub's cache, and copy it where asked."""
    pulled = pull(options.repo, revision=options.revision, sha256=options.sha256, out=options.out)
    where = "is in the hub's cache" if options.out is None else f"was copied to {options.out}"
    result = {"name": pulled.name, "sha256": pulled.sha256, "path": str(pulled.path)}
    print_result(options, result, lambda _: f"{pulled.name}, sha256 {pulled.sha256}, {where}")


COMMANDS = {
    "centroids": command(
        OnDatabase,
        None,
        [
            Action("check", "validate a centroid file", Check, run_check),
            Action("import", "write a file of ours from centroids that other code saved", ImportRequest, run_import),
            Action(
                "text-sinks", "write a copy that also keeps sinks in the middle of a text", TextSinks, run_text_sinks
            ),
            Action("grow-windows", "write a copy whose windows grow with the position", GrowWindows, run_grow_windows),
            Action("balance", "write a copy whose groups are of equal size on your text", BalanceRequest, run_balance),
            Action("list", "every shipped and uploaded file, and how many runs used it", Listing, run_list),
            Action(
                "rename",
                "give an uploaded file another name",
                Rename,
                lambda options: rename_file(Service(options.db), options.file, options.name),
            ),
            Action(
                "remove",
                "remove an uploaded file and its copy; runs made with it stay",
                Remove,
                lambda options: remove_file(Service(options.db), options.file),
            ),
            Action("push", "put a file into a repository of a model hub, with a card", Push, run_push),
            Action("pull", "fetch a file from a repository of a model hub", Pull, run_pull),
        ],
    )
}
