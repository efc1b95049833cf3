"""What `export` and `figure` share: options, the choice of a format, and lists of names."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from focus_explorer.cli.options import add_settings
from focus_explorer.errors import InputError


def add_file_options(parser: argparse.ArgumentParser, what: str, formats: str, lister: type[argparse.Action]) -> None:
    """Add the options that tables and figures share.

    Args:
        parser: of the command.
        what: help of `--what`.
        formats: names of the formats, for people.
        lister: action that prints what there is.
    """
    parser.add_argument("run_id", metavar="RUN", help="a run or a corpus, as listed by `runs` and `corpora`")
    parser.add_argument("--what", required=True, metavar="NAME", help=what)
    parser.add_argument("--format", metavar="FORMAT", help=f"{formats} (default: by the ending of --out)")
    parser.add_argument("--out", required=True, metavar="FILE", help="file to write")
    parser.add_argument("--list", action=lister, nargs=0, help="say what there is, and end")
    add_settings(parser, "db")


class Lister(argparse.Action):
    """Action that prints its lines and exits, even where required options are missing, as `--help` does."""

    def lines(self) -> list[str]:
        """Lines to print."""
        raise NotImplementedError

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        print("\n".join(self.lines()))
        parser.exit()


def named_lines(texts: dict[str, str]) -> list[str]:
    """Names in a column, each with its text."""
    width = max(map(len, texts)) + 2
    return [f"  {name:<{width}}{text}" for name, text in texts.items()]


def chosen_format(arguments: argparse.Namespace, endings: dict[str, str]) -> str:
    """The format of `--format`, or that of the file's ending (`endings`: by format).

    Raises:
        InputError: no format has the file's ending.
    """
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
