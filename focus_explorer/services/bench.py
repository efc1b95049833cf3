"""The bench command: speed of one layer and of the whole model, quality at the same setting, as JSON and a plot."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from focus_explorer import settings
from focus_explorer.errors import InputError, TextError
from focus_explorer.progress import stage_bar
from focus_explorer.services.texts import SAMPLES, read_text_file, sample_text

DECODE_STEPS = 8
LONGEST = 1 << 21  # tokens; at this many the layer's inputs alone take gigabytes


def _lengths(text: str, option: str) -> list[int]:
    try:
        lengths = sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError as error:
        raise InputError(f"{option} is {text!r}", expected="numbers of tokens such as 512,1024,2048") from error
    if any(not 2 <= length <= LONGEST for length in lengths):
        raise InputError(f"{option} is {text!r}", expected=f"numbers of tokens from 2 to {LONGEST:,}")
    return lengths


def _text(source: str | None) -> str:
    if source is not None:
        return read_text_file(Path(os.path.expanduser(source)))
    return "\n\n".join(sample_text(name) for name in SAMPLES)


def _layer_rows(model: Any, config: Any, lengths: list[int], arguments: argparse.Namespace, step: Any) -> list[Any]:
    """One layer of the model's own shape, random balanced groups."""
    from focus_runtime.measure.speed import LayerSetting, layer_speed

    shape = model.config.get_text_config()
    setting = LayerSetting(
        heads=shape.num_attention_heads,
        key_heads=getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads,
        head_size=getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads,
        num_groups=config.num_groups,
        top_k=config.top_k,
        window=config.window,
        num_sinks=config.num_sinks,
        dtype=arguments.dtype,
    )
    rows = []
    for number, length in enumerate(lengths):
        step(f"One layer at {length:,} tokens", 0.02 + 0.4 * number / len(lengths))
        rows.append(layer_speed(setting, length, repeats=arguments.repeats, seed=arguments.seed + length))
    return rows


def measure(arguments: argparse.Namespace, step: Any) -> dict[str, Any]:
    """Everything the command reports, JSON-ready."""
    import torch

    from focus_runtime.composition.attach import compose
    from focus_runtime.measure.loss import check_positions
    from focus_runtime.measure.perplexity import perplexity
    from focus_runtime.measure.speed import decode_speed, prefill_speed
    from focus_runtime.measure.timing import machine
    from focus_runtime.models.loading import load_model
    from focus_runtime.routing.centroid_file import load_centroids
    from focus_runtime.run.engine import versions

    layer_lengths, lengths = (
        _lengths(getattr(arguments, name), f"--{name.replace('_', '-')}") for name in ("layer_lengths", "lengths")
    )
    text = _text(arguments.text)
    step("Loading the model", 0.0)
    model, tokenizer = load_model(arguments.model, dtype=arguments.dtype, cache_dir=settings.cache_dir())
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
    if lengths and ids.shape[1] < lengths[0]:
        raise TextError(
            f"the text has {ids.shape[1]:,} tokens",
            expected=f"at least {lengths[0]:,}, the shortest of --lengths",
            fix="give a longer --text or shorter --lengths",
        )
    if lengths:
        check_positions(model, max(length for length in lengths if length <= ids.shape[1]) + DECODE_STEPS + 2)
    skipped = [length for length in lengths if length > ids.shape[1]]
    lengths = [length for length in lengths if length <= ids.shape[1]]
    centroids = load_centroids(arguments.centroids)
    focus = compose(
        model,
        centroids,
        top_k=arguments.top_k,
        window=arguments.window,
        num_sinks=arguments.sinks,
        assignment="causal",
    )
    try:
        result: dict[str, Any] = {
            "model": arguments.model,
            "centroids": centroids.name,
            "centroids_sha256": centroids.sha256,
            "config": focus.config.to_dict(),
            "dtype": arguments.dtype,
            "seed": arguments.seed,
            "machine": machine(str(next(model.parameters()).device)),
            "versions": versions(),
            "text": arguments.text and Path(arguments.text).name,
            "lengths_beyond_the_text": skipped,
        }
        result["layer"] = _layer_rows(model, focus.config, layer_lengths, arguments, step)
        result["prefill"], result["decode"] = [], []
        for number, length in enumerate(lengths):
            step(f"Whole model at {length:,} tokens", 0.45 + 0.4 * number / len(lengths))
            result["prefill"].append(prefill_speed(focus, ids[:, :length], repeats=arguments.repeats))
            result["decode"].append(decode_speed(focus, ids[:, :length], steps=DECODE_STEPS))
        if lengths:
            step("Perplexity", 0.9)
            window = min(1024, lengths[-1])
            scored = ids[0, : lengths[-1]]
            with torch.no_grad(), focus.full_attention():
                full = perplexity(model, scored, length=window)
            sparse = perplexity(focus, scored, length=window)
            result["perplexity"] = {
                "full": full.value,
                "focus": sparse.value,
                "scored_tokens": full.scored,
                "window_tokens": window,
                "stride": full.stride,
            }
    finally:
        focus.detach()
    return result


def describe(result: dict[str, Any]) -> str:
    """What was measured, a line each."""
    lines = []
    for row in result["layer"]:
        lines.append(
            f"one layer    {row['tokens']:>7,} tokens  full {row['full_ms']['median']:>9,.1f} ms  Focus "
            f"{row['focus_ms']['median']:>9,.1f} ms  {row['full_over_focus']:.2f}x as fast, "
            f"{row['retained_pairs']:.0%} of pairs kept ({row['backend']})"
        )
    for row in result["prefill"]:
        lines.append(
            f"prefill      {row['tokens']:>7,} tokens  full {row['full_ms']['median']:>9,.1f} ms  Focus "
            f"{row['focus_ms']['median']:>9,.1f} ms  {row['full_over_focus']:.2f}x as fast, attention alone "
            f"{row['attention_full_over_focus']:.2f}x"
        )
    for row in result["decode"]:
        lines.append(
            f"decode after {row['past_tokens']:>7,} tokens  full {row['full_tokens_per_second']:>9,.1f} /s  Focus "
            f"{row['focus_tokens_per_second']:>9,.1f} /s  {row['full_over_focus']:.2f}x as fast, attention alone "
            f"{row['attention_full_over_focus']:.2f}x"
        )
    if "perplexity" in result:
        found = result["perplexity"]
        lines.append(
            f"perplexity   full {found['full']:.3f}, Focus {found['focus']:.3f} "
            f"({found['focus'] / found['full'] - 1:+.2%}), {found['scored_tokens']:,} scored tokens"
        )
    return "\n".join(lines)


def _prepared(folder: str) -> Path:
    target = Path(os.path.expanduser(folder))
    try:
        target.mkdir(parents=True, exist_ok=True)
        (target / ".writable").touch()
        (target / ".writable").unlink()
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}", fix="choose another --out folder") from error
    return target


def bench(arguments: argparse.Namespace) -> None:
    """Measure, then write bench.json and bench.svg."""
    from choreographer.errors import DevtoolsProtocolError
    from kaleido.errors import KaleidoError

    from focus_explorer.views.speed import speed_figure

    no_browser = (
        RuntimeError,
        ValueError,
        OSError,
        KaleidoError,
        DevtoolsProtocolError,
    )  # as Chrome is missing or dies
    target = _prepared(arguments.out)  # before minutes of measuring
    with stage_bar() as step:
        result = measure(arguments, step)
        step("Drawing", 0.97)
        data = target / "bench.json"
        data.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        figure, plot, why_not = speed_figure(result), None, ""
        try:
            figure.write_image(target / "bench.svg")
            plot = str(target / "bench.svg")
        except no_browser as error:  # the numbers are safe by now
            why_not = f"{type(error).__name__}: no plot was drawn; it needs Chrome or Chromium"
    if arguments.json:
        print(json.dumps({**result, "data": str(data), "plot": plot}))
        return
    print(describe(result))
    print(f"written      {data}" + (f" and {plot}" if plot else f"\nnote         {why_not}"))
