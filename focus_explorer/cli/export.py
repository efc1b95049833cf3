"""`focus-explorer export`: a table of a run or a corpus as a file."""

from __future__ import annotations

import argparse

from focus_explorer.cli.files import Lister, add_file_options, chosen_format, named_lines
from focus_explorer.errors import InputError
from focus_explorer.usecases.service import Service


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
        "--rows",
        type=_rows,
        metavar="ROWS",
        help="only the first so many rows (default: all, or 300 of LaTeX and Markdown); of the mask A:B, the queries "
        "from token A to before token B",
    )
    parser.add_argument("--layer", type=int, help="only the rows of this layer")
    parser.add_argument(
        "--head",
        type=int,
        help="key-value head of the mask, or query head where those of a key-value head differ"
        "; needed where the heads of the layer differ",
    )
    parser.set_defaults(run=run)


class _ListTables(Lister):
    def lines(self) -> list[str]:
        from focus_explorer.exports.mask import MASK, MASK_ABOUT
        from focus_explorer.exports.mask import SUFFIXES as MASK_SUFFIXES
        from focus_explorer.exports.tables.sources import TABLE_DESCRIPTIONS
        from focus_explorer.exports.tables.write import FORMATS

        tables = named_lines(TABLE_DESCRIPTIONS | {MASK: MASK_ABOUT})
        formats = [f"  {', '.join(FORMATS)}", f"  {', '.join(MASK_SUFFIXES)} of the mask"]
        return ["tables (documents: of corpora alone)", *tables, "formats", *formats]


def _rows(text: str) -> int | tuple[int, int]:
    """Parse a number of rows `N`, or a range `A:B`."""
    first, colon, last = text.partition(":")
    try:
        return (int(first), int(last)) if colon else int(first)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number of rows nor A:B") from None


def run(arguments: argparse.Namespace) -> None:
    """Write the table, or the mask."""
    from focus_explorer.exports.mask import MASK

    if arguments.what == MASK:
        _write_mask(arguments)
        return
    from focus_explorer.exports.tables.write import SUFFIXES, write_table

    file_format = chosen_format(arguments, SUFFIXES)
    if arguments.head is not None:
        raise InputError("--head is about the mask", fix="leave it out, or use --what mask")
    if isinstance(arguments.rows, tuple):
        raise InputError("--rows A:B is about the mask", expected="a number of rows", fix="or use --what mask")
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


def _write_mask(arguments: argparse.Namespace) -> None:
    from focus_explorer.exports.mask import SUFFIXES, write_mask

    file_format = chosen_format(arguments, SUFFIXES)
    if arguments.layer is None:
        raise InputError("a mask is of one layer", fix="name it with --layer")
    if arguments.raw:
        raise InputError("--raw is about tables with texts", fix="leave it out")
    if isinstance(arguments.rows, int):
        raise InputError(f"--rows of the mask is {arguments.rows}", expected="A:B, the queries from A to before B")
    path = write_mask(
        Service(arguments.db).database,
        arguments.run_id,
        arguments.layer,
        file_format,
        arguments.out,
        rows=arguments.rows,
        head=arguments.head,
    )
    print(path)
