"""Speed of one layer and of the whole model, with the quality at the same setting, as JSON and a plot."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from focus_explorer.errors import InputError, TextError
from focus_explorer.progress import Progress, StageBar, no_stages
from focus_explorer.usecases.models import load_at
from focus_explorer.usecases.request import (
    AsJson,
    Computed,
    File,
    FocusOptions,
    Numbers,
    OfModel,
    Settings,
    TextBegins,
    focus_settings,
    numbers,
    option,
)
from focus_explorer.usecases.texts import all_samples, read_text_file, special_token_notes
from focus_runtime.failures import Advice
from focus_runtime.files import cannot_write, check_writable_folder
from focus_runtime.text.special import text_ids

DECODE_STEPS = 8
SHORTER_LENGTHS = Advice(
    fits="leave out what is longer than {0} (--lengths)",
    otherwise="leave out the longest of --lengths, or close other programs",
)
SUCH_AS = "numbers of tokens such as 512,1024,2048"
LONGEST = 1 << 21  # tokens; at this many the layer's inputs alone take gigabytes


class BenchRequest(OfModel, FocusOptions, Computed, TextBegins, AsJson):
    settings: Settings = focus_settings("assignment")
    text: File | None = option(None, "a UTF-8 text file (default: the sample texts)")
    lengths: Numbers = numbers((512, 1024, 2048), "tokens for the whole model", SUCH_AS)
    layer_lengths: Numbers = numbers((1024, 2048, 4096, 8192, 16384), "tokens for one attention layer", SUCH_AS)
    repeats: int = option(5, "timed repeats after one to warm up", ge=1)
    seed: int = option(0, "of the one layer's random inputs")
    out: File = option("benchmarks/results", "folder for bench.json and bench.svg")


@dataclass(frozen=True, slots=True)
class Written:
    """What `bench` measured and where it is; `problem` says why there is no plot."""

    result: dict[str, Any]
    data: Path
    plot: Path | None
    problem: str = ""


def bench(request: BenchRequest, draw: Callable[[Any, str], bytes], *, bar: StageBar = no_stages) -> Written:
    """Measure, then write bench.json and bench.svg, which `draw` makes of a figure and a format unless it refuses."""
    from focus_explorer.views.figures.quality import speed_figure

    target = Path(os.path.expanduser(request.out))
    explain = cannot_write("choose another --out folder", problem="cannot write to")
    check_writable_folder(target, explain=lambda _, error: explain(Path(request.out), error))
    with bar() as progress:
        result = measure(request, progress)
        progress("Drawing", 0.97)
        data, plot = target / "bench.json", target / "bench.svg"
        data.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        try:
            picture = draw(speed_figure(result), "svg")
        except InputError as error:  # the numbers are written by now
            return Written(result, data, None, f"no plot was drawn: {error}")
        plot.write_bytes(picture)
    return Written(result, data, plot)


def measure(request: BenchRequest, progress: Progress) -> dict[str, Any]:
    import torch

    from focus_runtime.composition.attach import compose
    from focus_runtime.measure.memory import within_memory
    from focus_runtime.measure.timing import machine
    from focus_runtime.models.devices import input_device
    from focus_runtime.routing.centroid_file import load_centroids
    from focus_runtime.run.text import versions

    text = all_samples() if request.text is None else read_text_file(Path(os.path.expanduser(request.text)))
    progress("Loading the model", 0.0)
    model, tokenizer, placement = load_at(request.model, request.device, request.dtype)
    ids = torch.tensor([text_ids(tokenizer, text, request.special_tokens)], device=placement.device)
    lengths = _lengths_within(model, ids, request.lengths)
    centroids = load_centroids(request.centroids)
    focus = compose(model, centroids, settings=request.settings, assignment="causal", backend=request.backend)
    try:
        with within_memory(model, SHORTER_LENGTHS):
            measured = {
                "layer": _layer_rows(model, focus.config, request, progress),
                **_model_rows(focus, ids, lengths, request.repeats, progress),
                **_perplexities(model, focus, (tokenizer, ids), lengths, progress),
            }
        return {
            "model": request.model,
            "centroids": centroids.name,
            "centroids_sha256": centroids.sha256,
            "config": focus.config.to_dict(),
            "device": placement.device,
            "dtype": placement.dtype,
            "seed": request.seed,
            "machine": machine(str(input_device(model))),
            "versions": versions(),
            "text": request.text and Path(request.text).name,
            "special_tokens": request.special_tokens,
            "notes": special_token_notes(tokenizer, request.special_tokens, [centroids]),
            "lengths_beyond_the_text": [length for length in request.lengths if length not in lengths],
            **measured,
        }
    finally:
        focus.detach()


def _lengths_within(model: Any, ids: Any, lengths: tuple[int, ...]) -> list[int]:
    """The lengths the text has tokens for, (1, N) ids; the model must have positions for them."""
    from focus_runtime.measure.loss import check_positions

    within = [length for length in lengths if length <= ids.shape[1]]
    if lengths and not within:
        raise TextError(
            f"the text has {ids.shape[1]:,} tokens",
            expected=f"at least {lengths[0]:,}, the shortest of --lengths",
            fix="give a longer --text or shorter --lengths",
        )
    if within:
        check_positions(model, max(within) + DECODE_STEPS + 2)
    return within


def _model_rows(focus: Any, ids: Any, lengths: list[int], repeats: int, progress: Progress) -> dict[str, Any]:
    from focus_runtime.measure.speed.model import decode_speed, prefill_speed

    rows: dict[str, Any] = {"prefill": [], "decode": []}
    for number, length in enumerate(lengths):
        progress(f"Whole model at {length:,} tokens", 0.45 + 0.4 * number / len(lengths))
        rows["prefill"].append(prefill_speed(focus, ids[:, :length], repeats=repeats))
        rows["decode"].append(decode_speed(focus, ids[:, :length], steps=DECODE_STEPS))
    return rows


def _perplexities(
    model: Any, focus: Any, text: tuple[Any, Any], lengths: list[int], progress: Progress
) -> dict[str, Any]:
    """Perplexity with both kinds of attention on the longest of the lengths; `text` is the tokenizer and (1, N) ids."""
    import torch

    from focus_runtime.measure.perplexity import perplexity

    if not lengths:
        return {}
    progress("Perplexity", 0.9)
    window = min(1024, lengths[-1])
    tokenizer, ids = text
    scored = ids[0, : lengths[-1]]
    with torch.no_grad(), focus.full_attention():
        full = perplexity(model, scored, tokenizer=tokenizer, length=window)
    sparse = perplexity(focus, scored, tokenizer=tokenizer, length=window)
    values = {"full": full.value, "focus": sparse.value, "scored_tokens": full.scored}
    return {"perplexity": values | {"window_tokens": window, "stride": full.stride}}


def _layer_rows(model: Any, config: Any, request: BenchRequest, progress: Progress) -> list[Any]:
    """One layer of the model's own shape, random balanced groups."""
    from focus_runtime.measure.speed.layer import LayerSetting, layer_speed
    from focus_runtime.models.devices import input_device

    setting = replace(LayerSetting.of_model(model, config), backend=request.backend)
    device = str(input_device(model))
    rows = []
    for number, length in enumerate(request.layer_lengths):
        progress(f"One layer at {length:,} tokens", 0.02 + 0.4 * number / len(request.layer_lengths))
        rows.append(layer_speed(setting, length, repeats=request.repeats, seed=request.seed + length, device=device))
    return rows
