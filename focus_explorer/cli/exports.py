"""`focus-explorer export`, `figure`, `bundle`, `rebuild` and `report`: files of stored runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from focus_explorer.cli.options import command, fill, print_note
from focus_explorer.errors import InputError
from focus_explorer.progress import stage_bar
from focus_explorer.usecases.request import File, OnDatabase, argument, option
from focus_explorer.usecases.service import Service


def lister(lines: Callable[[], list[str]]) -> type[argparse.Action]:
    """An action that prints lines and exits as `--help` does: without the required options."""

    class Lister(argparse.Action):
        def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
            print("\n".join(lines()))
            parser.exit()

    return Lister


def _tables() -> list[str]:
    from focus_explorer.exports.mask import MASK, MASK_ABOUT
    from focus_explorer.exports.mask import SUFFIXES as MASK_SUFFIXES
    from focus_explorer.exports.tables.sources import TABLE_DESCRIPTIONS
    from focus_explorer.exports.tables.write import FORMATS

    tables = _named_lines(TABLE_DESCRIPTIONS | {MASK: MASK_ABOUT})
    formats = [f"  {', '.join(FORMATS)}", f"  {', '.join(MASK_SUFFIXES)} of the mask"]
    return ["tables (documents: of corpora alone)", *tables, "formats", *formats]


def _figures() -> list[str]:
    from focus_explorer.exports.figures.write import FIGURE_FORMATS, FIGURES, PRESETS

    presets = {
        name: f"{p.width:g} x {p.height:g} mm, {p.family.split(',')[0]} {p.small:g} to {p.size:g} pt: {p.about}"
        for name, p in PRESETS.items()
    }
    formats = f"  {', '.join(FIGURE_FORMATS)}"
    return ["figures", *_named_lines(FIGURES), "formats", formats, "presets", *_named_lines(presets)]


def _named_lines(texts: dict[str, str]) -> list[str]:
    width = max(map(len, texts)) + 2
    return [f"  {name:<{width}}{text}" for name, text in texts.items()]


class FileOptions(OnDatabase):
    run_id: str = argument("a run or a corpus, as listed by `runs` and `corpora`", metavar="RUN")
    what: str = option(..., "which one; --list names them", metavar="NAME")
    format: str | None = option(None, "by the ending of --out when left out; --list names them", metavar="FORMAT")
    out: File = option(..., "file to write", metavar="FILE")

    def chosen_format(self, endings: Mapping[str, str]) -> str:
        """The format of `--format`, or that of the file's ending (`endings`: by format)."""
        if self.format:
            return self.format
        for name, ending in endings.items():
            if Path(self.out).suffix.lower() == ending:
                return name
        *others, last = endings.values()
        raise InputError(
            f"{self.out} does not say which format it is to have",
            expected=f"a file ending with {', '.join(others)} or {last}",
            fix="or name one with --format",
        )


def _rows(text: str) -> int | tuple[int, int]:
    """Parse a number of rows `N`, or a range `A:B`."""
    first, colon, last = text.partition(":")
    try:
        return (int(first), int(last)) if colon else int(first)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number of rows nor A:B") from None


class ExportOptions(FileOptions):
    list_: None = option(None, "say what there is, and end", flag="--list", action=lister(_tables), nargs=0)
    raw: bool = option(
        False,
        "CSV: leave text cells that start with = + - @, tab or return as they are; without it they get an apostrophe "
        "in front, so that no spreadsheet runs them",
    )
    rows: int | tuple[int, int] | None = option(
        None,
        "only the first so many rows (default: all, or 300 of LaTeX and Markdown); of the mask A:B, the queries from "
        "token A to before token B",
        type=_rows,
        metavar="ROWS",
    )
    layer: int | None = option(None, "only the rows of this layer")
    head: int | None = option(
        None,
        "key-value head of the mask, or query head where those of a key-value head differ; needed where the heads of "
        "the layer differ",
    )


def run_export(options: ExportOptions) -> None:
    from focus_explorer.exports.kinds import MASK, Export, MaskExport, TableExport

    is_mask = options.what == MASK
    form = options.chosen_format(MaskExport.formats if is_mask else TableExport.formats)
    if is_mask and options.layer is None:
        raise InputError("a mask is of one layer", fix="name it with --layer")
    if is_mask and options.raw:
        raise InputError("--raw is about tables with texts", fix="leave it out")
    if is_mask and isinstance(options.rows, int):
        raise InputError(f"--rows of the mask is {options.rows}", expected="A:B, the queries from A to before B")
    if not is_mask and options.head is not None:
        raise InputError("--head is about the mask", fix="leave it out, or use --what mask")
    if not is_mask and isinstance(options.rows, tuple):
        raise InputError("--rows A:B is about the mask", expected="a number of rows", fix="or use --what mask")
    if not is_mask and options.raw and form != "csv":
        raise InputError("--raw is about CSV files", fix="leave it out; the other formats keep texts as they are")
    export: Export
    if is_mask:
        export = fill(MaskExport, options, format=form)
    else:
        export = fill(TableExport, options, name=options.what, format=form)
    print(export.write(Service(options.db), Path(options.out), lambda stage, fraction: None))


class FigureOptions(FileOptions):
    list_: None = option(None, "say what there is, and end", flag="--list", action=lister(_figures), nargs=0)
    preset: str = option("column", "size and type, for the place it will stand; --list names them")
    layer: int | None = option(None, "of a figure of one layer (default: the middle one)")
    head: int | None = option(
        None,
        "key-value head of the mask, or query head where those of a key-value head differ; the first when left out",
    )


def run_figure(options: FigureOptions) -> None:
    from focus_explorer.exports.kinds import FigureExport

    export = fill(FigureExport, options, name=options.what, format=options.chosen_format(FigureExport.formats))
    with stage_bar() as progress:
        path = export.write(Service(options.db), Path(options.out), progress)
    print(path)


class BundleOptions(OnDatabase):
    run_ids: tuple[str, ...] = argument("as listed by `focus-explorer runs`", metavar="RUN")
    out: File = option(..., "zip file to write")
    text: bool = option(False, "include the texts and the tables that show them")
    no_figures: bool = option(False, "draw no figures")


def run_bundle(options: BundleOptions) -> None:
    from focus_explorer.exports.bundle.write import write_bundle

    with stage_bar() as progress:
        path = write_bundle(
            Service(options.db),
            options.run_ids,
            options.out,
            text=options.text,
            figures=not options.no_figures,
            progress=progress,
        )
    print(path)


class RebuildOptions(OnDatabase):
    bundle: File = argument("a bundle (.zip), its folder, or its manifest.json")
    text: tuple[File, ...] = option((), "files with the texts of a bundle without them")
    centroids: tuple[File, ...] = option((), "centroid files that are not uploaded here")
    model: File | None = option(None, "another name or place of the model; its weights are checked")
    out: File = option("rebuilt", "new folder for the tables")


def run_rebuild(options: RebuildOptions) -> int:
    """Make the tables again; returns 1 where they differ."""
    from focus_explorer.exports.bundle.rebuild import rebuild

    with stage_bar() as progress:
        rebuilt = rebuild(
            Service(options.db),
            options.bundle,
            options.out,
            texts=options.text,
            centroids=options.centroids,
            model=options.model,
            progress=progress,
        )
    source = f"the model ran again for {', '.join(rebuilt.again)}" if rebuilt.again else "from the database"
    print(f"{rebuilt.files} files of tables in {rebuilt.folder} ({source})")
    for line in rebuilt.surroundings:
        print(f"here differs: {line}")
    for line in rebuilt.tables:
        print(f"differs: {line}")
    same = "every table has the bytes it had in the bundle"
    same += ", times aside, which were measured again" if rebuilt.again else ""
    print(same if rebuilt.same else "the tables are not the same")
    return 0 if rebuilt.same else 1


class ReportOptions(OnDatabase):
    run_ids: tuple[str, ...] = argument("one run, or up to four to compare", metavar="RUN")
    out: File = option(".", "folder for report.html and report.pdf (default: this one)")
    no_pdf: bool = option(False, "write only the HTML, which needs no browser")


def run_report(options: ReportOptions) -> None:
    from focus_explorer.exports.report.write import write_report

    with stage_bar() as progress:
        written = write_report(
            Service(options.db), options.run_ids, options.out, pdf=not options.no_pdf, progress=progress
        )
    print(written.html)
    if written.pdf:
        print(written.pdf)
    if written.note:
        print_note(written.note)


COMMANDS = {
    "export": command(ExportOptions, run_export),
    "figure": command(FigureOptions, run_figure),
    "bundle": command(BundleOptions, run_bundle),
    "rebuild": command(RebuildOptions, run_rebuild),
    "report": command(ReportOptions, run_report),
}
