"""What follows from changes made to a run by hand: loss, predictions, groups and pairs against the unchanged run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import InputError
from focus_explorer.progress import Progress, silent
from focus_explorer.usecases.analyze import analyze
from focus_explorer.usecases.jobs import stop_requested
from focus_explorer.usecases.labels import NAME_LENGTH, label_run
from focus_explorer.usecases.run_model import composed_run, lease_run_model, request_again, run_changes
from focus_explorer.usecases.runs import check_beginning, checked_text, layer_parts, run_config, token_ids
from focus_explorer.usecases.service import Latest, Service
from focus_explorer.views.pairs import changed_pairs
from focus_explorer.views.payloads.comparisons import (
    ChangedPairsPayload,
    ChangedPredictionPayload,
    WhatIfMeasured,
    WhatIfResultPayload,
)
from focus_explorer.views.payloads.runs import PredictionPayload
from focus_explorer.views.run import encode
from focus_runtime.budget import HeadCounts
from focus_runtime.composition.changes import Change, check_changes, last_token, read_changes
from focus_runtime.measure.intervals import moving_block_interval
from focus_runtime.text.tokens import vocabulary_piece

if TYPE_CHECKING:
    from focus_runtime.explain.what_if import FocusPass, KeptPass

MOST_TOKENS = 4096  # hidden states of all layers are kept: 280 megabytes with the default model
KEPT_RESULTS = 8


@dataclass(frozen=True, slots=True)
class ChangedRun:
    before: FocusPass
    after: FocusPass
    summary: WhatIfResultPayload
    tokenizer: Any


def checked_changes(service: Service, run_id: str, texts: Sequence[str]) -> tuple[Change, ...]:
    """Changes of a run from their texts, refused before any model is loaded."""
    run, changes = fetch_run(service.database, run_id), read_changes(texts)
    check_beginning(run, MOST_TOKENS)
    parts = layer_parts(service.database, run)
    heads = [(of_layer[0].by_query, sum(part.weight for part in of_layer)) for of_layer in parts.values()]
    most = max(number for _, number in heads)
    counts = HeadCounts(max((number for by_query, number in heads if not by_query), default=most), most)
    config, count = run_config(run), min(run["num_tokens"], MOST_TOKENS)
    check_changes(changes, config, run["num_tokens"], parts, counts)
    beyond = [str(change) for change in changes if last_token(change) >= count]
    if beyond:
        raise InputError(
            f"{beyond[0]}: of long texts the first {MOST_TOKENS:,} tokens are read again",
            expected=f"a token from 0 to {count - 1:,}",
        )
    return changes


def repeated_by(run_id: str, texts: Sequence[str]) -> str:
    """The command that makes and stores the same changed run."""
    return " ".join([f"focus-explorer what-if {run_id}", *(f"--set {text}" for text in texts), "--save"])


def save_changed(
    service: Service, run_id: str, texts: Sequence[str], *, command: str = "", progress: Progress = silent
) -> str:
    """Analyse a run's text again with changes and store that as a run of its own; its own changes stay."""
    checked_changes(service, run_id, texts)
    run = fetch_run(service.database, run_id)
    request = request_again(service, run, texts)
    text = checked_text(service.database, run)
    made = analyze(service, text, request, command=command, progress=progress)
    label_run(service, made, name=f"What if: {', '.join(texts)}"[:NAME_LENGTH])
    return made


class WhatIfs:
    """Changed runs of one service, the latest few; safe to use from several threads."""

    LARGE = True  # see `VisitorService.part`

    def __init__(self, service: Service) -> None:
        self.service = service
        self._kept: tuple[str, KeptPass] | None = None
        self._results: Latest[tuple[str, tuple[str, ...]], ChangedRun] = Latest(KEPT_RESULTS)

    def measure(self, run_id: str, texts: Sequence[str], *, progress: Progress = silent) -> WhatIfResultPayload:
        """Read a run's text again with changes, from the first changed layer on."""
        from focus_runtime.explain.what_if import what_if
        from focus_runtime.run.text import stoppable

        changes = checked_changes(self.service, run_id, texts)
        run = fetch_run(self.service.database, run_id)
        progress("Loading the model", 0.0)
        with (
            lease_run_model(self.service, run, progress=progress) as loaded,
            composed_run(self.service, run, loaded) as focus,
            stoppable(loaded.model, stop_requested),
        ):
            kept = self._keep(run_id, focus, progress)
            progress("Reading on from the first change", 0.6)
            made = what_if(focus, kept, (*run_changes(run, before=kept.ids.shape[1]), *changes))
        rows = fetch(self.service.database, "losses", run_id=run_id).to_pylist()
        full = [row["nll"] for row in rows if row["mode"] == "full"][: made.predictions.nll.size]
        summary = _summary(kept.result, made, float(np.mean(full)))
        self._results.keep((run_id, tuple(texts)), ChangedRun(kept.result, made, summary, loaded.tokenizer))
        return summary

    def _keep(self, run_id: str, focus: Any, progress: Progress) -> KeptPass:
        """The unchanged pass of a run: of one run at a time, for it is large. Called with the model leased."""
        from focus_runtime.explain.what_if import keep_pass

        if self._kept is None or self._kept[0] != run_id:
            progress("Reading the text without changes", 0.2)
            self._kept = None
            self._kept = (run_id, keep_pass(focus, token_ids(self.service.database, run_id)[:MOST_TOKENS]))
        return self._kept[1]

    def measured(self, run_id: str, texts: Sequence[str], layer: int | None, token: int | None) -> WhatIfMeasured:
        """What was measured of a changed run, with the pairs of a layer and the prediction of a token if given."""
        fetch_run(self.service.database, run_id)
        result = self._results.get((run_id, tuple(texts)))
        if result is None or not texts:
            return {"result": None, "pairs": None, "prediction": None}
        return {
            "result": result.summary,
            "pairs": None if layer is None or layer not in result.after.masks else _pairs(result, layer),
            "prediction": None if token is None else _prediction(result, token),
        }


def _summary(before: FocusPass, after: FocusPass, nll_full: float) -> WhatIfResultPayload:
    """Losses in nats per token, predictions, groups and pairs of two passes over the same tokens."""
    old, new = before.predictions, after.predictions
    differences = new.nll - old.nll
    mean, low, high = moving_block_interval(differences)
    return {
        "num_tokens": int(differences.size) + 1,
        "nll_full": nll_full,
        "nll_before": float(old.nll.mean()),
        "nll_after": float(new.nll.mean()),
        "difference": {"mean": mean, "low": low, "high": high, "count": int(differences.size)},
        "changes": encode(np.concatenate([[0.0], differences]).astype(np.float32)),
        "other_top": (1 + np.flatnonzero(old.token_ids[:, 0] != new.token_ids[:, 0])).tolist(),
        "layers": [
            {
                "layer": layer,
                "moved": int(np.count_nonzero(before.top_groups[layer] != after.top_groups[layer])),
                "kept_before": before.retained_pairs(layer),
                "kept_after": after.retained_pairs(layer),
            }
            for layer in before.masks
            if before.masks[layer] is not after.masks[layer]
        ],
    }


def _pairs(result: ChangedRun, layer: int) -> ChangedPairsPayload:
    from focus_runtime.explain.what_if import pairs_changed

    size, counts = pairs_changed(result.before.masks[layer], result.after.masks[layer])
    return changed_pairs(layer, size, counts, result.before.predictions.nll.size + 1)


def _prediction(result: ChangedRun, token: int) -> ChangedPredictionPayload:
    """The most probable tokens at one place without and with the changes; None beyond the tokens read."""

    def of(one: FocusPass) -> PredictionPayload | None:
        made, place = one.predictions, token - 1
        if not 0 <= place < made.nll.size:
            return None
        pieces = [vocabulary_piece(result.tokenizer, token_id) for token_id in made.token_ids[place].tolist()]
        tokens = list(zip(pieces, made.probabilities[place].tolist(), strict=True))
        return {"rank": int(made.ranks[place]), "tokens": tokens}

    return {"token": token, "before": of(result.before), "after": of(result.after)}
