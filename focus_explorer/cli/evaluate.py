"""`focus-explorer evaluate`: held-out perplexity and benchmark tasks with Focus and with full attention."""

from __future__ import annotations

import argparse

from focus_explorer.cli.options import add_focus_settings, add_settings
from focus_explorer.services.evaluate import evaluate, make_task


def add_options(parser: argparse.ArgumentParser) -> None:
    """Texts, tasks and settings, and the action that writes tasks."""
    add_settings(parser, "model")
    parser.add_argument(
        "--centroids",
        nargs="+",
        default=["default"],
        help="default, or centroid files; several that "
        "differ in their training seed give intervals over seeds (default: default)",
    )
    parser.add_argument("--text", nargs="+", help="held-out text files, or folders of .txt files")
    parser.add_argument("--seq-len", type=int, default=1024, help="tokens of a sequence (default: 1024)")
    parser.add_argument("--sequences", type=int, default=24, help="sequences over all texts (default: 24)")
    parser.add_argument(
        "--tasks", help="lm-eval tasks such as lambada_openai,hellaswag (default: all of --task-folder)"
    )
    parser.add_argument("--task-folder", help="folder with lm-eval task files of your own")
    parser.add_argument("--limit", type=int, help="only the first so many items of each task")
    parser.add_argument("--batch", type=int, default=1, help="task requests at once (default: 1)")
    add_focus_settings(parser)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="(default: float32)")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda where there is a GPU (default: cpu)")
    parser.add_argument("--seed", type=int, default=0, help="of resampling (default: 0)")
    parser.add_argument("--out", help="JSON file to write")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(dest="action", parser_class=type(parser))
    make = actions.add_parser("make-task", help="write last-word tasks made from plain text, for use without a network")
    make.add_argument("--text", nargs="+", required=True, help="text files, or folders of .txt files")
    make.add_argument("--out", required=True, help="folder to make")
    add_settings(make, "model")
    make.add_argument("--lengths", default="96,512,1024", help="most tokens of a passage (default: 96,512,1024)")
    make.add_argument("--items", type=int, default=100, help="passages of each length (default: 100)")
    make.add_argument(
        "--window",
        type=int,
        default=128,
        help="in passages longer than this, the word occurred before but not within so many tokens (default: 128)",
    )
    make.add_argument("--seed", type=int, default=0, help="which passages are taken (default: 0)")
    make.add_argument("--json", action="store_true", help="print one JSON object")
    make.set_defaults(run=_make_task)


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    evaluate(arguments)


def _make_task(arguments: argparse.Namespace) -> None:
    make_task(arguments)
