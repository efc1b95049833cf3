"""The default centroids on held-out text, fp32: perplexity under the hard mask beside every null baseline.

Baselines: full attention; window and sinks only (no groups); random centroids with potentials estimated on the
training texts. Intervals: 95 % bootstrap over sequences of the paired difference to full attention.

    python benchmarks/default_centroids.py --train FOLDER --val FILE --out benchmarks/results/default_centroids.json
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focus_explorer.training import gather_texts
from focus_runtime.bench import machine
from focus_runtime.calibrate import calibrate_potentials
from focus_runtime.checkpoint import Centroids, load_centroids, random_centroids
from focus_runtime.compose import compose
from focus_runtime.measure import dominance, final_hidden, pair_shares, token_nll
from focus_runtime.models import load_model
from focus_runtime.router import Assignment, CentroidRouter
from focus_runtime.sequences import encode_texts, even_sequences

SETTINGS = ((512, 64, 16), (1024, 128, 8))  # sequence length, window, sequences


class NoGroups(CentroidRouter):
    """A router that puts no token into any group: window and sinks are all that is left."""

    def assign(self, hidden: Tensor, **_: Any) -> Assignment:
        """Uniform probabilities and empty memberships."""
        shape = hidden.shape[:2]
        groups = self.config.num_groups
        return Assignment(
            torch.full((*shape, groups), 1 / groups), torch.zeros(shape, dtype=torch.int64), torch.zeros(groups)
        )


@torch.no_grad()
def losses(model: Any, sequences: Tensor) -> np.ndarray:
    """Mean negative log-likelihood of every sequence, in nats."""
    return np.array([token_nll(model, final_hidden(model, ids), ids).mean().item() for ids in sequences.split(1)])


@torch.no_grad()
def measure(model: Any, sequences: Tensor, full: np.ndarray, centroids: Centroids, **setting: Any) -> dict[str, Any]:
    """Perplexity with its interval, dominance and sparsity of one setting."""
    focus = compose(model, centroids, **setting)
    try:
        found, shares = [], []
        for ids in sequences.split(1):
            found.append(token_nll(model, final_hidden(model, ids), ids).mean().item())
            for assignment in focus.assignments().values():
                member = assignment.membership[0].numpy()
                kept = pair_shares(member, focus.config.window, focus.config.num_sinks)
                shares.append((dominance(assignment.probabilities), *kept))
    finally:
        focus.detach()
    difference = np.array(found) - full
    picks = np.random.default_rng(0).integers(0, len(full), (4000, len(full)))
    low, high = np.quantile(difference[picks].mean(axis=1), [0.025, 0.975])
    means = np.mean(shares, axis=0)
    return {
        "perplexity": math.exp(np.mean(found)), "difference_nats": float(difference.mean()),
        "difference_low": float(low), "difference_high": float(high), "dominance": float(means[0]),
        "retained_pairs": float(means[1]), "distant_kept": float(means[2]),
    }  # fmt: skip


def main() -> None:
    """Measure every setting and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", required=True)
    parser.add_argument("--val", required=True)
    parser.add_argument("--centroids", default="default")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    model, tokenizer = load_model("smollm2-135m")
    held_out = encode_texts(tokenizer, gather_texts([arguments.val], [])[0], 1024)
    training = encode_texts(tokenizer, gather_texts([arguments.train], [arguments.val])[0], 1024)
    trained = load_centroids(arguments.centroids)
    rows = []
    for length, window, count in SETTINGS:
        sequences = even_sequences(held_out, count, length)
        full = losses(model, sequences)
        base = {"sequence_length": length, "window": window, "scored_tokens": sequences.shape[0] * (length - 1)}
        rows.append({**base, "centroids": "full attention", "perplexity": math.exp(full.mean())})
        chance = random_centroids(model, trained.config.replace(window=window))
        calibrate_potentials(model, chance, even_sequences(training, 16, 512))
        nothing = random_centroids(model, trained.config)
        for index in nothing.routers:
            nothing.routers[index] = NoGroups(nothing.hidden_size, trained.config)
            nothing.routers[index].has_potential = True
        plans: list[tuple[str, Centroids, tuple[int, ...]]] = [
            ("window and sinks only", nothing, (1,)), ("random", chance, (1, 2)), ("default", trained, (1, 2))
        ]  # fmt: skip
        for name, centroids, tops in plans:
            for top_k in tops:
                found = measure(model, sequences, full, centroids, top_k=top_k, window=window)
                rows.append({**base, "centroids": name, "top_k": top_k, **found})
                print(rows[-1], flush=True)
        leak = measure(model, sequences, full, trained, top_k=1, window=window, assignment="sinkhorn")
        rows.append({**base, "centroids": "default, sinkhorn assignment", "top_k": 1, **leak})
    result = {"centroids_sha256": trained.sha256, "training": trained.training, "machine": machine(), "rows": rows}
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
