"""Settings that can be changed after training, one at a time, each with both baselines.

Every Focus row has `gap_recovered` = (null - Focus) / (null - full) of perplexities: against window and sinks only, and
against random centroids (`gap_recovered_chance`). Temperature and iterations are swept at evaluation, for centroids
trained with others; no centroids are trained here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from focus_runtime.measure.perplexity import Scores, score
from focus_runtime.routing.centroids import Centroids, no_groups
from focus_runtime.run.random_baseline import baseline_seed, random_baseline, random_seed
from paper.studies.rows import Row, focus_row, full_row, gap_recovered

WINDOWS = (16, 32, 64, 128, 256)
SINKS = tuple(range(9))
TEMPERATURES = (0.05, 0.1, 0.2, 0.5)
ITERATIONS = (3, 5, 10, 20)


def sweep_masks(
    model: Any,
    centroids: Centroids,
    sequences: Tensor,
    training: Tensor,
    *,
    top_ks: Sequence[int] = (),
    windows: Sequence[int] = WINDOWS,
    sinks: Sequence[int] = SINKS,
    seed: int = 0,
) -> list[Row]:
    """k, window and sinks: every window at the centroids' own sinks, every number of sinks at their own window.

    Args:
        model: the frozen model, Focus not composed.
        sequences: (N, T) held-out token ids.
        training: (M, T') token ids on which the random centroids are balanced.
        top_ks: 1 to K when empty.
        windows, sinks: values swept.
        seed: preferred for the random centroids; see `baseline_seed`.

    Returns:
        The row of full attention; then for every window and number of sinks the row without groups, and for every k
        one with random and one with the given centroids.
    """
    own = centroids.config
    places = [(window, own.num_sinks) for window in windows] + [(own.window, count) for count in sinks]
    settings = [{"window": window, "num_sinks": count} for window, count in dict.fromkeys(places)]
    return _sweep(model, centroids, sequences, training, settings, top_ks, seed)


def sweep_assignment(
    model: Any,
    centroids: Centroids,
    sequences: Tensor,
    training: Tensor,
    *,
    top_ks: Sequence[int] = (),
    temperatures: Sequence[float] = TEMPERATURES,
    iterations: Sequence[int] = ITERATIONS,
    seed: int = 0,
) -> list[Row]:
    """Temperature and Sinkhorn iterations at evaluation, under `sinkhorn` assignment, whose column terms follow them.

    Every temperature is measured at the centroids' own iterations, every number of iterations at their own temperature.

    Args:
        model, centroids, sequences, training, top_ks, seed: see `sweep_masks`.
        temperatures, iterations: values swept.

    Returns:
        Rows as `sweep_masks` returns them.
    """
    own = centroids.config
    places = [(t, own.sinkhorn_iterations) for t in temperatures] + [(own.temperature, n) for n in iterations]
    settings = [
        {"assignment": "sinkhorn", "temperature": temperature, "sinkhorn_iterations": count}
        for temperature, count in dict.fromkeys(places)
    ]
    return _sweep(model, centroids, sequences, training, settings, top_ks, seed)


def _sweep(
    model: Any,
    centroids: Centroids,
    sequences: Tensor,
    training: Tensor,
    settings: Iterable[dict[str, Any]],
    top_ks: Sequence[int],
    seed: int,
) -> list[Row]:
    full = score(model, sequences)
    random = random_baseline(
        model,
        centroids.config,
        seed=baseline_seed(random_seed(centroids), preferred=seed),
        layers=centroids.routers,
        calibrate_on=training,
    )
    nothing = no_groups(centroids)
    rows = [full_row(full, sequences)]
    empty: dict[tuple[int, int], Row] = {}
    for setting in settings:
        place = (setting.get("window", centroids.config.window), setting.get("num_sinks", centroids.config.num_sinks))
        if place not in empty:  # without groups nothing but window and sinks matters
            empty[place] = focus_row(model, nothing, sequences, full, "none", window=place[0], num_sinks=place[1])
            rows.append(empty[place])
        for top_k in top_ks or range(1, centroids.config.num_groups + 1):
            rows += _pair(model, centroids, random, sequences, full, empty[place], {**setting, "top_k": top_k})
    return rows


def _pair(
    model: Any,
    centroids: Centroids,
    random: Centroids,
    sequences: Tensor,
    full: Scores,
    empty: Row,
    setting: dict[str, Any],
) -> list[Row]:
    baseline = focus_row(model, random, sequences, full, "random", **setting)
    given = focus_row(model, centroids, sequences, full, "given", **setting)
    baseline["gap_recovered"] = gap_recovered(empty, baseline, full.perplexity)
    given["gap_recovered"] = gap_recovered(empty, given, full.perplexity)
    given["gap_recovered_chance"] = gap_recovered(baseline, given, full.perplexity)
    return [baseline, given]
