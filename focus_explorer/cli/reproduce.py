"""`focus-explorer reproduce`: moved to `python -m paper`, beside the package."""

from __future__ import annotations

import argparse
from typing import NoReturn

from focus_explorer.errors import InputError

OPTIONS = "scale text val recipe plan again model steps seeds domain out work device json"  # that it once had


def add_options(parser: argparse.ArgumentParser) -> None:
    """Whatever was given before is taken, and answered."""
    parser.add_argument("names", nargs="*", help=argparse.SUPPRESS)
    for option in OPTIONS.split():
        parser.add_argument(f"--{option}", nargs="*", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> NoReturn:
    """Name the command that does this now.

    Raises:
        InputError: always.
    """
    raise InputError(
        "the paper's tables and figures are measured from a clone of the repository",
        fix="there run `python -m paper table7`, and `python -m paper --list` for the others",
    )
