"""Many texts: documents of a corpus, each read as a text alone would be, by one process or by many workers.

A `CorpusJob` holds everything a worker needs and can be sent to another machine; a `CorpusWorker` turns documents into
files and returns an `Outcome` for each. A document takes a pass of full attention, one of Focus and one of random
centroids.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_runtime.composition.attach import FocusModel, compose, on_layers
from focus_runtime.composition.heads import memberships
from focus_runtime.config import TextOptions
from focus_runtime.errors import ModelError, TextError
from focus_runtime.mask.counts import pair_totals
from focus_runtime.mask.rule import CAUSES
from focus_runtime.measure.loss import final_hidden, token_nll
from focus_runtime.measure.memory import within_memory
from focus_runtime.measure.timing import both_passes, synchronise
from focus_runtime.models.devices import compute_devices, input_device, place
from focus_runtime.models.loading import fingerprint, load_model
from focus_runtime.models.structure import head_counts
from focus_runtime.routing.centroid_file import load_centroids
from focus_runtime.routing.centroids import Centroids
from focus_runtime.run.folder import CorpusFolder, Tables
from focus_runtime.run.source import Document, Skipped
from focus_runtime.run.text import layer_groups, read_tokens, stacked, text_notes
from focus_runtime.run.trace import LayerGroups
from focus_runtime.text.tagging import tag
from focus_runtime.text.tokens import TokenizedText

Task = tuple[int, Document]


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusJob:
    """What is done with every document; centroids have potentials where they are needed."""

    model: str
    cache_dir: Path
    fingerprint: str  # what the model's must be, so that all workers run the same weights
    centroids: Centroids | Path
    random_baseline: Centroids | Path | None
    options: TextOptions
    tags: bool  # part of speech, relation and sentence of every token, in English
    folder: CorpusFolder
    device: str = "cpu"
    dtype: str = "float32"
    threads: int | None = None  # of torch in each worker; torch's own choice when None


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of a document."""

    number: int
    name: str
    tokens: int = 0
    model_seconds: float = 0.0  # in forward passes; none where a worker that died had finished the document
    seconds: float = 0.0
    kind: str = ""  # why it was skipped, and in words
    reason: str = ""
    fatal: str = ""  # why no document can be analysed any more
    worker: str = ""


class CorpusWorker(AbstractContextManager["CorpusWorker"]):
    """One model with Focus on it, for many documents."""

    def __init__(self, job: CorpusJob, loaded: tuple[Any, Any] | None = None) -> None:
        self.job = job
        self._threads = torch.get_num_threads()
        if job.threads is not None:
            torch.set_num_threads(job.threads)
        model, tokenizer = loaded or _load(job)
        random_baseline = None if job.random_baseline is None else _read(job.random_baseline)
        centroids = _read(job.centroids)
        self._analyst = DocumentAnalyst(model, tokenizer, centroids, random_baseline, job.options, tags=job.tags)
        self._name = f"{socket.gethostname()}:{os.getpid()}"

    def __exit__(self, *_: object) -> None:
        self._analyst.__exit__()
        torch.set_num_threads(self._threads)

    def __call__(self, number: int, document: Document) -> Outcome:
        """Analyse a document and write it, unless it is there already from the same text."""
        start, folder = time.perf_counter(), self.job.folder
        outcome = Outcome(number=number, name=document.name, worker=self._name)
        tokens = folder.tokens_of(number, document.sha256)
        if tokens is not None:  # a worker had written it before it was killed
            return replace(outcome, tokens=tokens, seconds=time.perf_counter() - start)
        try:
            tables = self._analyst.analyze(document)
        except TextError as error:
            skipped = Skipped.because(document.name, error)
            folder.remove(number)
            return replace(outcome, kind=skipped.kind, reason=skipped.reason)
        folder.write(number, tables)
        row = tables["document"].to_pylist()[0]
        passes, seconds = row["model_seconds"], time.perf_counter() - start
        return replace(outcome, tokens=row["num_tokens"], model_seconds=passes, seconds=seconds)


def _read(centroids: Centroids | Path) -> Centroids:
    return load_centroids(centroids) if isinstance(centroids, Path) else centroids


def check_gpu() -> None:
    """Refuse `--gpus-per-worker` in a process without a GPU, before any work."""
    if not torch.cuda.is_available():
        raise ModelError(f"{socket.gethostname()} has no GPU for it", expected="one", fix="leave out --gpus-per-worker")


def _load(job: CorpusJob) -> tuple[Any, Any]:
    if job.device == "cuda":
        check_gpu()
    placement = place(job.device, job.dtype)
    model, tokenizer = load_model(job.model, device=placement.device, dtype=placement.dtype, cache_dir=job.cache_dir)
    if fingerprint(model) != job.fingerprint:
        raise ModelError(
            f"{job.model} on {socket.gethostname()} has other weights than where the command was started",
            expected="the same model everywhere",
        )
    return model, tokenizer


def work_here(job: CorpusJob, tasks: Iterable[Task], loaded: tuple[Any, Any]) -> Iterator[Outcome]:
    """Do all documents in this process, in order, with a model and tokenizer that are loaded."""
    with CorpusWorker(job, loaded) as worker:
        for number, document in tasks:
            yield worker(number, document)


@dataclass(frozen=True, slots=True)
class _Pass:
    """One Focus pass over a document: losses (T-1,), layers, and by any other top-k of the budget (L, T) bit sets."""

    nll: NDArray[np.float32]
    layers: list[LayerGroups]
    others: dict[int, NDArray[np.int64]]

    def stacked(self, name: str) -> NDArray[Any]:
        """(L, T, ...) values of all layers."""
        return np.stack([getattr(layer, name) for layer in self.layers])


class DocumentAnalyst(AbstractContextManager["DocumentAnalyst"]):
    """Focus composed onto a model once, for any number of documents; leaving the block takes it off again.

    `random_baseline` has the same shape and settings and is balanced likewise; None leaves that pass out.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        centroids: Centroids,
        random_baseline: Centroids | None,
        options: TextOptions,
        *,
        tags: bool,
    ) -> None:
        self.model, self.tokenizer, self.options, self.tags = model, tokenizer, options, tags
        self.focus = compose(model, centroids, settings=options, backend=options.backend)
        self.random_baseline = None if random_baseline is None else on_layers(model, random_baseline.routers)
        self._model_seconds = 0.0

    def __exit__(self, *_: object) -> None:
        self.focus.detach()

    @torch.no_grad()
    def analyze(self, document: Document) -> Tables:
        """One document as `tokens`, `assignments`, `layers` and `document`, as docs/corpora.md describes them."""
        self._model_seconds = 0.0
        tokens, ids = read_tokens(self.model, self.tokenizer, document.text, self.options)
        random = None
        with within_memory(self.model, read=lambda beginning: both_passes(self.focus, beginning)):
            with self.focus.measured_full_attention():
                full = self._loss(ids)
            learned = self._pass(ids, nullcontext())
            backend = self.focus.backend_names
            if self.random_baseline is not None:
                random = self._pass(ids, self.focus.with_routers(self.random_baseline))
        losses = {"full": full, "focus": learned.nll, "random": None if random is None else random.nll}
        return {
            "tokens": _tokens(tokens, full, learned.nll, tags=self.tags),
            "assignments": _assignments(self.focus, learned, random),
            "layers": _layers(self.focus, learned.layers),
            "document": self._document(document, tokens, losses, backend),
        }

    def _loss(self, ids: Tensor) -> NDArray[np.float32]:
        """(T-1,) loss of one pass; the clock stops after the output embedding."""
        devices = compute_devices(self.model)
        synchronise(*devices)
        start = time.perf_counter()
        nll = token_nll(self.model, final_hidden(self.model, ids), ids)[0]
        synchronise(*devices)
        self._model_seconds += time.perf_counter() - start
        return nll.cpu().numpy()

    def _pass(self, ids: Tensor, inside: AbstractContextManager[Any]) -> _Pass:
        config = self.focus.config
        ks = sorted({entry.top_k for entry in config.budget if entry.top_k is not None} - {config.top_k})
        with inside:
            nll = self._loss(ids)
            decided = self.focus.assignments().values()
            others = {k: stacked([memberships(one, (k,), config.top_k)[0, 0] for one in decided]) for k in ks}
            return _Pass(nll, layer_groups(self.focus), others)

    def _document(
        self, document: Document, tokens: TokenizedText, losses: dict[str, NDArray[np.float32] | None], backend: str
    ) -> pa.Table:
        perplexity = {
            f"perplexity_{mode}": None if nll is None else float(np.exp(nll.astype(np.float64).mean()))
            for mode, nll in losses.items()
        }
        special, about_length = text_notes(self.tokenizer, tokens, self.focus)
        row = {
            "name": document.name,
            "text_sha256": document.sha256,
            "num_tokens": len(tokens.ids),
            "total_tokens": tokens.total_tokens,
            **perplexity,
            "model_seconds": self._model_seconds,
            "notes": json.dumps(special + about_length),
            "device": str(input_device(self.model)),
            "dtype": str(self.model.dtype)[6:],
            "backend": backend,
            "threads": torch.get_num_threads(),
        }
        return pa.Table.from_pylist([row], schema=_DOCUMENT)


_DOCUMENT = pa.schema(
    dict.fromkeys(("name", "text_sha256"), pa.string())
    | dict.fromkeys(("num_tokens", "total_tokens"), pa.int32())
    | dict.fromkeys(("perplexity_full", "perplexity_focus", "perplexity_random", "model_seconds"), pa.float64())
    | dict.fromkeys(("notes", "device", "dtype", "backend"), pa.string())
    | {"threads": pa.int32()}
)


def _tokens(tokens: TokenizedText, full: NDArray[np.float32], focus: NDArray[np.float32], *, tags: bool) -> pa.Table:
    count = len(tokens.ids)
    pos = dep = sentence = pa.nulls(count)
    if tags:
        tagged = tag(tokens.text, tokens.starts, tokens.ends)
        pos, dep, sentence = tagged.pos, tagged.dep, tagged.sentence
    return pa.table(
        {
            "position": np.arange(count, dtype=np.int32),
            "token_id": pa.array(tokens.ids, pa.int32()),
            "piece": pa.array(tokens.pieces, pa.string()),
            "start_char": pa.array(tokens.starts, pa.int32()),
            "end_char": pa.array(tokens.ends, pa.int32()),
            "nll_full": _after_first(full),
            "nll_focus": _after_first(focus),
            "pos": pa.array(pos, pa.string()),
            "dep": pa.array(dep, pa.string()),
            "sentence": pa.array(sentence, pa.int32()),
        }
    )


def _after_first(nll: NDArray[np.float32]) -> pa.Array:
    """(T-1,) losses as a column of T values; the first token has none."""
    return pa.concat_arrays([pa.nulls(1, pa.float32()), pa.array(nll)])


def _assignments(focus: FocusModel, learned: _Pass, random: _Pass | None) -> pa.Table:
    membership = learned.stacked("membership")
    layers, tokens = membership.shape
    unknown = {kind: pa.nulls(layers * tokens, kind) for kind in (pa.int64(), pa.int32())}
    columns: dict[str, Any] = {
        "layer": np.repeat(np.array(focus.focused_layers, dtype=np.int32), tokens),
        "position": np.tile(np.arange(tokens, dtype=np.int32), layers),
        "membership": membership.ravel(),
        "top_group": learned.stacked("top_group").astype(np.int32).ravel(),
        "confidence": learned.stacked("probabilities").max(axis=2).ravel(),
        "entropy": learned.stacked("entropy").ravel(),
        "random_membership": unknown[pa.int64()],
        "random_top_group": unknown[pa.int32()],
    }
    if random is not None:
        columns["random_membership"] = random.stacked("membership").ravel()
        columns["random_top_group"] = random.stacked("top_group").astype(np.int32).ravel()
    for k, own in learned.others.items():
        columns[f"membership_top_{k}"] = own.ravel()
        columns[f"random_membership_top_{k}"] = unknown[pa.int64()] if random is None else random.others[k].ravel()
    return pa.table(columns)


def _layers(focus: FocusModel, layers: list[LayerGroups]) -> pa.Table:
    tokens, dropped = layers[0].membership.size, CAUSES.index("dropped")
    parts = [part for layer in layers for part in layer.heads]
    totals = pair_totals(np.stack([part.membership for part in parts]), [part.rule for part in parts])
    by_part = np.split(totals, np.cumsum([len(layer.heads) for layer in layers])[:-1])  # (P, 5) of one head of each
    alike = all(len(layer.heads) == 1 for layer in layers)  # then means over heads are whole numbers
    weights = [[len(part.group.heads) for part in layer.heads] for layer in layers]
    means = [np.average(own, axis=0, weights=heads) for own, heads in zip(by_part, weights, strict=True)]
    counts = np.concatenate(by_part) if alike else np.stack(means)
    numbers = [layer.layer for layer in layers]
    columns: dict[str, Any] = {
        "layer": pa.array(numbers, pa.int32()),
        "dominance": [layer.dominance for layer in layers],
        "retained_pairs": 1.0 - counts[:, dropped] / (tokens * (tokens + 1) // 2),
        **{cause: counts[:, place] for place, cause in enumerate(CAUSES)},
        "sliding_window": pa.array([layer.sliding_window for layer in layers], pa.int64()),
        "dropped_by_part": pa.array([own[:, dropped].tolist() for own in by_part], pa.list_(pa.int64())),
    }
    if focus.config.budget:
        for name, heads in zip(("key_value_heads", "query_heads"), head_counts(focus.model), strict=True):
            columns[name] = pa.array([heads] * len(layers), pa.int32())
    return pa.table(columns)
