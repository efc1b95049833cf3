"""Long runs for measuring the page, written through the store like any other run; no model is needed.

The text is the shipped novel over and over; groups drift slowly along the text, as those of a real run do, so that
masks, maps and flows have something to show. Nothing here is a result.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from focus_explorer.usecases.texts import sample_text
from focus_runtime.budget import HeadGroup, HeadSetting
from focus_runtime.config import FocusConfig
from focus_runtime.mask.rule import PairRule
from focus_runtime.run.trace import HeadTrace, LayerTrace, Timing, Trace
from focus_runtime.store.database import Database
from focus_runtime.store.runs import write_run
from focus_runtime.text.tokens import TokenizedText

LAYERS, KV_HEADS, ROUTING_DIM = 30, 3, 16
TABLES = ("tokens", "assignments", "masks", "layers", "losses", "timings", "runs")


def text_of(num_tokens: int) -> TokenizedText:
    """`num_tokens` word pieces of a long text."""
    pieces: list[str] = []
    while len(pieces) < num_tokens:
        pieces += re.findall(r" ?\w{1,7}|\s+|[^\w\s]", sample_text("Novel") + "\n\n")
    pieces = pieces[:num_tokens]
    ends = np.cumsum([len(piece) for piece in pieces]).tolist()
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    return TokenizedText(
        "".join(pieces), [vocabulary[piece] for piece in pieces], pieces, [0, *ends[:-1]], ends, num_tokens
    )


def layer_of(number: int, ids: NDArray[np.int64], config: FocusConfig, generator: np.random.Generator) -> LayerTrace:
    """Groups by token and by slowly drifting subject."""
    count, groups = ids.size, config.num_groups
    by_token = generator.normal(0, 1.5, (int(ids.max()) + 1, groups))[ids]
    phase = np.linspace(0, 6 * np.pi, count)[:, None] + generator.uniform(0, 2 * np.pi, groups)
    logits = by_token + np.sin(phase) + generator.normal(0, 0.7, (count, groups))
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    order = np.argsort(-probabilities, axis=1)[:, : config.top_k]
    membership = np.bitwise_or.reduce(np.int64(1) << order, axis=1)
    every_head = HeadGroup(HeadSetting(config.top_k, config.window), tuple(range(KV_HEADS)))
    return LayerTrace(
        layer=number,
        attention_kind="LlamaAttention",
        membership=membership,
        probabilities=probabilities,
        routing=generator.normal(0, 1, (count, ROUTING_DIM)).astype(np.float32),
        centroids=generator.normal(0, 1, (groups, ROUTING_DIM)).astype(np.float32),
        potential=np.zeros(groups, np.float32),
        heads=(HeadTrace(every_head, PairRule(config.window, config.num_sinks), membership),),
    )


def write_long_run(database: Database, num_tokens: int, *, num_groups: int = 8, seed: int = 0) -> str:
    """Store one run of `num_tokens` tokens and 30 layers.

    Returns:
        Its id.
    """
    generator = np.random.default_rng(seed)
    config = FocusConfig(num_groups=num_groups, top_k=1, window=128, routing_dim=ROUTING_DIM)
    tokens = text_of(num_tokens)
    ids = np.array(tokens.ids, dtype=np.int64)
    layers = [layer_of(number, ids, config, generator) for number in range(LAYERS)]
    full = generator.gamma(2.0, 1.5, num_tokens - 1)
    nll = {"full": full, "focus": np.clip(full + generator.normal(0.02, 0.3, num_tokens - 1), 0, None)}
    timings = [
        Timing(mode, stage, repeat, 1000.0 * (1 + generator.random()), 2**30)
        for mode in ("full", "focus")
        for stage in ("end_to_end", "attention")
        for repeat in range(3)
    ]
    info: dict[str, Any] = {
        "model_id": "synthetic",
        "model_fingerprint": "",
        "centroids_name": "synthetic",
        "centroids_sha256": "",
        "num_tokens": num_tokens,
        "special_tokens": "auto",
        "added_tokens": [],
        "device": "none",
        "dtype": "float32",
        "backend": "none",
        "requested_backend": "auto",
        "seed": seed,
        "changes": [],
        "config": config.to_dict(),
        "versions": {},
    }
    notes = ["made up for measuring the page; its numbers mean nothing"]
    return write_run(database, Trace(tokens, layers, nll, timings, info, notes), command="benchmarks/page.py")


def copy_run(database: Database, run_id: str, copies: int) -> list[str]:
    """More runs with the same rows under other ids, made inside the database.

    Returns:
        Their ids.
    """
    names = [f"{run_id[:-6]}{number:06x}" for number in range(1, copies + 1)]
    for name in names:
        with database.write() as connection:
            for table in TABLES:
                connection.execute(
                    f"INSERT INTO {table} SELECT * REPLACE ($name AS run_id) FROM {table} WHERE run_id = $run_id",
                    {"name": name, "run_id": run_id},
                )
    return names


def main(path: str) -> None:
    """Write a database with a short and a long run."""
    database = Database(Path(path))
    print(write_long_run(database, 2_000), write_long_run(database, 100_000))


if __name__ == "__main__":
    import sys

    main(sys.argv[1])
