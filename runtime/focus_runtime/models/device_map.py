"""Where a model's layers compute: on one device, or on several by accelerate's device map.

accelerate leaves a hook on every module it has placed; the hook moves what enters the module, and brings weights that
are kept elsewhere, which until then are empty ("meta") tensors. What Focus needs of a model is therefore asked of the
hooks first. Torch is loaded only where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from focus_runtime.errors import ModelError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

SPLIT = "split"  # the name of this placement, where a device is named
GPU_SHARE = 0.8  # of a GPU's free memory for weights; keys, values and intermediate results need the rest


def execution_device(module: nn.Module) -> torch.device:
    """The device a module computes on; its weights may be kept elsewhere until then."""
    import torch

    for part in module.modules():
        device = getattr(getattr(part, "_hf_hook", None), "execution_device", None)
        if device is not None:
            return torch.device(device)
    return next(module.parameters()).device


def input_device(model: nn.Module) -> torch.device:
    """The device on which a model takes token ids and gives logits."""
    return execution_device(model)


def compute_devices(model: nn.Module) -> list[torch.device]:
    """Every device that a model computes on, that of its inputs first."""
    placed = [input_device(model)]
    if hasattr(model, "hf_device_map"):
        placed += [execution_device(module) for module in model.modules() if hasattr(module, "_hf_hook")]
    return list(dict.fromkeys(placed))


def device_names(model: nn.Module) -> str:
    """What a run records as its device: "cuda:0", or "cuda:0 + cuda:1" for a model on several."""
    return " + ".join(map(str, compute_devices(model)))


def stored_parameters(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """(name, values) of every parameter, once; also of those that accelerate keeps elsewhere."""
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    for name, parameter in model.named_parameters():
        if parameter.device.type != "meta":
            yield name, parameter
        elif name not in tied:  # its other name has been listed
            path, _, own = name.rpartition(".")
            yield name, model.get_submodule(path)._hf_hook.weights_map[own]  # type: ignore[union-attr, index]


def split_model(model: Any, *, device_map: Mapping[str, Any] | None = None, offload_folder: str | None = None) -> None:
    """Spread a model's layers over all GPUs, evenly, and leave in main memory what they cannot hold.

    Layers in main memory compute on the first GPU, which receives their weights for every pass.

    Args:
        model: a Hugging Face model in main memory.
        device_map: device of each module by name, as in accelerate; made to fit the GPUs' free memory when None.
        offload_folder: where accelerate keeps modules that the map places on "disk".

    Raises:
        ModelError: the GPUs and main memory together cannot hold it.
    """
    from accelerate import dispatch_model

    chosen = dict(_balanced_map(model) if device_map is None else device_map)
    if "disk" in chosen.values() and offload_folder is None:
        raise ModelError(
            f"{type(model).__name__} does not fit into this machine's GPUs and main memory together",
            fix="choose a smaller model, or a narrower precision",
        )
    dispatch_model(
        model,
        device_map=chosen,
        offload_dir=offload_folder,
        skip_keys=getattr(model, "_skip_keys_device_placement", None),
        force_hooks=True,
    )


def _balanced_map(model: Any) -> dict[str, Any]:
    from accelerate import infer_auto_device_map
    from accelerate.utils import get_balanced_memory, get_max_memory

    whole = {"no_split_module_classes": list(model._no_split_modules or ())}
    free = {name: size if name == "cpu" else int(size * GPU_SHARE) for name, size in get_max_memory().items()}
    return dict(infer_auto_device_map(model, max_memory=get_balanced_memory(model, free, **whole), **whole))
