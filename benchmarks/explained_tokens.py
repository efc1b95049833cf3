"""The tokens that Focus predicts worst on some texts, explained by the dropped pairs that would have helped.

Each text's first 1,000 tokens, its ten tokens with the largest loss difference, ten verified links each.

    python benchmarks/explained_tokens.py --text novel=FILE --text code=FILE \
        --out benchmarks/results/explained_tokens.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.explain.missing_links import MissingLink, missing_links
from focus_runtime.measure.loss import final_hidden, token_nll
from focus_runtime.measure.timing import machine
from focus_runtime.models.loading import load_model
from focus_runtime.routing.centroid_file import load_centroids
from focus_runtime.text.tokens import tokenize

TOKENS, WORST = 1000, 10


def kind_of(link: MissingLink, ids: list[int], token: int) -> str:
    """What a link looks back at, from the token ids alone.

    Returns:
        `copy`: the key or the token after it is the token that is predicted; `repeat`: the key, or the token before it,
        is the query token again; `other`.
    """
    target, query = ids[token], ids[link.query]
    if target in (ids[link.key], ids[link.key + 1]):
        return "copy"
    if query in (ids[link.key], ids[max(0, link.key - 1)]):
        return "repeat"
    return "other"


def explain_text(model: Any, tokenizer: Any, focus: Any, name: str, text: str) -> list[dict[str, Any]]:
    """One row for each of the text's worst tokens."""
    tokens = tokenize(tokenizer, text, max_tokens=TOKENS)
    ids = torch.tensor([tokens.ids])
    with torch.no_grad():
        sparse = token_nll(model, final_hidden(model, ids), ids)[0]
        with focus.measured_full_attention():
            full = token_nll(model, final_hidden(model, ids), ids)[0]
    worst = (sparse - full).topk(WORST).indices.add(1).tolist()
    rows = []
    for token in worst:
        start = time.perf_counter()
        found = missing_links(focus, tokens.ids, token)
        seconds = time.perf_counter() - start
        verified = [link for link in found.links if link.nll is not None]
        rows.append(
            {
                "text": name,
                "token": token,
                "piece": tokens.pieces[token],
                "before": "".join(tokens.pieces[max(0, token - 8) : token]),
                "nll_full": found.nll_full,
                "nll_focus": found.nll_focus,
                "nll_together": found.nll_together,
                "seconds": seconds,
                "links": [
                    {
                        "layer": link.layer,
                        "head": link.head,
                        "query": link.query,
                        "key": link.key,
                        "query_piece": tokens.pieces[link.query],
                        "key_piece": tokens.pieces[link.key],
                        "kind": kind_of(link, tokens.ids, token),
                        "predicted": link.predicted,
                        "change": (link.nll or 0.0) - found.nll_focus,
                    }
                    for link in verified
                ],
            }
        )
        best = rows[-1]["links"][0]
        print(
            f"{name:8} {token:>4} {tokens.pieces[token]!r:16} full {found.nll_full:5.2f} Focus {found.nll_focus:5.2f} "
            f"with links {found.nll_together or float('nan'):5.2f}  best {best['change']:+.2f} layer {best['layer']} "
            f"{best['query_piece']!r} -> {best['key_piece']!r} ({best['kind']})  {seconds:.1f} s",
            flush=True,
        )
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Over all tokens: share of the loss difference explained, first order against verified, kinds and heads."""
    lost = np.array([row["nll_focus"] - row["nll_full"] for row in rows])
    gained = np.array([row["nll_focus"] - row["nll_together"] for row in rows])
    links = [link for row in rows for link in row["links"]]
    predicted, change = (np.array([link[name] for link in links]) for name in ("predicted", "change"))
    gains: Counter[str] = Counter()
    heads: Counter[str] = Counter()
    for link in links:
        gains[link["kind"]] -= link["change"]
        heads[f"layer {link['layer']}, head {link['head']}"] += 1
    total = sum(gains.values())
    return {
        "tokens": len(rows),
        "nats_lost": float(lost.sum()),
        "nats_gained_together": float(gained.sum()),
        "median_share_explained": float(np.median(gained / lost)),
        "correlation_predicted_verified": float(np.corrcoef(predicted, change)[0, 1]),
        "links_that_helped": float((change < 0).mean()),
        "share_of_single_gains_by_kind": {kind: gain / total for kind, gain in gains.most_common()},
        "links_by_head": dict(heads.most_common(10)),
        "median_seconds": float(np.median([row["seconds"] for row in rows])),
    }


def main() -> None:
    """Explain, summarise, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", action="append", required=True, metavar="NAME=FILE")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--centroids", default="default")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    model, tokenizer = load_model(arguments.model)
    focus = compose(model, load_centroids(arguments.centroids))
    rows: list[dict[str, Any]] = []
    for given in arguments.text:
        name, _, path = given.partition("=")
        rows += explain_text(model, tokenizer, focus, name, Path(path).read_text(encoding="utf-8"))
    names = list(dict.fromkeys(row["text"] for row in rows))
    result = {
        "what": f"{arguments.model}, {arguments.centroids}, first {TOKENS} tokens of each text, its {WORST} hurt most",
        "machine": machine(),
        "summary": {"all": summary(rows)} | {one: summary([r for r in rows if r["text"] == one]) for one in names},
        "rows": rows,
    }
    print(json.dumps(result["summary"], indent=1))
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
