"""How large a reproduction is: tiny (minutes, anywhere), small (hours on two cores), paper (GPUs)."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus_explorer.errors import InputError


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Sizes of every experiment; the defaults are those of `small`.

    Attributes:
        dtype: of the frozen model, in training and evaluation; "auto" is the type that the device computes natively.
        seq_len, window: tokens per sequence, local window w; every sequence is longer than the window.
        steps: optimiser steps of each training of centroids.
        weight_steps: of each training that changes weights (LoRA, full fine-tuning).
        scratch_steps: of each training from random initialisation; curve_steps: of the one whose curve is drawn.
        sweep_steps, gate_steps: of each training in an ablation, and in the gate laboratory.
        seeds: of initialisation and data order; intervals are over documents and seeds.
        layer_tokens: at which one layer is timed beside a perplexity.
        speed_lengths, long_lengths: tokens for one layer's speed, and for perplexity at growing length.
    """

    name: str = "small"
    model: str = "smollm2-135m"
    dtype: str = "auto"
    seq_len: int = 1024
    window: int = 128
    steps: int = 600
    weight_steps: int = 24
    scratch_steps: int = 60
    curve_steps: int = 1200
    study_steps: int = 60
    study_len: int = 256
    sweep_steps: int = 600
    gate_steps: int = 120
    batch: int = 1
    learning_rate: float = 3e-3
    weight_rate: float = 2e-5
    lora_rates: tuple[float, ...] = (1e-4, 5e-4, 2e-3)
    seeds: tuple[int, ...] = (0, 1, 2)
    val_sequences: int = 24
    layer_tokens: int = 16_384
    speed_lengths: tuple[int, ...] = (1024, 2048, 4096, 8192, 16_384, 32_768)
    long_lengths: tuple[int, ...] = (1024, 2048, 4096, 8192)
    task_items: int = 100
    needs: str = "text of your own: --text FOLDER --val FILE (two cores and 8 GB for hours suffice)"


def _read(name: str, values: dict[str, Any]) -> Scale:
    sizes: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in values.items()}
    return Scale(name=name, **sizes)


_OTHERS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
SCALES = {"tiny": _read("tiny", _OTHERS["tiny"]), "small": Scale(), "paper": _read("paper", _OTHERS["paper"])}


def scale_named(name: str) -> Scale:
    """One of `SCALES`."""
    if name not in SCALES:
        raise InputError(f"there is no scale {name!r}", expected=" or ".join(SCALES))
    return SCALES[name]
