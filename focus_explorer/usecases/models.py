"""The loaded model: at most one is kept, and whoever works with it holds a lease, so that no two use it at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from focus_explorer import settings
from focus_explorer.progress import Progress, about
from focus_explorer.usecases.acting_user import acting_user
from focus_explorer.usecases.fair_lock import FairLock
from focus_explorer.usecases.jobs import WAITING, waiting_for_turn
from focus_runtime.failures import LONGEST_TEXT, Advice

if TYPE_CHECKING:
    from focus_runtime.models.devices import Placement


Load = Callable[[str, "Placement", Progress], "LoadedModel"]


class Meter(Protocol):
    """Who may use the model for how long."""

    def admit(self) -> None:
        """Let whoever this code works for use the model, or raise an InputError."""

    def spend(self, seconds: float) -> None:
        """Count seconds that they used it."""


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
        load: loads a model by name, placement and progress; raises InputError where it cannot.
        device, dtype: where and in which precision models run whose lease does not say; see `place`.

    Attributes:
        meter: who may use it for how long; None where anybody may for ever.
    """

    def __init__(self, load: Load | None = None, *, device: str = "auto", dtype: str = "auto") -> None:
        self.device, self.dtype = device, dtype
        self.meter: Meter | None = None
        self._load = load or load_by_name
        self._kept: LoadedModel | None = None
        self._placement: Placement | None = None
        self._tokenizer: tuple[str, Any] | None = None
        self._lock = FairLock()

    def place(self, device: str | None = None, dtype: str | None = None) -> Placement:
        """Where a lease with these options would run.

        Raises:
            DeviceError: this machine has no such device or precision.
        """
        from focus_runtime.models.devices import place

        return place(device or self.device, dtype or self.dtype)

    @contextmanager
    def lease(
        self,
        name: str,
        *,
        device: str | None = None,
        dtype: str | None = None,
        progress: Progress = lambda stage, fraction: None,
        advice: Advice = LONGEST_TEXT,
    ) -> Iterator[LoadedModel]:
        """The named model, for this thread alone until the block ends; within it the thread may take further leases.

        Args:
            name: of the model.
            device: auto, cpu, cuda, cuda:N, mps or split; the store's own when None.
            dtype: auto, float32, bfloat16 or float16; the store's own when None.
            progress: takes the place in line, and each stage of loading with the fraction done; not called where nobody
                else works with a model and the right one is kept. What it raises ends the waiting.
            advice: what to do when the memory does not suffice for the work in the block.

        Raises:
            InputError: it cannot be loaded, this machine has no such device or precision, the memory does not suffice
                for the work in the block, or the GPU fails.
        """
        from focus_runtime.measure.memory import within_memory

        placement = self.place(device, dtype)
        with self._turn(progress):
            if self._kept is None or self._kept.name != name or self._placement != placement:
                self._kept = None  # two models at a time may not fit into memory
                self._kept, self._placement = self._load(name, placement, progress), placement
            with within_memory(self._kept.model, advice):
                yield self._kept

    @contextmanager
    def _turn(self, progress: Progress) -> Iterator[None]:
        """The lock while the block runs; its time is counted, unless it lies within a turn of the same thread."""
        meter = None if self._lock.is_mine() else self.meter
        if meter is not None:
            meter.admit()
        with ExitStack() as held:
            with waiting_for_turn():
                held.enter_context(
                    self._lock.held(acting_user(), lambda ahead, seconds: progress(in_line(ahead, seconds), 0.0))
                )
            since = time.monotonic()
            try:
                yield
            finally:
                if meter is not None:
                    meter.spend(time.monotonic() - since)

    def tokenizer(self, name: str) -> Any | None:
        """The tokenizer of a model, loaded alone where another model is kept.

        Returns:
            None while somebody works with a model (transformers cannot be imported by two threads at a time), and where
            the model would have to be fetched or converted first.
        """
        from focus_runtime.models.loading import load_tokenizer

        if not self._lock.try_acquire():
            return None
        try:
            if self._kept is not None and self._kept.name == name:
                return self._kept.tokenizer
            if self._tokenizer is None or self._tokenizer[0] != name:
                self._tokenizer = name, load_tokenizer(name, cache_dir=settings.cache_dir())
            return self._tokenizer[1]
        finally:
            self._lock.release()


def in_line(ahead: int, seconds: float | None) -> str:
    """The stage of work that waits for the model.

    Args:
        ahead: how many are before.
        seconds: that they take, about; None while nobody knows.
    """
    time_left = "" if seconds is None else f", about {about(seconds)}"
    return f"{WAITING}: {ahead:,} before you{time_left}"


def load_by_name(name: str, placement: Placement, progress: Progress = lambda stage, fraction: None) -> LoadedModel:
    """Load a model by embedded name, Hugging Face id, folder or .gguf file.

    Args:
        name: of the model.
        placement: device and precision.
        progress: takes each stage of loading and the fraction done.

    Raises:
        InputError: it cannot be loaded.
    """
    from focus_runtime.models.loading import fingerprint, load_model

    model, tokenizer = load_model(
        name, dtype=placement.dtype, device=placement.device, cache_dir=settings.cache_dir(), progress=progress
    )
    return LoadedModel(name, model, tokenizer, fingerprint(model))


def device_choices(*, training: bool = False) -> list[tuple[str, str]]:
    """(label, value): auto with what it takes here, then every device of this machine with its name and memory.

    Args:
        training: leave out what trainings do not use: all GPUs together, and the precision that analyses run in.
    """
    from focus_runtime.models.devices import SPLIT, devices, place

    auto = place()
    labels = [(f"auto ({auto.device})" if training else f"auto ({auto.device}, {auto.dtype})", "auto")]
    for device in devices():
        if training and device.name == SPLIT:
            continue
        memory = f", {device.memory_bytes / 2**30:.0f} GB" if device.memory_bytes else ""
        labels.append((f"{device.name} ({device.label}{memory})", device.name))
    return labels
