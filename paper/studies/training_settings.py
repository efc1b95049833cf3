"""Training sweeps: centroids trained under many settings, one row each, kept in a file as they come.

A row is identified by the hash of all that it depends on, so an interrupted sweep resumes where it stopped and a
finished one costs nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from focus_runtime.composition.attach import compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError, StoreError
from focus_runtime.fit.centroids import train_centroids
from focus_runtime.fit.inputs import texts_sha256
from focus_runtime.fit.settings import TrainConfig, TrainStep
from focus_runtime.measure.perplexity import score
from focus_runtime.models.loading import fingerprint
from focus_runtime.routing.centroids import Centroids
from paper.studies.balancing_methods import summary

FORMAT = 1
FOCUS_NAMES = {field.name for field in dataclasses.fields(FocusConfig)}
TRAIN_NAMES = {field.name for field in dataclasses.fields(TrainConfig)}


def sweep_settings(
    config: FocusConfig, settings: TrainConfig, vary: Mapping[str, Sequence[Any]], *, grid: bool = False
) -> list[tuple[dict[str, Any], FocusConfig, TrainConfig]]:
    """All settings of a sweep, none twice: what changed from the base, and both configurations.

    Args:
        config, settings: the base.
        vary: values by the name of a field of FocusConfig or TrainConfig.
        grid: every combination; otherwise the base, then one change at a time.

    Raises:
        ConfigError: an unknown name, no value for it, or a value out of range.
    """
    for name, values in vary.items():
        if name not in FOCUS_NAMES | TRAIN_NAMES:
            raise ConfigError(
                f"cannot vary {name!r}", expected="one of " + ", ".join(sorted(FOCUS_NAMES | TRAIN_NAMES))
            )
        if isinstance(values, str) or not values:
            raise ConfigError(f"{name} has the values {values!r}", expected="a list of at least one value")
    if grid:
        changes = [dict(zip(vary, values, strict=True)) for values in itertools.product(*vary.values())]
    else:
        changes = [{}, *({name: value} for name, values in vary.items() for value in values)]
    settings_of_rows: list[tuple[dict[str, Any], FocusConfig, TrainConfig]] = []
    for change in changes:
        focus = {name: value for name, value in change.items() if name in FOCUS_NAMES}
        if "num_groups" in focus:  # k is chosen at scoring; the base's may not fit fewer groups
            focus.setdefault("top_k", min(config.top_k, focus["num_groups"]))
        train = {name: value for name, value in change.items() if name in TRAIN_NAMES}
        both = config.replace(**focus), dataclasses.replace(settings, **train)
        if all(both != known[1:] for known in settings_of_rows):
            settings_of_rows.append((change, *both))
    return settings_of_rows


def training_sweep(
    model: Any,
    tokenizer: Any,
    texts: list[str],
    validation: Tensor,
    config: FocusConfig,
    settings: TrainConfig,
    *,
    vary: Mapping[str, Sequence[Any]],
    grid: bool = False,
    top_ks: Sequence[int] = (1, 2),
    sinks: Sequence[int | None] = (None,),
    file: Path | None = None,
    on_row: Callable[[dict[str, Any]], None] | None = None,
    on_step: Callable[[TrainStep], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[dict[str, Any]]:
    """Train centroids under every setting and score them on held-out text, under the hard mask.

    Args:
        model: frozen causal language model; tokenizer: its own.
        texts: to train on.
        validation: (N, T) token ids.
        config, settings: the base; see `sweep_settings` for `vary` and `grid`.
        top_ks: values of k to score; those above K are left out.
        sinks: sinks in force while scoring; None for those of the training. Varying `num_sinks` changes both, so
            `vary={"num_sinks": [0, 4]}, sinks=[0, 4]` compares trained with and without, scored with and without.
        file: JSON lines; rows that it holds are not computed again, new ones are added as they are finished.
        on_row: called with every row, also with those from the file.
        on_step: called after every training step.
        should_stop: checked between steps.

    Returns:
        One JSON-ready row per setting: key, changed, config, settings, full (perplexity of full attention, scored),
        final_loss, training_dominance, training_dominance_max, training_retained_pairs, seconds, and scores: one entry
        per k and sinks.

    Raises:
        ConfigError: a setting is wrong. TextError: too little text. StoreError: the file cannot be read or written.
        TrainingError: the loss is no number. TrainingStopped: stopped by the user; finished rows are in the file.
    """
    chosen = sweep_settings(config, settings, vary, grid=grid)
    shared = {
        "format": FORMAT,
        "model": fingerprint(model),
        "texts": texts_sha256(texts),
        "top_ks": list(top_ks),
        "sinks": list(sinks),
        "validation": hashlib.sha256(validation.long().cpu().numpy().tobytes()).hexdigest(),
        "validation_shape": list(validation.shape),
    }
    kept = _read(file)
    full: dict[str, Any] | None = None
    rows = []
    for changed, focus, train in chosen:
        key = _key(shared, focus, train)
        row = kept.get(key)
        if row is None:
            full = full or _full(model, validation)
            start = {"key": key, "changed": changed, "config": focus.to_dict(), "settings": dataclasses.asdict(train)}
            started = time.perf_counter()
            history: list[TrainStep] = []
            centroids = train_centroids(
                model, tokenizer, texts, focus, train, on_step=on_step, should_stop=should_stop, history=history
            )
            seconds = time.perf_counter() - started
            scores = list(_scores(model, centroids, validation, top_ks, sinks))
            row = {**start, "full": full, **_outcome(history[-1]), "seconds": seconds, "scores": scores}
            _append(file, row)
        rows.append(row)
        if on_row is not None:
            on_row(row)
    return rows


def _key(shared: dict[str, Any], config: FocusConfig, settings: TrainConfig) -> str:
    content = {**shared, "config": config.to_dict(), "settings": dataclasses.asdict(settings)}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def _full(model: Any, validation: Tensor) -> dict[str, Any]:
    scores = score(model, validation)
    return {"perplexity": scores.perplexity, "scored": int(scores.scored.sum()), "nll": scores.nll.tolist()}


def _outcome(last: TrainStep) -> dict[str, Any]:
    return {
        "final_loss": last.loss,
        "training_dominance": last.dominance,
        "training_dominance_max": last.dominance_max,
        "training_retained_pairs": last.retained_pairs,
    }


def _scores(
    model: Any, centroids: Centroids, validation: Tensor, top_ks: Sequence[int], sinks: Sequence[int | None]
) -> Iterator[dict[str, Any]]:
    for num_sinks, top_k in itertools.product(sinks, top_ks):
        if top_k > centroids.config.num_groups:
            continue
        focus = compose(model, centroids, top_k=top_k, num_sinks=num_sinks)
        try:
            yield {"top_k": top_k, "num_sinks": focus.config.num_sinks, **summary(score(focus, validation))}
        finally:
            focus.detach()


def _read(file: Path | None) -> dict[str, dict[str, Any]]:
    """Rows by key; a line that a crash cut short is no row."""
    if file is None or not file.exists():
        return {}
    rows = {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"cannot read {file}: {error}", expected="a file of JSON lines") from error
    for number, line in enumerate(lines):
        try:
            row = json.loads(line) if line.strip() else None
        except ValueError as error:
            if not line.startswith("{"):
                raise StoreError(
                    f"line {number + 1} of {file} is no row of a sweep", fix="name another file"
                ) from error
            continue
        if isinstance(row, dict) and "key" in row:
            rows[row["key"]] = row
    return rows


def _append(file: Path | None, row: dict[str, Any]) -> None:
    if file is None:
        return
    line = json.dumps(row, sort_keys=True) + "\n"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a+b") as stream:
            stream.seek(max(0, stream.seek(0, 2) - 1))
            torn = stream.read(1) not in (b"", b"\n")
            stream.write((("\n" if torn else "") + line).encode())
    except OSError as error:
        raise StoreError(f"cannot write {file}: {error.strerror}", fix="choose a writable folder") from error
