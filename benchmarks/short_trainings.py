"""Short trainings from random centroids that benchmarks compare: their texts, settings, files and scores."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.domains import cut
from focus_runtime.composition.attach import FocusModel
from focus_runtime.config import FocusConfig
from focus_runtime.fit.calibrate import calibrate_potentials
from focus_runtime.fit.centroids import train_centroids
from focus_runtime.fit.inputs import TextDomain
from focus_runtime.fit.settings import TrainConfig
from focus_runtime.measure.intervals import mean_interval, sign_flip_test
from focus_runtime.measure.perplexity import Scores, score
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from focus_runtime.routing.centroids import Centroids

MODEL = "smollm2-135m"
TRAINED = ("novels", "python", "manual-fr", "changelogs")
UNSEEN = ("shell", "manual-de")  # tested on, never trained on
MIXTURE, RANDOM = "mixture", "random"
CALIBRATION = 16  # sequences
GROUPS, WINDOW, TRAIN_WINDOW, TEXT_SINKS = 8, 128, 64, 0.85
CONFIG = FocusConfig(num_groups=GROUPS, routing_dim=16, top_k=1, window=WINDOW, num_sinks=4, text_sinks=TEXT_SINKS)


def training_texts(texts: Path, domain: str) -> list[TextDomain]:
    """The training texts of one domain, or of all of them in equal parts."""
    names = TRAINED if domain == MIXTURE else (domain,)
    return [TextDomain(name, _read(texts / "train" / name)) for name in names]


def held_out(tokenizer: Any, texts: Path, count: int, length: int) -> dict[str, Tensor]:
    """(N, T) token ids of every tested domain."""
    folders = {name: texts / "validation" / name for name in TRAINED} | {
        name: texts / "unseen" / name for name in UNSEEN
    }
    return {name: cut(tokenizer, _read(folder), count, length) for name, folder in folders.items()}


def _read(folder: Path) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))]


def trained(
    model: Any,
    tokenizer: Any,
    domains: list[TextDomain],
    settings: TrainConfig,
    file: Path,
    balance_on: Callable[[], Tensor],
    inference: FocusConfig | None = None,
) -> Centroids:
    """Centroids from their file, which is trained and written if it is not there.

    Args:
        model, tokenizer: the frozen model.
        domains: trained on.
        settings: of the training.
        file: to write; beside it a checkpoint while it is trained.
        balance_on: gives (N, T) token ids on which potentials are estimated.
        inference: settings of the last steps on the hard mask.
    """
    if not file.exists():
        kept, balance = file.with_suffix(".checkpoint"), balance_on()
        made = train_centroids(
            model,
            tokenizer,
            domains,
            CONFIG.replace(window=TRAIN_WINDOW),
            settings,
            model_id=MODEL,
            inference=inference,
            checkpoint=kept,
            resume=kept.exists(),
        )
        made.config = CONFIG
        calibrate_potentials(model, made, balance)  # at the length and window of use
        save_centroids(made, file)
        kept.unlink(missing_ok=True)
    return load_centroids(file)


def calibration(tokenizer: Any, texts: Path, domain: str, length: int) -> Tensor:
    """(16, T) token ids of a domain's training text, or of all of them."""
    parts = training_texts(texts, domain)
    return torch.cat([cut(tokenizer, part.texts, CALIBRATION // len(parts), length) for part in parts])


def measured(focus: FocusModel, sequences: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Scores of every domain, and (L, N T) most probable groups of its tokens."""
    rows, tops = {}, {}
    for name, domain in sequences.items():
        scores, groups = [], []
        for ids in domain.split(1):
            scores.append(score(focus, ids))
            assigned = sorted(focus.assignments().items())
            groups.append(np.stack([one.probabilities[0].argmax(-1).to(torch.uint8).numpy() for _, one in assigned]))
        rows[name] = _row(scores)
        tops[name] = np.concatenate(groups, axis=1)
    return rows, tops


def _row(scores: list[Scores]) -> dict[str, Any]:
    means = {
        name: float(np.mean([getattr(one, name).mean() for one in scores]))
        for name in ("retained_pairs", "distant_kept", "dominance")
    }
    return {"nll": [round(float(one.nll[0]), 5) for one in scores]} | means


def full_losses(model: Any, sequences: dict[str, Tensor]) -> dict[str, list[float]]:
    """Nats per token of every sequence under full attention, by domain."""
    return {name: [round(float(value), 5) for value in score(model, ids).nll] for name, ids in sequences.items()}


def difference(first: NDArray[np.float64], second: NDArray[np.float64]) -> dict[str, Any]:
    """Paired difference of (S, N) losses: mean over seeds and sequences, with its interval and the test by sign flips.

    Seeds are paired too where both have the same number of them; otherwise the second is averaged over its own.
    """
    table = first - (second if first.shape == second.shape else second.mean(axis=0))
    return mean_interval(table).to_dict() | {"p_value": sign_flip_test(table.mean(axis=0))}


def study_options(parser: argparse.ArgumentParser, sequences: int) -> None:
    """Options of a benchmark that trains files.

    Args:
        parser: gets them.
        sequences: scored of every domain, unless told.
    """
    parser.add_argument("texts", type=Path, help="what `focus-explorer texts` wrote")
    parser.add_argument("--files", type=Path, help="where centroids and groups are kept")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--train-length", type=int, default=512)
    parser.add_argument("--sequences", type=int, default=sequences, help="scored of every domain")
    parser.add_argument("--length", type=int, default=1024, help="their tokens")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, help="print a result and measure nothing")
