"""One setting of Focus on one text, measured alternately with full attention: predictions, pairs kept and time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_runtime.budget import HeadException
from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.composition.changes import Change
from focus_runtime.errors import Cancelled
from focus_runtime.measure.loss import dominance, layer_shares, token_nll
from focus_runtime.measure.timing import MODES, timed_pass, warm_up
from focus_runtime.models.structure import attention_modules
from focus_runtime.routing.centroids import Centroids, has_no_groups


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingMeasured:
    """What one setting does to one text.

    Attributes:
        nll: by mode, (T-1,) losses in nats of token 1 to T-1.
        retained_pairs: allowed pairs over causal pairs, mean over layers.
        dominance: share of tokens in the largest group, mean over layers; None without groups.
        attention_ms: by mode, milliseconds of the attention calls of each repeat, for Focus with routing.
        total_ms: by mode, milliseconds of the forward pass to the last hidden state of each repeat.
        backend: attention backends of the Focus passes.
    """

    nll: dict[str, NDArray[np.float64]]
    retained_pairs: float
    dominance: float | None
    attention_ms: dict[str, list[float]]
    total_ms: dict[str, list[float]]
    backend: str


@contextmanager
def stoppable(model: Any, cancelled: Callable[[], bool]) -> Iterator[None]:
    """While the block runs, every attention layer first checks whether to stop.

    Raises:
        Cancelled: it is to stop.
    """

    def check(*_: object) -> None:
        if cancelled():
            raise Cancelled("stopped")

    hooks = [module.register_forward_pre_hook(check) for module in attention_modules(model).values()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def measure_setting(
    model: Any,
    centroids: Centroids,
    ids: Tensor,
    *,
    top_k: int | None = None,
    window: int | None = None,
    num_sinks: int | None = None,
    window_growth: tuple[int, int] | None = None,
    assignment: str | None = None,
    budget: Sequence[HeadException] | None = None,
    backend: str = "auto",
    changes: Sequence[Change] = (),
    repeats: int = 3,
    cancelled: Callable[[], bool] = lambda: False,
) -> SettingMeasured:
    """Run one text through full attention and Focus in turn, so that a drift of the machine hits both.

    Args:
        model: causal language model without Focus.
        centroids: routers with potentials (or assignment "sinkhorn").
        ids: (1, T) on the model's device, T at least 2.
        top_k, window, num_sinks, window_growth, assignment, budget: the centroids' own when None.
        backend: of Focus attention, see `focus_attention`.
        changes: made by hand to what Focus does.
        repeats: timed passes of each mode, after a short warm-up.
        cancelled: called before every layer; True raises `Cancelled`.

    Raises:
        InputError: the settings do not fit the centroids or the model.
        Cancelled: `cancelled` said so; the model is as before.
    """
    focus = compose(
        model,
        centroids,
        top_k=top_k,
        window=window,
        num_sinks=num_sinks,
        window_growth=window_growth,
        assignment=assignment,
        budget=budget,
        backend=backend,
    )
    nll: dict[str, NDArray[np.float64]] = {}
    attention: dict[str, list[float]] = {mode: [] for mode in MODES}
    total: dict[str, list[float]] = {mode: [] for mode in MODES}
    shares: list[tuple[float, float]] = []
    try:
        with stoppable(model, cancelled), focus.with_changes(changes, ids.shape[1]):
            warm_up(focus, ids)
            for repeat in range(repeats):
                for mode in MODES:
                    hidden, seconds = timed_pass(focus, ids, mode)
                    total[mode].append(seconds * 1000)
                    attention[mode].append((focus.seconds.attention + focus.seconds.routing) * 1000)
                    if repeat == 0:
                        nll[mode] = token_nll(model, hidden, ids)[0].double().cpu().numpy()
                        shares = _shares(focus) if mode == "focus" else shares
        backend = focus.backend_names
    finally:
        focus.detach()
    pairs, largest = np.mean(shares, axis=0)
    return SettingMeasured(
        nll=nll,
        retained_pairs=float(pairs),
        dominance=None if has_no_groups(centroids) else float(largest),
        attention_ms=attention,
        total_ms=total,
        backend=backend,
    )


def _shares(focus: FocusModel) -> list[tuple[float, float]]:
    """Retained pairs and dominance by layer."""
    masks = focus.head_masks()
    return [
        (layer_shares(masks[index])[0], dominance(assignment.probabilities))
        for index, assignment in focus.assignments().items()
    ]
