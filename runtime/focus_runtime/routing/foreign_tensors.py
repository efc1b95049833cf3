"""Centroids as other code saved them: which tensors of a checkpoint are centroids, projections and potentials.

Names decide what a tensor is and which layer it belongs to. It knows nothing of shapes; centroid_import.py does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from focus_runtime.errors import CentroidFileError
from focus_runtime.routing.centroid_file import is_plain, unpickled
from focus_runtime.routing.places import SUFFIXES

DEEPEST = 8  # dicts and lists within each other
# The last word of a tensor's name -> what it is; the first that fits counts.
PARTS = {
    "projection": re.compile(
        r"(^|_)w_?(g|groups?|route|routing|router)$|^w$|(^|_)(groups?|routing|route|router|focus|centroids?)_?proj(ection)?$"
        r"|^proj(ection)?s?$|^proj(ection)?_g$|(^|_)router$|^routing$|(^|_)(groups?|routing)_(weight|matrix)$"
    ),
    "potential": re.compile(r"potential|(^|_)log_?v$|(^|_)(col(umn)?|groups?|sinkhorn)_?(bias|offset|dual)$"),
    "centroids": re.compile(
        r"centroid|codebook|prototype|cluster_?cent|(^|_)(groups?|routing)_?(emb(edding)?s?|keys?|vectors?|centers?)$|^centers?$"
    ),
}
# Words under which a file may state a setting.
SETTINGS = {
    "num_groups": ("num_groups", "n_groups", "num_centroids", "n_centroids"),
    "window": ("window", "window_size", "local_window", "local_window_size"),
    "top_k": ("top_k", "topk"),
    "temperature": ("temperature", "tau"),
    "num_sinks": ("num_sinks", "n_sinks", "sinks"),
}
_ENDINGS = ("weight", "data", "param", "parameter")  # of nn.Linear, nn.Embedding and the like
_OF_LAYER = re.compile(r"(?:^|[._-])(?:layers?|blocks?|h)[._-]?(\d{1,4})(?=$|[._-])", re.IGNORECASE)
_NUMBER = re.compile(r"(?:^|[._-])(\d{1,4})(?=$|[._-])")
_AT_THE_END = re.compile(r"[A-Za-z](\d{1,4})$")


@dataclass(frozen=True, eq=False, slots=True)
class ForeignTensor:
    """A tensor whose name says what it is."""

    name: str  # its keys joined by points, after the file's name where there are several files
    pattern: str  # the same with an asterisk for the layer's number
    tensor: Tensor
    layer: int | None


@dataclass(frozen=True, eq=False, slots=True)
class ForeignFile:
    """What was recognised in a file or folder; `others` are names of tensors that are none of the parts."""

    parts: dict[str, list[ForeignTensor]] = field(default_factory=lambda: {part: [] for part in PARTS})
    others: list[str] = field(default_factory=list)
    settings: dict[str, float] = field(default_factory=dict)


def read_foreign(source: Path, patterns: Mapping[str, str]) -> ForeignFile:
    """Read a checkpoint, or all of a folder; `patterns` of names, such as "*.W_g.weight", go before `PARTS`."""
    found = ForeignFile()
    stated: dict[str, set[float]] = {}
    for file in _files(source):
        stem = file.stem if source.is_dir() else ""
        for path, value in _content(file):
            if isinstance(value, Tensor):
                _sort(found, path, stem, value, patterns, file.stem)
            else:
                _note_setting(stated, path, value)
    found.settings.update({name: values.pop() for name, values in stated.items() if len(values) == 1})
    return found


def _files(source: Path) -> list[Path]:
    expected = "a .safetensors, .pt or .pth file, or a folder of such files"
    if source.is_dir():
        files = sorted(path for path in source.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file())
        if not files:
            raise CentroidFileError(f"the folder {source} holds no such file", expected=expected)
        return files
    if not source.is_file():
        raise CentroidFileError(f"there is no file {source}", expected=expected)
    if source.suffix.lower() not in SUFFIXES:
        raise CentroidFileError(f"{source.name} cannot be imported", expected=expected)
    return [source]


def _content(file: Path) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every tensor and plain value of a file with the keys that lead to it."""
    if file.suffix.lower() != ".safetensors":
        yield from _leaves(unpickled(file, file.stat().st_size, file.name), ())
        return
    try:
        with safe_open(file, "pt") as opened:
            yield from _leaves(opened.metadata() or {}, ("metadata",))
            for key in opened.keys():  # noqa: SIM118  (it is no dict)
                yield tuple(key.split(".")), opened.get_tensor(key)
    except (SafetensorError, OSError) as error:
        raise CentroidFileError(f"{file.name} is damaged: {error}", fix="download or save it again") from error


def _leaves(value: Any, path: tuple[str, ...], depth: int = 0) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping | list | tuple) and depth < DEEPEST:
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, inner in pairs:
            yield from _leaves(inner, (*path, *str(key).split(".")), depth + 1)
    elif isinstance(value, str) and value.startswith("{") and depth < DEEPEST:
        with suppress(ValueError, RecursionError):
            yield from _leaves(json.loads(value), path, depth + 1)
    else:
        yield path, value


def _sort(
    found: ForeignFile, path: tuple[str, ...], stem: str, tensor: Tensor, patterns: Mapping[str, str], file: str
) -> None:
    """Put a tensor where its name says it belongs."""
    name = _joined(stem, ".".join(path)) or file
    part = _part(name, path or (file,), stem, patterns)
    if part is None:
        found.others.append(name)
        return
    if part == "projection" and path and path[-1] == "bias":
        if bool(tensor.any()):
            raise CentroidFileError(
                f"{name} is a projection's bias that is not 0",
                expected="projections without a bias",
                fix="add its product with each centroid, over the temperature, to the potentials, and leave it out",
            )
        return
    if not tensor.is_floating_point() or not is_plain(tensor):
        raise CentroidFileError(f"{name} is no dense floating-point tensor", fix="save it with .float().contiguous()")
    layer, pattern = _layer(".".join(path), stem)
    found.parts[part].append(ForeignTensor(name, pattern or name, tensor, layer))


def _joined(stem: str, keys: str) -> str:
    return ".".join(filter(None, (stem, keys)))


def _part(name: str, path: tuple[str, ...], stem: str, patterns: Mapping[str, str]) -> str | None:
    """What a name says the tensor is; None for something else."""
    for part, pattern in patterns.items():
        if fnmatchcase(name, pattern):
            return part
    words = [word for word in path if not word.isdigit()]
    if len(words) > 1 and words[-1] in (*_ENDINGS, "bias"):
        words.pop()
    word = (words or [stem])[-1].lower().rstrip("0123456789").rstrip("_-")
    found = next((part for part, fits in PARTS.items() if fits.search(word)), None)
    of_bias = path[-1] == "bias" and found != "projection"
    return None if of_bias or found in patterns else found


def _layer(keys: str, stem: str) -> tuple[int | None, str]:
    """The layer that a tensor's keys name, or else its file; and the name with an asterisk for its number."""
    for text in (keys, stem):
        for number in (_OF_LAYER, _NUMBER, _AT_THE_END):
            if match := number.search(text):
                starred = f"{text[: match.start(1)]}*{text[match.end(1) :]}"
                return int(match[1]), _joined(stem, starred) if text is keys else _joined(starred, keys)
    return None, _joined(stem, keys)


def _note_setting(stated: dict[str, set[float]], path: tuple[str, ...], value: Any) -> None:
    """Keep a number that is called like one of our settings; safetensors holds numbers as text."""
    word = path[-1].lower() if path else ""
    name = next((name for name, words in SETTINGS.items() if word in words), None)
    if name is None or isinstance(value, bool):
        return
    try:
        number = float(value)
    except (TypeError, ValueError):
        return
    stated.setdefault(name, set()).add(number)
