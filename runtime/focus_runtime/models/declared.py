"""What a model's header asks for against what its files hold, compared before anything of that size is allocated."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import torch

MOST_LAYERS = 1000
MOST_HEADER_BYTES = 100 * 1024 * 1024  # as in the safetensors library
TWICE = 2  # a few weights that are left out are named by who loads them
PACKED = 16  # quantised files hold several weights in one value


def refuse_pickles(folder: Path) -> None:
    """Refuse a folder whose only weights are pickles: reading them may run code.

    Raises:
        ValueError: it has .bin, .pt or .pth files and none of safetensors.
    """
    if any(folder.glob("*.safetensors")):
        return
    pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
    if pickled:
        raise ValueError(
            f"its weights are pickled ({pickled[0]}), and reading a pickle may run code; expected safetensors files; "
            "load it once where you trust it and write it with save_pretrained"
        )


def check_folder(config: Any, folder: Path) -> None:
    """Refuse a configuration that asks for far more weights than a folder's safetensors files hold.

    Args:
        config: of the model.
        folder: with the files.

    Raises:
        ValueError: it asks for more, or a header is damaged.
    """
    _check(config, sum(_stored_values(path) for path in folder.glob("*.safetensors")), "config.json", "its files hold")


def check_gguf(config: Any, path: Path) -> None:
    """Refuse a GGUF file whose header asks for far more weights than it holds.

    Args:
        config: made from its header.
        path: of the file.

    Raises:
        ValueError: it asks for more, or the file is damaged.
    """
    from gguf import GGUFReader

    held = sum(int(tensor.n_elements) for tensor in GGUFReader(path).tensors)
    _check(config, held, "its header", "it holds")


def check_layers(config: Any) -> None:
    """Refuse a configuration with more layers than any model has: building their modules alone takes minutes.

    Raises:
        ValueError: it has.
    """
    layers = getattr(config.get_text_config(), "num_hidden_layers", 0)
    if not isinstance(layers, int) or layers > MOST_LAYERS:
        raise ValueError(f"it asks for {layers!r} layers; expected at most {MOST_LAYERS:,}")


def _check(config: Any, held: int, header: str, holds: str) -> None:
    from transformers import AutoModelForCausalLM

    check_layers(config)
    with torch.device("meta"):  # shapes alone
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    asked = sum(parameter.numel() for parameter in model.parameters())
    if asked > held * (PACKED if getattr(config, "quantization_config", None) else TWICE):
        missing = "its files lack weights that"
        raise ValueError(f"{missing} {header} asks for: {asked:,} values in all, {holds} {held:,}")


def _stored_values(path: Path) -> int:
    """Values of all tensors of a safetensors file, from its header."""
    with path.open("rb") as file:
        start = file.read(8)
        (size,) = struct.unpack("<Q", start) if len(start) == 8 else (0,)
        if not 0 < size <= min(MOST_HEADER_BYTES, path.stat().st_size):
            raise ValueError(f"{path.name} is truncated or no safetensors file")
        header = json.loads(file.read(size))
    return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
