"""`focus-explorer texts`: a mixture of texts to train and to validate centroids on."""

from __future__ import annotations

import argparse
from pathlib import Path

from focus_explorer.cli.options import print_note


def add_options(parser: argparse.ArgumentParser) -> None:
    """Target and novels."""
    parser.add_argument("out", metavar="OUT", help="folder to write: train/, validation/, unseen/ and sources.json")
    parser.add_argument(
        "--novels", required=True, metavar="FOLDER", help="novels in the public domain, as .txt files, at least two"
    )
    parser.add_argument(
        "--held-out", metavar="NAME", help="file name of the novel to validate on (default: the last by name)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Build the mixture and print its domains."""
    from focus_explorer.progress import stage_bar
    from focus_explorer.usecases.mixture.build import build_mixture

    out, novels = Path(arguments.out).expanduser(), Path(arguments.novels).expanduser()
    with stage_bar() as progress:
        mixture = build_mixture(out, novels, held_out=arguments.held_out, progress=progress)
    for line in mixture.notes():
        print_note(line)
    for split, domain, files, size in mixture.domains():
        print(f"{split:<10}  {domain:<12}  {files:>2} files  {size / 1e6:6.2f} MB")
    print(f"{out} written; {out / 'sources.json'} names every source with its licence")
