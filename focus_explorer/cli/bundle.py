"""`focus-explorer bundle`, `rebuild` and `report`: results to hand over, to check and to read."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from focus_explorer.progress import stage_bar
from focus_explorer.settings import SETTINGS


def add_parser(commands: Any) -> None:
    """The three commands."""
    parser = commands.add_parser("bundle", help="write runs with data, tables, figures and how to make them again")
    parser.add_argument("run_ids", nargs="+", metavar="RUN", help="as listed by `focus-explorer runs`")
    parser.add_argument("--out", required=True, help="zip file to write")
    parser.add_argument("--text", action="store_true", help="include the texts and the tables that show them")
    parser.add_argument("--no-figures", action="store_true", help="draw no figures")
    _add_database(parser)
    parser.set_defaults(run=_bundle)

    parser = commands.add_parser("rebuild", help="make the tables of a bundle again and say what differs")
    parser.add_argument("bundle", help="a bundle (.zip), its folder, or its manifest.json")
    parser.add_argument("--text", nargs="+", default=[], help="files with the texts of a bundle without them")
    parser.add_argument("--centroids", nargs="+", default=[], help="centroid files that are not uploaded here")
    parser.add_argument("--model", help="another name or place of the model; its weights are checked")
    parser.add_argument("--out", default="rebuilt", help="new folder for the tables (default: rebuilt)")
    _add_database(parser)
    parser.set_defaults(run=_rebuild)

    parser = commands.add_parser("report", help="write a report of runs to read, as HTML and PDF")
    parser.add_argument("run_ids", nargs="+", metavar="RUN", help="one run, or up to four to compare")
    parser.add_argument("--out", default=".", help="folder for report.html and report.pdf (default: this one)")
    parser.add_argument("--no-pdf", action="store_true", help="write only the HTML, which needs no browser")
    _add_database(parser)
    parser.set_defaults(run=_report)


def _add_database(parser: argparse.ArgumentParser) -> None:
    option = SETTINGS["db"]
    parser.add_argument("--db", default=option.default or None, help=f"{option.help} (default: the user data folder)")


def _bundle(arguments: argparse.Namespace) -> None:
    from focus_explorer.exports.bundle.write import write_bundle
    from focus_explorer.services.service import Service

    with stage_bar() as progress:
        path = write_bundle(
            Service(arguments.db),
            arguments.run_ids,
            arguments.out,
            text=arguments.text,
            figures=not arguments.no_figures,
            progress=progress,
        )
    print(path)


def _rebuild(arguments: argparse.Namespace) -> int:
    from focus_explorer.exports.bundle.rebuild import rebuild
    from focus_explorer.services.service import Service

    with stage_bar() as progress:
        found = rebuild(
            Service(arguments.db),
            arguments.bundle,
            arguments.out,
            texts=arguments.text,
            centroids=arguments.centroids,
            model=arguments.model,
            progress=progress,
        )
    source = f"the model ran again for {', '.join(found.again)}" if found.again else "from the database"
    print(f"{found.files} files of tables in {found.folder} ({source})")
    for line in found.surroundings:
        print(f"here differs: {line}")
    for line in found.tables:
        print(f"differs: {line}")
    print("every table has the bytes it had in the bundle" if found.same else "the tables are not the same")
    return 0 if found.same else 1


def _report(arguments: argparse.Namespace) -> None:
    from focus_explorer.exports.report.write import write_report
    from focus_explorer.services.service import Service

    with stage_bar() as progress:
        written = write_report(
            Service(arguments.db), arguments.run_ids, arguments.out, pdf=not arguments.no_pdf, progress=progress
        )
    print(written.html)
    if written.pdf:
        print(written.pdf)
    if written.note:
        print(f"note: {written.note}", file=sys.stderr)
