"""The loaded model: at most one is kept, and whoever works with it holds a lease, so that no two use it at a time."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from focus_explorer import settings
from focus_explorer.progress import Progress, about, silent
from focus_explorer.usecases.jobs import WAITING, waiting_for_turn
from focus_explorer.usecases.users import acting_user
from focus_runtime.failures import LONGEST_TEXT, Advice

if TYPE_CHECKING:
    from focus_runtime.models.devices import Placement


REMEMBERED = 16  # holds that an estimate is the mean of
SHORT_SECONDS = 0.5  # a shorter hold, such as of a text that is being typed, says nothing about those waited for
LOOK_SECONDS = 0.3  # between two looks at the place in line
Waiting = Callable[[int, float | None], None]


@dataclass(eq=False, slots=True)
class _Ticket:
    user: Hashable
    thread: int = field(default_factory=threading.get_ident)


class FairLock:
    """A re-entrant lock. Of the users that wait the one served least goes next; a user's requests keep their order."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holder: _Ticket | None = None
        self._depth = 0
        self._waiting: list[_Ticket] = []
        self._served: Counter[Hashable] = Counter()  # of users that wait or hold, since the lock was last free
        self._holds: deque[float] = deque(maxlen=REMEMBERED)  # seconds
        self._since = 0.0

    @contextmanager
    def held(self, user: Hashable = None, waiting: Waiting | None = None) -> Iterator[None]:
        """Hold the lock while the block runs.

        `waiting` is called every now and then with how many are before, the holder included, and about how many seconds
        that takes. None: unknown. What it raises ends the waiting.
        """
        self._acquire(_Ticket(user), waiting)
        try:
            yield
        finally:
            self.release()

    def try_acquire(self) -> bool:
        """Take it where nobody holds it or waits; whether it was taken. `release` gives it back."""
        with self._changed:
            if self.is_mine():
                self._depth += 1
                return True
            free = self._holder is None and not self._waiting
            if free:
                self._take(_Ticket(None))
            return free

    def is_mine(self) -> bool:
        """Whether this thread holds it."""
        holder = self._holder
        return holder is not None and holder.thread == threading.get_ident()

    def release(self) -> None:
        with self._changed:
            self._depth -= 1
            if self._depth:
                return
            held = time.monotonic() - self._since
            if held >= SHORT_SECONDS:
                self._holds.append(held)
            self._holder = None
            if not self._waiting:
                self._served.clear()
            self._changed.notify_all()

    def _acquire(self, ticket: _Ticket, waiting: Waiting | None) -> None:
        with self._changed:
            if self.is_mine():
                self._depth += 1
                return
            self._waiting.append(ticket)
        try:
            while True:
                with self._changed:
                    if self._changed.wait_for(lambda: self._holder is None and self._line()[0] is ticket, LOOK_SECONDS):
                        self._waiting.remove(ticket)
                        self._take(ticket)
                        return
                    ahead = self._line().index(ticket) + (self._holder is not None)
                    seconds = self._estimate(ahead)
                if waiting is not None:
                    waiting(ahead, seconds)
        except BaseException:
            with self._changed:
                self._waiting.remove(ticket)
                self._changed.notify_all()
            raise

    def _take(self, ticket: _Ticket) -> None:
        self._holder, self._since, self._depth = ticket, time.monotonic(), 1
        self._served[ticket.user] += 1

    def _line(self) -> list[_Ticket]:
        """Who waits, in the order in which they will be served if nobody else comes."""
        served, left, line = Counter(self._served), list(self._waiting), []
        while left:
            first = min(left, key=lambda ticket: served[ticket.user])  # the first of equals came first
            served[first.user] += 1
            left.remove(first)
            line.append(first)
        return line

    def _estimate(self, ahead: int) -> float | None:
        if not self._holds:
            return None
        mean = sum(self._holds) / len(self._holds)
        return max(0.0, ahead * mean - min(time.monotonic() - self._since, mean) * (self._holder is not None))


Load = Callable[[str, "Placement", Progress], "LoadedModel"]


class Meter(Protocol):
    """Limits how long each user may use the model; `admit` raises an InputError for a user over the limit."""

    def admit(self) -> None: ...

    def spend(self, seconds: float) -> None: ...


@dataclass(slots=True)
class LoadedModel:
    """A model of Hugging Face in memory; the fingerprint is the hash of its weights."""

    name: str
    model: Any
    tokenizer: Any
    fingerprint: str


class ModelStore:
    """Loads models by name and keeps the one loaded last; `meter` limits how long each user may use it."""

    def __init__(self, load: Load | None = None, *, device: str = "auto", dtype: str = "auto") -> None:
        self.device, self.dtype = device, dtype
        self.meter: Meter | None = None
        self._load = load or load_by_name
        self._kept: LoadedModel | None = None
        self._placement: Placement | None = None
        self._tokenizer: tuple[str, Any] | None = None
        self._lock = FairLock()

    def place(self, device: str | None = None, dtype: str | None = None) -> Placement:
        """Where a lease with these options would run; a DeviceError where this machine has no such thing."""
        from focus_runtime.models.devices import place

        return place(device or self.device, dtype or self.dtype)

    @contextmanager
    def lease(
        self,
        name: str,
        *,
        device: str | None = None,
        dtype: str | None = None,
        progress: Progress = silent,
        advice: Advice = LONGEST_TEXT,
    ) -> Iterator[LoadedModel]:
        """The named model, for this thread alone until the block ends; within it the thread may take further leases.

        Args:
            device: auto, cpu, cuda, cuda:N, mps or split. None: the store's own.
            dtype: auto, float32, bfloat16 or float16. None: the store's own.
            progress: takes the place in line and the stages of loading; what it raises ends the waiting.
            advice: what to do when the memory does not suffice for the work in the block.
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
        """The tokenizer of a model. None: it is not on this machine, or somebody works with a model."""
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
    """The stage of work that waits for the model, behind so many others that take so many seconds, if that is known."""
    time_left = "" if seconds is None else f", about {about(seconds)}"
    return f"{WAITING}: {ahead:,} before you{time_left}"


def load_by_name(name: str, placement: Placement, progress: Progress = silent) -> LoadedModel:
    """Load a model by embedded name, Hugging Face id, folder or .gguf file."""
    from focus_runtime.models.loading import fingerprint, load_model

    model, tokenizer = load_model(
        name, dtype=placement.dtype, device=placement.device, cache_dir=settings.cache_dir(), progress=progress
    )
    return LoadedModel(name, model, tokenizer, fingerprint(model))


def load_at(name: str, device: str, dtype: str, progress: Progress = silent) -> tuple[Any, Any, Placement]:
    """A model and its tokenizer for one command that needs no lease, and where they are."""
    from focus_runtime.models.devices import place
    from focus_runtime.models.loading import load_model

    placement, cache = place(device, dtype), settings.cache_dir()
    model, tokenizer = load_model(
        name, dtype=placement.dtype, device=placement.device, cache_dir=cache, progress=progress
    )
    return model, tokenizer, placement


def device_choices(*, training: bool = False) -> list[tuple[str, str]]:
    """(label, value): auto with what it means here, then this machine's devices; trainings do not split over GPUs."""
    from focus_runtime.models.devices import SPLIT, devices, place

    auto = place()
    labels = [(f"auto ({auto.device})" if training else f"auto ({auto.device}, {auto.dtype})", "auto")]
    for device in devices():
        if training and device.name == SPLIT:
            continue
        memory = f", {device.memory_bytes / 2**30:.0f} GB" if device.memory_bytes else ""
        labels.append((f"{device.name} ({device.label}{memory})", device.name))
    return labels
