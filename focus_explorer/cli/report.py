"""`focus-explorer report`: a report of runs as HTML and PDF."""

from __future__ import annotations

import argparse

from focus_explorer.cli.options import add_settings, print_note
from focus_explorer.progress import stage_bar
from focus_explorer.usecases.service import Service


def add_options(parser: argparse.ArgumentParser) -> None:
    """Runs, output folder and forms."""
    parser.add_argument("run_ids", nargs="+", metavar="RUN", help="one run, or up to four to compare")
    parser.add_argument("--out", default=".", help="folder for report.html and report.pdf (default: this one)")
    parser.add_argument("--no-pdf", action="store_true", help="write only the HTML, which needs no browser")
    add_settings(parser, "db")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Write the report."""
    from focus_explorer.exports.report.write import write_report

    with stage_bar() as progress:
        written = write_report(
            Service(arguments.db), arguments.run_ids, arguments.out, pdf=not arguments.no_pdf, progress=progress
        )
    print(written.html)
    if written.pdf:
        print(written.pdf)
    if written.note:
        print_note(written.note)
