"""Focus of a composed model saved to a folder, and composed again from a folder or a repository of a hub.

The folder is laid out as in routing/places.py. The base model's weights are left out unless they are asked for.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from torch import nn

from focus_runtime.config import FocusConfig
from focus_runtime.errors import ModelError
from focus_runtime.models.loading import EMBEDDED, fingerprint, load_base_model
from focus_runtime.routing.centroid_file import load_place, save_centroids
from focus_runtime.routing.centroids import Centroids
from focus_runtime.routing.places import (
    BASE_MODEL_FOLDER,
    CENTROIDS_FILE,
    Place,
    SavedSettings,
    hub_name,
    locate_centroids,
    write_settings,
)
from focus_runtime.routing.router import CentroidRouter


class SavedModel:
    """What `FocusModel` saves and loads."""

    model: nn.Module
    routers: Mapping[int, CentroidRouter]
    config: FocusConfig
    backend: str
    centroids: Centroids | None
    _sliding_layers: str

    def save_pretrained(
        self, folder: str | os.PathLike[str], *, base_model: str | None = None, base_weights: bool = False
    ) -> str:
        """Save centroids, the settings in force, and which model they are for; files of the same names are replaced.

        Args:
            folder: is made where it is missing.
            base_model: name that `from_pretrained` loads the model by; what the centroids or the model say when None.
            base_weights: save the model's weights too, into a folder of their own, such as after training them.

        Returns:
            sha256 of the centroid file.

        Raises:
            CentroidFileError: the folder cannot be written.
        """
        assert self.centroids is not None  # compose() sets it
        folder = Path(folder)
        current = dataclasses.replace(self.centroids, routers=dict(self.routers), config=self.config)
        digest = save_centroids(current, folder / CENTROIDS_FILE)
        if base_weights:
            self._save_base(folder / BASE_MODEL_FOLDER)
        settings = SavedSettings(
            sha256=digest,
            base_model=base_model or current.base_model or str(getattr(self.model.config, "name_or_path", "") or ""),
            base_fingerprint=fingerprint(self.model),
            backend=self.backend,
            sliding_layers=self._sliding_layers,
        )
        write_settings(folder, settings)
        return digest

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str],
        model: nn.Module | None = None,
        *,
        revision: str | None = None,
        sha256: str | None = None,
        dtype: str = "float32",
        device: str = "cpu",
    ) -> Self:
        """Compose Focus as it was saved. Other settings: `compose(model, load_centroids(source), ...)`.

        Args:
            source: a folder of `save_pretrained`, `user/repo` or `user/repo@revision`, or what `load_centroids` takes.
            model: the base model; None loads the one that was saved or is named.
            dtype, device: of a base model that is loaded, as for `load_model`.

        Returns:
            The composed model: `.model` is the Hugging Face model, which runs Focus.

        Raises:
            CentroidFileError: the centroids cannot be had, or are for another model.
            ModelError: the base model cannot be loaded, or no name of it is known.
        """
        place = locate_centroids(source, revision)
        centroids = load_place(place, sha256)
        settings = place.settings or SavedSettings(
            sha256=centroids.sha256, base_model=centroids.base_model, base_fingerprint=centroids.base_fingerprint
        )
        if model is None:
            model = load_base_model(_base_model(place, settings), dtype=dtype, device=device)
            assert model is not None
        if settings.base_fingerprint and settings.base_fingerprint != fingerprint(model):
            warning = f"{place.name} was saved with other weights of {settings.base_model or 'the model'} than these"
            centroids.warnings.append(warning)
            warnings.warn(warning, stacklevel=2)
        return cls._compose(model, centroids, backend=settings.backend, sliding_layers=settings.sliding_layers)

    @classmethod
    def _compose(cls, model: nn.Module, centroids: Centroids, **settings: Any) -> Self:
        raise NotImplementedError

    def _save_base(self, folder: Path) -> None:
        focus: Any = self
        with focus.full_attention():  # else the files would say that the model's attention is Focus
            focus._allow_compile(True)
            try:
                focus.model.save_pretrained(folder)
            finally:
                focus._allow_compile(False)


def _base_model(place: Place, settings: SavedSettings) -> str:
    """The saved weights beside the file, or the name of a model.

    A name from a hub is somebody else's: it never opens a path of this machine.
    """
    own = place.path.parent / BASE_MODEL_FOLDER
    if not place.origin and place.settings is not None and (own / "config.json").is_file():
        return str(own)
    name = settings.base_model
    named = hub_name(name)
    if name and (not place.origin or name == EMBEDDED or (named is not None and named.revision is None)):
        return name
    raise ModelError(
        f"{place.name} names no base model that can be loaded" + (f": {name[:80]!r}" if name else ""),
        fix="load the model yourself and pass it: FocusModel.from_pretrained(source, model)",
    )
