"""`focus-explorer tune`: find which heads to leave at full attention, and write a centroid file with that budget."""

from __future__ import annotations

import argparse
import json
import sys

from focus_explorer.cli.options import (
    add_compute,
    add_focus_settings,
    add_settings,
    add_token_choice,
    command_line,
    window_growth_of,
)
from focus_explorer.errors import Cancelled, InputError
from focus_explorer.progress import stage_bar
from focus_explorer.usecases.tune import TuneRequest, describe, to_json, tune


def add_options(parser: argparse.ArgumentParser) -> None:
    """Texts, targets and their files, what heads may get, how much is measured."""
    several = (
        ("--text", True, "NAME=FOLDER", "calibration text by domain: text files, or folders of .txt files"),
        (
            "--held-out",
            False,
            "NAME=FOLDER",
            "text for the check at the end, left out of --text folders (default: other sequences of the calibration "
            "text)",
        ),
        ("--out", True, "FILE", "centroid file to write (.safetensors), one for each target"),
    )
    for name, required, metavar, text in several:
        count = "+" if required else "*"
        parser.add_argument(
            name, nargs=count, action="extend", required=required, default=[], metavar=metavar, help=text
        )
    target = parser.add_mutually_exclusive_group(required=True)
    for name, text in (
        ("--loss", "largest rise in perplexity in every domain, such as 1%% or 0.01"),
        ("--pairs", "largest share of causal pairs kept, such as 30%% or 0.3"),
    ):
        text += "; several are searched together"
        target.add_argument(name, nargs="+", action="extend", default=[], metavar="SHARE", help=text)
    add_settings(parser, "model", "centroids", "db")
    add_focus_settings(parser)
    _add_choices(parser)
    add_token_choice(parser)
    add_compute(parser)
    parser.add_argument("--write-best", action="store_true", help="write the closest budget where none meets a target")
    parser.add_argument("--resume", action="store_true", help="continue a search with the same --out that was stopped")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each target, a line each")
    parser.set_defaults(run=run)


def _add_choices(parser: argparse.ArgumentParser) -> None:
    """What heads may get, and how much is measured."""
    parser.add_argument(
        "--head-top-k",
        default="0,2",
        help="top-k that single heads may get besides that of all and full attention, such as 2,3; 0 is the window and "
        "the first tokens alone, 'none' no other (default: 0,2)",
    )
    parser.add_argument(
        "--head-window",
        default="16,32,64,128,256,512",
        help="windows that single heads may get besides the one of all, such as 16,64; 'none' no other (default: "
        "16,32,64,128,256,512)",
    )
    parser.add_argument(
        "--heads",
        choices=("query", "key-value"),
        default="query",
        help="which heads get settings of their own: each query head, or key-value heads with all that share them "
        "(default: query)",
    )
    parser.add_argument(
        "--sequences",
        type=int,
        default=6,
        help="calibration sequences a domain, of the shortest length; of longer ones as many tokens (default: 6)",
    )
    parser.add_argument(
        "--held-out-sequences", type=int, default=8, help="of the check, a domain, likewise (default: 8)"
    )
    parser.add_argument(
        "--seq-len",
        type=int,
        nargs="+",
        default=[1024],
        metavar="TOKENS",
        help="tokens of a sequence, or several lengths such as 1024 4096, which need --held-out; pairs are counted at "
        "the shortest (default: 1024)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Search; returns the exit status: 3 where no budget meets a target and its file was not written."""
    from focus_explorer.usecases.service import Service

    same: list[str] = ["model", "centroids", "top_k", "special_tokens", "window", "sequences", "held_out_sequences"]
    same += ["device", "dtype", "backend", "write_best", "resume"]
    request = TuneRequest(
        text=tuple(arguments.text),
        held_out=tuple(arguments.held_out),
        out=tuple(arguments.out),
        loss=tuple(_share(text, "--loss") for text in arguments.loss),
        pairs=tuple(_share(text, "--pairs") for text in arguments.pairs),
        window_growth=window_growth_of(arguments),
        num_sinks=arguments.sinks,
        top_ks=_numbers(arguments.head_top_k, "--head-top-k"),
        windows=_numbers(arguments.head_window, "--head-window"),
        by_query=arguments.heads == "query",
        seq_lens=tuple(arguments.seq_len),
        **{name: getattr(arguments, name) for name in same},
    )
    try:
        found = tune(Service(arguments.db), request, bar=stage_bar)
    except (KeyboardInterrupt, Cancelled):
        again = command_line() + ("" if request.resume else " --resume")
        print(f"stopped; what was measured is kept. Continue with\n  {again}", file=sys.stderr)
        return 130
    for out, tuned in zip(request.out, found, strict=True):
        if arguments.json:
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


def _share(text: str, option: str) -> float:
    try:
        return float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)
    except ValueError as error:
        raise InputError(f"{option} is {text!r}", expected="a share such as 1% or 0.01") from error


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        values = tuple(int(part) for part in text.split(",") if part.strip() and text != "none")
    except ValueError as error:
        raise InputError(f"{option} is {text!r}", expected="whole numbers such as 2,32, or none") from error
    return tuple(sorted(set(values)))
