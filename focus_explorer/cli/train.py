"""`focus-explorer train`: centroids trained on the user's own text."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import fields

from focus_explorer.cli.options import add_log_to, add_settings, command_line, print_note
from focus_explorer.errors import TrainingStopped
from focus_explorer.usecases.training.request import OF_RECIPE, TrainRequest, flag, options, recipe_values, usual


def add_options(parser: argparse.ArgumentParser) -> None:
    """Texts and output file, then every option of a `TrainRequest`."""
    parser.add_argument(
        "--text",
        nargs="+",
        action="extend",
        required=True,
        metavar="TEXT",
        help="text files, or folders of .txt files; or domains to draw sequences from by weight, NAME=FOLDER[:WEIGHT]",
    )
    parser.add_argument("--out", required=True, help="centroid file to write (.safetensors)")
    parser.add_argument(
        "--val",
        nargs="*",
        action="extend",
        default=[],
        metavar="TEXT",
        help="held-out text, scored at the end and every --val-every steps, and left out of --text folders; or domains "
        "that are scored apart, NAME=TEXT",
    )
    add_settings(parser, "model", "db")
    for option in options():
        text = option.metadata["help"]
        if option.metadata["kind"] is bool:
            parser.add_argument(flag(option.name), action="store_true", help=text)
            continue
        by_recipe = option.name in OF_RECIPE
        text += "" if "(default" in text else f" (default: {usual(option)})"
        parser.add_argument(
            flag(option.name),
            type=option.metadata["kind"],
            default=argparse.SUPPRESS if by_recipe else option.default,  # what is not given is the recipe's
            help=text,
            choices=option.metadata["choices"],
        )
    add_log_to(parser)
    parser.add_argument("--no-db", action="store_true", help="do not record the curve for the page")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.set_defaults(run=run)


def train_request(arguments: argparse.Namespace) -> TrainRequest:
    """The options as they were given; what a recipe decides and nobody gave is the recipe's."""
    given = {option.name for option in fields(TrainRequest)} & vars(arguments).keys()
    values = recipe_values(arguments.recipe) | {"groups": None} | {name: getattr(arguments, name) for name in given}
    values |= {name: tuple(getattr(arguments, name)) for name in ("text", "val", "log_to")}
    return TrainRequest(**values)


def run(arguments: argparse.Namespace) -> int:
    """Train; returns the exit status."""
    from focus_explorer.usecases.service import Service
    from focus_explorer.usecases.training.train import describe, train

    request = train_request(arguments)
    database = None if arguments.no_db else Service(arguments.db).database
    command = command_line()
    again = command if request.resume else f"{command} --resume"
    try:
        result = train(request, database, command=command, announce=print_note)
    except KeyboardInterrupt:  # not within the steps
        if not request.checkpoint.exists():
            raise
        print(f"stopped; the last checkpoint is kept, continue with\n  {again}", file=sys.stderr)
        return 130
    except TrainingStopped as stopped:
        if stopped.step:
            print(
                f"stopped after step {stopped.step:,} of {request.steps:,}, which is saved; continue with\n  {again}",
                file=sys.stderr,
            )
        else:
            print("stopped before the first step; nothing was kept", file=sys.stderr)
        return 130
    if result:
        print(json.dumps(result) if arguments.json else describe(result))
    return 0
