"""Names -> model and tokenizer: the embedded default, a hub id, a local folder, or a GGUF file."""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from focus_runtime.config import DTYPES
from focus_runtime.errors import Cancelled, DeviceError, ModelError, first_line
from focus_runtime.failures import device_failure, is_out_of_memory
from focus_runtime.files import check_writable_folder, default_cache_dir, one_process_at_a_time, replacing_folder
from focus_runtime.models.devices import SPLIT, split_model, stored_parameters
from focus_runtime.models.embedded import EMBEDDED, embedded_gguf, file_sha256
from focus_runtime.models.linear import use_fast_linear

MOST_LAYERS = 1000
MOST_HEADER_BYTES = 100 * 1024 * 1024  # as in the safetensors library
TWICE = 2  # a few weights that are left out are named by who loads them
PACKED = 16  # quantised files hold several weights in one value


def refuse_pickles(folder: Path) -> None:
    """Refuse a folder whose only weights are pickles: reading them may run code."""
    if any(folder.glob("*.safetensors")):
        return
    pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
    if pickled:
        raise ValueError(
            f"its weights are pickled ({pickled[0]}), and reading a pickle may run code; expected safetensors files; "
            "load it once where you trust it and write it with save_pretrained"
        )


def check_layers(config: Any) -> None:
    """Refuse a configuration with more layers than any model has: building their modules alone takes minutes."""
    layers = getattr(config.get_text_config(), "num_hidden_layers", 0)
    if not isinstance(layers, int) or layers > MOST_LAYERS:
        raise ValueError(f"it asks for {layers!r} layers; expected at most {MOST_LAYERS:,}")


def _check_size(config: Any, held: int, header: str, holds: str) -> None:
    """Refuse a configuration that asks for far more weights than the files hold."""
    from transformers import AutoModelForCausalLM

    check_layers(config)
    with torch.device("meta"):  # shapes alone
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    asked = sum(parameter.numel() for parameter in model.parameters())
    if asked > held * (PACKED if getattr(config, "quantization_config", None) else TWICE):
        raise ValueError(f"its files lack weights that {header} asks for: {asked:,} values in all, {holds} {held:,}")


def _stored_values(path: Path) -> int:
    """Values of all tensors of a safetensors file, from its header."""
    with path.open("rb") as file:
        start = file.read(8)
        (size,) = struct.unpack("<Q", start) if len(start) == 8 else (0,)
        if not 0 < size <= min(MOST_HEADER_BYTES, path.stat().st_size):
            raise ValueError(f"{path.name} is truncated or no safetensors file")
        header = json.loads(file.read(size))
    return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")


_ONE_AT_A_TIME = threading.Lock()


@contextmanager
def header_read_once() -> Iterator[None]:
    """While the block runs, a file's header and the names of its tensors are read once.

    transformers reads them for each of its loaders, and the names for every module of the model: four fifths of the
    time that converting the embedded model would take. Files must not change inside the block.
    """
    import gguf

    library: Any = gguf  # its types do not let its names be replaced
    with _ONE_AT_A_TIME:
        reader, names = library.GGUFReader, library.get_tensor_name_map
        by_path = cache(reader)
        library.GGUFReader, library.get_tensor_name_map = lambda path, mode="r": by_path(str(path), mode), cache(names)
        try:
            yield
        finally:
            library.GGUFReader, library.get_tensor_name_map = reader, names


HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt"]
# Code that a model's folder brings along is never run: a library that is not told so asks on the terminal.
NO_CODE = {"trust_remote_code": False}


def load_model(
    name: str = EMBEDDED,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Callable[[str, float], None] = lambda stage, fraction: None,
) -> tuple[Any, Any]:
    """Load a causal language model and its tokenizer, in evaluation mode.

    Args:
        name: "smollm2-135m", a Hugging Face hub id, a local folder, or a path to a .gguf file.
        device: torch device, or "split" for all GPUs together, see `split_model`.
        cache_dir: where the dequantised copy of a GGUF file is kept. None: the user's cache.
        progress: called with each stage of loading and the fraction done, 0 to 1.

    Raises:
        ModelError: the name is unknown, the hub is out of reach, or the files cannot be read.
        DeviceError: it does not fit into the memory of the device, or the GPU failed.
    """
    return _load(name, dtype, device, cache_dir, progress, _load_folder)


def load_base_model(name: str, *, dtype: str = "float32", device: str = "cpu") -> Any:
    """Load a causal language model without its tokenizer, which need not be there, in evaluation mode."""

    def weights_alone(source: Path, dtype: torch.dtype) -> tuple[Any, None]:
        return _load_weights(source, dtype), None

    return _load(name, dtype, device, None, lambda stage, fraction: None, weights_alone)[0]


def _load(
    name: str,
    dtype: str,
    device: str,
    cache_dir: str | os.PathLike[str] | None,
    progress: Callable[[str, float], None],
    load: Callable[[Path, torch.dtype], tuple[Any, Any]],
) -> tuple[Any, Any]:
    if dtype not in DTYPES:
        raise ModelError(f"dtype {dtype!r} is unknown", expected=" or ".join(DTYPES))
    source = prepare_model(name, cache_dir=cache_dir, progress=progress)
    progress("Loading the model", 0.8)
    try:
        model, tokenizer = load(source, getattr(torch, dtype))
    except Exception as error:  # the loaders raise exceptions of any type for damaged files
        if is_out_of_memory(error):
            raise _too_large(name, "this machine", "") from error
        raise ModelError(
            f"{name} cannot be loaded: {first_line(error)}", expected="a causal language model with its tokenizer"
        ) from error
    try:
        split_model(model) if device == SPLIT else model.to(device)
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            raise _too_large(name, device, "the device cpu or split, ") from error
        if (failure := device_failure(error)) is not None:
            raise failure from error
        raise
    if device == "cpu":
        use_fast_linear(model)
    return model.eval(), tokenizer


def prepare_model(
    name: str = EMBEDDED,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Callable[[str, float], None] = lambda stage, fraction: None,
) -> Path:
    """The folder that a model is loaded from; fetched from the hub or converted where that is not done yet."""
    cache = Path(cache_dir or default_cache_dir())
    source = _local(name, cache)
    if source is None:
        progress("Fetching the model", 0.0)
        return _from_hub(name)
    return _converted(source, cache, progress) if source.is_file() else source


def _too_large(name: str, device: str, elsewhere: str) -> DeviceError:
    fix = f"choose {elsewhere}a precision of two bytes (--dtype bfloat16) or a smaller model, or close other programs"
    return DeviceError(f"{name} does not fit into the free memory of {device}", fix=fix)


def load_tokenizer(name: str, *, cache_dir: str | os.PathLike[str] | None = None) -> Any | None:
    """The tokenizer of a model, in well under a second; None where the model has to be fetched or converted first."""
    from transformers import AutoTokenizer

    try:
        cache = Path(cache_dir or default_cache_dir())
        source = _local(name, cache)
        if source is None:
            source = _in_hub_cache(name)
        elif source.is_file():
            source = _conversion(source, cache)
        return AutoTokenizer.from_pretrained(source, local_files_only=True, **NO_CODE)
    except (ModelError, OSError, ValueError):
        return None


def check_name(name: str, *, cache_dir: str | os.PathLike[str] | None = None) -> None:
    """Refuse a name that no model has; nothing is loaded, converted or fetched."""
    if _local(name, Path(cache_dir or default_cache_dir())) is not None:
        return
    from huggingface_hub import HfApi

    try:
        _in_hub_cache(name)
    except (OSError, ValueError):
        try:
            HfApi().model_info(name, timeout=5)
        except Exception as error:  # also those of the HTTP library below the hub's client
            raise _unknown(name) from error


def _in_hub_cache(name: str) -> Path:
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, allow_patterns=HUB_FILES, local_files_only=True))


def _local(name: str, cache: Path) -> Path | None:
    """The GGUF file or the folder that a name stands for; None for a hub id."""
    path = Path(os.path.expanduser(name))  # Path.expanduser raises for an unknown user
    if name == EMBEDDED:
        return embedded_gguf(cache)
    if name.lower().endswith(".gguf"):
        if not os.path.isfile(path):
            raise ModelError(f"there is no file {name}", expected="a GGUF file", fix="check the path")
        return path
    if name.strip() and os.path.isdir(path):  # unlike Path.is_dir, false for names that are too long
        return path
    if os.path.exists(path) or name.startswith((".", "/", "~")) or name.count("/") > 1 or not name.strip():
        raise ModelError(
            f"{name!r} is not a model folder", expected="a folder with config.json, a .gguf file or a hub id"
        )
    return None


@contextmanager
def _without_bars() -> Iterator[None]:
    """Keep transformers' own progress bars off standard error while something loads."""
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if bars:
            logging.enable_progress_bar()


def _load_folder(source: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    from transformers import AutoTokenizer

    model = _load_weights(source, dtype)
    with _without_bars():
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True, **NO_CODE)
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError("its tokenizer gives no character offsets (no tokenizer.json)")
    return model, tokenizer


def _load_weights(source: Path, dtype: torch.dtype) -> Any:
    from transformers import AutoConfig

    refuse_pickles(source)
    config = AutoConfig.from_pretrained(source, local_files_only=True, **NO_CODE)
    held = sum(_stored_values(path) for path in source.glob("*.safetensors"))
    _check_size(config, held, "config.json", "its files hold")
    with _without_bars():
        return _all_weights(source, "config.json", dtype=dtype, local_files_only=True)


def _all_weights(source: Path, named: str, **how: Any) -> Any:
    """A model with all weights that its configuration, in the file `named`, asks for."""
    from transformers import AutoModelForCausalLM

    loader: Any = AutoModelForCausalLM  # its annotations do not know output_loading_info
    model, info = loader.from_pretrained(source, output_loading_info=True, **how, **NO_CODE)
    missing = sorted(info["missing_keys"])
    if missing:  # transformers would continue with random ones
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ValueError(f"its files lack weights that {named} asks for: {', '.join(missing[:3])}{more}")
    return model


def _conversion(gguf: Path, cache: Path) -> Path:
    """Where the dequantised copy of a file is kept."""
    key = file_sha256(gguf)[:16]
    return cache / "models" / f"{gguf.stem}-{key}-whole"  # copies without that mark may hold random weights


def _converted(gguf: Path, cache: Path, progress: Callable[[str, float], None]) -> Path:
    """A folder with the dequantised model as safetensors, made once; a crash midway leaves nothing behind."""
    target = _conversion(gguf, cache)
    if (target / "config.json").is_file():
        return target

    def explain(_: Path, error: OSError) -> ModelError:
        problem = f"cannot write the model cache {cache}: {error.strerror}"
        return ModelError(problem, fix="choose a writable cache folder")

    check_writable_folder(target.parent, explain=explain)
    lock = target.parent / f".{target.name}.lock"
    with one_process_at_a_time(lock, lambda: progress("Another process converts the model", 0.0)):
        if not (target / "config.json").is_file():
            progress("Converting the model (once)", 0.0)
            _convert(gguf, target, progress)
    return target


def _convert(gguf: Path, target: Path, progress: Callable[[str, float], None]) -> None:
    from transformers import AutoConfig, AutoTokenizer

    try:
        with replacing_folder(target, explain=None, mode=0o700) as work, _without_bars(), header_read_once():
            from gguf import GGUFReader  # the one that reads a header once

            held = sum(int(tensor.n_elements) for tensor in GGUFReader(gguf).tensors)
            config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name, **NO_CODE)
            _check_size(config, held, "its header", "it holds")
            model = _all_weights(gguf.parent, "its header", gguf_file=gguf.name, dtype=torch.float32)
            tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, **NO_CODE)
            model.hf_quantizer = None  # the weights are plain float32 now; the marker would forbid saving them
            if hasattr(model.config, "quantization_config"):
                del model.config.quantization_config
            progress("Converting the model (once)", 0.6)
            model.save_pretrained(work)
            tokenizer.save_pretrained(work)
    except Cancelled:  # raised by `progress`
        raise
    except Exception as error:  # the GGUF reader raises exceptions of any type for damaged files
        if (target / "config.json").is_file():  # another process was faster
            return
        raise ModelError(f"{gguf.name} cannot be converted: {first_line(error)}") from error


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return _in_hub_cache(name)
    except (OSError, ValueError):  # it is not in the local cache
        pass
    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES, etag_timeout=5))
    except (OSError, ValueError) as error:
        raise _unknown(name) from error


def _unknown(name: str) -> ModelError:
    return ModelError(
        f"{name!r} is neither the embedded model, a local path, nor a model in the local cache, and the hub gave none",
        expected=f"{EMBEDDED}, a hub id such as Qwen/Qwen3-0.6B, a folder, or a .gguf file",
        fix="check the spelling and the network connection",
    )


def fingerprint(model: nn.Module) -> str:
    """A short hash of a model's architecture and weights, the same for float32 and bfloat16 copies.

    The first and last 256 values of every parameter count, rounded to bfloat16.
    """
    digest = hashlib.sha256(type(model).__name__.encode())
    for name, parameter in sorted(stored_parameters(model)):
        flat = parameter.detach().flatten()
        sample = torch.cat([flat[:256], flat[-256:]]).to(torch.bfloat16).view(torch.int16).cpu()
        digest.update(f"{name}{tuple(parameter.shape)}".encode())
        digest.update(sample.numpy().tobytes())
    return digest.hexdigest()[:32]


def weights_sha256(model: nn.Module) -> str:
    """Hash of every weight's bytes; shows that training left the base model untouched."""
    digest = hashlib.sha256()
    for name, parameter in sorted(stored_parameters(model)):
        digest.update(name.encode())
        digest.update(parameter.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
