"""Centroid files on texts of many kinds: perplexity beside full attention, by domain, with intervals and baselines.

Beside every file, at its settings and budget: random centroids whose potentials are balanced on the training texts, and
no groups at all but a window wide enough to keep as many pairs. All score the same sequences of a domain; a domain that
is done is written, and not measured again on the next call.

    focus-explorer texts TEXTS --novels FOLDER
    python benchmarks/domains.py TEXTS --file default=default --file quality=FILE --out benchmarks/results/domains.json
    python benchmarks/domains.py TEXTS --table benchmarks/results/domains.json
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from focus_runtime.composition.attach import compose
from focus_runtime.config import CONSTANT
from focus_runtime.measure.perplexity import Scores, compare, score
from focus_runtime.measure.timing import Spread, machine, timed_pass
from focus_runtime.models.loading import load_model
from focus_runtime.routing.centroid_file import load_centroids
from focus_runtime.routing.centroids import Centroids, no_groups
from focus_runtime.run.random_baseline import STATISTICS_SEED, random_baseline
from focus_runtime.text.sequences import encode_texts, even_sequences

SPLITS = ("validation", "unseen")  # of domains that training saw, and of those kept out
KEPT = (
    "relative_difference",
    "difference_nats",
    "focus_perplexity",
    "p_value",
    "dominance",
    "highest_dominance",
    "retained_pairs",
    "distant_kept",
)


def domains(texts: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Split, name and texts of every held-out domain."""
    for split in SPLITS:
        for folder in sorted((texts / split).iterdir()):
            yield split, folder.name, [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))]


def cut(tokenizer: Any, texts: list[str], count: int, length: int) -> Tensor:
    """(N, T) token ids spread evenly over the texts."""
    return even_sequences(encode_texts(tokenizer, texts, 1), count, length)


def scored(model: Any, sequences: Tensor, full: Scores, centroids: Centroids, **setting: Any) -> dict[str, Any]:
    """One row: what centroids cost on some sequences."""
    focus = compose(model, centroids, **setting)
    try:
        numbers = compare(full, score(focus, sequences))
    finally:
        focus.detach()
    return {name: numbers[name] for name in KEPT}


def window_for(pairs: float, length: int) -> int:
    """The window that keeps a share of the causal pairs of a text."""
    return round(length * (1 - math.sqrt(max(0.0, 1 - pairs))))


def earlier_result(path: Path, identity: dict[str, Any], files: dict[str, Centroids]) -> dict[str, Any]:
    """A result of the files that the factors of these were learned for, whose rows without factors stay as they are.

    Args:
        path: of the result.
        identity: of the measurement.
        files: by name.

    Raises:
        SystemExit: it is of other files, settings, sequences or baselines.
    """
    earlier = json.loads(path.read_text())
    for name, centroids in files.items():
        configs = [each["configs"][name] | {"logit_factors": None} for each in (identity, earlier)]
        if configs[0] != configs[1]:
            raise SystemExit(f"{name} has other settings than in {path}")
        if centroids.training["initial"]["sha256"] != earlier["files"][name]:
            raise SystemExit(f"factors of {name} were not learned for the file of {path}")
    if any(earlier[name] != identity[name] for name in ("sequences", "length", "dtype", "baselines")):
        raise SystemExit(f"{path} is of other sequences or baselines")
    return earlier


def measure_domain(
    model: Any,
    sequences: Tensor,
    files: dict[str, Centroids],
    random: dict[str, Centroids],
    earlier: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Rows of one domain.

    Args:
        model, sequences: what is scored.
        files: by name.
        random: by the name of the file that gets baselines.
        earlier: a result of the domain with the files of which these are trainings of factors; its rows are kept.
    """
    full = score(model, sequences)
    if earlier is not None and not math.isclose(full.perplexity, earlier["full_perplexity"], rel_tol=1e-3):
        raise SystemExit(f"full attention has {full.perplexity}, had {earlier['full_perplexity']}: not the same text")
    rows: dict[str, Any] = {}
    for name, centroids in files.items():
        rows[name] = scored(model, sequences, full, centroids)
        if earlier is not None:
            rows[f"{name} without factors"] = earlier["rows"][name]
            rows |= {row: values for row, values in earlier["rows"].items() if row.endswith(f" as {name}")}
        elif name in random:
            rows[f"random as {name}"] = scored(model, sequences, full, random[name])
            window = window_for(rows[name]["retained_pairs"], sequences.shape[1])
            only = scored(
                model, sequences, full, no_groups(centroids), window=window, budget=(), window_growth=CONSTANT
            )
            rows[f"window and sinks as {name}"] = only | {"window": window}
    return {"full_perplexity": full.perplexity, "sequences": sequences.shape[0], "rows": rows}


@torch.no_grad()
def pass_times(
    model: Any, ids: Tensor, files: dict[str, Centroids], random: dict[str, Centroids], repeats: int
) -> dict[str, Any]:
    """Milliseconds of a whole forward pass without the output embedding: full attention, files and baselines, in turn.

    Args:
        model: the frozen model.
        ids: (1, T) token ids.
        files: by name.
        random: by the name of the file that gets baselines; the window keeps as many pairs as the file does here.
        repeats: rounds that count, after one that warms up.
    """
    settings = {name: partial(compose, model, centroids) for name, centroids in files.items()}
    for name, centroids in random.items():
        settings[f"random as {name}"] = partial(compose, model, centroids)
        focus = settings[name]()
        try:
            window = window_for(float(score(focus, ids).retained_pairs.mean()), ids.shape[1])
        finally:
            focus.detach()
        settings[f"window and sinks as {name}"] = partial(
            compose, model, no_groups(files[name]), window=window, budget=(), window_growth=CONSTANT
        )
    times: dict[str, list[float]] = {name: [] for name in ("full", *settings)}
    for repeat in range(repeats + 1):
        for name in times:
            focus = settings.get(name, next(iter(settings.values())))()
            try:
                _, seconds = timed_pass(focus, ids, "full" if name == "full" else "focus")
            finally:
                focus.detach()
            if repeat:  # the first one warms up
                times[name].append(1000 * seconds)
    return {name: asdict(Spread.of(values)) for name, values in times.items()}


def as_table(result: dict[str, Any]) -> str:
    """Markdown."""
    names = list(next(iter(result["domains"].values()))["rows"])
    lines = ["| domain | full | " + " | ".join(names) + " |", "|" + "---|" * (len(names) + 2)]
    for key, domain in result["domains"].items():
        split, name = key.split("/")
        cells = []
        for row in domain["rows"].values():
            change, kept = row["relative_difference"], row["retained_pairs"]
            interval = "" if change["low"] is None else f" ({100 * change['low']:+.1f} to {100 * change['high']:+.1f})"
            cells.append(f"{100 * change['value']:+.1f}{interval}, {100 * kept:.0f} % of pairs")
        shown = f"{name}*" if split == "unseen" else name
        lines.append(f"| {shown} | {domain['full_perplexity']:.2f} | " + " | ".join(cells) + " |")
    for length, times in result.get("times", {}).items():
        full = times["full"]["median"]
        cells = [f"{full / times[name]['median']:.2f}" if name in times else "" for name in names]
        lines.append(
            f"| whole pass, {int(length):,} tokens: full / Focus | {full:.0f} ms | " + " | ".join(cells) + " |"
        )
    return "\n".join(lines)


SHORT = {  # rows of the README's table by what they are called there
    "`default`": "default",
    "`default-quality`": "default-quality",
    "random centroids": "random as default",
    "window, sinks": "window and sinks as default",
}


def as_short_table(result: dict[str, Any]) -> str:
    """Markdown without intervals, for the README: change of perplexity and pairs kept, and times of whole passes."""
    lines = ["| text | full | " + " | ".join(SHORT) + " |", "|" + "---|" * (len(SHORT) + 2)]
    for key, domain in result["domains"].items():
        split, name = key.split("/")
        rows = [domain["rows"][row] for row in SHORT.values()]
        cells = [
            f"{100 * row['relative_difference']['value']:+.1f} % at {100 * row['retained_pairs']:.0f} %" for row in rows
        ]
        shown = f"{name}*" if split == "unseen" else name
        lines.append(f"| {shown} | {domain['full_perplexity']:.1f} | " + " | ".join(cells) + " |")
    for length, times in result["times"].items():
        seconds = [f"{times[row]['median'] / 1000:.1f} s" for row in ("full", *SHORT.values())]
        lines.append(f"| whole pass, {int(length):,} tokens | " + " | ".join(seconds) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure, write after every domain, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", type=Path, nargs="?", help="what `focus-explorer texts` wrote; not for --table")
    parser.add_argument("--file", action="append", default=[], metavar="NAME=FILE", help="centroids; default=default")
    parser.add_argument("--baselines", action="append", default=[], metavar="NAME", help="files that get baselines")
    parser.add_argument(
        "--baselines-of", type=Path, metavar="RESULT", help="earlier result: baselines, files without factors"
    )
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--time", type=int, nargs="*", default=[], help="lengths whose whole passes are timed")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, help="print a result and measure nothing")
    parser.add_argument("--short", action="store_true", help="with --table: the README's")
    arguments = parser.parse_args()
    if arguments.table is not None:
        print((as_short_table if arguments.short else as_table)(json.loads(arguments.table.read_text())))
        return
    if arguments.texts is None:
        parser.error("name the folder that `focus-explorer texts` wrote")
    model, tokenizer = load_model("smollm2-135m", dtype=arguments.dtype)
    paths = dict(entry.split("=", 1) for entry in arguments.file or ["default=default"])
    files = {name: load_centroids(path) for name, path in paths.items()}
    identity = {
        "files": {name: centroids.sha256 for name, centroids in files.items()},
        "configs": {name: centroids.config.to_dict() for name, centroids in files.items()},
        "sequences": arguments.sequences,
        "length": arguments.length,
        "dtype": arguments.dtype,
        "baselines": arguments.baselines,
    }
    result: dict[str, Any] = {"machine": machine(), **identity, "domains": {}}
    if arguments.out is not None and arguments.out.exists():
        before = json.loads(arguments.out.read_text())
        if all(before.get(name) == value for name, value in identity.items()):
            result = before
    earlier: dict[str, Any] = {"domains": {}}
    if arguments.baselines_of is not None:
        earlier = earlier_result(arguments.baselines_of, identity, files)
        result["baselines_of"] = {name: earlier[name] for name in ("machine", "files")}
    training = [path.read_text(encoding="utf-8") for path in sorted((arguments.texts / "train").rglob("*.txt"))]
    calibration = cut(tokenizer, training, 32, 512)
    random = {
        name: random_baseline(model, files[name].config, seed=STATISTICS_SEED, calibrate_on=calibration)
        for name in arguments.baselines
        if arguments.baselines_of is None or arguments.time
    }

    def write() -> None:
        if arguments.out is not None:
            arguments.out.write_text(json.dumps(result, indent=1) + "\n")

    for split, name, texts in domains(arguments.texts):
        key = f"{split}/{name}"
        if key not in result["domains"]:
            sequences = cut(tokenizer, texts, arguments.sequences, arguments.length)
            result["domains"][key] = measure_domain(model, sequences, files, random, earlier["domains"].get(key))
            write()
            rows = result["domains"][key]["rows"].items()
            print(key, {row: f"{100 * got['relative_difference']['value']:+.2f} %" for row, got in rows}, flush=True)
    for length in arguments.time:
        text = next(texts for split, name, texts in domains(arguments.texts) if name == "novels")
        times = pass_times(model, cut(tokenizer, text, 1, length), files, random, arguments.repeats)
        result.setdefault("times", {})[str(length)] = times
        write()
    print(as_table(result))


if __name__ == "__main__":
    main()
