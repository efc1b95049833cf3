"""`focus-explorer doctor`: whether an attention patch computes what it should on a model."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from focus_explorer.cli.options import add_device, command_line
from focus_explorer.errors import InputError
from focus_explorer.progress import stage_bar
from focus_explorer.settings import SETTINGS


def add_options(parser: argparse.ArgumentParser) -> None:
    """The model or the families, and the attention that is examined."""
    parser.add_argument(
        "model",
        nargs="?",
        default=SETTINGS["model"].default,
        metavar="MODEL",
        help=f"a model by name, hub id, folder or .gguf file (default: {SETTINGS['model'].default})",
    )
    parser.add_argument(
        "--attention",
        default="focus",
        metavar="[MODULE:]NAME",
        help="focus, or an implementation registered with transformers' AttentionInterface, such as sdpa; MODULE is "
        "imported first, from the working directory too (default: focus)",
    )
    parser.add_argument("--tokens", type=int, default=24, help="length of the texts (default: 24)")
    parser.add_argument(
        "--families",
        nargs="*",
        metavar="NAME",
        help="examine tiny random models of these families instead, by transformers' names; all when none is named",
    )
    parser.add_argument("--out", metavar="FILE", help="with --families: write the findings as a page in Markdown")
    add_device(parser)
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Examine, print what was found, and return 1 where something differs or fails."""
    if arguments.out and arguments.families is None:
        raise InputError("--out is given without --families", fix="add --families, or leave out --out")
    if arguments.families is not None:
        return _families(arguments)
    from focus_explorer.usecases.evaluate import examine

    with stage_bar() as progress:
        report = examine(
            arguments.model,
            attention=arguments.attention,
            tokens=arguments.tokens,
            device=arguments.device,
            progress=progress,
        )
    print(json.dumps(report.to_dict(), allow_nan=False) if arguments.json else "\n".join(report.lines()))
    return 0 if report.healthy else 1


def _families(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from focus_explorer.usecases.evaluate import examine_families, write_page

    rows = []
    for row in examine_families(arguments.families, arguments.attention):
        rows.append(row)
        shown = sys.stderr if arguments.json else sys.stdout
        print(f"{row.family:<24} {row.outcome:<9} {row.reason}", file=shown, flush=True)
    if arguments.json:
        print(json.dumps({"families": [{**asdict(row), "outcome": row.outcome} for row in rows]}))
    if arguments.out:
        write_page(Path(arguments.out).expanduser(), rows, command_line())
    return 1 if any(row.outcome in ("differs", "error") for row in rows) else 0
