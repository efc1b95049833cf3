"""Options, notes and the recorded command line that several commands share."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from typing import Any

from focus_explorer.settings import BACKENDS, DTYPES, SETTINGS, SPECIAL_TOKENS, TEXTS_BEGIN


def add_settings(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add options of the application by their names in `SETTINGS`."""
    for name in names:
        option = SETTINGS[name]
        kind: Callable[[str], Any] = int if name == "port" else str
        default = kind(option.default) if option.default else None
        parser.add_argument(f"--{name}", default=default, type=kind, help=_help(name))


def add_action_database(parser: argparse.ArgumentParser) -> None:
    """Add `--db` to an action of a command, where it must not overwrite one given before the action."""
    parser.add_argument("--db", default=argparse.SUPPRESS, help=_help("db"))


def add_focus_settings(parser: argparse.ArgumentParser, *, assignment: bool = True, budget: bool = True) -> None:
    """Add settings of Focus that replace the centroid file's.

    Args:
        parser: of the command.
        assignment, budget: whether those two can be replaced.
    """
    parser.add_argument("--top-k", type=int, help="groups a token belongs to (default: the centroid file's)")
    parser.add_argument(
        "--window", type=int, help="pairs at most this far apart always attend, in heads without a window of their own"
    )
    parser.add_argument("--sinks", type=int, help="first tokens every token may attend to")
    if budget:
        add_budget(parser)
    add_window_growth(parser)
    if assignment:
        parser.add_argument("--assignment", choices=("causal", "sinkhorn"), help="how groups are decided")


def add_token_choice(parser: argparse.ArgumentParser) -> None:
    """Add whether texts begin with what the tokenizer puts before them."""
    default = SPECIAL_TOKENS[0]
    parser.add_argument(
        "--special-tokens", choices=SPECIAL_TOKENS, default=default, help=f"{TEXTS_BEGIN} (default: {default})"
    )


def add_changes(parser: argparse.ArgumentParser) -> None:
    """Add changes made by hand; `read_changes` of the runtime reads them."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="CHANGE",
        help="a change of what Focus does, may be repeated: move:LAYER:TOKEN:GROUP, see:LAYER:TOKEN:EARLIER, "
        "silence:LAYER:GROUP, full:LAYER[:HEAD], k:LAYER[:HEAD]=N or window:LAYER[:HEAD]=N; see docs/what-if.md",
    )


def add_budget(parser: argparse.ArgumentParser) -> None:
    """Add the budget that replaces the centroid file's; `services.budget.budget_of` reads it."""
    parser.add_argument(
        "--budget",
        metavar="FILE",
        help="layers and heads with a top-k or window of their own, or with full attention: a JSON file as in "
        "docs/centroid-files.md, or none (default: the centroid file's)",
    )


def add_window_growth(parser: argparse.ArgumentParser) -> None:
    """Add how windows grow where that replaces the centroid file's; `window_growth_of` reads it."""
    parser.add_argument(
        "--window-growth",
        type=int,
        nargs=2,
        metavar=("FIRST", "LAST"),
        help="positions from which to which all windows grow, such as 1024 8192; 1 1 for windows of one length "
        "(default: as the centroid file has it)",
    )


def window_growth_of(arguments: argparse.Namespace) -> tuple[int, int] | None:
    """Positions from which to which windows grow; None for what the centroid file says."""
    return None if arguments.window_growth is None else (arguments.window_growth[0], arguments.window_growth[1])


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add where the model runs."""
    parser.add_argument(
        "--device",
        default="auto",
        help="auto, cpu, cuda, cuda:N, mps, or split (all GPUs together); auto is the first CUDA device, else the CPU "
        "(default: auto)",
    )


def add_place(parser: argparse.ArgumentParser) -> None:
    """Add where the model runs and in which precision."""
    add_device(parser)
    parser.add_argument(
        "--dtype",
        choices=("auto", *DTYPES),
        default="auto",
        help="of the model; auto is bfloat16 on a GPU that computes it, else float32 (default: auto)",
    )


def add_compute(parser: argparse.ArgumentParser) -> None:
    """Add where the model runs and in which precision, and which backend computes Focus."""
    add_place(parser)
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="auto",
        help="what computes Focus attention; all compute the same pairs (default: auto, the fastest)",
    )


def add_log_to(parser: argparse.ArgumentParser) -> None:
    """Add the programs that log a training; `services.training.trackers.target` reads them."""
    parser.add_argument(
        "--log-to",
        action="append",
        default=[],
        metavar="PROGRAM[:PLACE]",
        help="log the training there too, may be repeated: tensorboard[:FOLDER] (default: runs), trackio[:PROJECT] or "
        "wandb[:PROJECT] (default: focus); see docs/training.md",
    )


def add_random_centroids(parser: argparse.ArgumentParser) -> None:
    """Add how the centroids named "random" are drawn."""
    group = parser.add_argument_group("for --centroids random")
    group.add_argument("--groups", type=int, help="K, groups in every layer (default: 8, as in the shipped files)")
    group.add_argument("--routing-dim", type=int, help="d_g, width of the routing space (default: 16)")
    group.add_argument("--seed", type=int, default=0, help="of the draw (default: 0)")


def _help(name: str) -> str:
    option = SETTINGS[name]
    return f"{option.help} (default: {option.default or 'the user data folder'})"


def print_note(message: str) -> None:
    """Print a note on standard error, where it does not disturb a script that reads the result."""
    print(f"note: {message}", file=sys.stderr)


def command_line() -> str:
    """The command as it was typed, for the record kept with a run."""
    words = shlex.join(["focus-explorer", *sys.argv[1:]])
    return words.encode("utf-8", "backslashreplace").decode()  # file names need not be UTF-8
