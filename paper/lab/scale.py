"""How large a reproduction is: tiny (minutes, anywhere), small (hours on two cores), paper (GPUs)."""

from dataclasses import dataclass

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
        study_steps, study_len: of the group-dominance study.
        sweep_steps: of each training in an ablation.
        gate_steps: of each training in the gate laboratory.
        learning_rate, weight_rate, lora_rates: peak rates for centroids, all weights, LoRA.
        seeds: of initialisation and data order; intervals are over documents and seeds.
        layer_tokens: at which one layer is timed beside a perplexity.
        speed_lengths, long_lengths: tokens for one layer's speed, and for perplexity at growing length.
        needs: what a user must provide.
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


TINY = Scale(
    name="tiny",
    seq_len=128,
    window=16,
    steps=6,
    weight_steps=3,
    scratch_steps=6,
    curve_steps=10,
    study_steps=8,
    study_len=64,
    sweep_steps=3,
    gate_steps=3,
    lora_rates=(1e-4, 1e-3),
    seeds=(0, 1),
    val_sequences=4,
    layer_tokens=1024,
    speed_lengths=(512, 1024),
    long_lengths=(128, 256, 512),
    task_items=6,
    needs="nothing: two cores, 4 GB, minutes",
)
PAPER = Scale(
    name="paper",
    model="openai-community/gpt2",
    dtype="float32",
    steps=5000,
    weight_steps=5000,
    scratch_steps=50_000,
    curve_steps=50_000,
    study_steps=2000,
    study_len=1024,
    sweep_steps=2000,
    gate_steps=2000,
    batch=16,
    weight_rate=3e-5,
    lora_rates=(1e-4, 5e-4, 1e-3, 2e-3),
    val_sequences=512,
    layer_tokens=65_536,
    speed_lengths=(1024, 4096, 16_384, 32_768, 65_536, 262_144, 1_048_576),
    task_items=500,
    needs="PG-19 as --text FOLDER --val FILE, a GPU of 80 GB for days, GPT-2 from the hub or another --model of the "
    "paper's (one run for each), and for `domains` --domain NAME=FOLDER for each kind of text",
)
SCALES = {scale.name: scale for scale in (TINY, Scale(), PAPER)}


def scale_named(name: str) -> Scale:
    """One of `SCALES`.

    Raises:
        InputError: there is no such scale.
    """
    if name not in SCALES:
        raise InputError(f"there is no scale {name!r}", expected=" or ".join(SCALES))
    return SCALES[name]
