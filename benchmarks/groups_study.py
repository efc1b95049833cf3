"""Do linguistic categories emerge in the groups? The numbers of docs/groups-study.md, from analysed corpora.

    focus-explorer analyze CHAPTERS --centroids FILE --top-k 1 --window 64 --sinks 4 --max-tokens 768 --name K8 --db DB
    PYTHONPATH=runtime:. python benchmarks/groups_study.py --db DB --names k8=K8 --out results/groups_study.json

Beyond the statistics of docs/statistics.md it asks two things. `own_groups`: how well one group picks out one category,
as the best F1 over groups, and for random centroids. `within_types`: whether groups follow the part of speech of words
that have several, with the token's text held fixed: conditional mutual information of group and part of speech given
the text, over the conditional entropy, and for groups shuffled among the uses of each text.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from focus_explorer.data.corpus import CorpusData
from focus_explorer.statistics.agreement import between_samples
from focus_explorer.statistics.resample import Estimate, Resampler
from focus_explorer.statistics.sample import Groups, Sample, corpus_sample
from focus_explorer.statistics.tables import RunStatistics
from focus_explorer.usecases.service import Service
from focus_runtime.measure.intervals import mean_interval
from focus_runtime.store.corpora import corpora

KEPT = (
    "value",
    "low",
    "high",
    "shuffled",
    "shuffled_high",
    "random",
    "random_low",
    "random_high",
    "window_only",
    "p_value",
    "q_value",
)
LEAST_USES, LEAST_SHARE = 20, 0.1
LEAST_TOKENS = 100
DRAWS, RESAMPLES = 200, 500


def best_f1(tops: np.ndarray, codes: np.ndarray, groups: int, categories: int) -> np.ndarray:
    """(C,) best F1 of any group for each category."""
    counts = np.bincount(tops.astype(np.int64) * categories + codes, minlength=groups * categories)
    counts = counts.reshape(groups, categories)
    return (2 * counts / (counts.sum(axis=1, keepdims=True) + counts.sum(axis=0))).max(axis=0)


def own_groups(sample: Sample) -> list[dict[str, Any]]:
    """For each part of speech: tokens, best F1 of a group: best layer, mean over layers, and random groups."""
    scheme = sample.schemes["pos"]
    width, groups = len(scheme.names), sample.num_groups

    def over_layers(one: Groups) -> np.ndarray:
        return np.stack([best_f1(top, scheme.codes, groups, width) for top in one.tops])

    focus = over_layers(sample.focus)
    random = over_layers(sample.random) if sample.random is not None else np.full_like(focus, np.nan)
    uses = np.bincount(scheme.codes, minlength=width)
    base = 2 * uses / (uses + uses.sum())  # one group of all tokens
    return [
        {
            "category": name,
            "tokens": int(uses[c]),
            "best": float(focus[:, c].max()),
            "best_layer": sample.layers[int(focus[:, c].argmax())],
            "mean": float(focus[:, c].mean()),
            "random_best": float(random[:, c].max()),
            "random_mean": float(random[:, c].mean()),
            "one_group": float(base[c]),
        }
        for c, name in enumerate(scheme.names)
    ]


def ambiguous(sample: Sample) -> np.ndarray:
    """Tokens whose text has at least two parts of speech, each in a tenth of its uses."""
    scheme, types = sample.schemes["pos"], len(sample.pieces)
    table = np.bincount(sample.piece * len(scheme.names) + scheme.codes, minlength=types * len(scheme.names))
    table = table.reshape(types, -1)
    uses = table.sum(axis=1)
    several = (table >= LEAST_SHARE * np.maximum(uses, 1)[:, None]).sum(axis=1) >= 2
    return np.flatnonzero(((uses >= LEAST_USES) & several)[sample.piece])


def conditional(cells: np.ndarray) -> np.ndarray:
    """I(group; category | type) / H(category | type) of (..., V, K, C) counts."""

    def entropy(counts: np.ndarray) -> np.ndarray:  # summed over types, in counts times nats
        total = counts.sum(axis=-1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(counts > 0, counts * np.log(total / np.where(counts > 0, counts, 1)), 0.0)
        return terms.sum(axis=(-2, -1))

    flat = cells.reshape(*cells.shape[:-2], -1)
    of_group, of_category = entropy(cells.sum(axis=-1)), entropy(cells.sum(axis=-2))
    return (of_group + of_category - entropy(flat)) / np.maximum(of_category, 1e-12)


def within_types(sample: Sample, seed: int = 0) -> dict[str, Any]:
    """Conditional information of every layer with interval over documents and the shuffled null."""
    places = ambiguous(sample)
    scheme, groups = sample.schemes["pos"], sample.num_groups
    width = len(scheme.names)
    _, types = np.unique(sample.piece[places], return_inverse=True)
    count = int(types.max()) + 1
    resampler = Resampler(sample.units, resamples=RESAMPLES, seed=seed)
    units, generator = resampler.of_token[places], np.random.default_rng(seed)
    codes = scheme.codes[places].astype(np.int64)
    rows = []
    for place, layer in enumerate(sample.layers):
        row: dict[str, Any] = {"layer": layer}
        for name, one in (("focus", sample.focus), ("random", sample.random)):
            if one is None:
                continue
            top = one.tops[place][places].astype(np.int64)

            def cells_of(tops: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
                code = (types * groups + tops) * width + codes
                counts = np.bincount(code, weights, minlength=count * groups * width)
                return counts.reshape(count, groups, width)

            drawn = np.array([float(conditional(cells_of(top, draw[units]))) for draw in resampler.weights[:200]])
            estimate = Estimate(float(conditional(cells_of(top))), drawn)
            nulls = []
            for _ in range(DRAWS if name == "focus" else 20):
                order = np.lexsort((generator.random(places.size), types))
                shuffled = np.empty_like(top)
                shuffled[np.argsort(types, kind="stable")] = top[order]
                nulls.append(float(conditional(cells_of(shuffled))))
            low, high = estimate.interval(resampler.count)
            row[name] = {
                "value": estimate.value,
                "low": low,
                "high": high,
                "shuffled": float(np.mean(nulls)),
                "shuffled_high": float(np.quantile(nulls, 0.975)),
                "beyond": estimate.value - float(np.mean(nulls)),
            }
        rows.append(row)
    texts = sorted({sample.pieces[code] for code in np.unique(sample.piece[places])})
    return {"tokens": int(places.size), "texts": texts, "layers": rows}


def describe(study: RunStatistics) -> dict[str, Any]:
    """All numbers of one corpus."""
    rows = study.table("statistics").to_pylist()
    sample = study.sample
    run = {
        f"{row['statistic']}{':' + row['category'] if row['category'] else ''}": {key: row[key] for key in KEPT}
        for row in rows
        if row["scope"] == "run"
    }
    layers: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["scope"] == "layer":
            name = f"{row['statistic']}{':' + row['category'] if row['category'] else ''}"
            layers.setdefault(name, []).append({"layer": row["layer"]} | {key: row[key] for key in KEPT})
    groups = [
        {"layer": row["layer"], "group": row["group"], "category": row["category"], "count": row["count"]}
        | {key: row[key] for key in KEPT}
        for row in rows
        if row["scope"] == "group" and row["statistic"] == "purity"
    ]
    pieces: dict[str, list[str]] = {}
    for row in study.table("characteristic").to_pylist():
        if row["kind"] == "characteristic" and row["rank"] <= 8:
            pieces.setdefault(f"{row['layer']}{row['group']}", []).append(row["piece"])
    # Documents as units leave out that centroids were drawn and trained once; layers, each drawn anew, do not.
    over_layers = {
        name: mean_interval([row["value"] for row in values]).to_dict()
        for name, values in layers.items()
        if "_minus_random" in name
    }
    return {
        "over_layers": over_layers,
        "tokens": sample.num_tokens,
        "documents": int(sample.units.max()) + 1,
        "num_groups": sample.num_groups,
        "run": run,
        "layers": layers,
        "groups": groups,
        "characteristic": pieces,
        "own_groups": own_groups(sample),
        "within_types": within_types(sample),
    }


def rounded(value: Any) -> Any:
    """The same with numbers of five decimals."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return round(value, 5) if isinstance(value, float) else value


def layer_table(results: dict[str, Any], first: str, second: str) -> str:
    """Markdown: layer by layer, what groups and parts of speech share, for two of the labels."""
    lines = [
        f"| layer | {first}: NMI (95 %) | more than random | stability | within one text | {second}: NMI (95 %) | "
        "more than random | stability | within one text |",
        "|---|---|---|---|---|---|---|---|---|",
    ]

    def cells(label: str, place: int) -> str:
        layers = results[label]["layers"]
        nmi, gain = layers["nmi:pos"][place], layers["nmi_minus_random:pos"][place]
        inside = results[label]["within_types"]["layers"][place]["focus"]
        return (
            f"{nmi['value']:.2f} ({nmi['low']:.2f} to {nmi['high']:.2f}) | "
            f"{gain['value']:+.2f} ({gain['low']:+.2f} to {gain['high']:+.2f}) | "
            f"{layers['stability'][place]['value']:.2f} | {inside['value']:.2f} ({inside['shuffled']:.2f})"
        )

    for place, row in enumerate(results[first]["layers"]["nmi:pos"]):
        lines.append(f"| {row['layer']} | {cells(first, place)} | {cells(second, place)} |")
    return "\n".join(lines)


def category_table(results: dict[str, Any], labels: list[str]) -> str:
    """Markdown: how well the best group of any layer picks out each part of speech, and that of random centroids."""
    head = " | ".join(f"{label}: best F1, layer | random" for label in labels)
    lines = [f"| part of speech | share of tokens | one group of all | {head} |", "|---" * (3 + 2 * len(labels)) + "|"]
    tables = [{row["category"]: row for row in results[label]["own_groups"]} for label in labels]
    total = sum(row["tokens"] for row in tables[0].values())
    for name, row in sorted(tables[0].items(), key=lambda item: -item[1]["tokens"]):
        if row["tokens"] < LEAST_TOKENS:
            continue
        parts = [f"{t[name]['best']:.2f}, {t[name]['best_layer']} | {t[name]['random_best']:.2f}" for t in tables]
        lines.append(f"| {name} | {row['tokens'] / total:.1%} | {row['one_group']:.2f} | {' | '.join(parts)} |")
    return "\n".join(lines)


def main() -> None:
    """Read the corpora, measure, write JSON and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--db", required=True)
    parser.add_argument("--names", nargs="+", required=True, help="label=name of a corpus")
    parser.add_argument("--agree", nargs="*", default=[], help="label+label: agreement of two of them, same K or not")
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    service = Service(arguments.db)
    by_name = {row["name"]: row["corpus_id"] for row in corpora(service.database)}
    results: dict[str, Any] = {}
    samples: dict[str, Sample] = {}
    for pair in arguments.names:
        label, _, name = pair.partition("=")
        corpus = CorpusData(service.database, by_name[name])
        samples[label] = corpus_sample(corpus)
        results[label] = describe(RunStatistics(service.database, by_name[name], samples[label]))
        results[label]["summary"] = {
            key: value for key, value in corpus.summary().items() if key not in ("source", "folder", "skipped")
        }
        print(label, "done", flush=True)
    for pair in arguments.agree:
        first, _, second = pair.partition("+")
        rows = between_samples(samples[first], samples[second]).to_pylist()
        results.setdefault("agreement", {})[pair] = rows
    labels = [pair.partition("=")[0] for pair in arguments.names]
    print(
        layer_table(results, labels[0], labels[min(1, len(labels) - 1)]), "", category_table(results, labels), sep="\n"
    )
    text = json.dumps(rounded(results), ensure_ascii=False, separators=(",", ":"))
    Path(arguments.out).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
