"""Losses of many sequences under one setting, kept apart per sequence so that settings can be compared in pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_runtime.composition.attach import FocusModel
from focus_runtime.errors import InputError
from focus_runtime.mask.distances import mean_of_some
from focus_runtime.measure.intervals import LEVEL, bootstrap_test, mean_interval, sign_flip_test, wilcoxon_test
from focus_runtime.measure.loss import check_positions, dominance, final_hidden, layer_shares, token_nll
from focus_runtime.models.devices import input_device

MANY_DOCUMENTS = 8  # from here on documents are resampled; an interval over fewer means little
MANY_SEEDS = 3


@dataclass(frozen=True, slots=True)
class Scores:
    """What one setting gave on a fixed list of sequences.

    Attributes:
        nll: (N,) float64, mean negative log-likelihood of every sequence, nats per token.
        scored: (N,) int64, tokens scored in each.
        dominance: (L,) share of a sequence's tokens whose most probable group is its largest, mean over sequences, by
            focused layer; empty without Focus.
        retained_pairs: (L,) allowed pairs over causal pairs.
        distant_kept: (L,) of the pairs beyond window and sinks, the share kept, mean over the heads that have some; NaN
            where none has.
    """

    nll: NDArray[np.float64]
    scored: NDArray[np.int64]
    dominance: NDArray[np.float64]
    retained_pairs: NDArray[np.float64]
    distant_kept: NDArray[np.float64]

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-likelihood over all scored tokens."""
        return math.exp(float(np.average(self.nll, weights=self.scored)))

    @property
    def mean_distant_kept(self) -> float | None:
        """Mean of `distant_kept` over the layers that have such pairs; None where none has."""
        return mean_of_some(self.distant_kept.tolist())


@torch.no_grad()
def score(model: Any, sequences: Tensor) -> Scores:
    """Score (N, T) sequences one at a time.

    Args:
        model: a Hugging Face causal language model as it is, or what `compose` returned (then under Focus).
        sequences: token ids.
    """
    focus = model if isinstance(model, FocusModel) else None
    network = model.model if focus is not None else model
    device = input_device(network)
    check_positions(network, sequences.shape[1])
    losses, counts = [], []
    shares: dict[int, list[tuple[float, float, float | None]]] = {}
    for row in sequences.split(1):
        ids = row.to(device)
        nll = token_nll(network, final_hidden(network, ids), ids).double()
        losses.append(nll.mean().item())
        counts.append(nll.numel())
        if focus is None:
            continue
        masks = focus.head_masks()
        for index, assignment in focus.assignments().items():
            row_shares = (dominance(assignment.probabilities), *layer_shares(masks[index]))
            shares.setdefault(index, []).append(row_shares)
    means = [[mean_of_some(column) for column in zip(*rows, strict=True)] for _, rows in sorted(shares.items())]
    columns = np.array(means, dtype=np.float64).reshape(-1, 3).T
    return Scores(np.array(losses), np.array(counts), columns[0], columns[1], columns[2])


def compare(
    full: Scores,
    focus: Scores | Sequence[Scores],
    *,
    documents: Sequence[Any] | None = None,
    level: float = LEVEL,
    seed: int = 0,
) -> dict[str, Any]:
    """Focus against full attention on the same sequences: perplexities, their difference, and how sure it is.

    Intervals are bootstrapped over documents where there are at least `MANY_DOCUMENTS`, otherwise over sequences, and
    over training seeds where several are given; `units` says which. P-values compare the units in pairs, with the
    losses of several seeds averaged first.

    Args:
        full: from `score` of the model as it is.
        focus: from `score` under Focus, or several of them, one for each training seed.
        documents: (N,) which document each sequence is from; all of one document when None.
        level: of the intervals.
        seed: of resampling.

    Returns:
        JSON-ready: perplexities and the difference in nats per token and relative, each with `value`, `low`, `high`
        (None when one unit allows no interval); `p_value` (sign flips, exact on few units) and the other tests; counts
        of documents, sequences, tokens and seeds; dominance and pairs, means over layers and seeds, of distant pairs
        over those that have some (None where none has); `notes`.

    Raises:
        InputError: the scores are not of the same sequences, or not of Focus.
    """
    runs = [focus] if isinstance(focus, Scores) else list(focus)
    _check_pairs(full, runs)
    labels = [0] * full.nll.size if documents is None else list(documents)
    if len(labels) != full.nll.size:
        raise InputError(f"{len(labels)} documents are named for {full.nll.size} sequences", expected="one for each")
    many = len(set(labels)) >= MANY_DOCUMENTS
    place = np.unique(labels, return_inverse=True)[1] if many else np.arange(full.nll.size)
    tokens = np.bincount(place, weights=full.scored)
    plain, *under_focus = (np.bincount(place, weights=run.nll * run.scored) / tokens for run in (full, *runs))
    table = np.array(under_focus)
    differences = table - plain
    settings: dict[str, Any] = {"level": level, "seed": seed}
    nats = mean_interval(differences, tokens, **settings)
    paired = differences.mean(axis=0) * tokens / tokens.mean()
    tests = {
        "sign_flip": sign_flip_test(paired, seed=seed),
        "bootstrap": bootstrap_test(paired, seed=seed),
        "wilcoxon": wilcoxon_test(differences.mean(axis=0)),
    }
    return {
        "full_perplexity": mean_interval(plain, tokens, **settings).through(math.exp).to_dict(),
        "focus_perplexity": mean_interval(table, tokens, **settings).through(math.exp).to_dict(),
        "difference_nats": nats.to_dict(),
        "relative_difference": nats.through(math.expm1).to_dict(),
        "level": level,
        "p_value": tests["sign_flip"],
        "tests": tests,
        "units": "documents" if many else "sequences",
        "documents": len(set(labels)),
        "sequences": int(full.nll.size),
        "tokens": int(full.scored.sum()),
        "seeds": len(runs),
        "dominance": float(np.mean([run.dominance.mean() for run in runs])),
        "highest_dominance": float(max(run.dominance.max() for run in runs)),
        "retained_pairs": float(np.mean([run.retained_pairs.mean() for run in runs])),
        "distant_kept": mean_of_some([run.mean_distant_kept for run in runs]),
        "notes": _notes(len(runs), len(set(labels)), place.max() + 1),
    }


def _check_pairs(full: Scores, runs: list[Scores]) -> None:
    if not runs or any(run.dominance.size == 0 for run in runs):
        raise InputError("there are no scores under Focus to compare", expected="what score(compose(...), ...) gave")
    for run in runs:
        if not np.array_equal(run.scored, full.scored):
            raise InputError(
                f"the scores are of {run.nll.size} and {full.nll.size} sequences, or of different lengths",
                expected="the same sequences in the same order",
            )


def _notes(seeds: int, documents: int, units: int) -> list[str]:
    """What the intervals and p-values do not cover."""
    notes = []
    if units == 1:
        notes.append("1 sequence: no interval and no test is possible; give more text")
    if documents < MANY_DOCUMENTS:
        count = "1 document" if documents == 1 else f"{documents} documents"
        notes.append(f"sequences of {count} were resampled: the intervals do not speak for other documents")
    if seeds < MANY_SEEDS:
        count = "1 training seed" if seeds == 1 else f"{seeds} training seeds"
        notes.append(f"{count}: give centroids of at least {MANY_SEEDS} to cover what training leaves to chance")
    return notes
