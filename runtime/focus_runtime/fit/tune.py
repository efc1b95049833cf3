"""Tune centroids: find which heads to leave at full attention or at a setting of their own, for a target.

The search is kept in a file while it runs, checked on held-out text at its end, and recorded with the budget.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from torch import Tensor

from focus_runtime.budget import HeadCounts, HeadSetting, read_budget
from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import Cancelled, ConfigError, TrainingError
from focus_runtime.files import cannot_write, replacing
from focus_runtime.fit.budget_meter import Budget, BudgetMeter, Costs, Measured
from focus_runtime.fit.budget_search import Progress, Search, Target, pareto, search
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure.perplexity import compare, score
from focus_runtime.models.loading import fingerprint
from focus_runtime.models.structure import head_counts
from focus_runtime.routing.centroids import Centroids

OTHER_SEARCH = "delete the file, or choose another --out"
SAVE_EVERY = 5  # measurements between writings of an unfinished search
HELD_OUT_VALUES = (
    "relative_difference",
    "full_perplexity",
    "focus_perplexity",
    "retained_pairs",
    "distant_kept",
    "sequences",
    "tokens",
    "p_value",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadChoices:
    """What single heads may get besides full attention and the usual setting; a top-k of 0 is no groups.

    `by_query`: whether query heads that share a key-value head may get different settings.
    """

    top_ks: tuple[int, ...] = (0, 2)
    windows: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    by_query: bool = True

    def settings(self, config: FocusConfig, longest: int) -> tuple[HeadSetting, ...]:
        """Every combination that a head may get on texts of at most `longest` tokens, and full attention.

        Groups beside a window of half the text are left out: little is beyond it.
        """
        top_ks = dict.fromkeys([config.top_k, *self.top_ks])
        windows = dict.fromkeys([config.window, *self.windows])
        for top_k in top_ks:
            config.replace(top_k=top_k or 1)  # refuses what the centroids do not have
        for window in windows:
            config.replace(window=window)
        near = {window: PairRule.of(config, window).near(longest - 1) for window in windows}
        settings = [HeadSetting(k, w) for k in top_ks for w in windows if k == 0 or near[w] < longest // 2]
        return (*settings, HeadSetting(0, 0, full=True))


def tune_budgets(
    model: Any,
    centroids: Centroids,
    calibration: Mapping[str, Tensor],
    held_out: Mapping[str, Tensor],
    targets: Sequence[Target],
    *,
    choices: HeadChoices,
    settings: Mapping[str, Any],
    kept: Path,
    resume: bool = False,
    on_progress: Callable[[str, float], None] = lambda stage, fraction: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[Centroids]:
    """Centroids with a budget for each target, found by the same estimates, nothing measured twice.

    Their `training["budget"]` is the record, with a check on held-out text; `met` says whether the budget meets the
    target, else it is the closest.

    Args:
        centroids: from a file; their own budget is measured too if the search could give it.
        calibration, held_out: (N, T) token ids by domain; lengths of domains may differ.
        kept: file of an unfinished search, which `resume` continues; `forget_progress` removes it.
        cancelled: True stops the search with Cancelled; it is kept.
    """
    model_hash, digest = fingerprint(model), hashlib.sha256()
    for name, ids in calibration.items():
        digest.update(name.encode() + b"\0" + ids.cpu().numpy().tobytes())
    with compose(model, centroids, budget=(), **settings) as focus:
        found = choices.settings(focus.config, max(ids.shape[1] for ids in calibration.values()))
        identity = {
            "model": model_hash,
            "centroids": centroids.sha256,
            "config": focus.config.to_json(),
            "calibration": digest.hexdigest(),
            "dtype": str(model.dtype),
            "device": str(model.device),
            "settings": [asdict(one) for one in found],
            "by_query": choices.by_query,
        }
        on_progress("Measuring without a budget", 0.02)
        meter = BudgetMeter(focus, calibration)
        own = _own_budget(meter, centroids, {meter.usual, *found}, by_query=choices.by_query)
        results: list[Search] = []

        def on_step(done: int, total: int) -> None:
            share = (len(results) + done / max(total, 1)) / len(targets)
            latest = next(reversed(progress.known.values()), None)
            loss = f", loss {latest.loss:.3f}" if latest is not None else ""
            on_progress(f"{done} of about {total} measurements{loss}", 0.05 + 0.85 * share)
            stop = cancelled()
            if stop or done % SAVE_EVERY == 0:
                save_progress(kept, identity, progress)
            if stop:
                raise Cancelled("stopped")

        progress = Progress(on_step)
        if resume and kept.exists():
            load_progress(kept, identity, progress)
        try:
            for target in targets:
                results.append(search(meter, found, target, progress, by_query=choices.by_query, own=own))
        finally:
            save_progress(kept, identity, progress)  # of a Ctrl-C too; and the check may be stopped, or meet no target
        on_progress("Held-out text", 0.9)
        checked = verify(focus, [result.offered.budget for result in results], held_out)
        tuned = replace(centroids, config=focus.config)
    found_for = zip(targets, results, checked, strict=True)
    return [_tuned(tuned, meter, result, target, rows) for target, result, rows in found_for]


def _own_budget(meter: BudgetMeter, centroids: Centroids, given: set[HeadSetting], *, by_query: bool) -> Budget:
    """The budget that the file has; none if the search could not give it or this model lacks its heads."""
    file, model = centroids.config, meter.focus.model
    if (file.top_k, file.window) != (meter.usual.top_k, meter.usual.window):
        return ()
    try:
        centroids.check_budget(model, file.budget)
    except ConfigError:
        return ()
    groups = [group for layer in centroids.routers for group in file.head_groups(layer, head_counts(model))]
    allowed = all(one.setting in given and (by_query or not one.by_query) for one in groups)
    return file.budget if allowed else ()


def verify(
    focus: FocusModel, budgets: Sequence[Budget], sequences: Mapping[str, Tensor]
) -> list[dict[str, dict[str, Any]]]:
    """For each budget what `compare` gives by domain, on (N, T) token ids that the search has not seen."""
    found: list[dict[str, dict[str, Any]]] = [{} for _ in budgets]
    for name, ids in sequences.items():
        with focus.full_attention():
            full = score(focus.model, ids)
        for budget, rows in zip(budgets, found, strict=True):
            with focus.with_config(focus.config.replace(budget=budget)):
                rows[name] = compare(full, score(focus, ids))
    return found


def _tuned(
    centroids: Centroids, meter: BudgetMeter, result: Search, target: Target, held_out: Mapping[str, Mapping[str, Any]]
) -> Centroids:
    """Centroids with the budget that is offered, and all that their file says of it."""

    def point(measured: Measured) -> dict[str, Any]:
        return {
            "budget": [entry.to_dict() for entry in measured.budget],
            "retained_pairs": measured.retained_pairs,
            "excess": meter.excess(measured),
            "estimated_divergence": result.estimated.get(measured.budget),
        }

    # the one the file gets need not be among them: the target is of the worst domain, not of the mean
    best = {measured.budget: measured for measured in [*pareto(result.points), result.offered]}
    points = sorted(best.values(), key=lambda measured: measured.retained_pairs)
    record: dict[str, Any] = {
        "target": {"loss": target.loss} if target.loss is not None else {"pairs": target.pairs},
        "met": result.chosen is not None,
        "calibration": {name: meter.domains.count(name) for name in dict.fromkeys(meter.domains)},
        "pairs_counted_at": meter.counted_at,
        "without_budget": point(meter.base),
        "points": [point(measured) for measured in points],
        "held_out": {name: {key: row[key] for key in HELD_OUT_VALUES} for name, row in held_out.items()},
    }
    if "balanced" in centroids.training:  # so that a file balanced later says that this is older
        record["balanced"] = centroids.training["balanced"]
    if centroids.config.window_growth is not None:
        record["window_growth"] = list(centroids.config.window_growth)
    record["text_sinks"] = centroids.config.text_sinks
    config = centroids.config.replace(budget=result.offered.budget)
    return replace(centroids, config=config, training=centroids.training | {"budget": record})


def resume_path(out: str | os.PathLike[str]) -> Path:
    """Where an unfinished search for a file is kept."""
    return Path(f"{os.fspath(out)}.search.json")


def save_progress(path: Path, identity: Mapping[str, Any], progress: Progress) -> None:
    """Write the measurements of an unfinished search, and its estimates beside them."""
    rows = [
        {
            "budget": [entry.to_dict() for entry in row.budget],
            "nll": row.nll.tolist(),
            "loss": row.loss,
            "pairs": row.retained_pairs,
        }
        for row in progress.known.values()
    ]
    explain, costs = cannot_write("choose a writable folder", TrainingError), progress.costs
    content: dict[str, Any] = {"identity": dict(identity), "measured": rows, "costs": None}
    if costs is not None:
        with replacing(_costs_path(path), explain=explain) as part, part.open("wb") as file:
            np.savez(file, products=costs.products, pairs=costs.pairs, sequences=costs.sequences)
        content["costs"] = {
            "layers": list(costs.layers),
            "counts": list(costs.counts),
            "by_query": costs.by_query,
            "settings": [asdict(setting) for setting in costs.settings],
        }
    with replacing(path, explain=explain) as part:
        part.write_text(json.dumps(content) + "\n", encoding="utf-8")


def load_progress(path: Path, identity: Mapping[str, Any], progress: Progress) -> None:
    """Read the measurements of an unfinished search into `progress`; a TrainingError if it is of another search."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        same = content["identity"] == json.loads(json.dumps(dict(identity)))
        rows = [
            Measured(read_budget(row["budget"]), np.array(row["nll"], dtype=np.float64), row["loss"], row["pairs"])
            for row in content["measured"]
        ]
        about, costs = content["costs"] if same else None, None
        if about is not None:
            with np.load(_costs_path(path)) as arrays:
                costs = Costs(
                    tuple(about["layers"]),
                    HeadCounts(*about["counts"]),
                    bool(about["by_query"]),
                    tuple(HeadSetting(**setting) for setting in about["settings"]),
                    arrays["products"],
                    arrays["pairs"],
                    int(arrays["sequences"]),
                )
    except (OSError, ValueError, KeyError, TypeError, ConfigError, BadZipFile) as error:
        raise TrainingError(f"{path} cannot be read: {error}", fix=OTHER_SEARCH) from error
    if not same:
        raise TrainingError(
            f"{path} is of a search with another model, text, centroids or settings",
            expected="the same as before",
            fix=OTHER_SEARCH,
        )
    progress.known |= {row.budget: row for row in rows}
    progress.costs = costs


def forget_progress(path: Path) -> None:
    """Remove what `save_progress` wrote."""
    path.unlink(missing_ok=True)
    _costs_path(path).unlink(missing_ok=True)


def _costs_path(path: Path) -> Path:
    return path.with_suffix(".npz")
