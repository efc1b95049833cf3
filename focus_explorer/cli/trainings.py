"""`focus-explorer trainings`: the list of recorded trainings."""

from __future__ import annotations

import argparse
import json

from focus_explorer.cli.options import add_settings


def add_options(parser: argparse.ArgumentParser) -> None:
    """Database and form of the list."""
    add_settings(parser, "db")
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Print the list."""
    from focus_explorer.usecases.service import Service
    from focus_explorer.usecases.training.processes import Trainings

    rows = Trainings(Service(arguments.db)).rows()
    if arguments.json:
        print(json.dumps(rows, ensure_ascii=False, default=str))
        return
    if not rows:
        print("no trainings yet; `focus-explorer train --text FILE --out NAME.safetensors` makes one")
    for row in rows:
        numbers = ""
        if row["loss"] is not None:
            numbers = f"  loss {row['loss']:.3f}  perplexity {row['perplexity']:.2f}"
        if row["dominance"] is not None:
            numbers += f"  largest group {row['dominance']:.0%}  pairs kept {row['retained_pairs']:.0%}"
        print(
            f"{row['training_id']}  {row['status']:<11}  {row['name']}  {row['model_id']}  "
            f"step {row['step']:,} of {row['steps']:,}{numbers}"
        )
