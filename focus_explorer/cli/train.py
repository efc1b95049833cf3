"""`focus-explorer train`, `finetune`, `tune` and `trainings`: centroids, weights and budgets on the user's own text."""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from typing import Any

from pydantic import create_model

from focus_explorer.cli.options import command, command_line, print_note, print_result
from focus_explorer.errors import Cancelled, TrainingStopped
from focus_explorer.progress import stage_bar
from focus_explorer.usecases.request import AsJson, File, Listing, Logged, OnDatabase, option, setting
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.training.request import OF_RECIPE, OF_REGIME, TrainRequest, options, recipe_values, usual
from focus_explorer.usecases.tune import TuneRequest, describe, to_json, tune


class TrainingOptions(Logged, AsJson):
    """What `train` and `finetune` share, besides the fields of `TrainRequest`."""

    text: tuple[File, ...] = option(
        ...,
        "text files, or folders of .txt files; or domains to draw sequences from by weight, NAME=FOLDER[:WEIGHT]",
        action="extend",
        metavar="TEXT",
    )
    val: tuple[File, ...] = option(
        (),
        "held-out text, scored at the end and every --val-every steps, and left out of --text folders; or domains "
        "that are scored apart, NAME=TEXT",
        nargs="*",
        metavar="TEXT",
    )
    model: File = setting("model")


class Train(TrainingOptions, OnDatabase):
    out: File = option(..., "centroid file to write (.safetensors)")
    no_db: bool = option(False, "do not record the curve for the page")


class Finetune(TrainingOptions):
    out: File = option(..., "folder to write the model and its centroids to")


def _with_options_of(name: str, base: type[TrainingOptions], **defaults: Any) -> type[TrainingOptions]:
    """The command with the fields of `TrainRequest` that it has; `defaults` of them that differ."""
    made: dict[str, Any] = {}
    for one in options(name):
        kind, text = one.metadata["kind"], one.metadata["help"]
        default = defaults.get(one.name, one.default)
        if kind is not bool and "(default" not in text:
            text += f" (default: {usual(one) if one.name in OF_RECIPE else default})"
        if one.name in OF_RECIPE:
            default = None  # what is not given is the recipe's
        choices = {"choices": one.metadata["choices"]} if one.metadata["choices"] else {}
        made[one.name] = (kind | None if default is None else kind, option(default, text, **choices))
    return create_model(name, __base__=base, **made)


def train_request(given: TrainingOptions) -> TrainRequest:
    """The options as they were given; what a recipe decides and nobody gave is the recipe's."""
    names = {one.name for one in fields(TrainRequest)} & type(given).model_fields.keys()
    values = {name: getattr(given, name) for name in names}
    chosen = {name: value for name, value in values.items() if value is not None or name not in OF_RECIPE}
    return TrainRequest(**recipe_values(values["recipe"]) | {"groups": None} | chosen)


def run_train(given: TrainingOptions) -> int:
    """Train; returns the exit status."""
    from focus_explorer.usecases.training.train import TERMINAL_BAR, describe, train

    request = train_request(given)
    database = Service(given.db).database if isinstance(given, Train) and not given.no_db else None
    line = command_line()
    again = line if request.resume else f"{line} --resume"
    try:
        result = train(request, database, command=line, announce=print_note, bar=TERMINAL_BAR)
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
        print_result(given, result, describe)
    return 0


def run_trainings(given: Listing) -> None:
    from focus_explorer.usecases.training.processes import Trainings

    none = "no trainings yet; `focus-explorer train --text FILE --out NAME.safetensors` makes one"
    rows = Trainings(Service(given.db)).rows()
    print_result(given, rows, lambda rows: "\n".join(map(describe_training, rows)) or none)


def describe_training(row: dict[str, Any]) -> str:
    measured = ""
    if row["loss"] is not None:
        measured = f"  loss {row['loss']:.3f}  perplexity {row['perplexity']:.2f}"
    if row["dominance"] is not None:
        measured += f"  largest group {row['dominance']:.0%}  pairs kept {row['retained_pairs']:.0%}"
    return (
        f"{row['training_id']}  {row['status']:<11}  {row['name']}  {row['model_id']}  "
        f"step {row['step']:,} of {row['steps']:,}{measured}"
    )


def run_tune(request: TuneRequest) -> int:
    """Search; returns the exit status: 3 where no budget meets a target and its file was not written."""
    try:
        found = tune(Service(request.db), request, bar=stage_bar)
    except (KeyboardInterrupt, Cancelled):
        again = command_line() + ("" if request.resume else " --resume")
        print(f"stopped; what was measured is kept. Continue with\n  {again}", file=sys.stderr)
        return 130
    for out, tuned in zip(request.out, found, strict=True):
        if request.as_json:
            print(json.dumps(to_json(tuned)))
        else:
            print(describe(tuned))
            if tuned.written is not None:
                print(f"written      {tuned.written}")
        if tuned.written is None:
            print(
                f"no budget meets the target, so {out} was not written; the last line of the table is the closest. "
                "Write it with --resume --write-best, or choose another target, with --resume too",
                file=sys.stderr,
            )
    return 3 if any(tuned.written is None for tuned in found) else 0


COMMANDS = {
    "train": command(_with_options_of("train", Train), run_train),
    "finetune": command(
        _with_options_of("finetune", Finetune, regime="two-phase", **OF_REGIME),
        run_train,
        description="two-phase: centroids first, then all weights with them. from-scratch: weights and centroids from "
        "random initialisation. --twin trains with full attention on the same data in the same order.",
    ),
    "tune": command(TuneRequest, run_tune),
    "trainings": command(Listing, run_trainings),
}
