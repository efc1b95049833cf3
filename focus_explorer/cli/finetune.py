"""`focus-explorer finetune`: all weights of a model trained with Focus, or its twin with full attention."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import fields
from typing import Any

from focus_explorer import settings
from focus_explorer.cli.options import add_log_to, add_token_choice, command_line, print_note
from focus_explorer.errors import TrainingStopped
from focus_explorer.progress import step_bar
from focus_explorer.usecases.finetune import (
    RECIPES,
    REGIMES,
    FinetuneRequest,
    finetune,
    recipe_values,
    usual,
)

DESCRIPTION = (
    "two-phase: centroids first, then all weights with them. from-scratch: weights and centroids from "
    "random initialisation. --twin trains with full attention on the same data in the same order."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Texts, output folder, regime and the numbers of a training."""
    parser.description = DESCRIPTION
    parser.add_argument(
        "--text", nargs="+", action="extend", required=True, help="text files, or folders of .txt files"
    )
    parser.add_argument("--out", required=True, help="folder to write the model and its centroids to")
    parser.add_argument("--val", nargs="*", action="extend", default=[], help="held-out text, scored at the end")
    parser.add_argument("--model", default=settings.SETTINGS["model"].default, help="model name, folder or file")
    parser.add_argument("--regime", choices=tuple(REGIMES), default="two-phase", help="(default: two-phase)")
    parser.add_argument("--twin", action="store_true", help="full attention instead of Focus, same data and rates")
    numbers = (
        ("--centroid-steps", 300, "steps of the phase that trains centroids alone (two-phase)"),
        ("--steps", 300, "steps of the phase that trains all weights"),
        ("--seq-len", 512, "tokens per sequence"),
        ("--batch", 1, "sequences per pass"),
        ("--accumulate", 1, "passes whose gradients make one step"),
        ("--top-k", 2, "groups per token in use"),
        ("--seed", 0, "of initialisation and data order"),
        ("--checkpoint-every", 50, "steps between checkpoints"),
    )
    for name, default, text in numbers:
        parser.add_argument(name, type=int, default=default, help=f"{text} (default: {default})")
    parser.add_argument(
        "--recipe",
        choices=tuple(RECIPES),
        default="ours",
        help="gate, temperature, iterations, assignment, and the four options below where they are not given: ours, or "
        "paper, the published ones (default: ours)",
    )
    of_recipe = (
        ("--groups", int, "K, groups per layer"),
        ("--window", int, "pairs at most this far apart always attend"),
        ("--sinks", int, "first tokens all may see"),
        ("--steepness", float, "lambda of equation 2, with the paper gate"),
    )
    for name, kind, text in of_recipe:
        help_text = f"{text} (default: {usual(name[2:])})"
        parser.add_argument(name, type=kind, default=argparse.SUPPRESS, help=help_text)
    parser.add_argument("--lr", type=float, default=2e-5, help="peak rate of the weights (default: 0.00002)")
    parser.add_argument("--centroid-lr", type=float, default=3e-3, help="of the first phase (default: 0.003)")
    parser.add_argument(
        "--router-lr", type=float, default=3e-4, help="of the centroids while weights train (default: 0.0003)"
    )
    parser.add_argument(
        "--device", default="auto", help="cpu, cuda, cuda:N or mps; auto is the first GPU, or one for each process"
    )
    parser.add_argument("--precision", choices=("no", "bf16", "fp16"), default="no", help="(default: no)")
    parser.add_argument("--gradient-checkpointing", action="store_true", help="less memory, more time")
    parser.add_argument("--resume", action="store_true", help="continue where the training with the same --out stopped")
    add_token_choice(parser)
    add_log_to(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Train and print what was written; returns the exit status."""
    given = {option.name for option in fields(FinetuneRequest)} & vars(arguments).keys()
    values = recipe_values(arguments.recipe) | {name: getattr(arguments, name) for name in given}
    values |= {name: tuple(getattr(arguments, name)) for name in ("text", "val", "log_to")}
    request = FinetuneRequest(**values)
    try:
        result = finetune(request, bar=step_bar, command=command_line(), announce=print_note)
    except TrainingStopped as stopped:
        print(f"{stopped}; the same command with --resume continues", file=sys.stderr)
        return 130
    except KeyboardInterrupt:
        if not request.can_resume:
            raise
        print("stopped; the same command with --resume continues from the last checkpoint", file=sys.stderr)
        return 130
    if not result:
        return 0
    if arguments.json:
        print(json.dumps(result))
        return 0
    print(f"wrote {result['out']} ({result['attention']} attention, {result['regime']})")
    print(f"trained for {_time(result)}")
    for name, value in result.get("held_out", {}).items():
        print(f"held-out {name}: {value:,.3f}" if isinstance(value, float) else f"held-out {name}: {value:,}")
    return 0


def _time(result: dict[str, Any]) -> str:
    """How long all phases trained together, and each of several."""
    total, phases = result["seconds"], result["phase_seconds"]
    if total is None:
        return "a time that is not known: an older version began it"
    each = ", ".join(f"{name} {seconds:,.0f} s" for name, seconds in phases.items()) if len(phases) > 1 else ""
    return f"{total:,.0f} s in all, without pauses" + (f" ({each})" if each else "")
