"""The default model on a GPU or CPU: perplexity, prefill, decode, generation, `analyze`, training; a part of gpu.py."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.config import FocusConfig, TextOptions
from focus_runtime.errors import first_line
from focus_runtime.measure.perplexity import perplexity
from focus_runtime.measure.speed.model import decode_speed, prefill_speed
from focus_runtime.routing.centroid_file import load_centroids
from focus_runtime.run.text import analyze

CENTROIDS = Path(__file__).parents[1] / "assets" / "centroids" / "smollm2-135m.safetensors"
CONTEXT, GENERATED, ANALYSED = 8192, 512, 2048  # tokens
DECODE_STEPS = 16
TRAIN_TOKENS, TRAIN_STEPS = 1024, 6


def measure(
    model_name: str, text: str, device: torch.device, noted: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """What users do with the default model.

    Args:
        model_name: its name, GGUF file or folder.
        text: of `CONTEXT` tokens or more.
        device: where; the CPU's figures are to be set beside a GPU's.
        noted: takes the result so far, after every part.
    """
    from focus_runtime.models.loading import load_model

    found: dict[str, Any] = {"device": str(device), "cpu_threads": torch.get_num_threads()}
    model, tokenizer = load_model(model_name)
    ids = torch.tensor(tokenizer(text)["input_ids"])
    found["tokens"] = min(CONTEXT, len(ids))
    if len(ids) < CONTEXT:
        return found | {"error": f"the text has {len(ids)} tokens, {CONTEXT} are needed"}
    ids, found["perplexity"] = ids[:CONTEXT].to(device), {}

    def note(part: str, work: Callable[[], Any]) -> None:
        try:
            found[part] = work()
        except Exception as error:  # a part that fails is a result
            found[part] = {"error": f"{type(error).__name__}: {first_line(error)}"}
        noted(found)

    for dtype, backend in PRECISIONS[device.type]:
        model = model.to(device, dtype)
        found["perplexity"][f"{dtype} {backend}"] = both_perplexities(model, ids, backend)
        noted(found)
    focus = compose(model, default_centroids(device))
    note("prefill", lambda: prefill_speed(focus, ids[None], repeats=3))
    note("decode", lambda: decode_speed(focus, ids[None, : CONTEXT // 2], steps=DECODE_STEPS))
    focus.detach()
    note("analyze", lambda: analysis(model, tokenizer, text))
    model = model.float()
    note("train", lambda: training_speed(model, tokenizer, text, "no"))
    if device.type != "cpu":
        note("train_bf16", lambda: training_speed(model, tokenizer, text, "bf16"))
    model = model.to(dtype)
    focus = compose(model, default_centroids(device))
    note("generation", lambda: generation(focus, ids[None, :-GENERATED], GENERATED))
    focus.detach()
    return found


PRECISIONS = {  # and the backend of Focus; the last one is that of what follows
    "cpu": ((torch.float32, "auto"),),
    "cuda": ((torch.float32, "masked"), (torch.bfloat16, "auto")),
}


def default_centroids(device: torch.device) -> Any:
    """Those of the default model, on a device."""
    centroids = load_centroids(CENTROIDS)
    for router in centroids.routers.values():
        router.to(device)
    return centroids


def both_perplexities(model: Any, ids: torch.Tensor, backend: str) -> dict[str, float]:
    """Of full attention and of Focus with the default centroids, over one window of all tokens."""
    full = perplexity(model, ids, length=len(ids)).value
    focus = compose(model, default_centroids(ids.device), backend=backend)
    try:
        return {"full": full, "focus": perplexity(focus, ids, length=len(ids)).value}
    finally:
        focus.detach()


def analysis(model: Any, tokenizer: Any, text: str) -> dict[str, Any]:
    """A text through `analyze`, with every measurement the page shows."""
    centroids = default_centroids(model.device)
    options = TextOptions(max_tokens=ANALYSED, repeats=2, attention_mass=True)
    before = time.perf_counter()
    trace = analyze(model, tokenizer, text, centroids, options)
    seconds = time.perf_counter() - before
    times: dict[str, list[float]] = {}
    for timing in trace.timings:
        times.setdefault(f"{timing.mode} {timing.stage}", []).append(timing.milliseconds)
    return {
        "tokens": trace.num_tokens,
        "seconds": seconds,
        "info": {key: trace.info[key] for key in ("device", "dtype", "backend")},
        "perplexity": {mode: trace.perplexity(mode) for mode in ("full", "focus")},
        "mean_pairs_kept": sum(layer.retained_pairs for layer in trace.layers) / len(trace.layers),
        "milliseconds": {name: min(values) for name, values in times.items()},
    }


def generation(focus: FocusModel, prompt: torch.Tensor, tokens: int) -> dict[str, Any]:
    """Greedy tokens after a prompt, full attention and Focus."""
    result: dict[str, Any] = {"prompt_tokens": prompt.shape[1], "new_tokens": tokens}
    for mode in ("full", "focus"):
        with focus.measured_full_attention() if mode == "full" else nullcontext():
            if prompt.device.type == "cuda":
                torch.cuda.synchronize()
            before = time.perf_counter()
            model: Any = focus.model
            out = model.generate(prompt, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0)
            if prompt.device.type == "cuda":
                torch.cuda.synchronize()
            result[f"{mode}_seconds"] = time.perf_counter() - before
            result[f"{mode}_new_tokens"] = out.shape[1] - prompt.shape[1]
    return result


def training_speed(model: Any, tokenizer: Any, text: str, precision: str) -> dict[str, Any]:
    """Seconds of a step of centroid training, in fp32 ("no") or mixed precision."""
    from focus_runtime.fit.centroids import train_centroids
    from focus_runtime.fit.settings import TrainConfig

    settings = TrainConfig(
        steps=TRAIN_STEPS, seq_len=TRAIN_TOKENS, warmup=1, calibration_sequences=1, mixed_precision=precision
    )
    losses: list[float] = []
    ends: list[float] = []

    def on_step(step: Any) -> None:
        losses.append(step.loss)
        ends.append(time.perf_counter())

    before = time.perf_counter()
    train_centroids(model, tokenizer, [text], FocusConfig(num_groups=4), settings, on_step=on_step)
    parts = [after - start for start, after in itertools.pairwise(ends)]
    return {
        "tokens": TRAIN_TOKENS,
        "steps": TRAIN_STEPS,
        "seconds": time.perf_counter() - before,
        "seconds_a_step": sorted(parts)[len(parts) // 2] if parts else None,
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "finite": all(math.isfinite(loss) for loss in losses),
    }
