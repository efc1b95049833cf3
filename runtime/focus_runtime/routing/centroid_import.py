"""Centroids of other code, made ours: tensors found by name, turned by shape, checked as any centroid file is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from focus_runtime.config import MAX_GROUPS, FocusConfig
from focus_runtime.errors import CentroidFileError, ConfigError
from focus_runtime.models.structure import attention_modules, hidden_size
from focus_runtime.routing.centroid_file import centroids_of, load_centroids
from focus_runtime.routing.centroids import Centroids
from focus_runtime.routing.foreign_tensors import PARTS, ForeignTensor, read_foreign

LAYOUTS = ("ours", "transposed")
READINGS = [frozenset(turned) for turned in ((), ("projection",), ("centroids",), ("projection", "centroids"))]


def orientation(
    name: str,
    placed: Mapping[str, Mapping[int, Tensor]],
    width: int | None,
    groups: int | None,
    layouts: Mapping[str, str],
) -> tuple[frozenset[str], dict[str, float]]:
    """The parts that are transposed, and K and d_g: the only reading of the shapes that fits."""
    shapes = {part: tuple(next(iter(by_layer.values())).shape) for part, by_layer in placed.items()}
    if "potential" in shapes and groups is None:
        groups = shapes["potential"][0]
    readings: dict[frozenset[str], tuple[int, int, int]] = {}
    for turned in READINGS:
        said = all((layout == "transposed") == (part in turned) for part, layout in layouts.items())
        (hidden, routing), (found, same) = (
            shapes[part][::-1] if part in turned else shapes[part] for part in ("projection", "centroids")
        )
        fits = said and routing == same and found <= MAX_GROUPS and width in (None, hidden) and groups in (None, found)
        if fits:
            readings[turned] = (hidden, routing, found)
    if not readings:
        known = [f"hidden size {width}"] * (width is not None) + [f"{groups} groups"] * (groups is not None)
        raise CentroidFileError(
            f"{name}: the projections have shape {shapes['projection']} and the centroids {shapes['centroids']}",
            expected="(hidden size, routing size) and (groups, routing size), or their transposes"
            + (f", with {' and '.join(known)}" if known else f", with at most {MAX_GROUPS} groups"),
            fix="check --model, --groups and --map",
        )
    if len(readings) > 1:
        raise _ambiguous(name, shapes, readings)
    ((turned, (_, routing, found)),) = readings.items()
    return turned, {"num_groups": found, "routing_dim": routing}


def _ambiguous(
    name: str, shapes: Mapping[str, tuple[int, ...]], readings: Mapping[frozenset[str], tuple[int, int, int]]
) -> CentroidFileError:
    """The refusal of shapes that can be read in several ways, with the option that decides between them."""
    ways = [
        f"hidden size {hidden}, routing size {routing}, {found} groups with "
        + (f"{' and '.join(sorted(turned))} transposed" if turned else "nothing transposed")
        for turned, (hidden, routing, found) in readings.items()
    ]
    hiddens, _, groups = (set(numbers) for numbers in zip(*readings.values(), strict=True))
    if len(hiddens) > 1:
        fix = "name the model (--model)"
    elif len(groups) > 1:
        fix = "give the number of groups (--groups)"
    else:
        open_parts = [part for part in ("projection", "centroids") if len({part in turned for turned in readings}) > 1]
        fix = "say how they were saved: " + " ".join(f"--layout {part}=ours (or =transposed)" for part in open_parts)
    return CentroidFileError(
        f"{name} fits {len(readings)} mappings, and none was taken: projections of shape {shapes['projection']} and "
        f"centroids of shape {shapes['centroids']} may be {', or '.join(ways)}",
        fix=fix,
    )


DIMENSIONS = {"projection": 2, "centroids": 2, "potential": 1}  # of one layer's tensor; one more where they are stacked
WHOLE = ("num_groups", "window", "top_k", "num_sinks")  # settings that are whole numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class MappedTensor:
    """Tensors of one part that differ only by their layer; `name` has an asterisk for its number."""

    name: str
    shape: tuple[int, ...]
    part: str
    layers: tuple[int, ...]
    transposed: bool


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ForeignCentroids:
    """Tensors of other code whose place in our format is known."""

    name: str  # of the file or folder
    mapping: list[MappedTensor]
    others: list[str]  # names of tensors that are left out
    tensors: dict[str, Tensor]
    settings: dict[str, float]  # K and d_g, and what else the file states
    num_model_layers: int | None  # attention layers of the model; None without one

    def centroids(self, **given: float | None) -> Centroids:
        """Routers with the settings that are given, or else stated in the file; what is assumed is in the warnings.

        `given`: window, top_k, temperature and num_sinks, None for what the file states.
        """
        known = self.settings | {name: value for name, value in given.items() if value is not None}
        if "window" not in known:
            raise ConfigError(
                f"{self.name} does not say the local window", expected="its size in tokens", fix="give it (--window W)"
            )
        usual = FocusConfig()
        ours: dict[str, float] = {"top_k": min(usual.top_k, int(known["num_groups"]))}
        ours |= {"temperature": usual.temperature, "num_sinks": usual.num_sinks}
        assumed = {name: value for name, value in ours.items() if name not in known}
        layers = sorted({int(name.split(".")[1]) for name in self.tensors})
        partial = layers != list(range(self.num_model_layers or len(layers)))
        config = FocusConfig.from_dict(assumed | known | {"layers": layers if partial else None})
        metadata = {"config": config.to_dict(), "num_model_layers": self.num_model_layers or ""}
        made = centroids_of(self.tensors, metadata, self.name)
        made.training = {"imported_from": self.name}
        if assumed:
            words = ", ".join(f"{name} {value:g}" for name, value in assumed.items())
            made.warnings.append(f"the file does not state these settings, which have our defaults: {words}")
        without = (self.num_model_layers or len(layers)) - len(layers)
        if without:
            made.warnings.append(f"{without} of the model's {self.num_model_layers} attention layers have no centroids")
        return made


def import_centroids(
    source: str | os.PathLike[str],
    *,
    model: nn.Module | None = None,
    num_groups: int | None = None,
    window: int | None = None,
    top_k: int | None = None,
    temperature: float | None = None,
    num_sinks: int | None = None,
    layouts: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
) -> Centroids:
    """Read centroids that other code saved: a .safetensors, .pt or .pth file, or a folder of such files.

    Names decide what a tensor is, shapes whether it is transposed. Where the file has no column potentials, the result
    has none: see `calibrate_potentials`. `save_centroids` writes it in our format.

    Args:
        source: pickles are read without executing anything in them.
        model: that they are for, which decides what shapes leave open.
        num_groups: K, where shapes leave it open.
        window: w; it must be given where the file does not state it.
        top_k, temperature, num_sinks: what the file states when None, or else our defaults.
        layouts: by part ("projection", "centroids"), "ours" for (d, d_g) and (K, d_g) or "transposed", where shapes
            leave it open.
        names: by part ("projection", "centroids", "potential"), a pattern of their names such as "*.W_g.weight".

    Raises:
        CentroidFileError: the file is damaged or unsafe, no mapping fits or more than one; the message names them.
        ConfigError: no window is known, or a setting is out of range.
    """
    found = recognise_centroids(source, model=model, num_groups=num_groups, layouts=layouts, names=names)
    made = found.centroids(window=window, top_k=top_k, temperature=temperature, num_sinks=num_sinks)
    if model is not None:
        made.check_fits(model)
    return made


def recognise_centroids(
    source: str | os.PathLike[str],
    *,
    model: nn.Module | None = None,
    num_groups: int | None = None,
    layouts: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
) -> ForeignCentroids:
    """Find the place of each tensor in our format, before any setting is asked for."""
    path = Path(source)
    _check_choices(layouts or {}, names or {})
    _check_foreign(path)
    foreign = read_foreign(path, names or {})
    layers = None if model is None else tuple(attention_modules(model))
    for part in ("projection", "centroids"):
        if not foreign.parts[part]:
            some = ", ".join(foreign.others[:5]) + (" …" if len(foreign.others) > 5 else "")
            others = f"; its other tensors are {some}" if some else ""
            raise CentroidFileError(
                f"{path.name} holds no tensor that is called like the {part}{others}",
                expected="a projection and centroids for every layer",
                fix=f"say how they are called, such as --map '{part}=PATTERN'",
            )
    by_part = {part: _by_layer(part, tensors, layers) for part, tensors in foreign.parts.items() if tensors}
    placed = _every_layer(path.name, by_part, layers)
    width = None if model is None else hidden_size(model)
    stated = foreign.settings.get("num_groups")
    groups = num_groups if num_groups is not None else int(stated) if stated else None
    turned, config = orientation(path.name, placed, width, groups, layouts or {})
    tensors = {
        f"layers.{layer}.{part}": (one.T if part in turned else one).float().contiguous()
        for part, by_layer in placed.items()
        for layer, one in by_layer.items()
    }
    settings = {name: int(value) if name in WHOLE else value for name, value in foreign.settings.items()}
    return ForeignCentroids(
        name=path.name,
        mapping=[row for part in placed for row in _rows(part, foreign.parts[part], placed[part], part in turned)],
        others=foreign.others,
        tensors=tensors,
        settings=settings | config,
        num_model_layers=None if layers is None else len(layers),
    )


def _check_choices(layouts: Mapping[str, str], names: Mapping[str, str]) -> None:
    """Refuse parts and layouts that do not exist."""
    for part, layout in layouts.items():
        if part not in ("projection", "centroids") or layout not in LAYOUTS:
            expected = "projection or centroids, ours or transposed"
            raise ConfigError(f"the layout {part}={layout} is unknown", expected=expected)
    unknown = sorted(set(names) - set(PARTS))
    if unknown:
        raise ConfigError(f"{unknown[0]!r} is no part of a centroid file", expected=", ".join(PARTS))


def _check_foreign(path: Path) -> None:
    """Refuse a whole file of ours: importing it would drop settings such as its budget."""
    if not path.is_file():
        return
    try:
        ours = load_centroids(path)
    except CentroidFileError:
        return
    if not any(warning.startswith("no configuration") for warning in ours.warnings):
        raise CentroidFileError(f"{path.name} is a centroid file of ours already", fix="use it as it is")


def _by_layer(part: str, tensors: list[ForeignTensor], layers: tuple[int, ...] | None) -> dict[int | None, Tensor]:
    """One part by layer, under None where all layers share it; stacked ones get the numbers of the model's layers."""
    by_number: dict[int | None, ForeignTensor] = {}
    for one in tensors:
        other = by_number.setdefault(one.layer, one)
        if other is not one:
            raise _two_candidates(part, other, one)
    if len(by_number) > 1 and None in by_number:
        raise _two_candidates(part, by_number[None], next(one for one in tensors if one.layer is not None))
    whole = by_number.get(None)
    if whole is None or whole.tensor.dim() != DIMENSIONS[part] + 1:
        return {layer: _of_one_layer(part, one) for layer, one in by_number.items()}
    stacked = whole.tensor.unbind(0)
    if layers is not None and len(layers) != len(stacked):
        raise CentroidFileError(
            f"{whole.name} has {len(stacked)} layers, but the model has {len(layers)} attention layers",
            fix="choose the model it was trained for",
        )
    return dict(zip(layers or range(len(stacked)), stacked, strict=True))


def _two_candidates(part: str, first: ForeignTensor, second: ForeignTensor) -> CentroidFileError:
    of_layer = "" if first.layer is None or second.layer is None else f" of layer {first.layer}"
    return CentroidFileError(
        f"two tensors may be the {part}{of_layer}, {first.name} and {second.name}, and neither was taken",
        expected="one",
        fix=f"say which ones are meant, such as --map '{part}={first.pattern}'",
    )


def _of_one_layer(part: str, one: ForeignTensor) -> Tensor:
    tensor = one.tensor
    if part == "potential" and tensor.numel() == max(tensor.shape, default=0):  # (1, K), (K, 1)
        tensor = tensor.flatten()
    if tensor.dim() != DIMENSIONS[part]:
        raise CentroidFileError(
            f"{one.name} has shape {tuple(one.tensor.shape)}",
            expected=f"{DIMENSIONS[part]} dimensions for one layer's {part}, or one more for all layers",
            fix="Focus has one set of groups a layer, which all heads share" if tensor.dim() > 2 else "",
        )
    return tensor


def _every_layer(
    name: str, by_part: dict[str, dict[int | None, Tensor]], layers: tuple[int, ...] | None
) -> dict[str, dict[int, Tensor]]:
    """The same with a tensor for each layer, those that all layers share included."""
    numbers = {layer for by_layer in by_part.values() for layer in by_layer if layer is not None}
    if not numbers and layers is not None and len(layers) == 1:
        numbers = {layers[0]}
    if not numbers:
        raise CentroidFileError(
            f"{name} does not say which layer its tensors are of",
            expected="layer numbers in names of tensors or files, or tensors of all layers stacked",
            fix="name them layers.N.centroids and layers.N.projection",
        )
    placed: dict[str, dict[int, Tensor]] = {}
    for part, by_layer in by_part.items():
        shared = by_layer.get(None)
        placed[part] = {n: tensor for n in sorted(numbers) if (tensor := by_layer.get(n, shared)) is not None}
        missing = sorted(numbers - set(placed[part]))
        if missing:
            raise CentroidFileError(
                f"{name} has no {part} for layer {missing[0]}, which has other tensors", expected="one for every layer"
            )
        shapes = {tuple(tensor.shape): n for n, tensor in placed[part].items()}
        if len(shapes) > 1:
            (one, first), (other, second), *_ = shapes.items()
            raise CentroidFileError(
                f"the {part} has shape {one} in layer {first} and {other} in layer {second}",
                expected="one shape in all layers",
            )
    return placed


def _rows(
    part: str, tensors: list[ForeignTensor], placed: Mapping[int, Tensor], transposed: bool
) -> list[MappedTensor]:
    """The mapping of one part."""
    rows: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for one in tensors:
        layers = list(placed) if one.layer is None else [one.layer]
        rows.setdefault((one.pattern, tuple(one.tensor.shape)), []).extend(layers)
    return [
        MappedTensor(name=name, shape=shape, part=part, layers=tuple(sorted(layers)), transposed=transposed)
        for (name, shape), layers in rows.items()
    ]
