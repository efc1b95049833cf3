"""`focus-explorer explain`: which dropped pairs made Focus predict a token worse."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from focus_explorer.cli.options import add_settings
from focus_explorer.progress import stage_bar
from focus_explorer.words import counted


def add_options(parser: argparse.ArgumentParser) -> None:
    """The run and the token."""
    parser.add_argument("run_id", metavar="RUN", help="a run, as listed by `runs`")
    parser.add_argument(
        "--token", type=int, metavar="N", help="position of the predicted token; default: the one hurt most"
    )
    add_settings(parser, "db")
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Explain the token, store what was found and print it."""
    from focus_explorer.usecases.compare.costs import explain_token, most_hurt
    from focus_explorer.usecases.runs import check_run, token_pieces
    from focus_explorer.usecases.service import Service

    service = Service(arguments.db)
    check_run(service.database, arguments.run_id)
    token = most_hurt(service, arguments.run_id) if arguments.token is None else arguments.token
    with stage_bar() as progress:
        found = explain_token(service, arguments.run_id, token, progress=progress)
    if arguments.json:
        print(json.dumps({"run_id": arguments.run_id, **found}, ensure_ascii=False, allow_nan=False))
    else:
        print("\n".join(describe(found, token_pieces(service.database, arguments.run_id))))


def describe(found: Mapping[str, Any], pieces: list[str]) -> list[str]:
    """The links as lines of text.

    Args:
        found: what was measured of the token.
        pieces: of all tokens.
    """
    token, focus, full = found["token"], found["nll_focus"], found["nll_full"]
    lines = [f"token {token} {pieces[token]!r}: {full:.2f} nats with full attention, {focus:.2f} with Focus"]
    verified = [link for link in found["links"] if link["nll"] is not None]
    if not verified:
        return [*lines, f"none of {counted(found['dropped_pairs'], 'dropped pair')} would have helped"]
    lines.append(
        f"of {counted(found['dropped_pairs'], 'dropped pair')}, those that promise most, each added by itself:"
    )
    lines.append(f"{'layer':>5} {'head':>4}  {'change':>7} {'predicted':>9}  {'share':>5}  random  from -> to")
    for link in verified:
        change = (link["nll"] or 0.0) - focus
        random = {True: "kept", False: "-", None: "?"}[link["random_keeps"]]
        ends = f"{link['query']} {pieces[link['query']]!r} -> {link['key']} {pieces[link['key']]!r}"
        lines.append(
            f"{link['layer']:>5} {link['head']:>4}  {change:>+7.3f} {link['predicted']:>+9.3f}  "
            f"{link['probability']:>5.2f}  {random:<6}  {ends}"
        )
    together = found["nll_together"]
    if together is not None:
        lines.append(f"all {len(verified)} at once: {together:.2f} nats, {_explained(full, focus, together)}")
    return lines


def _explained(full: float, focus: float, together: float) -> str:
    """What the links gain beside what Focus loses, in nats."""
    lost, gained = focus - full, focus - together
    if lost <= 0:
        return f"{gained:.2f} less, although Focus does not predict this token worse"
    if gained > lost:
        return f"{gained:.2f} less: more than the {lost:.2f} that Focus loses"
    return f"which explains {gained:.2f} of the {lost:.2f} nats that Focus loses"
