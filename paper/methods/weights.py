"""Methods that leave attention as it is and train weights: LoRA (Hu et al. 2021, arXiv 2106.09685), and all of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from focus_runtime.errors import InputError, ModelError
from focus_runtime.models.structure import attention_modules
from paper.methods.base import Method

# Projections to adapt, by what an attention module has; a fused one holds queries, keys and values together.
LAYOUTS = (("q_proj", "v_proj"), ("c_attn",), ("qkv_proj",), ("query_key_value",))
Adapted = tuple[list[nn.Parameter], Callable[[], None]]


@dataclass(frozen=True, kw_only=True, slots=True)
class LoRA(Method):
    """Low-rank updates of the attention's query and value projections, by peft; everything else is frozen.

    Updates are scaled by alpha / rank. The seed is of the first factors; the second ones start at zero, so that the
    model starts unchanged.
    """

    rank: int = 8
    alpha: float = 16.0
    seed: int = 0

    def adapt(self, model: Any) -> Adapted:
        try:
            import peft
        except ImportError as error:
            raise InputError(
                "LoRA needs the package peft, which is not installed", fix="run `pip install 'focus-explorer[lora]'`"
            ) from error
        if hasattr(model, "peft_config"):
            raise ModelError("this model already has peft adapters", fix="remove them first")
        names = lora_targets(model)
        before = {parameter: parameter.requires_grad for parameter in model.parameters()}
        config = peft.LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,
            target_modules=names,
            fan_in_fan_out="Conv1D" in {type(model.get_submodule(name)).__name__ for name in names},
            bias="none",
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            tuner: Any = peft.LoraModel(model, config, "default")
        for name in names:  # new modules start in training mode, whatever the model is in
            module = model.get_submodule(name)
            module.train(module.base_layer.training)

        def undo() -> None:
            tuner.unload()
            for parameter, trained in before.items():
                parameter.requires_grad_(trained)

        return [parameter for parameter in model.parameters() if parameter.requires_grad], undo


def lora_targets(model: nn.Module) -> list[str]:
    """Full names of the query and value projections of every attention layer, or of the fused ones."""
    names = {module: name for name, module in model.named_modules()}
    paths = []
    for index, module in attention_modules(model).items():
        chosen = next((layout for layout in LAYOUTS if all(hasattr(module, child) for child in layout)), None)
        if chosen is None:
            raise ModelError(
                f"layer {index} of {type(model).__name__} has no query and value projections that LoRA can find",
                expected="one of " + ", ".join(name for layout in LAYOUTS for name in layout),
            )
        paths += [f"{names[module]}.{child}" for child in chosen]
    return paths


@dataclass(frozen=True, kw_only=True, slots=True)
class FullFinetune(Method):
    """Every weight may change; the originals are kept in main memory. Another method may replace the attention."""

    def adapt(self, model: nn.Module) -> Adapted:
        saved = [(p, p.detach().to("cpu", copy=True), p.requires_grad) for p in model.parameters()]
        trained = [parameter for parameter, _, _ in saved if parameter.is_floating_point()]
        for parameter in trained:
            parameter.requires_grad_(True)

        @torch.no_grad()
        def undo() -> None:
            for parameter, original, required in saved:
                parameter.copy_(original)
                parameter.requires_grad_(required)
                parameter.grad = None

        return trained, undo
