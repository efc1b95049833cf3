"""A request to train -> the runtime's settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from focus_explorer.errors import InputError
from focus_explorer.services.training.request import TrainRequest, parse_layers

if TYPE_CHECKING:
    from focus_runtime.config import FocusConfig
    from focus_runtime.training.loop import TrainConfig


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """A checked request with the runtime's own settings.

    Attributes:
        config: K, d_g, window and gate during training.
        settings: optimisation.
        result_config: `config` as the file is to be used, which may have another window.
    """

    request: TrainRequest
    config: FocusConfig
    settings: TrainConfig
    result_config: FocusConfig


def plan_training(request: TrainRequest) -> TrainingPlan:
    """Check a request and translate it.

    Raises:
        InputError: an option is out of range.
    """
    from focus_runtime.config import FocusConfig
    from focus_runtime.training.loop import TrainConfig

    if request.hard and request.gate != "log":
        raise InputError("--hard goes with the log gate only", fix="leave out --hard or --gate paper")
    if Path(request.out).suffix != ".safetensors":
        raise InputError(f"--out is {request.out!r}", expected="a file name ending in .safetensors")
    if request.snapshots < 0:
        raise InputError(f"--snapshots is {request.snapshots}", expected="a number of steps, or 0 for none")
    if request.val_sequences < 1:
        raise InputError(f"--val-sequences is {request.val_sequences}", expected="at least 1")
    config = FocusConfig(
        num_groups=request.groups,
        routing_dim=request.routing_dim,
        top_k=request.top_k,
        window=request.train_window if request.train_window is not None else request.window,
        num_sinks=request.sinks,
        temperature=request.temperature,
        sinkhorn_iterations=request.iterations,
        normalisation=request.normalisation,
        assignment=request.assignment,
        gate=request.gate,
        layers=parse_layers(request.layers),
    )
    settings = TrainConfig(
        steps=request.steps,
        seq_len=request.seq_len,
        batch=request.batch,
        accumulation=request.accumulate,
        learning_rate=request.lr,
        hard=request.hard,
        seed=request.seed,
        warmup=min(20, max(0, request.steps) // 5),
        mixed_precision=request.precision,
        gradient_checkpointing=request.gradient_checkpointing,
        checkpoint_every=request.checkpoint_every,
    )
    return TrainingPlan(request, config, settings, config.replace(window=request.window))
