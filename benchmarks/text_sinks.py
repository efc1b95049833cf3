"""What the loss of Focus owes to sinks beyond the first tokens: tokens whose hidden states look like the first token's.

A model puts much attention on few tokens of enormous hidden states. The first tokens are kept by `num_sinks`; others
stand where the text puts them: composition/groups.py finds them. Beside it the files as they are, on the same
sequences.

    python benchmarks/text_sinks.py TEXTS --out benchmarks/results/text_sinks.json
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

from benchmarks.domains import cut, domains
from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.measure.loss import final_hidden, layer_shares, token_nll
from focus_runtime.measure.timing import machine
from focus_runtime.models.loading import load_model
from focus_runtime.routing.centroid_file import load_centroids


@torch.no_grad()
def measured(focus: FocusModel, sequences: Tensor, similarity: float | None) -> dict[str, Any]:
    """Mean loss in nats, share of pairs, and sinks at the last layer, over some sequences."""
    losses, pairs, counts = [], [], []
    with focus.with_config(focus.config.replace(text_sinks=similarity)):
        for ids in sequences.split(1):
            losses.append(_loss(focus.model, ids))
            pairs.append(np.mean([layer_shares(masks)[0] for masks in focus.head_masks().values()]))
            found = focus.found_sinks.by_layer
            counts.append(0 if similarity is None or not found else int(found[max(found)].sum()))
    return {"nll": float(np.mean(losses)), "retained_pairs": float(np.mean(pairs)), "sinks": float(np.mean(counts))}


def main() -> None:
    """Measure every domain, write after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", type=Path)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--file", action="append", metavar="NAME")
    parser.add_argument("--similarity", type=float, action="append")
    parser.add_argument("--sequences", type=int, default=2)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    files, similarities = arguments.file or ["default"], arguments.similarity or [0.95, 0.85]
    model, tokenizer = load_model(arguments.model)
    result: dict[str, Any] = {"machine": machine(), "length": arguments.length, "domains": {}}
    result |= {"sequences": arguments.sequences, "what": f"{arguments.model}, perplexity against full attention"}
    for split, name, texts in domains(arguments.texts):
        sequences = cut(tokenizer, texts, arguments.sequences, arguments.length)
        rows: dict[str, Any] = {}
        for file in files:
            focus = compose(model, load_centroids(file))
            with focus.measured_full_attention():
                full = float(np.mean([_loss(model, ids) for ids in sequences.split(1)]))
            for similarity in (None, *similarities):
                row = measured(focus, sequences, similarity)
                row["relative_difference"] = math.expm1(row.pop("nll") - full)
                rows[file if similarity is None else f"{file}, sinks from {similarity}"] = row
            focus.detach()
        result["domains"][f"{split}/{name}"] = {"full_perplexity": math.exp(full), "rows": rows}
        print(
            f"{split}/{name:12} "
            + "  ".join(
                f"{key}: {100 * row['relative_difference']:+.2f} % at {100 * row['retained_pairs']:.1f} % of pairs"
                + (f" ({row['sinks']:.1f})" if row["sinks"] else "")
                for key, row in rows.items()
            ),
            flush=True,
        )
        if arguments.out is not None:
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            arguments.out.write_text(json.dumps(result, indent=1) + "\n")


@torch.no_grad()
def _loss(model: Any, ids: Tensor) -> float:
    return float(token_nll(model, final_hidden(model, ids), ids).double().mean())


if __name__ == "__main__":
    main()
