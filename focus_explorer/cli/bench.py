"""`focus-explorer bench`: speed and perplexity of Focus and of full attention on this machine."""

from __future__ import annotations

import argparse

from focus_explorer.cli.options import add_focus_settings, add_settings
from focus_explorer.errors import InputError
from focus_explorer.services.bench import bench


def add_options(parser: argparse.ArgumentParser) -> None:
    """Lengths, settings and the output folder."""
    add_settings(parser, "model", "centroids")
    parser.add_argument("--text", help="a UTF-8 text file (default: the sample texts)")
    parser.add_argument(
        "--lengths", default="512,1024,2048", help="tokens for the whole model (default: 512,1024,2048)"
    )
    parser.add_argument(
        "--layer-lengths",
        default="1024,2048,4096,8192,16384",
        help="tokens for one attention layer (default: 1024,2048,4096,8192,16384)",
    )
    add_focus_settings(parser, assignment=False)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="(default: float32)")
    parser.add_argument("--repeats", type=int, default=5, help="timed repeats after one to warm up (default: 5)")
    parser.add_argument("--seed", type=int, default=0, help="of the one layer's random inputs (default: 0)")
    parser.add_argument(
        "--out", default="benchmarks/results", help="folder for bench.json and bench.svg (default: benchmarks/results)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure and write the result."""
    if arguments.repeats < 1:
        raise InputError(f"--repeats is {arguments.repeats}", expected="at least 1")
    if not 0 <= arguments.seed < 1 << 32:
        raise InputError(f"--seed is {arguments.seed}", expected=f"a whole number from 0 to {(1 << 32) - 1:,}")
    bench(arguments)
