"""One of the measured budgets of a centroid file, used: a copy of the file that has it."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from focus_explorer.errors import InputError
from focus_explorer.usecases.centroids.budget_record import BudgetPoint, BudgetRecord, copy_record, read_record
from focus_explorer.usecases.centroids.files import add_centroids, centroid_row, every_centroid_file, load_row
from focus_explorer.usecases.service import Service
from focus_explorer.views.payloads.centroids import UsedBudgetPayload
from focus_runtime.config import FocusConfig
from focus_runtime.files import cannot_write
from focus_runtime.store.database import Database

_POINT = re.compile(r", (?:[0-9.]+ % of pairs|without a budget)$")
_cannot_keep = cannot_write("free some space")


def use_budget(service: Service, sha256: str, point: int) -> UsedBudgetPayload:
    """Keep a copy of a file with one of the budgets measured for it; a file that has this budget is used as it is.

    The same point gives the same copy, from the file of the search and from other copies of it.

    Args:
        service: whose database registers it.
        sha256: of the file.
        point: number of the budget in the file's record, from 0, fewest pairs first.

    Raises:
        InputError: there is no such file or point, or the copy cannot be kept.
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
    parent = database.path.parent / "centroids"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(dir=parent, prefix=".")
    except OSError as error:
        raise _cannot_keep(parent, error) from error
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
