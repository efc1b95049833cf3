"""`focus-explorer export` and `focus-explorer figure`: tables and figures of stored runs as files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from focus_explorer.errors import InputError
from focus_explorer.settings import SETTINGS


def add_parser(commands: Any) -> None:
    """Both commands."""
    parser = commands.add_parser("export", help="write a table of a run as CSV, JSON, Parquet, LaTeX or Markdown")
    _common(parser, "which table; --list names them", "csv, json, parquet, latex or markdown", _list_tables)
    parser.add_argument(
        "--raw",
        action="store_true",
        help="CSV: leave text cells that start with = + - @, tab or "
        "return as they are; without it they get an apostrophe in front, so that no spreadsheet runs "
        "them",
    )
    parser.add_argument(
        "--rows", type=int, help="only the first so many rows (default: all, or 300 of LaTeX and Markdown)"
    )
    parser.add_argument("--layer", type=int, help="only the rows of this layer")
    parser.set_defaults(run=_export)
    parser = commands.add_parser("figure", help="draw a figure of a run as PDF, SVG, PNG or HTML for papers")
    _common(parser, "which figure; --list names them", "pdf, svg, png or html", _list_figures)
    parser.add_argument(
        "--preset",
        default="column",
        help="size and type, for the place it will stand; --list names them (default: column)",
    )
    parser.add_argument("--layer", type=int, help="of a figure of one layer (default: the middle one)")
    parser.set_defaults(run=_figure)


def _common(parser: argparse.ArgumentParser, what: str, formats: str, lister: type[argparse.Action]) -> None:
    parser.add_argument("run_id", metavar="RUN", help="a run or a corpus, as listed by `runs` and `corpora`")
    parser.add_argument("--what", required=True, metavar="NAME", help=what)
    parser.add_argument("--format", metavar="FORMAT", help=f"{formats} (default: by the ending of --out)")
    parser.add_argument("--out", required=True, metavar="FILE", help="file to write")
    parser.add_argument("--list", action=lister, nargs=0, help="say what there is, and end")
    parser.add_argument(
        "--db", default=SETTINGS["db"].default or None, help=f"{SETTINGS['db'].help} (default: the user data folder)"
    )


class _Lister(argparse.Action):
    """Prints like `--help` does, whatever else is missing."""

    def lines(self) -> list[str]:
        raise NotImplementedError

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        print("\n".join(self.lines()))
        parser.exit()


class _list_tables(_Lister):  # noqa: N801 - an action is used as if it were a function
    def lines(self) -> list[str]:
        from focus_explorer.exports.tables.sources import ABOUT
        from focus_explorer.exports.tables.write import FORMATS

        return ["tables (documents: of corpora alone)", *_named(ABOUT), "formats", f"  {', '.join(FORMATS)}"]


class _list_figures(_Lister):  # noqa: N801
    def lines(self) -> list[str]:
        from focus_explorer.exports.figures.write import FIGURE_FORMATS, FIGURES, PRESETS

        presets = {
            name: f"{p.width:g} x {p.height:g} mm, {p.family.split(',')[0]} {p.small:g} to {p.size:g} pt: {p.about}"
            for name, p in PRESETS.items()
        }
        return ["figures", *_named(FIGURES), "formats", f"  {', '.join(FIGURE_FORMATS)}", "presets", *_named(presets)]


def _named(texts: dict[str, str]) -> list[str]:
    width = max(map(len, texts)) + 2
    return [f"  {name:<{width}}{text}" for name, text in texts.items()]


def _format(arguments: argparse.Namespace, endings: dict[str, str]) -> str:
    """The format named, or the one of the file's ending."""
    if arguments.format:
        return str(arguments.format)
    suffix = Path(arguments.out).suffix.lower()
    for name, ending in endings.items():
        if suffix == ending:
            return name
    raise InputError(
        f"{arguments.out} does not say which format it is to have",
        expected=f"a file ending with {_or(list(endings.values()))}",
        fix="or name one with --format",
    )


def _or(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + f" or {words[-1]}"


def _database(arguments: argparse.Namespace) -> Any:
    from focus_explorer.settings import default_database
    from focus_runtime.store.database import Database

    return Database(arguments.db or default_database())


def _export(arguments: argparse.Namespace) -> None:
    from focus_explorer.exports.tables.write import SUFFIXES, write_table

    file_format = _format(arguments, SUFFIXES)
    if arguments.raw and file_format != "csv":
        raise InputError("--raw is about CSV files", fix="leave it out; the other formats keep texts as they are")
    path = write_table(
        _database(arguments),
        arguments.run_id,
        arguments.what,
        file_format,
        arguments.out,
        raw=arguments.raw,
        rows=arguments.rows,
        layer=arguments.layer,
    )
    print(path)


def _figure(arguments: argparse.Namespace) -> None:
    from focus_explorer.exports.figures.write import FIGURE_FORMATS, write_figure
    from focus_runtime.store.corpora import corpus_row

    file_format = _format(arguments, {name: f".{name}" for name in FIGURE_FORMATS})
    database = _database(arguments)
    if arguments.what == "map" and corpus_row(database, arguments.run_id) is None:
        _store_map(database, arguments)
    path = write_figure(
        database,
        arguments.run_id,
        arguments.what,
        file_format,
        arguments.out,
        preset=arguments.preset,
        layer=arguments.layer,
    )
    print(path)


def _store_map(database: Any, arguments: argparse.Namespace) -> None:
    """A map is made once and kept; on the page this happens when somebody looks at it."""
    from focus_explorer.exports.figures.write import checked_layer
    from focus_explorer.services.maps import has_map, map_payload
    from focus_explorer.services.runs import check_run
    from focus_explorer.services.service import Service

    check_run(database, arguments.run_id)
    layer = checked_layer(database, arguments.run_id, arguments.layer)
    if not has_map(database, arguments.run_id, layer):
        print(f"note: making the map of layer {layer}, which is kept", file=sys.stderr)
        map_payload(Service(database.path), arguments.run_id, layer)
