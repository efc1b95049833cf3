"""The loaded model: at most one is kept, and whoever works with it holds a lease, so that no two use it at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from focus_explorer import settings
from focus_explorer.progress import Progress


@dataclass(slots=True)
class LoadedModel:
    """A model in memory.

    Attributes:
        name: it was loaded by.
        model: the Hugging Face model.
        tokenizer: its tokenizer.
        fingerprint: hash of its weights.
    """

    name: str
    model: Any
    tokenizer: Any
    fingerprint: str


class ModelStore:
    """Loads models by name and keeps the one loaded last.

    Args:
        load: loads a model by name; raises InputError where it cannot.
    """

    def __init__(self, load: Callable[[str], LoadedModel] | None = None) -> None:
        self._load = load
        self._kept: LoadedModel | None = None
        self._lock = threading.RLock()

    @contextmanager
    def lease(self, name: str, *, progress: Progress = lambda stage, fraction: None) -> Iterator[LoadedModel]:
        """The named model, for this thread alone until the block ends; within it the thread may take further leases.

        Args:
            name: of the model.
            progress: takes each stage of loading and the fraction done; not called for a model that is kept.

        Raises:
            InputError: it cannot be loaded.
        """
        with self._lock:
            if self._kept is None or self._kept.name != name:
                self._kept = None  # two models at a time may not fit into memory
                self._kept = self._load(name) if self._load else load_by_name(name, progress=progress)
            yield self._kept


def load_by_name(name: str, *, progress: Progress = lambda stage, fraction: None) -> LoadedModel:
    """Load a model by embedded name, Hugging Face id, folder or .gguf file.

    Raises:
        InputError: it cannot be loaded.
    """
    from focus_runtime.models.loading import fingerprint, load_model

    model, tokenizer = load_model(name, cache_dir=settings.cache_dir(), progress=progress)
    return LoadedModel(name, model, tokenizer, fingerprint(model))


def load_in_precision(name: str, source: str, dtype: str, device: str) -> LoadedModel:
    """Load a model in a given precision.

    Args:
        name: that the loaded model gets.
        source: embedded name, Hugging Face id, folder or .gguf file.
        dtype: `float32` or `bfloat16`.
        device: `cpu` where there is no GPU.

    Raises:
        InputError: it cannot be loaded.
    """
    import torch

    from focus_runtime.models.loading import fingerprint, load_model

    place = device if torch.cuda.is_available() else "cpu"
    model, tokenizer = load_model(source, dtype=dtype, device=place, cache_dir=settings.cache_dir())
    return LoadedModel(name, model, tokenizer, fingerprint(model))
