"""The options of a training: one list for the command line, the page and the process it starts, and what they ask for.

A training is of a regime: of centroids for a frozen model, or of all weights in two phases or from scratch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focus_explorer import settings
from focus_explorer.errors import InputError
from focus_explorer.usecases.budget import budget_of
from focus_explorer.usecases.training.texts import DomainRequest, parse_domains
from focus_explorer.usecases.training.trackers import LogTarget, parse_targets
from focus_runtime.config import FocusConfig
from focus_runtime.files import PART
from focus_runtime.fit.settings import LEARNED, LOSSES, PRECISIONS, RECIPES, TrainConfig, in_words, recipe_named
from focus_runtime.text.special import DEFAULT

if TYPE_CHECKING:
    from focus_runtime.fit.regimes import RegimePlan
    from focus_runtime.routing.centroids import Centroids

CENTROIDS = "centroids"  # the regime of `train`; those of `finetune` train the weights too
REGIMES = {"two-phase": "two_phase", "from-scratch": "from_scratch"}  # their names in the runtime
OF_REGIME = {"lr": 2e-5, "val_sequences": 16}  # option -> its default where weights are trained
VAL_EVERY = 50
ROUTING_DIM = FocusConfig().routing_dim
OURS = RECIPES["ours"]
GROUPS = OURS.num_groups
OF_RECIPE = {  # option -> field of `Recipe` that gives its default
    "groups": "num_groups",
    "window": "window",
    "sinks": "num_sinks",
    "iterations": "sinkhorn_iterations",
    "temperature": "temperature",
    "assignment": "assignment",
    "gate": "gate",
    "steepness": "steepness",
}


def _option(
    default: Any,
    text: str,
    *,
    kind: type | None = None,
    choices: tuple[str, ...] | None = None,
    only: str | None = None,
) -> Any:
    """An option with its help, of the type of its default unless that is None; `only` train or finetune has it."""
    metadata = {"help": text, "kind": kind or type(default), "choices": choices, "only": only}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainRequest:
    """Options of `focus-explorer train` and `finetune`; their help texts are in the fields' metadata."""

    text: tuple[str, ...]
    out: str
    val: tuple[str, ...] = ()
    log_to: tuple[str, ...] = ()
    model: str = settings.SETTINGS["model"].default
    regime: str = _option(
        CENTROIDS,
        "two-phase: centroids first, then all weights with them; from-scratch: both from random initialisation",
        choices=tuple(REGIMES),
        only="finetune",
    )
    twin: bool = _option(False, "full attention instead of Focus, same data and rates", only="finetune")
    name: str = _option("", "name the training is listed under (default: the result's file name)", only="train")
    recipe: str = _option(
        "ours",
        "settings that are not given: ours, which lost least here under the hard mask, or paper, the published ones",
        choices=("ours", "paper"),
    )
    init: str | None = _option(
        None,
        "trained centroids to start from: default, or a centroid file (default: random ones)",
        kind=str,
        only="train",
    )
    learn: str = _option(
        "groups",
        "groups; or factors, one of the logits for each query head, with the groups of --init as they are, at the "
        "settings of use",
        choices=LEARNED,
        only="train",
    )
    groups: int | None = _option(
        None, f"K, groups per layer (default: {in_words('num_groups')}, or those of --init)", kind=int
    )
    routing_dim: int | None = _option(
        None,
        f"width of the space in which tokens meet their centroids (default: {ROUTING_DIM}, or that of --init)",
        kind=int,
    )
    top_k: int = _option(2, "groups per token the file is to be used with")
    window: int = _option(
        OURS.window, "pairs at most this far apart always attend, in heads without a window of their own"
    )
    train_window: int | None = _option(
        None, "window during training (default: the same as --window)", only="train", kind=int
    )
    sinks: int = _option(OURS.num_sinks, "first tokens every token may attend to")
    iterations: int = _option(OURS.sinkhorn_iterations, "Sinkhorn iterations, which balance the groups")
    temperature: float = _option(OURS.temperature, "divides the scores; lower is more decided")
    normalisation: str = _option("sinkhorn", "what balances the groups in training", choices=("sinkhorn", "softmax"))
    assignment: str = _option(
        OURS.assignment, "how the file is to be used, and held-out text scored", choices=("causal", "sinkhorn")
    )
    layers: str | None = _option(None, "layers that get groups, such as 0,3,5 (default: every layer)", kind=str)
    budget: str | None = _option(
        None,
        "layers and heads with a top-k or window of their own, or with full attention, also while training: a JSON "
        "file as in docs/centroid-files.md, or none (default: that of --init)",
        kind=str,
        only="train",
    )
    gate: str = _option(OURS.gate, "soft gate in training; paper is equation 2", choices=("log", "paper"))
    steepness: float = _option(OURS.steepness, "lambda of equation 2, with the paper gate")
    steepness_start: float | None = _option(
        None, "lambda of the first step, from which it grows evenly (default: the same in every step)", kind=float
    )
    hard: bool = _option(False, "train on the hard mask with straight-through gradients")
    loss: str = _option(
        "lm",
        "what is minimised: lm, the loss of the text; distil, the divergence from full attention's predictions, in a "
        "second pass; both, lm + --distil-weight x distil; or layers, what Focus changes in the output of each layer",
        choices=LOSSES,
        only="train",
    )
    distil_weight: float = _option(1.0, "of the divergence in --loss both", only="train")
    hard_steps: int = _option(
        0,
        "last steps on the hard mask at the settings of use, with straight-through gradients (log gate only)",
        only="train",
    )
    steps: int = _option(300, "optimiser steps")
    centroid_steps: int = _option(300, "steps of the phase that trains only centroids (two-phase)", only="finetune")
    seq_len: int = _option(512, "tokens per sequence")
    batch: int = _option(1, "sequences per pass")
    accumulate: int = _option(1, "passes whose gradients make one step")
    lr: float = _option(3e-3, "peak learning rate")
    centroid_lr: float = _option(3e-3, "of the phase that trains only centroids", only="finetune")
    router_lr: float = _option(3e-4, "of the centroids while weights train", only="finetune")
    seed: int = _option(0, "of initialisation and data order")
    special_tokens: str = _option(DEFAULT, settings.TEXTS_BEGIN, choices=settings.SPECIAL_TOKENS)
    device: str = _option(
        "auto", "cpu, cuda, cuda:N or mps; auto is the first GPU, or one for each process (default: auto)"
    )
    dtype: str = _option(
        "float32",
        "of the frozen model; auto is the one that the device computes natively",
        choices=("auto", "float32", "bfloat16"),
        only="train",
    )
    precision: str = _option("no", "mixed precision on top of it", choices=PRECISIONS)
    gradient_checkpointing: bool = _option(False, "less memory, more time")
    checkpoint_every: int = _option(50, "steps between checkpoints")
    snapshots: int = _option(
        0, "steps between files kept on the way, NAME.step-N.safetensors next to --out (0: none)", only="train"
    )
    val_sequences: int = _option(24, "held-out sequences that are scored, of each domain")
    val_every: int | None = _option(
        None,
        f"steps between scores on --val (default: {VAL_EVERY} with --patience, otherwise at the end only)",
        only="train",
        kind=int,
    )
    patience: int = _option(
        0,
        "end after so many scores in a row without a lower mean over the --val domains, and keep the best (0: never)",
        only="train",
    )
    resume: bool = _option(False, "continue where the training with the same --out was stopped")

    @property
    def trains_weights(self) -> bool:
        """Whether the result is a folder with a model and its centroids, not a centroid file."""
        return self.regime != CENTROIDS

    @property
    def trains_centroids_first(self) -> bool:
        """Whether a phase before that of the weights trains only the centroids."""
        return self.regime == "two-phase" and not self.twin

    @property
    def result(self) -> Path:
        return Path(os.path.expanduser(self.out))

    @property
    def checkpoint(self) -> Path:
        """Where an unfinished training is kept: a file, or a folder of those of its phases."""
        return self.result / "checkpoint" if self.trains_weights else checkpoint_of(self.out)

    @property
    def can_resume(self) -> bool:
        """Whether a checkpoint is kept; one that a kill or a full disk left half-written is none."""
        if not self.trains_weights:
            return self.checkpoint.exists()
        return any(not path.name.startswith(PART) for path in self.checkpoint.glob("*.ckpt"))

    def to_arguments(self) -> list[str]:
        """The words after `focus-explorer train` that give the same request."""
        words = ["--text", *self.text, "--out", self.out, "--model", self.model]
        words += ["--val", *self.val] if self.val else []
        words += [word for target in self.log_to for word in ("--log-to", target)]
        usual = recipe_values(self.recipe) | {"groups": None}
        for option in options("train"):
            value = getattr(self, option.name)
            if value is not None and value != usual.get(option.name, option.default):
                words += [flag(option.name)] if value is True else [flag(option.name), str(value)]
        return words


def options(command: str) -> list[Any]:
    """The dataclass fields that are plain options of a command, train or finetune."""
    return [option for option in fields(TrainRequest) if option.metadata and option.metadata["only"] in (None, command)]


def usual(option: Any) -> str:
    """The default of an option in words; of one that recipes decide, with the paper's if it differs."""
    return in_words(OF_RECIPE[option.name]) if option.name in OF_RECIPE else str(option.default)


def recipe_values(name: str) -> dict[str, Any]:
    recipe = recipe_named(name)
    return {option: getattr(recipe, setting) for option, setting in OF_RECIPE.items()}


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def checkpoint_of(out: str | Path) -> Path:
    """Where the checkpoint of a centroid file is kept: in its folder."""
    return Path(os.path.expanduser(out)).with_suffix(".checkpoint")


def snapshot_of(out: str | Path, step: int) -> Path:
    """Where the centroids after `step` steps are kept: beside the result."""
    result = Path(os.path.expanduser(out))
    return result.with_name(f"{result.stem}.step-{step:06d}.safetensors")


def snapshots_of(out: str | Path) -> dict[int, Path]:
    """The centroids kept beside a result, by step."""
    result = Path(out)
    found = ((re.fullmatch(r"\.step-(\d+)", Path(path.stem).suffix), path) for path in result.parent.glob("*.step-*"))
    steps = {int(match[1]): path for match, path in found if match}
    return {step: path for step, path in steps.items() if path == snapshot_of(result, step)}


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """A checked request with the runtime's own settings."""

    request: TrainRequest
    config: FocusConfig
    settings: TrainConfig  # optimisation, of the last phase if there are several
    result_config: FocusConfig  # `config` as the file is to be used, which may have another window
    domains: list[DomainRequest]
    held_out: list[DomainRequest]
    val_every: int  # steps between scores during the training, 0 for only at the end
    log_to: list[LogTarget]
    regime: RegimePlan | None  # phases of a training of weights. None: centroids are trained

    @property
    def first_steps(self) -> int:
        """Steps of the phase that trains only centroids before the weights."""
        return self.request.centroid_steps if self.request.trains_centroids_first else 0


def plan_training(
    request: TrainRequest, initial: Centroids | None = None, *, name: Callable[[str], str] = flag
) -> TrainingPlan:
    """Check a request and translate it; `name` is how messages call an option."""
    _check_options(request, name)
    config = _config(request, initial)
    weights, regime = _phase(request, request.steps, request.lr), None
    if request.trains_weights:
        from focus_runtime.fit.regimes import RegimePlan

        first = _phase(request, request.centroid_steps, request.centroid_lr) if request.regime == "two-phase" else None
        regime = RegimePlan(
            regime=REGIMES[request.regime], centroids=first, weights=weights, router_rate=request.router_lr
        )
    return TrainingPlan(
        request,
        config,
        weights,
        config.replace(window=request.window),
        parse_domains(request.text, "--text", weighted=True),
        parse_domains(request.val, "--val", weighted=False),
        request.val_every or (VAL_EVERY if request.patience else 0),
        parse_targets(request.log_to),
        regime,
    )


def _config(request: TrainRequest, initial: Centroids | None) -> FocusConfig:
    """The settings of attention during training; what is not given is that of `initial`."""
    start = initial.config if initial is not None else None
    return FocusConfig(
        num_groups=_given(request.groups, start and start.num_groups, recipe_named(request.recipe).num_groups),
        routing_dim=_given(request.routing_dim, start and start.routing_dim, ROUTING_DIM),
        top_k=request.top_k,
        window=request.train_window if request.train_window is not None else request.window,
        num_sinks=request.sinks,
        temperature=request.temperature,
        sinkhorn_iterations=request.iterations,
        normalisation=request.normalisation,
        assignment=request.assignment,
        gate=request.gate,
        layers=_given(_layers(request.layers), start and start.layers),
        budget=_given(budget_of(request.budget), start and start.budget, ()),
        text_sinks=start.text_sinks if start is not None else None,
        text_sinks_from=start.text_sinks_from if start is not None else FocusConfig().text_sinks_from,
        window_growth=start.window_growth if start is not None else None,
        logit_factors=request.learn == "factors" or (start is not None and start.logit_factors),
    )


def _given(*values: Any) -> Any:
    """The first one that is given, if any is."""
    return next((value for value in values if value is not None), None)


def _layers(text: str | None) -> tuple[int, ...] | None:
    """ "0,3,5" -> (0, 3, 5). None: every layer."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"--layers is {text!r}", expected="layer numbers such as 0,3,5") from error


def _phase(request: TrainRequest, steps: int, rate: float) -> TrainConfig:
    return TrainConfig(
        steps=steps,
        seq_len=request.seq_len,
        batch=request.batch,
        accumulation=request.accumulate,
        learning_rate=rate,
        steepness=request.steepness,
        steepness_start=request.steepness_start,
        hard=request.hard,
        loss=request.loss,
        learn=request.learn,
        distil_weight=request.distil_weight,
        hard_steps=request.hard_steps,
        seed=request.seed,
        special_tokens=request.special_tokens,
        warmup=min(20, max(0, steps) // 5),
        mixed_precision=request.precision,
        gradient_checkpointing=request.gradient_checkpointing,
        checkpoint_every=request.checkpoint_every,
    )


def _check_options(request: TrainRequest, name: Callable[[str], str]) -> None:
    """Options that exclude each other or are out of range; `name` says how a message calls them."""
    if request.regime not in (CENTROIDS, *REGIMES):
        raise InputError(f"{name('regime')} is {request.regime!r}", expected=" or ".join((CENTROIDS, *REGIMES)))
    if request.trains_weights:
        for option in fields(request):
            changed = option.metadata.get("only") == "train" and getattr(request, option.name) != option.default
            if changed:
                raise InputError(
                    f"{name(option.name)} is given, but the weights are trained too",
                    fix=f"leave it out, or choose {name('regime')} {CENTROIDS}",
                )
    elif Path(request.out).suffix != ".safetensors":
        raise InputError(f"{name('out')} is {request.out!r}", expected="a file name ending in .safetensors")
    _check_learning(request, name)
    at_least = {"snapshots": (0, "a number of steps, or 0 for none"), "val_sequences": (1, "at least 1")}
    at_least |= {"patience": (0, "a number of scores, or 0 for no early end"), "val_every": (1, "at least 1 step")}
    for option_name, (least, expected) in at_least.items():
        value = getattr(request, option_name)
        if value is not None and value < least:
            raise InputError(f"{name(option_name)} is {value}", expected=expected)
    for option_name in ("patience", "val_every"):
        if getattr(request, option_name) and not request.val:
            raise InputError(
                f"{name(option_name)} is given without held-out text",
                expected=f"the text that decides ({name('val')})",
                fix=f"add {name('val')}, or leave out {name(option_name)}",
            )


def _check_learning(request: TrainRequest, name: Callable[[str], str]) -> None:
    """What goes with a gate, with factors or with a loss."""
    of_gates = [
        ("hard", request.hard, "log"),
        ("hard_steps", request.hard_steps > 0, "log"),
        ("steepness_start", request.steepness_start is not None, "paper"),
    ]
    for option, is_given, gate in of_gates:
        if is_given and request.gate != gate:
            raise InputError(
                f"{name(option)} goes with the {gate} gate only",
                fix=f"choose the {gate} gate, or leave out {name(option)}",
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
