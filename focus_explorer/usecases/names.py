"""Names of models and centroid files that come from a page's fields: known ones, uploads, hub ids, never any path.

What a command line names is its user's own and is not looked at here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError
from focus_explorer.settings import SETTINGS
from focus_explorer.usecases.centroids.files import SHIPPED_CENTROIDS, uploaded_row
from focus_runtime.routing.places import hub_name

if TYPE_CHECKING:
    from focus_explorer.usecases.analyze import AnalyzeRequest
    from focus_explorer.usecases.service import Service
    from focus_runtime.store.database import Database

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
EMBEDDED = SETTINGS["model"].default
_FIX = "start the page with --model or --allow-path FOLDER for files of its machine"


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownNames:
    """What the fields of one page may name; `folders` hold what may be named by path."""

    database: Database
    models: frozenset[str] = frozenset()
    centroids: frozenset[str] = frozenset()
    folders: tuple[Path, ...] = ()

    def model(self, name: str) -> str:
        """The name, where a field may hold it; the message is the same whether there is such a file or not."""
        name = name.strip()
        if name in self.models or name == EMBEDDED or self._inside(name):
            return name
        if _HUB_ID.fullmatch(name) and not name.lower().endswith(".gguf") and not os.path.lexists(name):
            return name
        if name in fetch(self.database, "model_ids")["model_id"].to_pylist():  # someone could choose it before
            return name
        raise InputError(
            f"{name[:200]!r} is no model that this page may load",
            expected=f"{EMBEDDED}, the page's own model or a hub id such as Qwen/Qwen3-0.6B",
            fix=_FIX,
        )

    def centroid_file(self, name: str) -> str:
        """A name or hash that stands for the same file everywhere: shipped, uploaded or in the folders."""
        name = name.strip()
        if name == "random" or name in self.centroids or name in SHIPPED_CENTROIDS:
            return name
        if self._inside(name) and (hub_name(name) is None or os.path.lexists(name)):  # else a hub would be asked
            return name
        row = uploaded_row(self.database, name)
        if row is not None:
            return str(row["sha256"])
        raise InputError(
            f"there are no centroids {name[:200]!r}",
            expected=f"{', '.join(SHIPPED_CENTROIDS)}, random, or an uploaded file",
            fix=f"upload it, or {_FIX}",
        )

    def request(self, request: AnalyzeRequest) -> AnalyzeRequest:
        """A request from a page's fields, with names that the page may use."""
        return replace(request, model=self.model(request.model), centroids=self.centroid_file(request.centroids))

    def text(self, text: str) -> None:
        """Any text: the analysis looks at its length."""

    def _inside(self, name: str) -> bool:
        """Whether a path lies in one of the folders, links followed."""
        if not self.folders or not name or "\x00" in name:
            return False
        path = os.path.realpath(os.path.expanduser(name))
        return any(os.path.commonpath([path, str(folder)]) == str(folder) for folder in self.folders)


def known_to_page(service: Service, text: str, request: AnalyzeRequest) -> AnalyzeRequest:
    if service.names is None:
        return request
    service.names.text(text)
    return service.names.request(request)


def known_model(service: Service, name: str) -> str:
    """The name of a model from a page's field, where the page knows it."""
    return name if service.names is None else service.names.model(name)


def allowed_folders(paths: Sequence[str]) -> tuple[Path, ...]:
    """Folders of `--allow-path`, with links followed."""
    folders = tuple(Path(os.path.realpath(os.path.expanduser(path))) for path in paths)
    for path, folder in zip(paths, folders, strict=True):
        if not folder.is_dir():
            raise InputError(f"--allow-path {path} is no folder", expected="a folder of models or centroid files")
    return folders
