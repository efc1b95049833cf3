"""`focus-explorer finetune`: all weights of a model trained with Focus, or its twin with full attention."""

from __future__ import annotations

import argparse

from focus_explorer.cli.train import add_training_options
from focus_explorer.usecases.training.request import OF_REGIME


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `train` that go with weights, and those of the regime."""
    parser.description = (
        "two-phase: centroids first, then all weights with them. from-scratch: weights and centroids from "
        "random initialisation. --twin trains with full attention on the same data in the same order."
    )
    out = "folder to write the model and its centroids to"
    add_training_options(parser, "finetune", out, OF_REGIME | {"regime": "two-phase"})
    parser.set_defaults(db=None, no_db=True)
