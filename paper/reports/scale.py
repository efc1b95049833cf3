"""How large a reproduction is: tiny (minutes, anywhere), small (hours on two cores), paper (GPUs)."""

from __future__ import annotations

from dataclasses import dataclass

from focus_explorer.errors import InputError


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Sizes of every experiment.

    Attributes:
        model: default of --model.
        dtype: of the frozen model, in training and evaluation; "auto" is the type that the device computes natively.
        seq_len, window: tokens per sequence, local window w; every sequence is longer than the window.
        steps: optimiser steps of each training of centroids.
        weight_steps: of each training that changes weights (LoRA, full fine-tuning).
        scratch_steps: of each training from random initialisation.
        curve_steps: of the training from random initialisation whose curve is drawn.
        batch: sequences per step.
        learning_rate, weight_rate, lora_rates: peak rates for centroids, all weights, LoRA.
        seeds: of initialisation and data order; intervals are over documents and seeds.
        val_sequences: held-out sequences.
        study_steps, study_len: of the group-dominance study.
        sweep_steps: of each training in an ablation.
        gate_steps: of each training in the gate laboratory.
        speed_lengths, long_lengths: tokens for one layer's speed, and for perplexity at growing length.
        task_items: items per task.
        benchmarks: whether lm-eval's own tasks are run, which only the hub has.
        sweep_weight_steps: of each training of all weights in an ablation; 0 for none.
        needs: hardware and time.
    """

    name: str
    model: str
    dtype: str
    seq_len: int
    window: int
    steps: int
    weight_steps: int
    scratch_steps: int
    curve_steps: int
    batch: int
    learning_rate: float
    weight_rate: float
    lora_rates: tuple[float, ...]
    seeds: tuple[int, ...]
    val_sequences: int
    study_steps: int
    study_len: int
    sweep_steps: int
    gate_steps: int
    speed_lengths: tuple[int, ...]
    long_lengths: tuple[int, ...]
    task_items: int
    needs: str
    benchmarks: bool = False
    sweep_weight_steps: int = 0


SCALES = {
    scale.name: scale
    for scale in (
        Scale(
            name="tiny",
            model="smollm2-135m",
            dtype="auto",
            seq_len=128,
            window=16,
            steps=6,
            weight_steps=3,
            scratch_steps=6,
            curve_steps=10,
            batch=1,
            learning_rate=3e-3,
            weight_rate=2e-5,
            lora_rates=(1e-4, 1e-3),
            seeds=(0, 1),
            val_sequences=4,
            study_steps=8,
            study_len=64,
            sweep_steps=3,
            gate_steps=3,
            speed_lengths=(512, 1024),
            long_lengths=(128, 256, 512),
            task_items=6,
            needs="two CPU cores, 4 GB; minutes",
        ),
        Scale(
            name="small",
            model="smollm2-135m",
            dtype="auto",
            seq_len=1024,
            window=128,
            steps=600,
            weight_steps=24,
            scratch_steps=60,
            curve_steps=1200,
            batch=1,
            learning_rate=3e-3,
            weight_rate=2e-5,
            lora_rates=(1e-4, 5e-4, 2e-3),
            seeds=(0, 1, 2),
            val_sequences=24,
            study_steps=60,
            study_len=256,
            sweep_steps=600,
            gate_steps=120,
            speed_lengths=(1024, 2048, 4096, 8192, 16384, 32768),
            long_lengths=(1024, 2048, 4096, 8192),
            task_items=100,
            needs="two CPU cores, 8 GB; half an hour for each training of centroids",
        ),
        Scale(
            name="paper",
            model="openai-community/gpt2",
            dtype="float32",
            seq_len=1024,
            window=128,
            steps=5000,
            weight_steps=5000,
            scratch_steps=50_000,
            curve_steps=50_000,
            batch=16,
            learning_rate=3e-3,
            weight_rate=3e-5,
            lora_rates=(1e-4, 5e-4, 1e-3, 2e-3),
            seeds=(0, 1, 2),
            val_sequences=512,
            study_steps=2000,
            study_len=1024,
            sweep_steps=2000,
            gate_steps=2000,
            speed_lengths=(1024, 4096, 16384, 32768, 65536, 262144, 1048576),
            long_lengths=(1024, 2048, 4096, 8192),
            task_items=500,
            needs="one 80 GB GPU; the hub for models and task data; days",
            benchmarks=True,
            sweep_weight_steps=2000,
        ),
    )
}


def scale_named(name: str) -> Scale:
    """One of `SCALES`.

    Raises:
        InputError: there is no such scale.
    """
    if name not in SCALES:
        raise InputError(f"there is no scale {name!r}", expected=" or ".join(SCALES))
    return SCALES[name]
