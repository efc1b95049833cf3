"""`focus-explorer export`: a table of a run or a corpus as a file."""

from __future__ import annotations

import argparse

from focus_explorer.cli.files import Lister, add_file_options, chosen_format, named_lines
from focus_explorer.errors import InputError
from focus_explorer.services.service import Service


def add_options(parser: argparse.ArgumentParser) -> None:
    """Table, format, output file and which rows."""
    add_file_options(parser, "which table; --list names them", "csv, json, parquet, latex or markdown", _ListTables)
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
    parser.set_defaults(run=run)


class _ListTables(Lister):
    def lines(self) -> list[str]:
        from focus_explorer.exports.tables.sources import TABLE_DESCRIPTIONS
        from focus_explorer.exports.tables.write import FORMATS

        tables = named_lines(TABLE_DESCRIPTIONS)
        return ["tables (documents: of corpora alone)", *tables, "formats", f"  {', '.join(FORMATS)}"]


def run(arguments: argparse.Namespace) -> None:
    """Write the table."""
    from focus_explorer.exports.tables.write import SUFFIXES, write_table

    file_format = chosen_format(arguments, SUFFIXES)
    if arguments.raw and file_format != "csv":
        raise InputError("--raw is about CSV files", fix="leave it out; the other formats keep texts as they are")
    path = write_table(
        Service(arguments.db).database,
        arguments.run_id,
        arguments.what,
        file_format,
        arguments.out,
        raw=arguments.raw,
        rows=arguments.rows,
        layer=arguments.layer,
    )
    print(path)
