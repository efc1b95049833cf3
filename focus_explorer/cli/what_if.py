"""`focus-explorer what-if`: a run with changes made by hand against the same run without them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from math import exp
from typing import Any

from focus_explorer.cli.options import add_changes, add_settings, command_line
from focus_explorer.errors import InputError
from focus_explorer.progress import stage_bar
from focus_explorer.words import counted, ends


def add_options(parser: argparse.ArgumentParser) -> None:
    """The run, the changes, and whether the changed run is stored."""
    parser.add_argument("run_id", metavar="RUN", help="a run, as listed by `runs`")
    add_changes(parser)
    parser.add_argument("--save", action="store_true", help="also analyse the text with the changes and store that run")
    add_settings(parser, "db")
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure the changed run, store it where asked, and print what follows."""
    from focus_explorer.usecases.compare.what_if import WhatIfs, save_changed
    from focus_explorer.usecases.service import Service

    if not arguments.set:
        raise InputError("no change was given", expected="at least one --set, such as --set full:12")
    service = Service(arguments.db)
    with stage_bar() as progress:
        found: dict[str, Any] = dict(service.part(WhatIfs).measure(arguments.run_id, arguments.set, progress=progress))
    if arguments.save:
        with stage_bar() as progress:
            found["saved"] = save_changed(
                service, arguments.run_id, arguments.set, command=command_line(), progress=progress
            )
    if arguments.json:
        print(json.dumps({"run_id": arguments.run_id, "set": arguments.set, **found}, allow_nan=False))
    else:
        print("\n".join(describe(found)))


def describe(found: Mapping[str, Any]) -> list[str]:
    """What follows, as lines of text.

    Args:
        found: as `WhatIfs.measure` returns it, and `saved` where the run was stored.
    """
    full, before, after = (exp(found[f"nll_{name}"]) for name in ("full", "before", "after"))
    difference, count = found["difference"], found["num_tokens"]
    lines = [
        f"perplexity             {before:.3f} without the changes, {after:.3f} with them ({after / before - 1:+.2%}); "
        f"full attention {full:.3f}; first {counted(count, 'token')}",
        f"loss                   {difference['mean']:+.5f} nats per token "
        f"({ends(difference['low'], difference['high'], '+.5f')})",
        f"most probable token    another one at {len(found['other_top']):,} of {counted(count - 1, 'place')}",
        f"{'layer':>5}  {'tokens in another group':>23}  {'pairs kept before':>17}  {'after':>6}",
    ]
    lines += [
        f"{layer['layer']:>5}  {layer['moved']:>23,}  {layer['kept_before']:>17.1%}  {layer['kept_after']:>6.1%}"
        for layer in found["layers"]
    ]
    if "saved" in found:
        lines.append(f"saved as               {found['saved']}")
    return lines
