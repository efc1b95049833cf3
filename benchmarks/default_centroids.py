"""The default centroids on held-out text: perplexity under the hard mask and under every null baseline.

Baselines: full attention; window and sinks only (no groups); random centroids with potentials balanced on the training
texts. Intervals: 95 % over sequences, in pairs with full attention. Also: the largest group by layer, full attention's
probability that the mask keeps, and what the groups contain.

    python benchmarks/default_centroids.py --train FOLDER --val FILE --out benchmarks/results/default_centroids.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from focus_explorer.usecases.training.texts import gather_texts
from focus_runtime.composition.attach import compose
from focus_runtime.measure.attention_mass import attention_mass_kept
from focus_runtime.measure.perplexity import Scores, compare, score
from focus_runtime.measure.timing import machine
from focus_runtime.models.loading import load_model
from focus_runtime.routing.centroid_file import load_centroids
from focus_runtime.routing.centroids import Centroids, no_groups
from focus_runtime.run.random_baseline import STATISTICS_SEED, random_baseline
from focus_runtime.text.sequences import encode_texts, even_sequences
from paper.lab.group_content import group_content, routed_text
from paper.reports.balance import group_balance

SETTINGS = ((1024, 128, 12), (512, 64, 12), (4096, 128, 2))  # sequence length, window, sequences
MASS_SEQUENCES = 3


def measure(model: Any, sequences: Tensor, full: Scores, centroids: Centroids, **setting: Any) -> dict[str, Any]:
    """Perplexity with its interval, dominance and sparsity of one setting."""
    focus = compose(model, centroids, **setting)
    try:
        return compare(full, score(focus, sequences))
    finally:
        focus.detach()


def mass(model: Any, sequences: Tensor, centroids: Centroids, **setting: Any) -> dict[str, Any]:
    """Share of full attention's probability inside the mask: mean, by layer, and the least head."""
    focus = compose(model, centroids, **setting)
    try:
        result = attention_mass_kept(focus, sequences)
    finally:
        focus.detach()
    return {
        "mean": float(result.kept.mean()),
        "by_layer": result.kept.mean(axis=1).tolist(),
        "least_head": float(result.kept.min()),
        "distant": float(np.nanmean(result.distant_kept)),
        "sequences": sequences.shape[0],
    }


def main() -> None:
    """Measure every setting and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", required=True)
    parser.add_argument("--val", required=True)
    parser.add_argument("--centroids", default="default")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    model, tokenizer = load_model("smollm2-135m", dtype=arguments.dtype)
    held_out_texts = gather_texts([arguments.val], [])[0]
    held_out = encode_texts(tokenizer, held_out_texts, 1024)
    training = encode_texts(tokenizer, gather_texts([arguments.train], [arguments.val])[0], 1024)
    trained = load_centroids(arguments.centroids)
    result: dict[str, Any] = {
        "centroids_sha256": trained.sha256,
        "training": trained.training,
        "machine": machine(),
        "dtype": arguments.dtype,
        "rows": [],
    }
    groups = trained.config.num_groups
    for length, window, count in SETTINGS:
        sequences = even_sequences(held_out, count, length)
        full = score(model, sequences)
        random = random_baseline(
            model,
            trained.config.replace(window=window),
            seed=STATISTICS_SEED,
            calibrate_on=even_sequences(training, 16, 512),
        )
        tops = tuple(k for k in (1, 2, 3, 4) if k <= groups)
        few = length > 2048
        plans: list[tuple[str, Centroids, tuple[int, ...], str]] = [
            ("default", trained, (1, 2) if few else tops, "causal"),
            ("window and sinks only", no_groups(trained), (1,), "causal"),
            ("random", random, (1,) if few else (1, 2), "causal"),
            ("default", trained, () if few else (1,), "sinkhorn"),
        ]
        for name, centroids, ks, assignment in plans:
            for top_k in ks:
                numbers = measure(model, sequences, full, centroids, top_k=top_k, window=window, assignment=assignment)
                row = {
                    "centroids": name,
                    "top_k": top_k,
                    "assignment": assignment,
                    "sequence_length": length,
                    "window": window,
                    **numbers,
                }
                if length == 1024 and assignment == "causal":
                    few_rows = sequences[:MASS_SEQUENCES]
                    row["mass"] = mass(model, few_rows, centroids, top_k=top_k, window=window)
                result["rows"].append(row)
                print(
                    length,
                    name,
                    top_k,
                    assignment,
                    numbers["focus_perplexity"],
                    numbers["relative_difference"],
                    flush=True,
                )
    sequences = even_sequences(held_out, SETTINGS[0][2], 1024)
    result["balance"] = group_balance(model, trained, sequences)
    routed = routed_text(model, tokenizer, trained, held_out_texts[0], length=1024, count=8, top_k=1)
    result["groups"] = group_content(routed)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
