"""What the mask costs: full attention in one head at a time, and the dropped pairs that would have helped a token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from focus_explorer.data.parts import part_groups
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import InputError
from focus_explorer.progress import Progress, silent
from focus_explorer.usecases.jobs import stop_requested
from focus_explorer.usecases.run_model import composed_run, lease_run_model
from focus_explorer.usecases.runs import check_beginning, layer_parts, token_ids
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.statistics import measure_run
from focus_explorer.views.payloads import comparisons as payloads
from focus_explorer.views.payloads import picked
from focus_runtime.budget import HeadException, HeadSetting, query_settings
from focus_runtime.composition.changes import ChangeHeads, changed_budget
from focus_runtime.store.measurements import HeadCost, write_head_costs, write_missing_links

if TYPE_CHECKING:
    from focus_runtime.config import FocusConfig
    from focus_runtime.explain.missing_links import MissingLink, MissingLinks
    from focus_runtime.fit.budget_meter import BudgetMeter

ESTIMATED_TOKENS = 4096  # the backward pass keeps every layer's activations
VERIFIED = 10

MOST_TOKENS = 8192  # hidden states of all layers are kept up to the token: half a gigabyte with the default model


def measure_heads(
    service: Service, run_id: str, *, verify: int = VERIFIED, progress: Progress = silent
) -> payloads.MeasuredHeads:
    """Estimate what every key-value head would win alone by full attention, measure the best, and store all."""
    import torch

    from focus_runtime.fit.budget_meter import BudgetMeter

    run = fetch_run(service.database, run_id)
    check_beginning(run, ESTIMATED_TOKENS)
    ids = token_ids(service.database, run_id)[:ESTIMATED_TOKENS]
    if len(ids) < 2:
        raise InputError("this run has no token with a prediction", fix="explore a longer text")
    progress("Loading the model", 0.0)
    with lease_run_model(service, run, progress=progress) as loaded, composed_run(service, run, loaded) as focus:
        progress("Reading the text", 0.1)
        meter = BudgetMeter(focus, {"text": torch.tensor([ids])})
        costs = _costs(meter, focus.config, verify, progress)
    progress("Saving", 0.98)
    write_head_costs(service.database, run_id, len(ids), float(meter.full[0]), float(meter.base.nll[0]), costs)
    return measured_heads(service, run_id)


def _costs(meter: BudgetMeter, config: FocusConfig, verify: int, progress: Progress) -> list[HeadCost]:
    """Every key-value head of every layer with groups: all estimated, those measured that promise most."""
    from focus_runtime.models.structure import head_counts

    counts = head_counts(meter.focus.model)
    progress("Estimating every head", 0.2)
    gains = meter.sensitivities([HeadSetting(0, 0, full=True)])
    settings = {layer: query_settings(config.head_groups(layer, counts), counts) for layer in gains}
    full = {
        (layer, head): all(one.full for one in own[head * counts.shared_by : (head + 1) * counts.shared_by])
        for layer, own in settings.items()
        for head in range(counts.key)
    }
    estimated = {
        (layer, head): 0.0 if full[layer, head] else -float(value)
        for layer, gain in gains.items()
        for head, value in enumerate(gain[0])
    }
    best = sorted((place for place in estimated if not full[place]), key=estimated.__getitem__)[:verify]
    measured = {}
    for number, (layer, head) in enumerate(best):
        progress(f"Measuring layer {layer}, head {head}", 0.5 + 0.45 * number / len(best))
        change = ChangeHeads(HeadException(layer=layer, head=head, full=True))
        budget = changed_budget(config, [change], counts)
        measured[layer, head] = float(meter.measure(budget).nll[0])
    return [HeadCost(*place, value, measured.get(place)) for place, value in estimated.items()]


def measured_heads(service: Service, run_id: str) -> payloads.MeasuredHeads:
    fetch_run(service.database, run_id)
    rows = fetch(service.database, "head_cost_runs", run_id=run_id).to_pylist()
    heads = fetch(service.database, "head_costs", run_id=run_id).to_pylist()
    of_run = rows[0] if rows else {"num_tokens": None, "nll_full": None, "nll_focus": None}
    return picked(payloads.MeasuredHeads, of_run, heads=heads)


def check_token(run: Mapping[str, Any], token: int) -> None:
    """Refuse a token that has no prediction, lies too far into the text, or whose groups depend on later ones."""
    check_beginning(run, token)
    last = min(run["num_tokens"] - 1, MOST_TOKENS)
    if not 1 <= token <= last:
        beyond = f"; of longer texts, the first {MOST_TOKENS:,} tokens" if run["num_tokens"] > MOST_TOKENS else ""
        raise InputError(
            f"token {token:,} of this run cannot be explained",
            expected=f"1 to {last:,}: the first token has none before it{beyond}",
        )


def most_hurt(service: Service, run_id: str) -> int:
    """The token that Focus predicts worst against full attention, of those that can be explained."""
    losses: dict[str, dict[int, float]] = {"full": {}, "focus": {}}
    for row in fetch(service.database, "losses", run_id=run_id).to_pylist():
        losses[row["mode"]][row["position"]] = row["nll"]
    gains = {
        position: nll - losses["full"][position]
        for position, nll in losses["focus"].items()
        if 1 <= position <= MOST_TOKENS
    }
    if not gains:
        raise InputError("this run has no token with a prediction", fix="explore a longer text")
    return max(gains, key=gains.__getitem__)


def explain_token(
    service: Service, run_id: str, token: int, *, progress: Progress = silent
) -> payloads.ExplainedTokenPayload:
    """Find the dropped pairs that would have helped one token, verify the best, and store them."""
    from focus_runtime.explain.missing_links import missing_links
    from focus_runtime.models.structure import head_counts

    run = fetch_run(service.database, run_id)
    check_token(run, token)
    ids = token_ids(service.database, run_id)
    progress("Loading the model", 0.0)
    with lease_run_model(service, run, progress=progress) as loaded, composed_run(service, run, loaded) as focus:
        found = missing_links(
            focus, ids, token, progress=lambda stage, part: progress(stage, 0.8 * part), cancelled=stop_requested
        )
        shared = head_counts(loaded.model).shared_by
    measure_run(service, run_id, tags=False, progress=lambda stage, part: progress(stage, 0.8 + 0.18 * part))
    kept = _random_keeps(service, run, found, shared)
    progress("Saving", 0.99)
    write_missing_links(service.database, run_id, found, kept)
    return explained(service, run_id, token)


def _random_keeps(service: Service, run: dict[str, Any], found: MissingLinks, shared: int) -> list[bool | None]:
    """For each link whether random centroids keep it: no link is near or a sink, so a common group decides."""
    run_id = run["run_id"]
    rows = fetch(service.database, "baseline_assignments", run_id=run_id)
    own = fetch(service.database, "baseline_head_memberships", run_id=run_id)
    parts = part_groups(layer_parts(service.database, run), rows, own, run["num_tokens"])

    def keeps(link: MissingLink) -> bool | None:
        if link.layer not in parts:
            return None
        of_layer = parts[link.layer]
        head = link.head if of_layer[0].part.by_query else link.head // shared
        bits = next((one for one in of_layer if head in one.part.heads), of_layer[0]).membership
        return bool(bits[link.query] & bits[link.key])

    return [keeps(link) for link in found.links]


def explained(service: Service, run_id: str, token: int) -> payloads.ExplainedTokenPayload:
    rows = fetch(service.database, "explained_tokens", run_id=run_id).to_pylist()
    row = next((row for row in rows if row["token"] == token), None)
    if row is None:
        raise InputError(f"token {token:,} of this run was not explained yet", fix="explain it first")
    links = fetch(service.database, "missing_links", run_id=run_id, token=token).to_pylist()
    return picked(payloads.ExplainedTokenPayload, row, measured_at=row["measured_at"].isoformat(), links=links)


def measured_links(service: Service, run_id: str, token: int | None) -> payloads.MeasuredLinks:
    """Tokens of a run that were explained, and what was measured of one of them."""
    tokens = fetch(service.database, "explained_tokens", run_id=run_id)["token"].to_pylist()
    return {
        "tokens": tokens,
        "explained": explained(service, run_id, token) if token in tokens and token is not None else None,
    }
