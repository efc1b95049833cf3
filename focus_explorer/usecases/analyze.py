"""Analyse a text with full attention and with Focus, and store the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from focus_explorer import settings
from focus_explorer.errors import Cancelled, ConfigError, StoreBusyError
from focus_explorer.progress import Progress
from focus_explorer.usecases.centroids.files import load_named_centroids
from focus_explorer.usecases.centroids.fit import RANDOM_SEED, DrawnCentroids, calibrate, fit_centroids
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.users import new_owner
from focus_runtime.budget import HeadException
from focus_runtime.composition.changes import read_changes
from focus_runtime.config import GROWTH, is_growth
from focus_runtime.text.special import DEFAULT

if TYPE_CHECKING:
    from focus_runtime.run.engine import RunOptions
    from focus_runtime.run.trace import Timing, Trace


PATIENCE_SECONDS = 1800.0  # that a finished analysis waits for a database that another program writes
Written = TypeVar("Written")


@dataclass(frozen=True, kw_only=True, slots=True)
class AnalyzeRequest:
    """Options of an analysis; None means the centroid file's own setting.

    Attributes:
        model: embedded name, Hugging Face id, folder or .gguf file.
        centroids: a shipped file's name such as default, random, an uploaded file's name or hash, or a path.
        top_k: groups per token.
        window: pairs at most this many tokens apart always attend, in heads without a window of their own.
        num_sinks: first tokens that every token may attend to.
        window_growth: positions from which to which windows grow, (1, 1) for windows of one length.
        assignment: causal or sinkhorn.
        budget: layers and key-value heads with settings of their own; none when empty.
        max_tokens: longer texts are cut here; None means no cut.
        special_tokens: "auto" for what the tokenizer puts before a text, such as BOS, or "none" for no token.
        chat: the text holds the turns of a chat, which go through the model's own template.
        repeats: timed passes.
        device: auto, cpu, cuda, cuda:N, mps or split; the service's own when None.
        dtype: of the model: auto, float32, bfloat16 or float16; the service's own when None.
        backend: of Focus attention, see `focus_attention`.
        num_groups, routing_dim: K and d_g of random centroids, whose default they replace.
        seed: of random centroids.
        changes: made by hand to what Focus does, see focus_runtime/composition/changes.py.
    """

    model: str = settings.SETTINGS["model"].default
    centroids: str = settings.SETTINGS["centroids"].default
    top_k: int | None = None
    window: int | None = None
    num_sinks: int | None = None
    window_growth: tuple[int, int] | None = None
    assignment: str | None = None
    budget: tuple[HeadException, ...] | None = None
    max_tokens: int | None = None
    special_tokens: str = DEFAULT
    chat: bool = False
    repeats: int | None = None
    device: str | None = None
    dtype: str | None = None
    backend: str = "auto"
    num_groups: int | None = None
    routing_dim: int | None = None
    seed: int = RANDOM_SEED
    changes: tuple[str, ...] = ()

    @property
    def drawn(self) -> DrawnCentroids:
        """Shape and seed of random centroids."""
        return DrawnCentroids(
            top_k=self.top_k,
            window=self.window,
            num_groups=self.num_groups,
            routing_dim=self.routing_dim,
            seed=self.seed,
        )

    def check(self) -> None:
        """Refuse numbers that are invalid for every model.

        Raises:
            ConfigError: a number is out of range, or a change cannot be read.
        """
        if self.max_tokens is not None and self.max_tokens < 2:
            raise ConfigError(f"max_tokens is {self.max_tokens}", expected="at least 2")
        if self.repeats is not None and self.repeats < 1:
            raise ConfigError(f"repeats is {self.repeats}", expected="at least 1")
        if self.backend not in settings.BACKENDS:
            raise ConfigError(f"backend is {self.backend!r}", expected="one of " + ", ".join(settings.BACKENDS))
        if self.window_growth is not None and not is_growth(self.window_growth):
            raise ConfigError(f"window_growth is {self.window_growth!r}", expected=GROWTH)
        if self.special_tokens not in settings.SPECIAL_TOKENS:
            raise ConfigError(
                f"special_tokens is {self.special_tokens!r}", expected=" or ".join(settings.SPECIAL_TOKENS)
            )
        read_changes(self.changes)
        drawn = (self.num_groups, self.routing_dim, self.seed) != (None, None, RANDOM_SEED)
        if drawn and self.centroids != "random":
            raise ConfigError(
                "groups, routing size and seed are for random centroids; those of a file are fixed",
                fix='leave them out, or choose the centroids "random"',
            )


def analyze(
    service: Service,
    text: str,
    request: AnalyzeRequest,
    *,
    command: str = "",
    progress: Progress = lambda stage, fraction: None,
    cancelled: Callable[[], bool] = lambda: False,
    announce: Callable[[str], None] = lambda message: None,
    stored: Callable[[str], None] | None = None,
) -> str:
    """Analyse a text and store the run.

    Args:
        service: database and model.
        text: the text.
        request: model, centroids and settings.
        command: recorded with the run.
        progress: takes each stage and the fraction done.
        cancelled: called between steps; True stops the analysis, and nothing is kept.
        announce: takes remarks while it runs.
        stored: takes the id of a long text's run as soon as its numbers are known, and again after each further repeat
            of its timings, which are stored as they come. A stop then ends the repeats, and the run is kept.

    Returns:
        The run's id.

    Raises:
        InputError: text, model, centroids or settings cannot be used, or the database not written.
        Cancelled: `cancelled` returned True before the run was stored.
    """
    from focus_runtime.run.engine import Early
    from focus_runtime.run.engine import analyze as run_both
    from focus_runtime.text.chat import chat_text, read_turns
    from focus_runtime.text.tokens import check_text

    check_text(text)
    if request.chat:
        read_turns(text)  # before the model: what is no chat is known at once
    request.check()
    service.admit_run()
    with service.database.write():  # learn about a full disk or a foreign file before minutes of work
        pass
    progress("Loading the model", 0.0)
    read = load_named_centroids(service.database, request.centroids)  # before the model: a bad file is known at once
    with service.models.lease(request.model, device=request.device, dtype=request.dtype, progress=progress) as loaded:
        centroids = fit_centroids(read, loaded, request.drawn)
        if (request.assignment or centroids.config.assignment) == "causal" and not centroids.has_potentials:
            progress("Balancing the groups", 0.01)
            calibrate(loaded, centroids, request.special_tokens)
        if request.chat:
            text = chat_text(loaded.tokenizer, text)
        kept = _Kept(service, command, stored or (lambda run_id: None), progress)
        try:
            trace = run_both(
                loaded.model,
                loaded.tokenizer,
                text,
                centroids,
                _options(request),
                model_id=loaded.name,
                model_fingerprint=loaded.fingerprint,
                progress=progress,
                cancelled=cancelled,
                announce=announce,
                early=None if stored is None else Early(measured=kept.write, timed=kept.add),
            )
        except Cancelled:
            if not kept.run_id:
                raise
    if not kept.run_id:
        progress("Saving", 0.98)
        kept.write(trace)
    return kept.run_id


class _Kept:
    """A run as it is stored: at once, or before its timings are repeated.

    Args:
        service: with the database.
        command: recorded with the run.
        tell: takes the run's id after everything that is stored.
        progress: takes a stage while another program writes the database; what it raises ends the waiting.
    """

    def __init__(self, service: Service, command: str, tell: Callable[[str], None], progress: Progress) -> None:
        self._service, self._command, self._tell, self._progress = service, command, tell, progress
        self._trace: Trace | None = None
        self.run_id = ""

    def write(self, trace: Trace) -> None:
        """Store the run."""
        from focus_runtime.store.runs import write_run

        def write() -> str:
            return write_run(self._service.database, trace, command=self._command, owner=new_owner())

        self._trace = trace
        self.run_id = self._patiently(write)
        self._tell(self.run_id)

    def add(self, timings: list[Timing]) -> None:
        """Store further repeats of its timings."""
        from focus_runtime.store.runs import add_timings

        trace = self._trace
        assert trace is not None
        self._patiently(lambda: add_timings(self._service.database, self.run_id, trace, timings))
        self._tell(self.run_id)

    def _patiently(self, write: Callable[[], Written]) -> Written:
        """What took minutes is not thrown away because another program keeps the database for longer than usual."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return write()
            except StoreBusyError:
                if time.monotonic() > deadline:
                    raise
                self._progress("Waiting for the database, which another program writes", 0.98)


def _options(request: AnalyzeRequest) -> RunOptions:
    from focus_runtime.run.engine import RunOptions

    return RunOptions(
        top_k=request.top_k,
        window=request.window,
        num_sinks=request.num_sinks,
        window_growth=request.window_growth,
        assignment=request.assignment,
        budget=request.budget,
        max_tokens=request.max_tokens,
        special_tokens=request.special_tokens,
        repeats=request.repeats,
        backend=request.backend,
        seed=request.seed,
        changes=read_changes(request.changes),
    )
