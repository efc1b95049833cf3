"""`focus-explorer reproduce`: the paper's tables and figures on the user's model and text."""

from __future__ import annotations

import argparse
import sys

from focus_explorer.errors import TrainingStopped
from paper.reports.names import OWN, PAPER, RECIPES, REPORTS


def add_options(parser: argparse.ArgumentParser) -> None:
    """Reports, scale, texts and folders."""
    parser.description = "Reports: " + "; ".join(f"{name} ({what})" for name, (_, what) in REPORTS.items())
    parser.add_argument(
        "names",
        nargs="+",
        choices=[*REPORTS, "all"],
        metavar="REPORT",
        help=f"of the paper, by its names: {', '.join(PAPER)}; of our own: {', '.join(OWN)}; or all",
    )
    parser.add_argument(
        "--scale", default="tiny", help="tiny (minutes), small (two cores, hours) or paper (GPUs); (default: tiny)"
    )
    parser.add_argument(
        "--text",
        nargs="+",
        action="extend",
        default=[],
        help="training texts: files, or folders of .txt files (default for tiny: the sample texts)",
    )
    parser.add_argument(
        "--val", nargs="+", action="extend", default=[], help="held-out text; left out of --text folders"
    )
    parser.add_argument(
        "--recipe",
        nargs="+",
        choices=RECIPES,
        default=list(RECIPES),
        metavar="RECIPE",
        help="how centroids are trained and used: paper, as published, ours, or both side by side (default: both)",
    )
    parser.add_argument(
        "--plan", action="store_true", help="say what would be measured, what is there, how long it takes"
    )
    parser.add_argument("--again", action="store_true", help="measure reports again that are written already")
    parser.add_argument("--model", help="model name, folder or file (default: the scale's)")
    parser.add_argument("--steps", type=int, help="steps of each training of centroids (default: the scale's)")
    parser.add_argument("--seeds", type=int, help="seeds of each training of centroids (default: the scale's)")
    parser.add_argument(
        "--domain",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=TEXT",
        help="further kinds of text for `domains`: a file, or a folder of .txt files; the last fifth is held out",
    )
    parser.add_argument("--out", help="folder to write to (default: reproduced/SCALE)")
    parser.add_argument("--work", help="folder for trained centroids and tasks (default: work/ under --out)")
    parser.add_argument("--device", help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure the reports and write them; returns the exit status."""
    from paper.reports.run import reproduce

    try:
        reproduce(arguments)
    except (KeyboardInterrupt, TrainingStopped):
        print(
            "stopped; reports written so far and trained centroids are kept, the same command resumes", file=sys.stderr
        )
        return 130
    return 0
