"""Which way the tensors of other code were saved: the readings of their shapes, of which one must fit."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from focus_runtime.config import MAX_GROUPS
from focus_runtime.errors import CentroidFileError

LAYOUTS = ("ours", "transposed")
READINGS = [frozenset(turned) for turned in ((), ("projection",), ("centroids",), ("projection", "centroids"))]


def orientation(
    name: str,
    placed: Mapping[str, Mapping[int, Tensor]],
    width: int | None,
    groups: int | None,
    layouts: Mapping[str, str],
) -> tuple[frozenset[str], dict[str, float]]:
    """The parts that are transposed, and K and d_g: the only reading of the shapes that fits.

    Args:
        name: of the file, for messages.
        placed: tensors by part and layer.
        width: hidden size of the model, None if unknown.
        groups: K, None if unknown.
        layouts: by part, "ours" or "transposed", where the user says it.

    Raises:
        CentroidFileError: no reading fits, or more than one.
    """
    shapes = {part: tuple(next(iter(by_layer.values())).shape) for part, by_layer in placed.items()}
    if "potential" in shapes and groups is None:
        groups = shapes["potential"][0]
    readings: dict[frozenset[str], tuple[int, int, int]] = {}
    for turned in READINGS:
        said = all((layout == "transposed") == (part in turned) for part, layout in layouts.items())
        hidden, routing = _turned(shapes["projection"], turn="projection" in turned)
        found, same = _turned(shapes["centroids"], turn="centroids" in turned)
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


def _turned(shape: tuple[int, ...], *, turn: bool) -> tuple[int, ...]:
    return shape[::-1] if turn else shape


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
