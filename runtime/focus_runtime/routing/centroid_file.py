"""Centroid files: save, load, validate.

Format: safetensors with `layers.{i}.projection` (d, d_g), `layers.{i}.centroids` (K, d_g), optionally
`layers.{i}.potential` (K) and `layers.{i}.logit_factors` (Hq), and header metadata described in docs/centroid-files.md.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import Tensor, nn

from focus_runtime.config import FocusConfig
from focus_runtime.errors import CentroidFileError, ConfigError, first_line
from focus_runtime.files import cannot_write, replacing
from focus_runtime.routing.centroid_checks import BY_IMPORT, SEE_FORMAT, check_layers, group_notes
from focus_runtime.routing.centroids import Centroids
from focus_runtime.routing.places import MAX_BYTES, SETTINGS_FILE, SUFFIXES, Place, locate_centroids
from focus_runtime.routing.router import CentroidRouter
from focus_runtime.version import __version__

FORMAT = "focus-centroids"
FORMAT_VERSION = 7  # the latest; a file is written as the earliest that can hold it
FACTORS_VERSION = 5  # of files with factors of logits; those of version 4 were learned for another rule
MAX_VALUES = MAX_BYTES // 4  # of all tensors together, which are held as float32
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_NAME = re.compile(r"layers\.(0|[1-9][0-9]{0,3})\.(projection|centroids|potential|logit_factors)")
_NUMBER = re.compile(r"[0-9]{1,9}")


def save_centroids(centroids: Centroids, path: str | os.PathLike[str]) -> str:
    """Write a centroid file atomically, and return its sha256; the same centroids give the same bytes."""
    tensors: dict[str, Tensor] = {}
    for index, router in sorted(centroids.routers.items()):
        parts: dict[str, Tensor] = {"projection": router.projection, "centroids": router.centroids}
        if router.has_potential:
            parts["potential"] = router.potential
        if centroids.config.logit_factors and router.logit_factors is not None:
            parts["logit_factors"] = router.logit_factors
        for name, tensor in parts.items():
            tensors[f"layers.{index}.{name}"] = tensor.detach().float().cpu().contiguous()
    config, layers = centroids.config, sorted(centroids.routers)
    if config.layers is None and layers != list(range(centroids.num_model_layers or len(layers))):
        config = config.replace(layers=tuple(layers))  # hybrids: some layers have no attention
    metadata = {
        "format": FORMAT,
        "format_version": str(_version_for(config)),
        "config": config.to_json(),
        "base_model": centroids.base_model,
        "base_fingerprint": centroids.base_fingerprint,
        "num_model_layers": str(centroids.num_model_layers or ""),
        "training": json.dumps(centroids.training, sort_keys=True),
        "written_by": f"focus-explorer {__version__}",
    }
    data = _sorted_header(save_safetensors(tensors, metadata))
    with replacing(path, explain=cannot_write("choose a writable folder", CentroidFileError)) as part:
        part.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def _version_for(config: FocusConfig) -> int:
    """The earliest format version that knows all of a configuration: 7 windows that grow, 6 budgets of query heads or
    heads without groups, 5 factors of logits, 3 text sinks, 2 budgets."""
    if config.window_growth is not None:
        return 7
    if any(entry.query_head is not None or entry.top_k == 0 for entry in config.budget):
        return 6
    if config.logit_factors:
        return FACTORS_VERSION
    return 3 if config.text_sinks is not None else 2 if config.budget else 1


def _sorted_header(data: bytes) -> bytes:
    """Give the safetensors header a fixed key order, so that equal content has one hash."""
    size = _header_size(data)
    header = json.loads(data[8 : 8 + size])
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def _header_size(data: bytes) -> int:
    return int.from_bytes(data[:8], "little")


def load_centroids(
    source: str | os.PathLike[str], *, revision: str | None = None, sha256: str | None = None
) -> Centroids:
    """Read and check a centroid file.

    Args:
        source: the name of a shipped file (`SHIPPED_CENTROIDS`), a path ending in .safetensors, .pt or .pth, a folder
            of `FocusModel.save_pretrained`, or a repository of the hub: `user/repo`, or `user/repo@revision`.
        revision: branch, tag or commit of a repository; the newest when None.
        sha256: the file's hash; another file is refused. None for any.

    Raises:
        CentroidFileError: anything about the file is wrong, or the hub does not give it.
    """
    return load_place(locate_centroids(source, revision), sha256)


def load_place(place: Place, sha256: str | None = None) -> Centroids:
    """Read and check a centroid file that was found."""
    path, name = place.path, place.name
    data = _read(path)
    digest = hashlib.sha256(data).hexdigest()
    stated = "" if place.settings is None else place.settings.sha256
    for expected, origin in ((stated, f"as {SETTINGS_FILE} beside it says"), (sha256, "the hash that was given")):
        if expected and expected.lower() != digest:
            raise CentroidFileError(
                f"{name} has the sha256 {digest}", expected=f"{expected}, {origin}", fix="do not use it; fetch it again"
            )
    if path.suffix.lower() in (".pt", ".pth"):
        tensors, metadata = _read_pickle(data, name)
    else:
        try:
            tensors = load_safetensors(data)
            metadata = dict(json.loads(data[8 : 8 + _header_size(data)]).get("__metadata__", {}))
        except Exception as error:  # the library raises its own types for damaged files
            raise CentroidFileError(
                f"{name} is truncated or not a safetensors file: {first_line(error)}",
                expected="a complete centroid file",
                fix=SEE_FORMAT,
            ) from error
    centroids = centroids_of(tensors, metadata, name)
    centroids.sha256, centroids.origin = digest, place.origin
    return centroids


def _read(path: Path) -> bytes:
    expected = "a .safetensors, .pt or .pth centroid file"
    if path.suffix.lower() not in SUFFIXES:
        fix = BY_IMPORT if path.is_dir() else SEE_FORMAT
        raise CentroidFileError(f"{path.name} is not a centroid file", expected=expected, fix=fix)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):  # reading a pipe may never end
            raise CentroidFileError(f"{path.name} is not a file", expected=expected, fix=SEE_FORMAT)
        size = status.st_size
        if size > MAX_BYTES:
            expected = f"at most {MAX_BYTES:,}, centroids are small"
            raise CentroidFileError(f"{path.name} has {size:,} bytes", expected=expected, fix=SEE_FORMAT)
        return path.read_bytes()
    except OSError as error:
        raise CentroidFileError(f"cannot read {path}: {error.strerror}", expected=expected) from error


def _read_pickle(data: bytes, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the metadata of a .pt file."""
    content = unpickled(io.BytesIO(data), len(data), name)
    if not isinstance(content, dict):
        raise CentroidFileError(f"{name} holds a {type(content).__name__}", expected="a dict of tensors", fix=BY_IMPORT)
    metadata = content.pop("metadata", content.pop("__metadata__", {}))
    for wrapper in ("state_dict", "tensors"):
        if isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    return {str(key): value for key, value in content.items()}, metadata if isinstance(metadata, dict) else {}


def unpickled(file: io.BytesIO | Path, size: int, name: str) -> Any:
    """The content of a .pt file, its bytes or its path, read without ever executing code from it."""
    _check_archive(file, size, name)
    if isinstance(file, io.BytesIO):
        file.seek(0)  # reading the archive's index left it elsewhere
    try:
        return torch.load(file, map_location="cpu", weights_only=True, mmap=isinstance(file, Path))
    except Exception as error:  # the unpickler raises exceptions of any type for damaged files
        raise CentroidFileError(
            f"{name} cannot be read safely: it is damaged or holds something other than tensors",
            expected="tensors and plain values only; nothing in the file was executed",
            fix="save the tensors with safetensors, or torch.save a plain dict of tensors",
        ) from error


def _check_archive(file: io.BytesIO | Path, size: int, name: str) -> None:
    """Refuse what would unpack to more than the file holds: torch itself compresses nothing."""
    fix = "save it again with torch.save, or with safetensors"
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, RuntimeError) as error:
        raise CentroidFileError(
            f"{name} cannot be read safely: it is damaged or was saved before torch 1.6",
            expected="a file of torch.save; nothing in the file was executed",
            fix=fix,
        ) from error
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise CentroidFileError(f"{name} is compressed", expected="a file as torch.save writes it", fix=fix)
    if sum(entry.file_size for entry in entries) > size:
        raise CentroidFileError(f"{name} declares more than it holds", expected="a file of torch.save", fix=fix)


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor's numbers are all there, each at a place of its own."""
    if tensor.layout != torch.strided or tensor.is_meta or tensor.is_nested or tensor.is_quantized:
        return False
    return tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()


def centroids_of(tensors: dict[str, Any], metadata: dict[str, Any], name: str) -> Centroids:
    """Check the content of a centroid file and make routers of it."""
    if metadata.get("format") not in (None, FORMAT):
        raise CentroidFileError(f"{name} says it is {metadata['format']!r}", expected=FORMAT, fix=SEE_FORMAT)
    version = str(metadata.get("format_version", FORMAT_VERSION))
    if not _NUMBER.fullmatch(version) or int(version) > FORMAT_VERSION:
        raise CentroidFileError(
            f"{name} has format version {version}", expected=f"at most {FORMAT_VERSION}", fix="update Focus Explorer"
        )
    by_layer: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        match = _NAME.fullmatch(key)
        if match is None:
            raise CentroidFileError(
                f"{name} holds {key!r}",
                expected="layers.N.projection, .centroids, .potential or .logit_factors",
                fix=BY_IMPORT,
            )
        if not isinstance(tensor, Tensor) or tensor.dtype not in FLOATS:
            kind = str(getattr(tensor, "dtype", type(tensor).__name__)).removeprefix("torch.")
            raise CentroidFileError(f"{name}: {key!r} is {kind}, not a floating-point tensor", fix=SEE_FORMAT)
        if not is_plain(tensor):
            raise CentroidFileError(
                f"{name}: {key!r} has no storage of its own for {tensor.numel():,} values",
                expected="a dense tensor",
                fix="save it with .contiguous()",
            )
        by_layer.setdefault(int(match[1]), {})[match[2]] = tensor
    values = sum(tensor.numel() for parts in by_layer.values() for tensor in parts.values())
    if values > MAX_VALUES:
        raise CentroidFileError(f"{name} holds {values:,} values", expected=f"at most {MAX_VALUES:,}", fix=SEE_FORMAT)
    if not by_layer:
        raise CentroidFileError(
            f"{name} holds no centroids", expected="layers.N.projection and layers.N.centroids", fix=SEE_FORMAT
        )
    config, warnings = _config(by_layer, metadata, name)
    count = str(metadata.get("num_model_layers", ""))
    total = int(count) if _NUMBER.fullmatch(count) else None
    check_layers(by_layer, config, name, total=total)
    if config.logit_factors and int(version) < FACTORS_VERSION:
        config = config.replace(logit_factors=False)
        warnings.append(
            f"factors of logits of format version {version}, learned for an older rule, are left out: learn them again "
            "with `focus-explorer train --learn factors`"
        )
    warnings += group_notes(by_layer, config)
    centroids = Centroids(
        {index: _router(parts, config) for index, parts in sorted(by_layer.items())},
        config,
        base_model=str(metadata.get("base_model", "")),
        base_fingerprint=str(metadata.get("base_fingerprint", "")),
        num_model_layers=total,
        training=_training(metadata),
        name=name,
        warnings=warnings,
    )
    if not centroids.has_potentials:
        warnings.append("no column potentials: they are estimated on a sample text before causal assignment")
    return centroids


def _training(metadata: dict[str, Any]) -> dict[str, Any]:
    raw = metadata.get("training", "{}")
    try:
        value = json.loads(raw) if isinstance(raw, str) else raw
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _config(
    by_layer: dict[int, dict[str, Tensor]], metadata: dict[str, Any], name: str
) -> tuple[FocusConfig, list[str]]:
    first = next(iter(by_layer.values()))
    if metadata.get("config"):
        raw = metadata["config"]
        try:
            return (FocusConfig.from_json(raw) if isinstance(raw, str) else FocusConfig.from_dict(raw)), []
        except (ConfigError, TypeError) as error:
            raise CentroidFileError(f"{name}: {error}", fix=SEE_FORMAT) from error
    if "centroids" not in first or first["centroids"].dim() != 2:
        raise CentroidFileError(f"{name} has no configuration and no 2-d centroids to infer it from", fix=SEE_FORMAT)
    groups, width = first["centroids"].shape
    projection = first.get("projection")
    two_d = projection is not None and projection.dim() == 2
    if projection is not None and two_d and width not in projection.shape and groups in projection.shape:
        raise CentroidFileError(
            f"{name}: the centroids have shape {(groups, width)}, which is transposed",
            expected=f"{(width, groups)}: groups, routing size",
            fix=BY_IMPORT,
        )
    try:
        config = FocusConfig(num_groups=groups, routing_dim=width, top_k=min(2, groups))
    except ConfigError as error:
        raise CentroidFileError(f"{name}: {error}", fix=SEE_FORMAT) from error
    return config, ["no configuration in the file: temperature, window and sinks are our defaults"]


def _router(parts: dict[str, Tensor], config: FocusConfig) -> CentroidRouter:
    router = CentroidRouter(parts["projection"].shape[0], config)
    with torch.no_grad():
        router.projection.copy_(parts["projection"])
        router.centroids.copy_(parts["centroids"])
        if "potential" in parts:
            router.potential.copy_(parts["potential"])
            router.has_potential = True
        if config.logit_factors:
            router.logit_factors = nn.Parameter(parts["logit_factors"].detach().float().clone())
    return router.requires_grad_(False)
