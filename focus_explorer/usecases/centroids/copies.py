"""New centroid files from others: a copy with a change or with one of its measured budgets, or files of other code."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focus_explorer.errors import InputError
from focus_explorer.usecases.budget import BudgetPoint, BudgetRecord, copy_record, read_record
from focus_explorer.usecases.centroids.files import (
    add_centroids,
    centroid_row,
    check_new,
    every_centroid_file,
    find_centroids,
    kept_folder,
    load_row,
)
from focus_explorer.usecases.centroids.ready import calibrate
from focus_explorer.usecases.request import AsJson, File, NewFile, argument, option
from focus_explorer.usecases.service import Service
from focus_explorer.views.payloads.centroids import UsedBudgetPayload
from focus_runtime.config import FocusConfig
from focus_runtime.files import cannot_write, check_writable
from focus_runtime.store.database import Database

if TYPE_CHECKING:
    from focus_runtime.routing.centroid_import import MappedTensor

_POINT = re.compile(r", (?:[0-9.]+ % of pairs|without a budget)$")
_cannot_keep = cannot_write("free some space")


def copy_with(service: Service, path: str, out: str, **changes: Any) -> str:
    """Write a copy of a centroid file with some settings changed, such as `text_sinks`; returns its sha256."""
    from focus_runtime.routing.centroid_file import save_centroids

    centroids = find_centroids(service.database, path)[1]
    check_new(out)
    centroids.config = centroids.config.replace(**changes)
    return save_centroids(centroids, out)


def use_budget(service: Service, sha256: str, point: int) -> UsedBudgetPayload:
    """Keep a copy of a file with one of its measured budgets, counted from 0 with the fewest pairs first.

    The same point gives the same copy, from the file of the search and from other copies of it; a file that has this
    budget already is used as it is.
    """
    from focus_runtime.routing.centroid_file import save_centroids

    row = centroid_row(service.database, sha256)
    centroids = load_row(row)
    record = read_record(centroids.training, centroids.config, centroids.routers)
    if record is None:
        raise InputError(
            f"{row['name']} holds no measured budgets", expected="a file that `focus-explorer tune` has written"
        )
    if isinstance(point, bool) or not isinstance(point, int) or not 0 <= point < len(record.points):
        raise InputError(
            f"{row['name']} has no budget {point!r}", expected=f"a whole number from 0 to {len(record.points) - 1}"
        )
    chosen = record.points[point]
    config = centroids.config.replace(budget=chosen.budget)
    origin = next((each for each in every_centroid_file(service.database) if each["sha256"] == record.source), None)
    for same in (row, origin):
        if same is not None and FocusConfig.from_json(same["config"]) == config:
            return _used(same["sha256"], same["name"], config)
    centroids.training = centroids.training | {
        "budget": copy_record(centroids.training["budget"], record, chosen, record.source or sha256)
    }
    centroids.config = config
    name = _point_name(_stem(origin or row), record, chosen)
    with _scratch(service.database) as folder:
        path = folder / "copy.safetensors"
        copied = save_centroids(centroids, path)
        add_centroids(service, path, name, None)
    return _used(copied, name, config)


def _used(sha256: str, name: str, config: FocusConfig) -> UsedBudgetPayload:
    return {
        "sha256": sha256,
        "name": name,
        "top_k": config.top_k,
        "window": config.window,
        "num_sinks": config.num_sinks,
    }


def _stem(row: dict[str, Any]) -> str:
    """A file's name without its suffix and, of a copy, without its point."""
    name = Path(row["name"])
    stem = name.stem if name.suffix.lower() in (".safetensors", ".pt", ".pth") else row["name"]
    return _POINT.sub("", stem)


def _point_name(stem: str, record: BudgetRecord, point: BudgetPoint) -> str:
    """Such as "tuned, 31 % of pairs", with as many digits as tell the points apart."""
    if not point.budget:
        return f"{stem}, without a budget"
    shares = [other.retained_pairs for other in record.points]
    digits = next((n for n in range(4) if len({f"{share:.{n + 2}f}" for share in shares}) == len(shares)), 4)
    return f"{stem}, {100 * point.retained_pairs:.{digits}f} % of pairs"


@contextmanager
def _scratch(database: Database) -> Iterator[Path]:
    """An empty folder beside the kept files, removed afterwards."""
    parent = kept_folder(database)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(dir=parent, prefix=".")
    except OSError as error:
        raise _cannot_keep(parent, error) from error
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class ImportRequest(NewFile, AsJson):
    """A file or folder of other code; without a model it is unchecked and gets no new potentials."""

    source: File = argument(".safetensors, .pt or .pth, or a folder of such files", metavar="file")
    model: File | None = option(
        None, "the model that they are for: checks the fit and estimates column potentials that are missing"
    )
    groups: int | None = option(None, "K, where shapes leave it open")
    window: int | None = option(None, "local window in tokens, unless the file states it")
    top_k: int | None = option(None, "groups a token belongs to (default: the file's, or 2)")
    temperature: float | None = option(None, "divides the scores (default: the file's, or 0.1)")
    sinks: int | None = option(None, "first tokens every token may attend to (default: the file's, or 4)")
    layout: tuple[str, ...] = option(
        (),
        "projection or centroids, =ours or =transposed, where shapes leave it open",
        metavar="PART=LAYOUT",
    )
    map: tuple[str, ...] = option(
        (),
        "how the tensors of a part are called, such as 'projection=*.W_g.weight'; also centroids and potential",
        metavar="PART=PATTERN",
    )


@dataclass(frozen=True, slots=True)
class Imported:
    """A file that was written; the notes say what was assumed, estimated or is missing."""

    sha256: str
    mapping: list[MappedTensor]
    notes: list[str]


def import_file(
    service: Service, request: ImportRequest, *, show: Callable[[list[str]], None] = lambda table: None
) -> Imported:
    """Recognise centroids of other code and write them in our format; `show` takes the mapping as lines before that."""
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
            layouts=_pairs("--layout", request.layout),
            names=_pairs("--map", request.map),
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


def _pairs(flag: str, words: tuple[str, ...]) -> dict[str, str]:
    """PART=VALUE words as a dict."""
    for word in words:
        if "=" not in word:
            raise InputError(f"{flag} is {word!r}", expected="PART=VALUE, such as projection=transposed")
    return dict(word.split("=", 1) for word in words)


def _table(mapping: list[MappedTensor], others: list[str]) -> list[str]:
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
