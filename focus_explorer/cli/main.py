"""The focus-explorer command: every result of the page without the page.

Exit status 0, or 2 with one line `error: ...` on standard error for anything a user can put right.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import NoReturn

from focus_explorer.errors import InputError, TrainingStopped, device_failure
from focus_explorer.settings import VERSION, prepare_libraries

COMMANDS = {  # name -> module of focus_explorer.cli, imported only when the command is chosen, and help
    "setup": ("setup", "fetch the default model where it was not installed, and convert it"),
    "analyze": ("analyze", "run full attention and Focus on a text or a corpus and store it"),
    "runs": ("runs", "list stored runs, newest first; name, tag or delete them"),
    "export": ("exports", "write a table of a run as CSV, JSON, Parquet, LaTeX or Markdown"),
    "figure": ("exports", "draw a figure of a run as PDF, SVG, PNG or HTML for papers"),
    "centroids": ("centroids", "centroid files"),
    "train": ("train", "train centroids on your own text"),
    "tune": ("train", "find which heads to leave at full attention for a target, and write that budget"),
    "texts": ("setup", "build a mixture of texts to train and validate on, from Debian and PyPI packages and novels"),
    "trainings": ("train", "list recorded trainings, newest first"),
    "bench": ("benchmarks", "measure speed and perplexity, compared with full attention, on this machine"),
    "evaluate": ("benchmarks", "perplexity and benchmark tasks compared with full attention, with intervals"),
    "serve": ("serve", "open the page"),
    "doctor": ("setup", "check that Focus, or another attention implementation, computes what it should on a model"),
    "db": ("setup", "check, copy, put back or save the database"),
    "users": ("serve", "users and passwords for `serve --auth`"),
    "reproduce": ("benchmarks", "moved: run `python -m paper` in a clone of the repository"),
    "finetune": ("train", "train all weights of a model with Focus, or with full attention"),
    "explain": ("measures", "find the dropped pairs that made Focus predict a token worse, and verify them"),
    "heads": ("measures", "what the mask costs head by head: the loss with full attention in one head alone"),
    "what-if": (
        "measures",
        "change a run by hand and compare: move tokens, link them, silence groups, set heads apart",
    ),
    "compare": (
        "analyze",
        "measure a text at several settings, with full attention, random centroids and window alone",
    ),
    "bundle": ("exports", "write runs with data, tables, figures and how to make them again"),
    "rebuild": ("exports", "make the tables of a bundle again and say what differs"),
    "report": ("exports", "write a report of runs to read, as HTML and PDF"),
    "corpora": ("runs", "list analysed corpora, newest first; show or delete one"),
    "statistics": ("measures", "what the groups of a run or a corpus are, with intervals and baselines"),
}


class Parser(argparse.ArgumentParser):
    """Argument parser whose errors have one line, which scripts rely on."""

    def error(self, message: str) -> NoReturn:
        """Raise an InputError in place of what argparse would print over several lines."""
        raise InputError(message, fix=f"see `{self.prog} --help`")


def parser(chosen: Collection[str] = tuple(COMMANDS)) -> Parser:
    """The parser of the command line; of commands outside `chosen` it has the name and the help line alone."""
    whole = Parser(prog="focus-explorer", description="See, measure and compare Focus sparse attention.")
    whole.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    commands = whole.add_subparsers(dest="command", required=True, parser_class=Parser)
    for name, (module, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text)
        if name in chosen:
            import_module(f"focus_explorer.cli.{module}").COMMANDS[name](command)
    return whole


def _command_of(words: list[str]) -> list[str]:
    """The command among the words, if any: the options before it take no values."""
    return [word for word in words if not word.startswith("-")][:1]


def _refused(error: InputError) -> int:
    """Print what a user can put right, on one line; returns the exit status."""
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    return 2


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script; returns the exit status."""
    prepare_libraries()
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        arguments = parser(_command_of(words)).parse_args(words)
        return arguments.run(arguments) or 0
    except InputError as error:
        return _refused(error)
    except (RuntimeError, MemoryError) as error:
        failure = device_failure(error)
        if failure is None:
            raise
        return _refused(failure)
    except (KeyboardInterrupt, TrainingStopped):
        print("error: stopped; nothing unfinished was kept", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0


if __name__ == "__main__":
    sys.exit(main())
