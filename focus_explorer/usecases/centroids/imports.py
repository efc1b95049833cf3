"""Centroid files of other code, written in our format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focus_explorer.errors import InputError
from focus_explorer.usecases.centroids.files import check_new
from focus_explorer.usecases.centroids.fit import calibrate
from focus_explorer.usecases.service import Service

if TYPE_CHECKING:
    from focus_runtime.routing.centroid_import import MappedTensor


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportRequest:
    """What is imported; see `import_centroids` for all but the first three.

    Attributes:
        source: a file or folder of other code.
        out: the new file.
        model: name of the model that the centroids are for; None leaves them unchecked and without new potentials.
    """

    source: str
    out: str
    model: str | None = None
    groups: int | None = None
    window: int | None = None
    top_k: int | None = None
    temperature: float | None = None
    sinks: int | None = None
    layouts: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Imported:
    """A file that was written.

    Attributes:
        sha256: of the file.
        mapping: what became of the other code's tensors.
        notes: what was assumed, estimated or is missing.
    """

    sha256: str
    mapping: list[MappedTensor]
    notes: list[str]


def import_file(
    service: Service, request: ImportRequest, *, show: Callable[[list[str]], None] = lambda table: None
) -> Imported:
    """Recognise centroids of other code and write them in our format.

    Args:
        service: whose model is used.
        request: what is imported.
        show: takes the mapping as lines before any setting is asked for.

    Raises:
        InputError: nothing is recognised, several mappings fit, a setting is missing, or there is a file of that name.
    """
    from focus_runtime.files import cannot_write, check_writable
    from focus_runtime.routing.centroid_file import save_centroids
    from focus_runtime.routing.centroid_import import recognise_centroids

    out = Path(request.out).expanduser()
    if out.suffix != ".safetensors":
        raise InputError(f"--out is {request.out!r}", expected="a name ending in .safetensors")
    check_new(out)
    check_writable(out, explain=cannot_write("choose another --out"))
    with ExitStack() as held:
        loaded: Any = None if request.model is None else held.enter_context(service.models.lease(request.model))
        found = recognise_centroids(
            Path(request.source).expanduser(),
            model=None if loaded is None else loaded.model,
            num_groups=request.groups,
            layouts=request.layouts,
            names=request.names,
        )
        show(_table(found.mapping, found.others))
        centroids = found.centroids(
            window=request.window, top_k=request.top_k, temperature=request.temperature, num_sinks=request.sinks
        )
        if loaded is not None:
            centroids.check_fits(loaded.model)
            centroids.base_model, centroids.base_fingerprint = loaded.name, loaded.fingerprint
            if not centroids.has_potentials:
                calibrate(loaded, centroids)
        else:
            centroids.warnings.append("no model is named: give --model to check the fit and to store column potentials")
        return Imported(save_centroids(centroids, out), found.mapping, centroids.warnings)


def _table(mapping: list[MappedTensor], others: list[str]) -> list[str]:
    """The mapping as lines, and what is left out."""
    rows = [
        (row.name, str(row.shape), f"layers.*.{row.part}", str(row.shape[::-1]) if row.transposed else "")
        for row in mapping
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = []
    for row, (name, shape, ours, turned) in zip(mapping, rows, strict=True):
        layers = f"{len(row.layers)} layers" if len(row.layers) > 1 else f"layer {row.layers[0]}"
        end = f", transposed to {turned}" if turned else ""
        lines.append(f"{name:<{widths[0]}}  {shape:<{widths[1]}}  ->  {ours:<{widths[2]}}  {layers}{end}")
    if others:
        some = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
        lines.append(f"left out: {len(others)} other tensors ({some})")
    return lines
