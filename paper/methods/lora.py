"""LoRA: low-rank updates of the attention's query and value projections (Hu et al. 2021, arXiv 2106.09685), by peft."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from focus_runtime.composition.attach import FocusModel
from focus_runtime.errors import ConfigError, InputError, ModelError
from focus_runtime.models.structure import attention_modules
from paper.methods.checks import check_between, check_whole
from paper.methods.handle import Handle

# Projections to adapt, by what an attention module has; a fused one holds queries, keys and values together.
LAYOUTS = (("q_proj", "v_proj"), ("c_attn",), ("qkv_proj",), ("query_key_value",))


def lora_targets(model: nn.Module, targets: tuple[str, ...] | None = None) -> list[str]:
    """Full names of the projections to adapt, in every attention layer.

    Args:
        model: a Hugging Face causal language model.
        targets: names inside an attention module; query and value projections when None, or the fused one.

    Raises:
        ModelError: an attention module has no such projection.
    """
    names = {module: name for name, module in model.named_modules()}
    paths = []
    for index, module in attention_modules(model).items():
        layouts = LAYOUTS if targets is None else (targets,)
        chosen = next((layout for layout in layouts if all(hasattr(module, child) for child in layout)), None)
        if chosen is None:
            missing = "query and value projections" if targets is None else " and ".join(targets)
            raise ModelError(
                f"layer {index} of {type(model).__name__} has no {missing} that LoRA can find",
                expected="one of " + ", ".join(name for name, _ in module.named_children()),
                fix="name the projections with targets=(...)",
            )
        paths += [f"{names[module]}.{child}" for child in chosen]
    return paths


def lora_parameter_count(model: nn.Module, rank: int, targets: tuple[str, ...] | None = None) -> int:
    """How many weights LoRA of this rank adds: rank times (inputs + outputs) for every projection.

    Args:
        model: a Hugging Face causal language model.
        rank: r.
        targets: as in `lora_targets`.
    """
    total = 0
    for name in lora_targets(model, targets):
        weight = model.get_submodule(name).weight
        assert isinstance(weight, Tensor)
        total += rank * sum(weight.shape)
    return total


@dataclass(frozen=True, kw_only=True, slots=True)
class LoRA:
    """Settings.

    Attributes:
        rank: r.
        alpha: updates are scaled by alpha / rank.
        dropout: of the updates' inputs in training mode.
        targets: projections inside an attention module; queries and values when None.
        seed: of the first factors; the second ones start at zero, so that the model starts unchanged.
    """

    name: ClassVar[str] = "lora"
    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    targets: tuple[str, ...] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole(self, rank=1, seed=0)
        check_between(self, "alpha", 0.0, float("inf"))
        if self.dropout != 0.0:
            check_between(self, "dropout", 0.0, 1.0)
        named = self.targets is None or (
            isinstance(self.targets, tuple) and self.targets and all(isinstance(name, str) for name in self.targets)
        )
        if not named:
            raise ConfigError(f"targets is {self.targets!r}", expected='a tuple of names such as ("q_proj", "v_proj")')

    def attach(self, model: Any, *, text: Tensor | None = None) -> LoRAHandle:
        """Add the updates and freeze everything else; see `Baseline.attach`. Focus or a baseline may be on the model.

        Raises:
            InputError: peft is not installed.
        """
        return LoRAHandle(model, self)


class LoRAHandle(Handle):
    """A model whose projections carry low-rank updates; their values are lost when it is detached."""

    def __init__(self, model: Any, settings: LoRA) -> None:
        if isinstance(model, FocusModel | Handle):
            raise ModelError("this is a handle, not a model", fix="give its .model")
        if hasattr(model, "peft_config"):
            raise ModelError("this model already has peft adapters", fix="remove them first")
        peft = _peft()
        self.model = model
        names = lora_targets(model, settings.targets)
        transposed = "Conv1D" in {type(model.get_submodule(name)).__name__ for name in names}
        self._trained = {parameter: parameter.requires_grad for parameter in model.parameters()}
        config = peft.LoraConfig(
            r=settings.rank,
            lora_alpha=settings.alpha,
            lora_dropout=settings.dropout,
            target_modules=names,
            fan_in_fan_out=transposed,
            bias="none",
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self._tuner: Any = peft.LoraModel(model, config, "default")
        for name in names:  # new modules start in training mode, whatever the model is in
            module = model.get_submodule(name)
            module.train(module.base_layer.training)

    def parameters(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad] if self._tuner else []

    def detach(self) -> Any:
        if self._tuner is not None:
            self._tuner.unload()
            self._tuner = None
            for parameter, trained in self._trained.items():
                parameter.requires_grad_(trained)
            self._trained = {}
        return self.model


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise InputError(
            "LoRA needs the package peft, which is not installed", fix="run `pip install 'focus-explorer[lora]'`"
        ) from error
    return peft
