"""`focus-explorer train`, `finetune`, `tune` and `trainings`: centroids, weights and budgets on the user's own text."""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from typing import Any, Literal

from pydantic import create_model, field_validator

from focus_explorer.cli.options import (
    ONE_OF,
    AsJson,
    Computed,
    FocusOptions,
    Logged,
    Numbers,
    OfModel,
    OnDatabase,
    Settings,
    TextBegins,
    command,
    command_line,
    fill,
    focus_settings,
    numbers,
    print_note,
    print_result,
    setting,
)
from focus_explorer.errors import Cancelled, InputError, TrainingStopped
from focus_explorer.progress import stage_bar
from focus_explorer.usecases.request import File, option
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.training.request import (
    OF_RECIPE,
    OF_REGIME,
    TrainRequest,
    options,
    recipe_values,
    usual,
)
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


class ListTrainings(OnDatabase, AsJson):
    pass


def run_trainings(given: ListTrainings) -> None:
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


OR_NONE = "whole numbers such as 2,32, or none"


class TuneOptions(OfModel, OnDatabase, FocusOptions, TextBegins, Computed, AsJson):
    settings: Settings = focus_settings("assignment", "budget", "logit_factors")
    text: tuple[File, ...] = option(
        ...,
        "calibration text by domain: text files, or folders of .txt files",
        action="extend",
        metavar="NAME=FOLDER",
    )
    held_out: tuple[File, ...] = option(
        (),
        "text for the check at the end, left out of --text folders (default: other sequences of the calibration text)",
        nargs="*",
        metavar="NAME=FOLDER",
    )
    out: tuple[File, ...] = option(
        ..., "centroid file to write (.safetensors), one for each target", action="extend", metavar="FILE"
    )
    loss: tuple[str, ...] = option(
        (),
        "largest rise in perplexity in every domain, such as 1%% or 0.01; several are searched together",
        group=ONE_OF,
        metavar="SHARE",
    )
    pairs: tuple[str, ...] = option(
        (),
        "largest share of causal pairs kept, such as 30%% or 0.3; several are searched together",
        group=ONE_OF,
        metavar="SHARE",
    )
    head_top_k: Numbers = numbers(
        (0, 2),
        "top-k that single heads may get besides that of all and full attention, such as 2,3; 0 is the window and the "
        "first tokens alone, 'none' no other",
        OR_NONE,
    )
    head_window: Numbers = numbers(
        (16, 32, 64, 128, 256, 512),
        "windows that single heads may get besides the one of all, such as 16,64; 'none' no other",
        OR_NONE,
    )
    heads: Literal["query", "key-value"] = option(
        "query",
        "which heads get settings of their own: each query head, or key-value heads with all that share them",
    )
    sequences: int = option(6, "calibration sequences a domain, of the shortest length; of longer ones as many tokens")
    held_out_sequences: int = option(8, "of the check, a domain, likewise")
    seq_len: tuple[int, ...] = option(
        (1024,),
        "tokens of a sequence, or several lengths such as 1024 4096, which need --held-out; pairs are counted at the "
        "shortest",
        metavar="TOKENS",
    )
    write_best: bool = option(False, "write the closest budget where none meets a target")
    resume: bool = option(False, "continue a search with the same --out that was stopped")
    as_json: bool = option(False, "print one JSON object for each target, a line each", flag="--json")

    @field_validator("head_top_k", "head_window", mode="before")
    @classmethod
    def _none(cls, value: Any) -> Any:
        return () if value == "none" else value


def run_tune(given: TuneOptions) -> int:
    """Search; returns the exit status: 3 where no budget meets a target and its file was not written."""
    request = fill(
        TuneRequest,
        given,
        loss=tuple(_share(text, "--loss") for text in given.loss),
        pairs=tuple(_share(text, "--pairs") for text in given.pairs),
        top_ks=given.head_top_k,
        windows=given.head_window,
        by_query=given.heads == "query",
        seq_lens=given.seq_len,
    )
    try:
        found = tune(Service(given.db), request, bar=stage_bar)
    except (KeyboardInterrupt, Cancelled):
        again = command_line() + ("" if request.resume else " --resume")
        print(f"stopped; what was measured is kept. Continue with\n  {again}", file=sys.stderr)
        return 130
    for out, tuned in zip(request.out, found, strict=True):
        if given.as_json:
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


def _share(text: str, flag: str) -> float:
    try:
        return float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)
    except ValueError as error:
        raise InputError(f"{flag} is {text!r}", expected="a share such as 1% or 0.01") from error


COMMANDS = {
    "train": command(_with_options_of("train", Train), run_train),
    "finetune": command(
        _with_options_of("finetune", Finetune, regime="two-phase", **OF_REGIME),
        run_train,
        description="two-phase: centroids first, then all weights with them. from-scratch: weights and centroids from "
        "random initialisation. --twin trains with full attention on the same data in the same order.",
    ),
    "tune": command(TuneOptions, run_tune),
    "trainings": command(ListTrainings, run_trainings),
}
