"""`focus-explorer heads`: what the mask costs head by head."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from focus_explorer.cli.options import add_settings
from focus_explorer.errors import InputError
from focus_explorer.progress import stage_bar
from focus_explorer.words import counted


def add_options(parser: argparse.ArgumentParser) -> None:
    """The run, and how many heads are measured."""
    parser.add_argument("run_id", metavar="RUN", help="a run, as listed by `runs`")
    parser.add_argument(
        "--verify", type=int, default=10, metavar="N", help="heads measured, those with the largest estimates"
    )
    add_settings(parser, "db")
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure the heads, store what was found and print it."""
    from focus_explorer.usecases.compare.costs import measure_heads
    from focus_explorer.usecases.runs import check_run
    from focus_explorer.usecases.service import Service

    if arguments.verify < 0:
        raise InputError(f"--verify is {arguments.verify}", expected="a number of heads, or 0 for estimates alone")
    service = Service(arguments.db)
    check_run(service.database, arguments.run_id)
    with stage_bar() as progress:
        found = measure_heads(service, arguments.run_id, verify=arguments.verify, progress=progress)
    if arguments.json:
        print(json.dumps({"run_id": arguments.run_id, **found}, allow_nan=False))
    else:
        print("\n".join(describe(found)))


def describe(found: Mapping[str, Any]) -> list[str]:
    """The heads as lines of text, measured ones first.

    Args:
        found: what was measured.
    """
    full, focus = found["nll_full"], found["nll_focus"]
    lines = [
        f"{counted(found['num_tokens'], 'token')}: {full:.4f} nats with full attention, {focus:.4f} with Focus",
        "with full attention in one key-value head alone:",
        f"{'layer':>5} {'head':>4}  {'measured':>8}  {'estimated':>9}  {'mass dropped':>12}",
    ]
    for head in found["heads"][:20]:
        measured = "" if head["nll"] is None else f"{head['nll'] - focus:+.4f}"
        dropped = "" if head["dropped"] is None else f"{head['dropped']:.1%}"
        lines.append(f"{head['layer']:>5} {head['head']:>4}  {measured:>8}  {head['estimated']:>+9.4f}  {dropped:>12}")
    return lines
