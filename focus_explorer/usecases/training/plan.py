"""A request to train -> the runtime's settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focus_explorer.errors import InputError
from focus_explorer.usecases.budget import budget_of
from focus_explorer.usecases.training.domains import DomainRequest, parse_domains
from focus_explorer.usecases.training.request import ROUTING_DIM, VAL_EVERY, TrainRequest, flag, parse_layers
from focus_explorer.usecases.training.trackers.target import LogTarget, parse_targets

if TYPE_CHECKING:
    from focus_runtime.config import FocusConfig
    from focus_runtime.fit.settings import TrainConfig
    from focus_runtime.routing.centroids import Centroids


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """A checked request with the runtime's own settings.

    Attributes:
        config: K, d_g, window and gate during training.
        settings: optimisation.
        result_config: `config` as the file is to be used, which may have another window.
        domains: what is trained on.
        held_out: what is scored; empty for nothing.
        val_every: steps between scores during the training; 0 for the end only.
        log_to: programs that log it, besides the database.
    """

    request: TrainRequest
    config: FocusConfig
    settings: TrainConfig
    result_config: FocusConfig
    domains: list[DomainRequest]
    held_out: list[DomainRequest]
    val_every: int
    log_to: list[LogTarget]


def plan_training(
    request: TrainRequest, initial: Centroids | None = None, *, name: Callable[[str], str] = flag
) -> TrainingPlan:
    """Check a request and translate it.

    Args:
        request: the options.
        initial: the centroids that `request.init` names.
        name: option -> its name in messages, as the user chose it.

    Raises:
        InputError: an option is out of range.
    """
    from focus_runtime.config import FocusConfig
    from focus_runtime.fit.recipes import recipe_named
    from focus_runtime.fit.settings import TrainConfig

    recipe = recipe_named(request.recipe)
    _check_options(request, name)
    domains = parse_domains(request.text, "--text", weighted=True)
    held_out = parse_domains(request.val, "--val", weighted=False)
    val_every = request.val_every or (VAL_EVERY if request.patience else 0)
    layers = parse_layers(request.layers)
    if initial is not None and layers is None:
        layers = initial.config.layers
    config = FocusConfig(
        num_groups=_given(request.groups, initial and initial.config.num_groups, recipe.num_groups),
        routing_dim=_given(request.routing_dim, initial and initial.config.routing_dim, ROUTING_DIM),
        top_k=request.top_k,
        window=request.train_window if request.train_window is not None else request.window,
        num_sinks=request.sinks,
        temperature=request.temperature,
        sinkhorn_iterations=request.iterations,
        normalisation=request.normalisation,
        assignment=request.assignment,
        gate=request.gate,
        layers=layers,
        budget=_given(budget_of(request.budget), initial and initial.config.budget, ()),
        text_sinks=initial.config.text_sinks if initial is not None else None,
        text_sinks_from=initial.config.text_sinks_from if initial is not None else FocusConfig().text_sinks_from,
        window_growth=initial.config.window_growth if initial is not None else None,
        logit_factors=request.learn == "factors" or (initial is not None and initial.config.logit_factors),
    )
    settings = TrainConfig(
        steps=request.steps,
        seq_len=request.seq_len,
        batch=request.batch,
        accumulation=request.accumulate,
        learning_rate=request.lr,
        steepness=request.steepness,
        steepness_start=request.steepness_start,
        hard=request.hard,
        loss=request.loss,
        learn=request.learn,
        distil_weight=request.distil_weight,
        hard_steps=request.hard_steps,
        seed=request.seed,
        special_tokens=request.special_tokens,
        warmup=min(20, max(0, request.steps) // 5),
        mixed_precision=request.precision,
        gradient_checkpointing=request.gradient_checkpointing,
        checkpoint_every=request.checkpoint_every,
    )
    result_config = config.replace(window=request.window)
    log_to = parse_targets(request.log_to)
    return TrainingPlan(request, config, settings, result_config, domains, held_out, val_every, log_to)


def _given(*values: Any) -> Any:
    """The first one that is given."""
    return next(value for value in values if value is not None)


def _check_options(request: TrainRequest, name: Callable[[str], str]) -> None:
    """Options that exclude each other or are out of range; `name` says how a message calls them."""
    for option in ("hard", "hard_steps"):
        if getattr(request, option) and request.gate != "log":
            raise InputError(
                f"{name(option)} goes with the log gate only", fix=f"choose the log gate, or leave out {name(option)}"
            )
    if request.steepness_start is not None and request.gate != "paper":
        raise InputError(
            f"{name('steepness_start')} goes with the paper gate only",
            fix=f"choose the paper gate, or leave out {name('steepness_start')}",
        )
    if request.learn == "factors" and request.init is None:
        raise InputError(
            f"{name('learn')} factors is given without trained centroids",
            expected="the groups that they are for",
            fix=f"add {name('init')}",
        )
    if request.learn == "factors" and request.train_window is not None:
        raise InputError(
            f"{name('train_window')} is given, but factors are learned at the settings of use",
            fix=f"leave it out, or choose {name('learn')} groups",
        )
    if request.loss != "both" and request.distil_weight != 1.0:
        raise InputError(
            f"{name('distil_weight')} goes with {name('loss')} both, not with {name('loss')} {request.loss}",
            fix=f"leave it out, or choose {name('loss')} both",
        )
    if Path(request.out).suffix != ".safetensors":
        raise InputError(f"{name('out')} is {request.out!r}", expected="a file name ending in .safetensors")
    if request.snapshots < 0:
        raise InputError(f"{name('snapshots')} is {request.snapshots}", expected="a number of steps, or 0 for none")
    if request.val_sequences < 1:
        raise InputError(f"{name('val_sequences')} is {request.val_sequences}", expected="at least 1")
    if request.patience < 0:
        raise InputError(
            f"{name('patience')} is {request.patience}", expected="a number of scores, or 0 for no early end"
        )
    if request.val_every is not None and request.val_every < 1:
        raise InputError(f"{name('val_every')} is {request.val_every}", expected="at least 1 step")
    for option in ("patience", "val_every"):
        if getattr(request, option) and not request.val:
            raise InputError(
                f"{name(option)} is given without held-out text",
                expected=f"the text that decides ({name('val')})",
                fix=f"add {name('val')}, or leave out {name(option)}",
            )
