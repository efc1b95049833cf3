"""`focus-explorer bundle`: runs with their data, tables and figures in one zip file."""

from __future__ import annotations

import argparse

from focus_explorer.cli.options import add_settings
from focus_explorer.progress import stage_bar
from focus_explorer.usecases.service import Service


def add_options(parser: argparse.ArgumentParser) -> None:
    """Runs, output file and what is left out."""
    parser.add_argument("run_ids", nargs="+", metavar="RUN", help="as listed by `focus-explorer runs`")
    parser.add_argument("--out", required=True, help="zip file to write")
    parser.add_argument("--text", action="store_true", help="include the texts and the tables that show them")
    parser.add_argument("--no-figures", action="store_true", help="draw no figures")
    add_settings(parser, "db")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Write the bundle."""
    from focus_explorer.exports.bundle.write import write_bundle

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
