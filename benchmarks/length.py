"""What Focus costs by the length of the text, and why: attention left out, groups too coarse, or potentials off.

Groups are causal, so the first T tokens of a run are a run of T tokens: stretches of 8,192 tokens are run once under
every setting, and the loss is given over their first 512, 1,024, ... tokens and by position. Beside it, at the same
positions, the share of the frozen model's attention probability that the setting's mask leaves out, from evenly spaced
query rows. The causes are told apart on the groups of one file without its budget: other k, other windows, potentials
estimated anew on stretches of 8,192 tokens, random centroids, no groups.

    git show 3bad20c~1:assets/centroids/smollm2-135m.safetensors > before.safetensors
    python -m benchmarks.length TEXTS --file before=before.safetensors --file default=default \
      --file default-quality=default-quality --causes default --out benchmarks/results/length.json
    python -m benchmarks.length TEXTS --table benchmarks/results/length.json

What files lose and nothing else, as of files that differ from measured ones in their factors of logits alone:

    python -m benchmarks.length TEXTS --file default=default --losses-only --dtype float32 --out length_factors.json
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import math
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.domains import cut
from benchmarks.results_file import continued, percent
from focus_runtime.budget import query_numbers
from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.composition.heads import HeadMask, counts_of
from focus_runtime.composition.observe import observe_attention
from focus_runtime.composition.state import FocusLayer
from focus_runtime.config import CONSTANT
from focus_runtime.fit.calibrate import calibrate_potentials
from focus_runtime.mask.allowed_pairs import allowed_pairs
from focus_runtime.measure.intervals import mean_interval, sign_flip_test
from focus_runtime.measure.loss import final_hidden, layer_shares, token_nll
from focus_runtime.measure.timing import machine
from focus_runtime.models.loading import load_model
from focus_runtime.routing.centroid_file import load_centroids
from focus_runtime.routing.centroids import Centroids, no_groups, random_centroids

MODEL = "smollm2-135m"
TEXTS = ("novels", "python", "manual-fr")
LENGTHS = (512, 1024, 2048, 4096, 8192)
EDGES = (0, *LENGTHS)
ROWS = 32  # query rows of every bin of positions in which attention is measured
CALIBRATION = 3  # stretches of each training text on which potentials are estimated anew


def variant(centroids: Centroids, **settings: Any) -> Centroids:
    """A copy with some settings changed and routers of its own, into which composing writes its settings."""
    routers = {index: copy.deepcopy(router) for index, router in centroids.routers.items()}
    config = centroids.config.replace(**settings)
    for router in routers.values():
        router.config = config
    return dataclasses.replace(centroids, routers=routers, config=config)


def stretches(tokenizer: Any, texts: Path, split: str, name: str, count: int) -> Tensor:
    """(N, 8192) token ids spread evenly over a text."""
    files = sorted((texts / split / name).glob("*.txt"))
    return cut(tokenizer, [path.read_text(encoding="utf-8") for path in files], count, LENGTHS[-1])


def by_bin(values: NDArray[np.float64], offset: int) -> list[float]:
    """Means of values of positions from `offset` on, over the bins between `EDGES`."""
    return [float(values[max(0, a - offset) : b - offset].mean()) for a, b in pairwise(EDGES)]


def losses(model: Any, ids: Tensor) -> list[float]:
    """Mean negative log-likelihood in nats of the tokens of every bin; the first token has none."""
    return by_bin(token_nll(model, final_hidden(model, ids), ids)[0].double().cpu().numpy(), 1)


@torch.no_grad()
def measured(focus: FocusModel, ids: Tensor, *, losses_only: bool = False) -> dict[str, Any]:
    """Losses of one stretch, pairs kept by length, the largest group by bin, and attention left out by bin.

    Args:
        focus: the composed model.
        ids: (1, 8192) token ids.
        losses_only: leave attention left out, which takes a pass of its own.
    """
    row: dict[str, Any] = {"nll": losses(focus.model, ids)}
    masks = focus.head_masks()
    row["pairs"] = [
        float(np.mean([layer_shares(_first(own, length))[0] for own in masks.values()])) for length in LENGTHS
    ]
    tops = np.stack([one.probabilities[0].argmax(-1).numpy() for one in focus.assignments().values()])
    row["largest_group"] = [
        float(np.mean([np.bincount(layer).max() / layer.size for layer in tops[:, a:b]])) for a, b in pairwise(EDGES)
    ]
    return row if losses_only else row | {"dropped_mass": dropped_mass(focus, ids, masks)}


def _first(masks: tuple[HeadMask, ...], length: int) -> list[HeadMask]:
    return [HeadMask(mask.group, mask.membership[:, :length], mask.rule) for mask in masks]


def dropped_mass(focus: FocusModel, ids: Tensor, masks: dict[int, tuple[HeadMask, ...]]) -> list[float]:
    """Share of full attention's probability outside the mask, by bin: mean over rows, heads and layers.

    Args:
        focus: the composed model.
        ids: (1, T) token ids.
        masks: of a Focus run of the same text.
    """
    rows = torch.cat([torch.linspace(a, b - 1, ROWS).long() for a, b in pairwise(EDGES)])
    layers: list[Tensor] = []

    def observe(layer: FocusLayer, query: Tensor, key: Tensor, scale: float, softcap: float | None) -> None:
        if layer.router is None:
            return
        counts = counts_of(query, key)
        dropped = torch.zeros(counts.query, rows.numel())
        position = torch.arange(key.shape[2])
        for mask in masks[layer.index]:
            groups = mask.membership[0]
            allowed = allowed_pairs(groups[rows], groups, rows, position, mask.rule)
            for head in query_numbers(mask.group, counts):
                shared = key[0, head // counts.shared_by].float()
                scores = query[0, head, rows].float() @ shared.T * scale
                weights = scores.masked_fill(position > rows[:, None], -math.inf).softmax(-1)
                dropped[head] = (weights * ~allowed).sum(-1)
        layers.append(dropped.mean(0))

    with observe_attention(focus, observe):
        final_hidden(focus.model, ids)
    return torch.stack(layers).mean(0).view(-1, ROWS).mean(1).tolist()


def variants(model: Any, tokenizer: Any, texts: Path, file: Centroids) -> dict[str, Callable[[], FocusModel]]:
    """The settings that tell the causes apart: name -> composes it."""
    bare = variant(file, budget=())

    @cache
    def again() -> Centroids:
        parts = [stretches(tokenizer, texts, "train", name, CALIBRATION // len(TEXTS)) for name in TEXTS]
        return calibrate_potentials(model, variant(bare), torch.cat(parts))

    @cache
    def random() -> Centroids:
        parts = [cut(tokenizer, _train(texts, name), 8, 1024) for name in TEXTS]
        return calibrate_potentials(model, random_centroids(model, bare.config, seed=0), torch.cat(parts))

    composed = partial(compose, model, window_growth=CONSTANT)
    return {
        "k = 1": partial(composed, bare),
        "k = 2": partial(composed, bare, top_k=2),
        "window 512": partial(composed, bare, window=512),
        "potentials at 8,192": lambda: composed(again()),
        "random, k = 1": lambda: composed(random()),
        "window and sinks": partial(composed, no_groups(bare)),
    }


def _train(texts: Path, name: str) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted((texts / "train" / name).glob("*.txt"))]


def cumulative(bins: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N, B) means of bins -> (N, B) means of the first 512, 1,024, ... tokens; the first bin lacks one token."""
    sizes = np.diff(EDGES).astype(float)
    sizes[0] -= 1
    return np.cumsum(bins * sizes, axis=1) / np.cumsum(sizes)


def excess(result: dict[str, Any], setting: str, text: str | None = None) -> NDArray[np.float64]:
    """(N, B) nats over full attention by bin, of one text or all."""
    keys = [key for key in result["rows"].get(setting, {}) if text is None or key.split("/")[0] == text]
    table = [np.subtract(result["rows"][setting][key]["nll"], result["rows"]["full"][key]["nll"]) for key in keys]
    return np.array(table).reshape(-1, len(LENGTHS))


def summary(result: dict[str, Any]) -> dict[str, Any]:
    """By setting: excess by length and by bin with intervals over stretches, growth, pairs, attention left out."""
    made: dict[str, Any] = {}
    for setting, rows in result["rows"].items():
        if setting == "full":
            continue
        row: dict[str, Any] = {}
        for text in (None, *TEXTS):
            bins = excess(result, setting, text)
            if bins.shape[0] < 2:
                continue
            lengths = cumulative(bins)
            row[text or "all"] = {
                "by_length": [mean_interval(column).to_dict() for column in lengths.T],
                "by_position": [mean_interval(column).to_dict() for column in bins.T],
                "last_minus_second": mean_interval(bins[:, -1] - bins[:, 1]).to_dict()
                | {"p_value": sign_flip_test(bins[:, -1] - bins[:, 1])},
            }
        for name in ("pairs", "largest_group", "dropped_mass"):
            table = [one[name] for one in rows.values() if name in one]
            if table:
                row[name] = np.mean(table, axis=0).tolist()
        made[setting] = row
    return made


def as_table(result: dict[str, Any]) -> str:
    """Markdown: change of perplexity by length, by position, and what goes with it."""
    found, lines = result["summary"], []
    heads = " | ".join(f"{length:,}" for length in LENGTHS)
    for title, kind in (("first tokens", "by_length"), ("up to position", "by_position")):
        lines += [f"| {title} | {heads} |", "|" + "---|" * (len(LENGTHS) + 1)]
        for setting, row in found.items():
            for text in ("all", *TEXTS):
                if text in row:
                    cells = " | ".join(percent(cell) for cell in row[text][kind])
                    lines.append(f"| {setting}, {text} | {cells} |")
        lines.append("")
    for title, name in (
        ("pairs kept, %", "pairs"),
        ("attention left out, %", "dropped_mass"),
        ("largest group, %", "largest_group"),
    ):
        lines += [f"| {title} | {heads} |", "|" + "---|" * (len(LENGTHS) + 1)]
        for setting, row in found.items():
            if name in row:
                lines.append(f"| {setting} | " + " | ".join(f"{100 * value:.1f}" for value in row[name]) + " |")
        lines.append("")
    return "\n".join(lines)


def measure(arguments: argparse.Namespace, result: dict[str, Any]) -> None:
    """Every setting on the stretches not yet measured, one of each text after another; written each time."""
    model, tokenizer = load_model(MODEL, dtype=arguments.dtype)
    paths = dict(entry.split("=", 1) for entry in arguments.file)
    ids = {
        f"{name}/{number}": row[None]
        for name in TEXTS
        for number, row in enumerate(stretches(tokenizer, arguments.texts, "validation", name, arguments.sequences))
    }
    files = {name: load_centroids(path) for name, path in paths.items()}
    known = result.setdefault("files", {})
    for name, centroids in files.items():
        if known.setdefault(name, centroids.sha256) != centroids.sha256:
            raise SystemExit(f"{arguments.out} has {name} of another file; choose another --out")
    plans: dict[str, Callable[[], FocusModel]] = {
        name: partial(compose, model, centroids) for name, centroids in files.items()
    }
    if arguments.causes:
        plans |= variants(model, tokenizer, arguments.texts, load_centroids(arguments.causes))
    full = result["rows"].setdefault("full", {})
    for number in range(arguments.rounds or arguments.sequences):
        keys = [f"{name}/{number}" for name in TEXTS]
        for key in keys:
            if key not in full:
                with torch.no_grad():
                    full[key] = {"nll": losses(model, ids[key])}
        for setting, composed in plans.items():
            rows = result["rows"].setdefault(setting, {})
            left = [key for key in keys if key not in rows]
            if not left:
                continue
            focus = composed()
            try:
                for key in left:
                    rows[key] = measured(focus, ids[key], losses_only=arguments.losses_only)
                    _write(arguments.out, result)
            finally:
                focus.detach()
            print(setting, [f"{100 * value:+.2f}" for value in cumulative(excess(result, setting)).mean(0)], flush=True)


def _write(out: Path, result: dict[str, Any]) -> None:
    out.write_text(json.dumps(_rounded(result), indent=1) + "\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return round(value, 5) if isinstance(value, float) else value


def main() -> None:
    """Measure what is not measured, write, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", type=Path, help="what `focus-explorer texts` wrote")
    parser.add_argument("--file", action="append", default=[], metavar="NAME=FILE", help="centroids; default=default")
    parser.add_argument("--causes", metavar="FILE", help="centroids whose groups tell the causes apart")
    parser.add_argument("--sequences", type=int, default=2, help="stretches of each text")
    parser.add_argument("--rounds", type=int, help="stop after so many of them (default: all)")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--losses-only", action="store_true", help="not what full attention has outside the masks")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, help="print a result and measure nothing")
    arguments = parser.parse_args()
    if arguments.table is not None:
        print(as_table(json.loads(arguments.table.read_text())))
        return
    if arguments.out is None:
        parser.error("--out is needed to measure")
    identity = {"dtype": arguments.dtype, "sequences": arguments.sequences, "lengths": list(LENGTHS)}
    result: dict[str, Any] = {"machine": machine(), **identity, "rows": {}}
    result = continued(arguments.out, identity, result, parser)
    measure(arguments, result)
    result["summary"] = summary(result)
    _write(arguments.out, result)
    print(as_table(result))


if __name__ == "__main__":
    main()
