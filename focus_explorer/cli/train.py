"""`focus-explorer train`: centroids trained on the user's own text; `finetune`: the weights too."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from focus_explorer.cli.options import add_log_to, add_settings, command_line, print_note
from focus_explorer.errors import TrainingStopped
from focus_explorer.usecases.training.request import (
    OF_RECIPE,
    TrainRequest,
    flag,
    options,
    recipe_values,
    usual,
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Every option of a training of centroids, and where its curve is recorded."""
    add_training_options(parser, "train", "centroid file to write (.safetensors)")
    add_settings(parser, "db")
    parser.add_argument("--no-db", action="store_true", help="do not record the curve for the page")


def add_training_options(
    parser: argparse.ArgumentParser, command: str, out: str, defaults: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Texts and result, then every option of a `TrainRequest` that a command has; `defaults` of it that differ."""
    parser.add_argument(
        "--text",
        nargs="+",
        action="extend",
        required=True,
        metavar="TEXT",
        help="text files, or folders of .txt files; or domains to draw sequences from by weight, NAME=FOLDER[:WEIGHT]",
    )
    parser.add_argument("--out", required=True, help=out)
    parser.add_argument(
        "--val",
        nargs="*",
        action="extend",
        default=[],
        metavar="TEXT",
        help="held-out text, scored at the end and every --val-every steps, and left out of --text folders; or domains "
        "that are scored apart, NAME=TEXT",
    )
    add_settings(parser, "model")
    for option in options(command):
        text = option.metadata["help"]
        if option.metadata["kind"] is bool:
            parser.add_argument(flag(option.name), action="store_true", help=text)
            continue
        default = defaults.get(option.name, option.default)
        shown = usual(option) if option.name in OF_RECIPE else default
        parser.add_argument(
            flag(option.name),
            type=option.metadata["kind"],
            default=argparse.SUPPRESS if option.name in OF_RECIPE else default,  # what is not given is the recipe's
            help=text if "(default" in text else f"{text} (default: {shown})",
            choices=option.metadata["choices"],
        )
    add_log_to(parser)
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
    from focus_explorer.usecases.training.train import TERMINAL_BAR, describe, train

    request = train_request(arguments)
    database = None if arguments.no_db else Service(arguments.db).database
    command = command_line()
    again = command if request.resume else f"{command} --resume"
    try:
        result = train(request, database, command=command, announce=print_note, bar=TERMINAL_BAR)
    except KeyboardInterrupt:  # not within the steps
        if not request.can_resume:
            raise
        print(f"stopped; the last checkpoint is kept, continue with\n  {again}", file=sys.stderr)
        return 130
    except TrainingStopped as stopped:
        if request.can_resume:
            of = "" if request.trains_weights else f" of {request.steps:,}"
            print(f"stopped after step {stopped.step:,}{of}, which is saved; continue with\n  {again}", file=sys.stderr)
        else:
            print("stopped before the first step; nothing was kept", file=sys.stderr)
        return 130
    if result:
        print(json.dumps(result) if arguments.json else describe(result))
    return 0
