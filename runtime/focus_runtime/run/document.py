"""One document of a corpus: a pass of full attention, one of Focus, one of random centroids, as Arrow tables.

Nothing is timed twice and nothing is batched over documents, so a document's numbers are those it would have alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_runtime.budget import HeadException
from focus_runtime.composition.attach import FocusModel, compose, on_layers
from focus_runtime.composition.heads import HeadMask, memberships
from focus_runtime.mask.counts import pair_totals
from focus_runtime.mask.rule import CAUSES
from focus_runtime.measure.loss import check_positions, final_hidden, token_nll
from focus_runtime.measure.memory import within_memory
from focus_runtime.measure.timing import both_passes, synchronise
from focus_runtime.models.devices import compute_devices, input_device
from focus_runtime.models.structure import context_length, head_counts
from focus_runtime.routing.centroids import Centroids
from focus_runtime.run.folder import Tables
from focus_runtime.run.source import Document
from focus_runtime.text.special import DEFAULT
from focus_runtime.text.tokens import TokenizedText, special_notes, tokenize


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentOptions:
    """How every document of a corpus is analysed.

    Attributes:
        top_k, window, num_sinks, window_growth, assignment, budget: the centroid file's own when None.
        max_tokens: analyse at most this many tokens of a document.
        special_tokens: "auto" for what the tokenizer puts before a text, such as BOS, or "none" for no token.
        backend: of Focus attention, see `focus_attention`.
        tags: part of speech, relation and sentence of every token, in English.
    """

    top_k: int | None = None
    window: int | None = None
    num_sinks: int | None = None
    window_growth: tuple[int, int] | None = None
    assignment: str | None = None
    budget: tuple[HeadException, ...] | None = None
    max_tokens: int | None = None
    special_tokens: str = DEFAULT
    backend: str = "auto"
    tags: bool = True


@dataclass(frozen=True, slots=True)
class _Groups:
    """Assignments, losses and pairs by cause of one Focus pass: nll (T-1,), membership (L, T), probabilities (L, T, K),
    counts (L, 5), dropped_by_part L lists of pairs that one head of each part of a layer drops, others (L, T) by any
    other top-k of the budget."""

    nll: NDArray[np.float32]
    membership: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    counts: NDArray[np.int64] | NDArray[np.float64]
    dropped_by_part: list[list[int]]
    others: dict[int, NDArray[np.int64]]


class DocumentAnalyst(AbstractContextManager["DocumentAnalyst"]):
    """Focus composed onto a model once, for any number of documents; leaving the block takes it off again.

    Args:
        model: causal language model without Focus.
        centroids: with potentials, unless the assignment is "sinkhorn".
        tokenizer: the model's.
        random_baseline: random centroids of the same shape and settings, balanced likewise; None leaves that pass out.
        options: how documents are analysed.

    Raises:
        InputError: model, centroids and settings do not fit together.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        centroids: Centroids,
        random_baseline: Centroids | None,
        options: DocumentOptions,
    ) -> None:
        self.model, self.tokenizer, self.options = model, tokenizer, options
        self.device, self._devices = input_device(model), compute_devices(model)
        self.focus = compose(
            model,
            centroids,
            top_k=options.top_k,
            window=options.window,
            num_sinks=options.num_sinks,
            window_growth=options.window_growth,
            assignment=options.assignment,
            budget=options.budget,
            backend=options.backend,
        )
        self.random_baseline = None
        if random_baseline is not None:
            self.random_baseline = on_layers(model, random_baseline.routers)
        self._model_seconds = 0.0

    def __exit__(self, *_: object) -> None:
        self.focus.detach()

    @torch.no_grad()
    def analyze(self, document: Document) -> Tables:
        """One document as `tokens`, `assignments`, `layers` and `document`, as docs/corpora.md describes them.

        Raises:
            TextError: it cannot be analysed. DeviceError: the GPU failed.
        """
        self._model_seconds = 0.0
        options = self.options
        tokens = tokenize(
            self.tokenizer, document.text, max_tokens=options.max_tokens, special_tokens=options.special_tokens
        )
        check_positions(self.model, len(tokens.ids))
        ids = torch.tensor([tokens.ids], device=self.device)
        with within_memory(self.model, read=lambda beginning: both_passes(self.focus, beginning)):
            full = self._loss(ids, self.focus.measured_full_attention()).cpu().numpy()
            learned = self._groups(ids, nullcontext())
            backend = self.focus.backend_names
            random = None
            if self.random_baseline is not None:
                random = self._groups(ids, self.focus.with_routers(self.random_baseline))
        tables = {"tokens": self._tokens(tokens, full, learned.nll)}
        tables["assignments"] = _assignments(self.focus, learned, random)
        tables["layers"] = _layers(self.focus, learned)
        losses = {"full": full, "focus": learned.nll, "random": None if random is None else random.nll}
        tables["document"] = self._document(document, tokens, losses, backend)
        return tables

    def _loss(self, ids: Tensor, inside: AbstractContextManager[Any], then: Callable[[], None] | None = None) -> Tensor:
        """(T-1,) loss of one pass; the clock stops after the output embedding."""
        synchronise(*self._devices)
        start = time.perf_counter()
        with inside:
            hidden = final_hidden(self.model, ids)
            nll = token_nll(self.model, hidden, ids)[0]
            synchronise(*self._devices)
            self._model_seconds += time.perf_counter() - start
            if then is not None:
                then()
        return nll

    def _groups(self, ids: Tensor, inside: AbstractContextManager[Any]) -> _Groups:
        arrays: list[NDArray[Any]] = []
        by_part: list[NDArray[np.int64]] = []

        def collect() -> None:
            assignments = list(self.focus.assignments().values())  # by layer
            arrays.append(_stacked([a.membership[0] for a in assignments]))
            arrays.append(_stacked([a.probabilities[0].float() for a in assignments]))
            by_part.extend(_pair_counts(list(self.focus.head_masks().values())))
            for k in ks:
                arrays.append(_stacked([memberships(a, (k,), config.top_k)[0, 0] for a in assignments]))

        config = self.focus.config
        ks = sorted({entry.top_k for entry in config.budget if entry.top_k is not None} - {config.top_k})
        nll = self._loss(ids, inside, collect).cpu().numpy()
        dropped = [totals[:, CAUSES.index("dropped")].tolist() for totals in by_part]
        counts = _means_over_heads(by_part, list(self.focus.head_masks().values()))
        return _Groups(nll, arrays[0], arrays[1], counts, dropped, dict(zip(ks, arrays[2:], strict=True)))

    def _tokens(self, tokens: TokenizedText, full: NDArray[np.float32], focus: NDArray[np.float32]) -> pa.Table:
        count = len(tokens.ids)
        tags: tuple[Any, Any, Any] = (None, None, None)
        if self.options.tags:
            from focus_runtime.text.tagging import tag

            tagged = tag(tokens.text, tokens.starts, tokens.ends)
            tags = (tagged.pos, tagged.dep, tagged.sentence)
        columns = [
            pa.array(np.arange(count, dtype=np.int32)),
            pa.array(tokens.ids, pa.int32()),
            pa.array(tokens.pieces, pa.string()),
            pa.array(tokens.starts, pa.int32()),
            pa.array(tokens.ends, pa.int32()),
            _after_first(full),
            _after_first(focus),
            *(
                pa.nulls(count, kind) if values is None else pa.array(values, kind)
                for values, kind in zip(tags, (pa.string(), pa.string(), pa.int32()), strict=True)
            ),
        ]
        names = [
            "position",
            "token_id",
            "piece",
            "start_char",
            "end_char",
            "nll_full",
            "nll_focus",
            "pos",
            "dep",
            "sentence",
        ]
        return pa.Table.from_arrays(columns, names=names)

    def _document(
        self, document: Document, tokens: TokenizedText, losses: dict[str, NDArray[np.float32] | None], backend: str
    ) -> pa.Table:
        perplexity = {
            f"perplexity_{mode}": None if nll is None else float(np.exp(nll.astype(np.float64).mean()))
            for mode, nll in losses.items()
        }
        row = {
            "name": document.name,
            "text_sha256": document.sha256,
            "num_tokens": len(tokens.ids),
            "total_tokens": tokens.total_tokens,
            **perplexity,
            "model_seconds": self._model_seconds,
            "notes": json.dumps(self._notes(tokens)),
            "device": str(self.device),
            "dtype": str(self.model.dtype)[6:],
            "backend": backend,
            "threads": torch.get_num_threads(),
        }
        return pa.Table.from_pylist([row], schema=DOCUMENT)

    def _notes(self, tokens: TokenizedText) -> list[str]:
        count, whole = len(tokens.ids), self.focus.config.full_up_to
        notes = special_notes(self.tokenizer, tokens, self.model.config)
        if count < tokens.total_tokens:
            notes.append(f"cut to its first {count:,} of {tokens.total_tokens:,} tokens")
        context = context_length(self.model)
        if context is not None and count > context:
            notes.append(f"longer than the {context:,} tokens the model was trained for")
        if count <= whole:
            notes.append(
                f"no longer than the {whole:,} tokens that windows and sinks keep: Focus is full attention here"
            )
        return notes


DOCUMENT = pa.schema(
    [
        ("name", pa.string()),
        ("text_sha256", pa.string()),
        ("num_tokens", pa.int32()),
        ("total_tokens", pa.int32()),
        ("perplexity_full", pa.float64()),
        ("perplexity_focus", pa.float64()),
        ("perplexity_random", pa.float64()),
        ("model_seconds", pa.float64()),
        ("notes", pa.string()),
        ("device", pa.string()),
        ("dtype", pa.string()),
        ("backend", pa.string()),
        ("threads", pa.int32()),
    ]
)


def _stacked(parts: Sequence[Tensor]) -> NDArray[Any]:
    """One copy from a GPU for all layers, which may lie on several."""
    return torch.stack([part.to(parts[0].device) for part in parts]).cpu().numpy()


def _pair_counts(masks: Sequence[Sequence[HeadMask]]) -> list[NDArray[np.int64]]:
    """(P, 5) pairs by cause of one head of each part of every layer."""
    if all(len(layer) == 1 for layer in masks):
        totals = pair_totals(_stacked([layer[0].membership[0] for layer in masks]), [layer[0].rule for layer in masks])
        return list(totals[:, None])
    return [
        pair_totals(_stacked([mask.membership[0] for mask in layer]), [mask.rule for mask in layer]) for layer in masks
    ]


def _means_over_heads(
    counts: Sequence[NDArray[np.int64]], masks: Sequence[Sequence[HeadMask]]
) -> NDArray[np.int64] | NDArray[np.float64]:
    """(L, 5) pairs by cause of every layer, mean over its heads: whole numbers unless heads differ."""
    if all(len(layer) == 1 for layer in masks):
        return np.concatenate(counts)
    weights = [[len(mask.group.heads) for mask in layer] for layer in masks]
    return np.stack([np.average(own, axis=0, weights=heads) for own, heads in zip(counts, weights, strict=True)])


def _after_first(nll: NDArray[np.float32]) -> pa.Array:
    """(T-1,) losses as a column of T values; the first token has none."""
    missing = np.zeros(nll.size + 1, dtype=bool)
    missing[0] = True
    return pa.array(np.concatenate([[np.float32(0)], nll]), mask=missing)


def _assignments(focus: FocusModel, learned: _Groups, random_baseline: _Groups | None) -> pa.Table:
    layers, tokens = learned.membership.shape
    g = learned.probabilities
    entropy = -(g * np.log(np.clip(g, 1e-30, None))).sum(axis=2)
    rows = layers * tokens
    random = (pa.nulls(rows, pa.int64()), pa.nulls(rows, pa.int32()))
    if random_baseline is not None:
        tops = random_baseline.probabilities.argmax(axis=2).astype(np.int32)
        random = (pa.array(random_baseline.membership.ravel()), pa.array(tops.ravel()))
    columns = [
        pa.array(np.repeat(np.array(focus.focused_layers, dtype=np.int32), tokens)),
        pa.array(np.tile(np.arange(tokens, dtype=np.int32), layers)),
        pa.array(learned.membership.ravel()),
        pa.array(g.argmax(axis=2).astype(np.int32).ravel()),
        pa.array(g.max(axis=2).ravel()),
        pa.array(entropy.astype(np.float32).ravel()),
        *random,
    ]
    names = [
        "layer",
        "position",
        "membership",
        "top_group",
        "confidence",
        "entropy",
        "random_membership",
        "random_top_group",
    ]
    for k, membership in learned.others.items():
        columns.append(pa.array(membership.ravel()))
        drawn = None if random_baseline is None else random_baseline.others[k]
        columns.append(pa.nulls(rows, pa.int64()) if drawn is None else pa.array(drawn.ravel()))
        names += [f"membership_top_{k}", f"random_membership_top_{k}"]
    return pa.Table.from_arrays(columns, names=names)


def _layers(focus: FocusModel, learned: _Groups) -> pa.Table:
    groups, tokens = learned.probabilities.shape[2], learned.membership.shape[1]
    rules = focus.pair_rules()
    counts = learned.counts
    top = learned.probabilities.argmax(axis=2)
    largest = (top[:, :, None] == np.arange(groups)).sum(axis=1).max(axis=1)
    dropped = counts[:, CAUSES.index("dropped")]
    columns = [
        pa.array(focus.focused_layers, pa.int32()),
        pa.array(largest / tokens),
        pa.array(1.0 - dropped / (tokens * (tokens + 1) // 2)),
        *(pa.array(counts[:, n]) for n in range(len(CAUSES))),
        pa.array([rules[layer].sliding_window for layer in focus.focused_layers], pa.int64()),
        pa.array(learned.dropped_by_part, pa.list_(pa.int64())),
    ]
    names = ["layer", "dominance", "retained_pairs", *CAUSES, "sliding_window", "dropped_by_part"]
    if focus.config.budget:
        for name, heads in zip(("key_value_heads", "query_heads"), head_counts(focus.model), strict=True):
            columns.append(pa.array([heads] * len(focus.focused_layers), pa.int32()))
            names.append(name)
    return pa.Table.from_arrays(columns, names=names)
