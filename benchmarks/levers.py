"""Which part of a training recipe brings what: text, loss, a final phase on the hard mask; alone and together.

Centroids are trained from random ones with several seeds (initialisation and data order), the same steps in every arm.
They get their potentials from the same sequences of the mixture, so that all keep about as many pairs. They are scored
without a budget on the same held-out sequences, some of domains that no arm has seen. Every arm is compared with the
first, plain training on novels with the language model's loss, and with others that differ in one thing, in pairs of
seeds and sequences.

A file that is trained is kept in FOLDER, and its scores are written at once: a call that was stopped goes on.

    focus-explorer texts TEXTS --novels NOVELS
    python -m benchmarks.levers TEXTS --files FOLDER --out benchmarks/results/levers.json
    python -m benchmarks.levers TEXTS --table benchmarks/results/levers.json
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.results_file import continued, percent
from benchmarks.short_trainings import (
    CONFIG,
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
from focus_runtime.measure.intervals import mean_interval
from focus_runtime.measure.timing import machine
from focus_runtime.models.loading import load_model
from focus_runtime.routing.centroids import random_centroids

HARD_SHARE = 4  # of the steps of an arm with a hard phase, one in so many
ARMS: dict[str, tuple[str, str, bool]] = {  # text, loss, whether the last steps run on the hard mask
    "novels, lm": ("novels", "lm", False),
    "mixture, lm": (MIXTURE, "lm", False),
    "novels, distil": ("novels", "distil", False),
    "mixture, distil": (MIXTURE, "distil", False),
    "mixture, distil, hard": (MIXTURE, "distil", True),
    "mixture, layers": (MIXTURE, "layers", False),
}
COMPARED = [  # the first minus the second: what one change brings
    ("mixture, lm", "novels, lm"),
    ("novels, distil", "novels, lm"),
    ("mixture, distil", "mixture, lm"),
    ("mixture, distil", "novels, distil"),
    ("mixture, distil, hard", "mixture, distil"),
    ("mixture, layers", "mixture, distil"),
    ("mixture, layers", "novels, lm"),
    (RANDOM, "novels, lm"),
]
TESTED = (*TRAINED, *UNSEEN)
GROUPS = {"novels": ("novels",), "other text": TESTED[1:], "unseen": UNSEEN, "all": TESTED}


def entries(result: dict[str, Any], arm: str) -> list[dict[str, Any]]:
    """What was measured of an arm, in the order of seeds."""
    return [entry for key, entry in result["files"].items() if key.rsplit("/", 1)[0] == arm]


def losses(result: dict[str, Any], arm: str, tested: str) -> NDArray[np.float64]:
    """(S, N) nats over full attention of an arm's files on one domain."""
    rows = [entry["rows"][tested]["nll"] for entry in entries(result, arm)]
    return np.array(rows) - np.array(result["full"][tested])


def summary(result: dict[str, Any]) -> dict[str, Any]:
    """Loss of every arm by kind of text, what single changes bring, and pairs kept."""
    names = [arm for arm in (*ARMS, RANDOM) if entries(result, arm)]
    over = {
        arm: {
            kind: np.concatenate([losses(result, arm, name) for name in tested], axis=1)
            for kind, tested in GROUPS.items()
        }
        for arm in names
    }
    shares = {
        arm: [row["retained_pairs"] for entry in entries(result, arm) for row in entry["rows"].values()]
        for arm in names
    }
    return {
        "loss": {
            arm: {kind: mean_interval(table).to_dict() for kind, table in own.items()} for arm, own in over.items()
        },
        "pairs": {arm: float(np.mean(own)) for arm, own in shares.items()},
        "seconds": {arm: [entry["seconds"] for entry in entries(result, arm) if "seconds" in entry] for arm in names},
        "changes": {
            f"{one} - {other}": {kind: difference(over[one][kind], over[other][kind]) for kind in GROUPS}
            for one, other in COMPARED
            if one in names and other in names
        },
    }


def as_table(result: dict[str, Any]) -> str:
    """Markdown."""
    found, head = result["summary"], " | ".join(GROUPS)
    lines = [f"| perplexity over full attention, % | {head} | pairs | minutes |", "|" + "---|" * (len(GROUPS) + 3)]
    for arm, row in found["loss"].items():
        minutes = " to ".join(f"{end(found['seconds'][arm]) / 60:.1f}" for end in (min, max) if found["seconds"][arm])
        cells = " | ".join(percent(row[kind]) for kind in GROUPS)
        lines.append(f"| {arm} | {cells} | {100 * found['pairs'][arm]:.0f} % | {minutes} |")
    lines += ["", f"| hundredths of a nat | {head} |", "|" + "---|" * (len(GROUPS) + 1)]
    for name, row in found["changes"].items():
        changes = [
            f"{100 * one['value']:+.1f} ({100 * one['low']:+.1f} to {100 * one['high']:+.1f}), p {one['p_value']:.4f}"
            for one in (row[kind] for kind in GROUPS)
        ]
        lines.append(f"| {name} | " + " | ".join(changes) + " |")
    return "\n".join(lines)


def train_and_score(arguments: argparse.Namespace, result: dict[str, Any]) -> None:
    """All arms of one seed, then of the next; the result is written after each."""
    model, tokenizer = load_model(MODEL, dtype=result["dtype"])
    sequences: dict[str, Tensor] = held_out(tokenizer, arguments.texts, arguments.sequences, arguments.length)
    balance_on = calibration(tokenizer, arguments.texts, MIXTURE, arguments.length)
    if "full" not in result:
        result["full"] = full_losses(model, sequences)
    for seed in range(arguments.seeds):
        for arm in (*ARMS, RANDOM):
            key = f"{arm}/{seed}"
            about: dict[str, Any] = {}
            if key in result["files"]:
                continue
            if arm == RANDOM:
                centroids = calibrate_potentials(model, random_centroids(model, CONFIG, seed=seed), balance_on)
            else:
                file = arguments.files / f"{arm.replace(', ', '-')}-{seed}.safetensors"
                domain, loss, hard = ARMS[arm]
                hard_steps = result["training"]["steps"] // HARD_SHARE if hard else 0
                settings = TrainConfig(**result["training"], seed=seed, loss=loss, hard_steps=hard_steps)
                domains = training_texts(arguments.texts, domain)
                centroids = trained(model, tokenizer, domains, settings, file, lambda: balance_on, CONFIG)
                about = {name: centroids.training[name] for name in ("seconds", "tokens_seen")}
            focus = compose(model, centroids)
            try:
                result["files"][key] = about | {"rows": measured(focus, sequences)[0]}
            finally:
                focus.detach()
            arguments.out.write_text(json.dumps(result, indent=1) + "\n")
            over = np.mean(
                [np.mean(row["nll"]) - np.mean(result["full"][n]) for n, row in result["files"][key]["rows"].items()]
            )
            print(key, about, f"{over:+.4f} nats", flush=True)


def main() -> None:
    """Train what is not trained, measure, write, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    study_options(parser, sequences=6)
    arguments = parser.parse_args()
    if arguments.table is not None:
        print(as_table(json.loads(arguments.table.read_text())))
        return
    if arguments.files is None or arguments.out is None:
        parser.error("--files and --out are needed to train")
    training = {
        "steps": arguments.steps,
        "seq_len": arguments.train_length,
        "warmup": arguments.steps // 6,
        "calibration_sequences": 1,  # estimated anew, see `trained`
        "checkpoint_every": 20,
    }
    identity = {"config": CONFIG.to_dict(), "train_window": TRAIN_WINDOW, "training": training, "dtype": "bfloat16"}
    identity |= {"sequences": arguments.sequences, "length": arguments.length}
    result: dict[str, Any] = {"machine": machine(), **identity, "files": {}}
    result = continued(arguments.out, identity, result, parser)
    arguments.files.mkdir(parents=True, exist_ok=True)
    train_and_score(arguments, result)
    result["summary"] = summary(result)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(as_table(result))


if __name__ == "__main__":
    main()
