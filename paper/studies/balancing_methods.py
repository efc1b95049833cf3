"""What keeps hard groups balanced while centroids are trained.

Sinkhorn balances soft mass, not the argmax that the hard mask uses, so hard groups may drift together and the mask fill
up. Every device here works against that in another way; `measure_balancing` trains with each on the same sequences. It
knows nothing of softmax collapse: that is `paper.studies.dominance`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.composition.observe import replace_assignment
from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError
from focus_runtime.fit.calibrate import calibrate_potentials, hard_potential
from focus_runtime.fit.centroids import centroid_loop, training_focus
from focus_runtime.fit.loop import checkpointing
from focus_runtime.fit.settings import TrainConfig, TrainStep
from focus_runtime.measure.loss import check_positions
from focus_runtime.measure.perplexity import Scores, score
from focus_runtime.models.devices import input_device
from focus_runtime.routing.centroids import Centroids, random_centroids
from focus_runtime.routing.router import Assignment, CentroidRouter, sinkhorn_potential, top_k_membership
from focus_runtime.text.sequences import TokenStream, encode_texts, even_sequences
from paper.studies.dominance import balance_loss, dead_groups


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """One way to keep the argmax groups of a training balanced.

    Attributes:
        name: as in `DEVICES`.
        meaning: its definition in one sentence.
        iterations: Sinkhorn's N; the configuration's when None.
        rate: factor on the learning rate.
        balanced: `assign_balanced` in place of Sinkhorn.
        hard: the hard mask in the forward pass, straight-through gradients.
        start_temperature: factor on tau at the first step, falling geometrically to 1 at the last.
        balance: weight of the balance loss.
    """

    name: str
    meaning: str
    iterations: int | None = None
    rate: float = 1.0
    balanced: bool = False
    hard: bool = False
    start_temperature: float = 1.0
    balance: float = 0.0


DEVICES = {
    device.name: device
    for device in (
        Device(name="sinkhorn-10", meaning="Sinkhorn with N = 10 iterations", iterations=10),
        Device(name="sinkhorn-20", meaning="Sinkhorn with N = 20 iterations", iterations=20),
        Device(name="lower-rate", meaning="Sinkhorn as configured, at a third of the learning rate", rate=1 / 3),
        Device(
            name="balanced-potentials",
            meaning="column potentials that give every group equally many argmax tokens of the batch, without gradient",
            balanced=True,
        ),
        Device(name="straight-through", meaning="the hard mask forward, the soft gate's gradient backward", hard=True),
        Device(
            name="annealed-temperature",
            meaning="tau starts at four times its value and falls geometrically to it",
            start_temperature=4.0,
        ),
        Device(name="balance-loss", meaning="Sinkhorn, and 0.1 of the balance loss of the soft shares", balance=0.1),
    )
}


def temperature_at(step: int, steps: int, start: float, end: float) -> float:
    """Temperature of a step: geometric from the first step's to the last step's.

    Args:
        step: counted from 0.
        steps: of the whole training.
        start: at the first step.
        end: at the last step.
    """
    progress = 1.0 if steps <= 1 else min(1.0, step / (steps - 1))
    return start * (end / start) ** progress


def assign_balanced(router: CentroidRouter, hidden: Tensor) -> Assignment:
    """Groups under potentials that balance the argmax over the whole batch (B, T, d); see `hard_potential`.

    The potential carries no gradient: scores are trained as if it were a constant, as it is after training.
    """
    logits = router.logits(hidden)
    with torch.no_grad():
        rows = logits.detach().flatten(0, -2).float()
        start = sinkhorn_potential(rows[None], router.config.sinkhorn_iterations)[0]
        potential = hard_potential(rows, start)
    probabilities = torch.softmax(logits + potential, dim=-1)
    membership = top_k_membership(probabilities.detach(), router.config.top_k)
    return Assignment(probabilities, membership, potential.expand(logits.shape[0], -1))


def _assign_training(index: int, router: CentroidRouter, hidden: Tensor, padding: Tensor | None) -> Assignment:
    assert padding is None, "training sequences are full"
    return assign_balanced(router, hidden)


def measure_balancing(
    model: Any,
    tokenizer: Any,
    texts: list[str],
    validation: Tensor,
    config: FocusConfig,
    settings: TrainConfig,
    devices: Sequence[str | Device] = tuple(DEVICES),
    *,
    top_ks: Sequence[int] = (1, 2),
    on_row: Callable[[dict[str, Any]], None] | None = None,
    on_step: Callable[[TrainStep], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[dict[str, Any]]:
    """Train centroids with every device for the same steps on the same sequences, and score them on held-out text.

    Args:
        model: frozen causal language model.
        tokenizer: the model's.
        texts: trained on.
        validation: (N, T) token ids.
        config: of Focus, before the device's changes.
        settings: of every training, before the device's changes.
        devices: names from `DEVICES`, or further ones.
        top_ks: values of k to score; those above K are left out.
        on_row: called with every row as it comes.
        on_step: called after every step; `TrainStep.phase` is the device's name.
        should_stop: checked between steps.

    Returns:
        One row per device: device, meaning, final_loss, training_dominance, training_dominance_max, dead_groups and
        training_retained_pairs of the last step, seconds, and scores: one entry per k, before and after
        `calibrate_potentials` ("calibrated"), always under the hard mask and causal assignment.

    Raises:
        ConfigError: an unknown device. TextError: too little text. TrainingError: the loss is no number.
        TrainingStopped: stopped by the user; `on_row` has the finished rows.
    """
    chosen = [_device(device) for device in devices]
    check_positions(model, settings.seq_len)
    ids = encode_texts(tokenizer, texts, settings.seq_len + 1, settings.special_tokens)
    rows = []
    for device in chosen:
        started = time.perf_counter()
        centroids, last, dead = train_with(device, model, ids, config, settings, on_step, should_stop)
        row: dict[str, Any] = {
            "device": device.name,
            "meaning": device.meaning,
            "final_loss": last.loss,
            "training_dominance": last.dominance,
            "training_dominance_max": last.dominance_max,
            "dead_groups": dead,
            "training_retained_pairs": last.retained_pairs,
            "seconds": time.perf_counter() - started,
        }
        learned = _scores(model, centroids, validation, top_ks, calibrated=False)
        sequences = even_sequences(ids, settings.calibration_sequences, settings.seq_len)
        calibrate_potentials(model, centroids, sequences.to(input_device(model)))
        row["scores"] = learned + _scores(model, centroids, validation, top_ks, calibrated=True)
        rows.append(row)
        if on_row is not None:
            on_row(row)
    return rows


def _device(device: str | Device) -> Device:
    if isinstance(device, Device):
        return device
    if device not in DEVICES:
        raise ConfigError(f"device {device!r} is unknown", expected="one of " + ", ".join(DEVICES))
    return DEVICES[device]


def train_with(
    device: Device,
    model: Any,
    ids: TokenStream,
    config: FocusConfig,
    settings: TrainConfig,
    on_step: Callable[[TrainStep], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[Centroids, TrainStep, float]:
    """Train centroids with one device; potentials are those learned along, not calibrated.

    Args:
        device: of `DEVICES`.
        model: the frozen model; ids: token stream of the texts.
        config, settings: of the training, before the device's changes.
        on_step: called after every step; should_stop: checked between steps.

    Returns:
        The centroids of the layers that were trained (layers that keep their own attention through a sliding window are
        not), the last step's report and its dead groups (mean over layers).
    """
    config = config.replace(sinkhorn_iterations=device.iterations or config.sinkhorn_iterations)
    rate = settings.learning_rate * device.rate
    settings = dataclasses.replace(settings, learning_rate=rate, hard=settings.hard or device.hard)
    centroids = random_centroids(model, config, seed=settings.seed, name=device.name)
    start = config.temperature * device.start_temperature
    dead = [0.0]

    def extra(focus: FocusModel) -> Tensor:
        shares = [balance_loss(a.probabilities.float()) for a in focus.assignments().values()]
        return device.balance * torch.stack(shares).mean()

    balancing = replace_assignment(centroids, _assign_training) if device.balanced else nullcontext()
    with training_focus(model, centroids) as focus, balancing:
        composed = focus.config

        def cool(step: int) -> None:
            temperature = temperature_at(step, settings.steps, start, config.temperature)
            focus.config = composed.replace(temperature=temperature)  # routers take it up with the next pass

        def finish(step: int) -> None:
            dead[0] = dead_groups(focus)
            cool(step + 1)

        cool(0)
        loop = centroid_loop(
            focus,
            centroids,
            ids,
            settings,
            phase=device.name,
            after_step=finish,
            extra_loss=extra if device.balance else None,
        )
        with checkpointing(model, settings.gradient_checkpointing):
            last = loop.run(on_step, should_stop)
        trained = {index: centroids.routers[index] for index in focus.focused_layers}
    assert last is not None
    config = centroids.config.replace(layers=tuple(trained))
    return dataclasses.replace(centroids, routers=trained, config=config), last, dead[0]


def _scores(
    model: Any, centroids: Centroids, validation: Tensor, top_ks: Sequence[int], *, calibrated: bool
) -> list[dict[str, Any]]:
    rows = []
    for top_k in top_ks:
        if top_k <= centroids.config.num_groups:
            focus = compose(model, centroids, top_k=top_k, assignment="causal")
            try:
                rows.append({"top_k": top_k, "calibrated": calibrated, **summary(score(focus, validation))})
            finally:
                focus.detach()
    return rows


def summary(scores: Scores) -> dict[str, Any]:
    """JSON-ready: perplexity, scored tokens, dominance and sparsity, with every sequence's loss in nats."""
    return {
        "perplexity": scores.perplexity,
        "scored": int(scores.scored.sum()),
        "dominance": float(scores.dominance.mean()),
        "dominance_max": float(scores.dominance.max()),
        "retained_pairs": float(scores.retained_pairs.mean()),
        "distant_kept": scores.mean_distant_kept,
        "nll": scores.nll.tolist(),
    }
