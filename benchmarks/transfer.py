"""Do groups trained on one kind of text hold on another, and do two trainings find the same groups?

Centroids are trained from random ones on every domain alone and on their mixture, with several seeds, and scored on
held-out text of all of them and of domains kept out of training: at the same K, k, window and text sinks, without a
budget, on the same sequences. Beside them random centroids, balanced on the mixture. A file balanced on its own text
has uneven groups on others and keeps more pairs there, so every second sequence is scored again with the potentials of
all files balanced on the mixture: then only projections and centroids differ. Two files agree as far as their most
probable groups of the held-out tokens do (adjusted Rand index, layer by layer).

A file that is trained is kept in FOLDER, and its scores are written at once: a call that was stopped goes on.

    focus-explorer texts TEXTS --novels NOVELS
    python benchmarks/transfer.py TEXTS --files FOLDER --out benchmarks/results/transfer.json
    python benchmarks/transfer.py TEXTS --table benchmarks/results/transfer.json
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.results_file import continued, percent
from benchmarks.short_trainings import (
    CONFIG,
    GROUPS,
    MIXTURE,
    MODEL,
    RANDOM,
    TRAIN_WINDOW,
    TRAINED,
    UNSEEN,
    calibration,
    difference,
    full_losses,
    held_out,
    measured,
    study_options,
    trained,
    training_texts,
)
from focus_runtime.composition.attach import compose
from focus_runtime.fit.calibrate import calibrate_potentials
from focus_runtime.fit.settings import TrainConfig
from focus_runtime.measure.contingency import adjusted_rand, contingency
from focus_runtime.measure.intervals import mean_interval
from focus_runtime.measure.timing import machine
from focus_runtime.models.loading import load_model
from focus_runtime.routing.centroid_file import load_centroids
from focus_runtime.routing.centroids import random_centroids


def agreement(files: dict[str, dict[str, NDArray[np.uint8]]], seeds: list[int]) -> dict[str, Any]:
    """Adjusted Rand index of most probable groups, layer by layer, of every two files that the questions need.

    Args:
        files: "domain/seed" -> tested domain -> (L, T) groups.
        seeds: those of all domains.

    Returns:
        "seeds": by trained domain, two seeds; "domains": two domains with the same seed, and so the same start;
        "start": a trained file and the random centroids it started from; "both": other domain and other seed.
    """
    names = (*TRAINED, MIXTURE)
    pairs = {
        f"seeds/{name}": [(f"{name}/{a}", f"{name}/{b}") for a, b in combinations(seeds, 2)]
        for name in (*names, RANDOM)
    }
    pairs |= {f"start/{name}": [(f"{name}/{a}", f"{RANDOM}/{a}") for a in seeds] for name in names}
    two = list(combinations(TRAINED, 2))
    pairs["domains"] = [(f"{one}/{a}", f"{other}/{a}") for one, other in two for a in seeds]
    pairs["both"] = [(f"{one}/{a}", f"{other}/{b}") for one, other in two for a in seeds for b in seeds if a != b]
    return {name: _agreed(files, chosen) for name, chosen in pairs.items() if chosen}


def _agreed(files: dict[str, dict[str, NDArray[np.uint8]]], pairs: list[tuple[str, str]]) -> dict[str, Any]:
    by_pair = np.array([_rand(_joined(files[a]), _joined(files[b])) for a, b in pairs])  # (P, L)
    layers = by_pair.mean(axis=0)
    return {
        "mean": float(layers.mean()),
        "over_pairs": [float(value) for value in by_pair.mean(axis=1)],
        "lowest_layer": float(layers.min()),
        "highest_layer": float(layers.max()),
        "layers": [round(float(value), 4) for value in layers],
    }


def _joined(groups: dict[str, NDArray[np.uint8]]) -> NDArray[np.uint8]:
    return np.concatenate([groups[name] for name in (*TRAINED, *UNSEEN)], axis=1)


def _rand(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> list[float]:
    shape = (GROUPS, GROUPS)
    return [float(adjusted_rand(contingency(a, b, shape))) for a, b in zip(first, second, strict=True)]


def rows_of(result: dict[str, Any], domain: str, tested: str, kind: str) -> list[dict[str, Any]]:
    """What the files of one trained domain gave on one tested domain, in the order of seeds."""
    seeds = sorted(int(key.split("/")[1]) for key in result["files"] if key.split("/")[0] == domain)
    return [result["files"][f"{domain}/{seed}"][kind][tested] for seed in seeds]


def losses(result: dict[str, Any], domain: str, tested: str, kind: str = "rows") -> NDArray[np.float64]:
    """(S, N) nats over full attention of one trained domain's files on one tested domain.

    Args:
        result: with all files.
        domain: trained on.
        tested: tested on.
        kind: "rows", or "balanced", which has every second sequence.
    """
    full = np.array(result["full"][tested])[:: 2 if kind == "balanced" else 1]
    return np.array([row["nll"] for row in rows_of(result, domain, tested, kind)]) - full


def summary(result: dict[str, Any]) -> dict[str, Any]:
    """The matrix, and what own text brings over other text, the mixture and random centroids."""
    names = sorted({key.split("/")[0] for key in result["files"]}, key=[*TRAINED, MIXTURE, RANDOM].index)
    tests = [*TRAINED, *UNSEEN]
    over = {name: {tested: losses(result, name, tested) for tested in tests} for name in names}
    made: dict[str, Any] = {
        "pairs": {
            a: {b: float(np.mean([row["retained_pairs"] for row in rows_of(result, a, b, "rows")])) for b in tests}
            for a in names
        },
        "balanced": balanced_summary(result, names),
        "loss": {a: {b: mean_interval(over[a][b]).to_dict() for b in tests} for a in names},
        "beside_own": {
            a: {b: difference(over[a][b], over[b][b]) for b in TRAINED if b != a} for a in names if a != RANDOM
        },
        "random_beside_trained": {b: difference(over[RANDOM][b], over[b][b]) for b in TRAINED if RANDOM in names},
    }
    # every held-out sequence of the four domains once: own text, the mean of the other three, mixture, random
    own = np.concatenate([over[b][b] for b in TRAINED], axis=1)
    other = np.concatenate([np.mean([over[a][b] for a in TRAINED if a != b], axis=0) for b in TRAINED], axis=1)
    joined = {name: np.concatenate([over[name][b] for b in TRAINED], axis=1) for name in (MIXTURE, RANDOM)}
    unseen = {name: np.concatenate([over[name][b] for b in UNSEEN], axis=1) for name in names}
    single = np.mean([unseen[name] for name in TRAINED], axis=0)
    made["all"] = {
        "own": mean_interval(own).to_dict(),
        "other": mean_interval(other).to_dict(),
        "mixture": mean_interval(joined[MIXTURE]).to_dict(),
        "random": mean_interval(joined[RANDOM]).to_dict(),
        "other - own": difference(other, own),
        "mixture - own": difference(joined[MIXTURE], own),
        "mixture - other": difference(joined[MIXTURE], other),
        "random - other": difference(joined[RANDOM], other),
        "unseen: one domain": mean_interval(single).to_dict(),
        "unseen: mixture": mean_interval(unseen[MIXTURE]).to_dict(),
        "unseen: random": mean_interval(unseen[RANDOM]).to_dict(),
        "unseen: mixture - one domain": difference(unseen[MIXTURE], single),
        "unseen: random - one domain": difference(unseen[RANDOM], single),
    }
    return made


def balanced_summary(result: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Loss and pairs of the files with potentials balanced on the mixture, and own text against the others."""
    kind = "balanced"
    over = {a: {b: losses(result, a, b, kind) for b in TRAINED} for a in names}
    pairs = {a: {b: [row["retained_pairs"] for row in rows_of(result, a, b, kind)] for b in TRAINED} for a in names}
    own = np.concatenate([over[b][b] for b in TRAINED], axis=1)
    other = np.concatenate([np.mean([over[a][b] for a in TRAINED if a != b], axis=0) for b in TRAINED], axis=1)
    mixture, random = (np.concatenate([over[name][b] for b in TRAINED], axis=1) for name in (MIXTURE, RANDOM))
    return {
        "loss": {a: {b: mean_interval(over[a][b]).to_dict() for b in TRAINED} for a in names},
        "pairs": {a: {b: float(np.mean(pairs[a][b])) for b in TRAINED} for a in names},
        "own": mean_interval(own).to_dict(),
        "other": mean_interval(other).to_dict(),
        "mixture": mean_interval(mixture).to_dict(),
        "random": mean_interval(random).to_dict(),
        "other - own": difference(other, own),
        "mixture - own": difference(mixture, own),
        "random - other": difference(random, other),
    }


def as_table(result: dict[str, Any]) -> str:
    """Markdown."""
    found = result["summary"]
    tests = [*TRAINED, *UNSEEN]
    heads = [f"{name}*" if name in UNSEEN else name for name in tests]
    lines = ["| trained on | " + " | ".join(heads) + " |", "|" + "---|" * (len(heads) + 1)]
    for name, row in found["loss"].items():
        cells = []
        for tested in tests:
            cell = percent(row[tested])
            p_value = found["beside_own"].get(name, {}).get(tested, {}).get("p_value")
            cells.append(f"**{cell}**" if name == tested else cell + ("" if p_value is None else f", p {p_value:.3f}"))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", "| pairs kept, % | " + " | ".join(heads) + " |", "|" + "---|" * (len(heads) + 1)]
    for name, row in found["pairs"].items():
        lines.append(f"| {name} | " + " | ".join(f"{100 * row[tested]:.0f}" for tested in tests) + " |")
    balanced = found["balanced"]
    lines += ["", "| balanced on the mixture | " + " | ".join(TRAINED) + " |", "|" + "---|" * (len(TRAINED) + 1)]
    for name, row in balanced["loss"].items():
        cells = [f"{percent(row[tested])}, {100 * balanced['pairs'][name][tested]:.0f} %" for tested in TRAINED]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    over_all = found["all"] | {f"balanced: {name}": row for name, row in balanced.items() if "value" in row}
    lines += ["", "| over all | nats | p |", "|---|---|---|"]
    for name, row in over_all.items():
        shown = f"{row['value']:+.4f} ({row['low']:+.4f} to {row['high']:+.4f})"
        lines.append(f"| {name} | {shown} | {row.get('p_value', '')} |")
    lines += ["", "| agreement | mean | layers | pairs of files |", "|---|---|---|---|"]
    for name, row in result.get("agreement", {}).items():
        layers = f"{row['lowest_layer']:.2f} to {row['highest_layer']:.2f}"
        pairs = f"{min(row['over_pairs']):.2f} to {max(row['over_pairs']):.2f} ({len(row['over_pairs'])})"
        lines.append(f"| {name} | {row['mean']:.3f} | {layers} | {pairs} |")
    return "\n".join(lines)


def train_and_score(arguments: argparse.Namespace, result: dict[str, Any]) -> None:
    """All files of one seed, then of the next; the result is written after each."""
    model, tokenizer = load_model(MODEL, dtype="bfloat16")
    length = arguments.length
    sequences = held_out(tokenizer, arguments.texts, arguments.sequences, length)
    if "full" not in result:
        result["full"] = full_losses(model, sequences)
    for seed in range(arguments.seeds):
        settings = TrainConfig(**result["training"], seed=seed)
        for domain in (*TRAINED, MIXTURE, RANDOM):
            key, groups = f"{domain}/{seed}", arguments.files / f"{domain}-{seed}.npz"
            if key in result["files"] and groups.exists():
                continue
            about: dict[str, Any] = {}
            if domain == RANDOM:
                centroids = random_centroids(model, CONFIG, seed=seed)
                calibrate_potentials(model, centroids, calibration(tokenizer, arguments.texts, MIXTURE, length))
            else:
                file = arguments.files / f"{domain}-{seed}.safetensors"
                balance_on = partial(calibration, tokenizer, arguments.texts, domain, length)
                domains = training_texts(arguments.texts, domain)
                centroids = trained(model, tokenizer, domains, settings, file, balance_on)
                about = {name: centroids.training[name] for name in ("final_layer_error", "tokens_seen")}
            focus = compose(model, centroids)
            try:
                rows, tops = measured(focus, sequences)
            finally:
                focus.detach()
            np.savez_compressed(groups, **tops)
            result["files"][key] = about | {"rows": rows}
            _write(arguments.out, result)
            over = {
                name: round(100 * (np.mean(row["nll"]) - np.mean(result["full"][name])), 2)
                for name, row in rows.items()
            }
            print(key, about, over, flush=True)


@torch.no_grad()
def score_balanced(arguments: argparse.Namespace, result: dict[str, Any]) -> None:
    """Every second sequence of the trained domains under every file, potentials balanced on the mixture."""
    model, tokenizer = load_model(MODEL, dtype="bfloat16")
    sequences = held_out(tokenizer, arguments.texts, arguments.sequences, arguments.length)
    halves = {name: sequences[name][::2] for name in TRAINED}
    balance_on = calibration(tokenizer, arguments.texts, MIXTURE, arguments.length)
    for key, entry in result["files"].items():
        domain, seed = key.split("/")
        if "balanced" in entry:
            continue
        if domain in (MIXTURE, RANDOM):  # balanced on it already
            rows = {name: entry["rows"][name] for name in TRAINED}
            entry["balanced"] = {name: row | {"nll": row["nll"][::2]} for name, row in rows.items()}
            continue
        centroids = load_centroids(arguments.files / f"{domain}-{seed}.safetensors")
        focus = compose(model, calibrate_potentials(model, centroids, balance_on))
        try:
            entry["balanced"] = measured(focus, halves)[0]
        finally:
            focus.detach()
        _write(arguments.out, result)
        print(key, "balanced", {name: row["retained_pairs"] for name, row in entry["balanced"].items()}, flush=True)


def _write(out: Path, result: dict[str, Any]) -> None:
    out.write_text(json.dumps(result, indent=1) + "\n")


def complete_seeds(result: dict[str, Any]) -> list[int]:
    """Seeds of which every file is measured."""
    seeds = sorted({int(key.split("/")[1]) for key in result["files"]})
    return [seed for seed in seeds if all(f"{name}/{seed}" in result["files"] for name in (*TRAINED, MIXTURE, RANDOM))]


def main() -> None:
    """Train what is not trained, measure, write, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    study_options(parser, sequences=8)
    arguments = parser.parse_args()
    if arguments.table is not None:
        print(as_table(json.loads(arguments.table.read_text())))
        return
    if arguments.files is None or arguments.out is None:
        parser.error("--files and --out are needed to train")
    training = {
        "steps": arguments.steps,
        "seq_len": arguments.train_length,
        "loss": "layers",
        "warmup": 10,
        "calibration_sequences": 1,  # estimated anew, see `trained`
        "checkpoint_every": 20,
    }
    identity = {"config": CONFIG.to_dict(), "train_window": TRAIN_WINDOW, "training": training, "dtype": "bfloat16"}
    identity |= {"sequences": arguments.sequences, "length": arguments.length}
    result: dict[str, Any] = {"machine": machine(), **identity, "files": {}}
    result = continued(arguments.out, identity, result, parser)
    arguments.files.mkdir(parents=True, exist_ok=True)
    train_and_score(arguments, result)
    score_balanced(arguments, result)
    seeds = complete_seeds(result)
    groups = {key: dict(np.load(arguments.files / f"{key.replace('/', '-')}.npz")) for key in result["files"]}
    result |= {"summary": summary(result), "agreement": agreement(groups, seeds)}
    _write(arguments.out, result)
    print(as_table(result))


if __name__ == "__main__":
    main()
