"""What the mask costs head by head: the loss with full attention in one head alone, estimated for all, measured for the
most promising ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import Cancelled, InputError
from focus_explorer.progress import Progress
from focus_explorer.usecases.run_model import composed_run, lease_run_model
from focus_explorer.usecases.runs import check_beginning, token_ids
from focus_explorer.usecases.service import Service
from focus_explorer.views.payloads.comparisons import HeadCostPayload, MeasuredHeads

if TYPE_CHECKING:
    from focus_runtime.config import FocusConfig
    from focus_runtime.fit.budget_meter import BudgetMeter
    from focus_runtime.store.head_costs import HeadCost

MOST_TOKENS = 4096  # the backward pass keeps every layer's activations
VERIFIED = 10


def measure_heads(
    service: Service,
    run_id: str,
    *,
    verify: int = VERIFIED,
    progress: Progress = lambda stage, fraction: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> MeasuredHeads:
    """Estimate what every key-value head would win alone by full attention, measure the best, and store all.

    Args:
        service: database and model.
        run_id: of the run.
        verify: heads that are measured, those with the largest estimates.
        progress: takes each stage and the fraction done.
        cancelled: called between passes; True stops, and nothing is stored.

    Returns:
        What `measured_heads` does.

    Raises:
        InputError: the model or the centroids of the run cannot be used.
        Cancelled: `cancelled` returned True.
    """
    import torch

    from focus_runtime.fit.budget_meter import BudgetMeter
    from focus_runtime.store.head_costs import write_head_costs

    run = fetch_run(service.database, run_id)
    check_beginning(run, MOST_TOKENS)
    ids = token_ids(service.database, run_id)[:MOST_TOKENS]
    if len(ids) < 2:
        raise InputError("this run has no token with a prediction", fix="explore a longer text")

    def step(stage: str, fraction: float) -> None:
        if cancelled():
            raise Cancelled
        progress(stage, fraction)

    step("Loading the model", 0.0)
    with lease_run_model(service, run, progress=step) as loaded, composed_run(service, run, loaded) as focus:
        step("Reading the text", 0.1)
        meter = BudgetMeter(focus, {"text": torch.tensor([ids])})
        costs = _costs(meter, focus.config, verify, step)
    step("Saving", 0.98)
    write_head_costs(service.database, run_id, len(ids), float(meter.full[0]), float(meter.base.nll[0]), costs)
    return measured_heads(service, run_id)


def _costs(meter: BudgetMeter, config: FocusConfig, verify: int, step: Progress) -> list[HeadCost]:
    """Every key-value head of every layer with groups: all estimated, those measured that promise most."""
    from focus_runtime.budget import HeadException, HeadSetting, query_settings
    from focus_runtime.composition.changes import ChangeHeads, changed_budget
    from focus_runtime.models.structure import head_counts
    from focus_runtime.store.head_costs import HeadCost

    counts = head_counts(meter.focus.model)
    step("Estimating every head", 0.2)
    found = meter.sensitivities(config.budget, [HeadSetting(0, 0, full=True)])
    settings = {layer: query_settings(config.head_groups(layer, counts), counts) for layer in found.layers}
    full = {
        (layer, head): all(one.full for one in own[head * counts.shared_by : (head + 1) * counts.shared_by])
        for layer, own in settings.items()
        for head in range(counts.key)
    }
    estimated = {
        (layer, head): 0.0 if full[layer, head] else -float(value)
        for layer, row in zip(found.layers, found.gain, strict=True)
        for head, value in enumerate(row[0])
    }
    best = sorted((place for place in estimated if not full[place]), key=estimated.__getitem__)[:verify]
    measured = {}
    for number, (layer, head) in enumerate(best):
        step(f"Measuring layer {layer}, head {head}", 0.5 + 0.45 * number / len(best))
        change = ChangeHeads(HeadException(layer=layer, head=head, full=True))
        budget = changed_budget(config, [change], counts)
        measured[layer, head] = float(meter.measure(budget).nll[0])
    return [HeadCost(*place, value, measured.get(place)) for place, value in estimated.items()]


def measured_heads(service: Service, run_id: str) -> MeasuredHeads:
    """What was measured of a run's heads; `heads` is empty before that.

    Args:
        service: whose database has the run.
        run_id: of the run.

    Raises:
        NotFoundError: there is no such run.
    """
    fetch_run(service.database, run_id)
    rows = fetch(service.database, "head_cost_runs", run_id=run_id).to_pylist()
    heads = fetch(service.database, "head_costs", run_id=run_id).to_pylist()
    first = rows[0] if rows else {"num_tokens": None, "nll_full": None, "nll_focus": None}
    return {
        "num_tokens": first["num_tokens"],
        "nll_full": first["nll_full"],
        "nll_focus": first["nll_focus"],
        "heads": cast(list[HeadCostPayload], heads),
    }
