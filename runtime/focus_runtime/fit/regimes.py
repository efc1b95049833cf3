"""Two ways to train the weights with Focus, each with a full-attention twin on the same sequences in the same order.

"two_phase": routers first, then all weights with them. "from_scratch": weights and routers together, both from random
initialisation (paper, section 4). Evaluation is `RegimeResult.score`, always under the hard mask.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from torch import Tensor

from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError, ModelError
from focus_runtime.fit.calibrate import calibrate_potentials
from focus_runtime.fit.centroids import calibration_sequences, centroid_loop, train_centroids, training_focus
from focus_runtime.fit.inputs import ModelHashes, texts_sha256
from focus_runtime.fit.loop import Loop, checkpointing, gradients_of
from focus_runtime.fit.objective import language_loss
from focus_runtime.fit.settings import TrainConfig, TrainStep
from focus_runtime.measure.loss import check_positions
from focus_runtime.measure.perplexity import Scores, score
from focus_runtime.models.devices import input_device
from focus_runtime.routing.centroids import Centroids, random_centroids
from focus_runtime.text.sequences import TokenStream, encode_texts, recorded_special_tokens

PHASES = {"two_phase": ("centroids", "weights"), "from_scratch": ("weights",)}
ROUTER_RATE = 3e-4  # a tenth of the usual rate of routers alone, which is where the first phase's cosine ends


@dataclass(frozen=True, kw_only=True, slots=True)
class RegimePlan:
    """What is trained, for how long and how fast.

    Attributes:
        centroids: the phase of "two_phase" that trains only routers; its `seed` also initialises them.
        weights: the phase that trains all weights with the routers; `learning_rate` is the weights', `seed`
            initialises a model from scratch, and `hard` trains on the hard mask (straight-through) instead of the
            soft gate. Every phase counts its steps from 0, so equal seeds show both phases the same sequences.
    """

    regime: str  # "two_phase" or "from_scratch"
    centroids: TrainConfig | None = None
    weights: TrainConfig
    router_rate: float = ROUTER_RATE  # the routers' peak learning rate while weights train, on the same schedule

    def __post_init__(self) -> None:
        if self.regime not in PHASES:
            raise ConfigError(f"regime is {self.regime!r}", expected=" or ".join(PHASES))
        needed = "centroids" in PHASES[self.regime]
        if needed != (self.centroids is not None):
            raise ConfigError(
                f"regime {self.regime!r} {'needs' if needed else 'has no phase for'} 'centroids' settings",
                expected="settings for " + " and ".join(repr(name) for name in PHASES[self.regime]),
            )
        if not 0 < self.router_rate < 10:
            raise ConfigError(f"router_rate is {self.router_rate}", expected="between 0 and 10")
        if self.centroids is not None and self.centroids.special_tokens != self.weights.special_tokens:
            raise ConfigError("the phases differ in special_tokens", expected="the same in both")


@dataclass(eq=False)
class RegimeResult:
    """A trained model with its routers.

    Attributes:
        weights_before, weights_after: sha256 of the weights at the start of training and at its end.
        phase_seconds: how long each phase trained, pauses left out. None: an older version's checkpoint does not say.
    """

    plan: RegimePlan
    twin: bool  # True for full attention
    model: Any
    centroids: Centroids | None  # calibrated routers; None for a twin
    phases: dict[str, list[TrainStep]] = field(default_factory=dict)
    weights_before: str = ""
    weights_after: str = ""
    phase_seconds: dict[str, float | None] = field(default_factory=dict)

    @property
    def seconds(self) -> float | None:
        """Of all phases. None: that of one is not known."""
        known = [seconds for seconds in self.phase_seconds.values() if seconds is not None]
        return sum(known) if len(known) == len(self.phase_seconds) else None

    def score(self, sequences: Tensor, **settings: Any) -> Scores:
        """Losses on (N, T) token ids, under the hard mask unless it is a twin; `settings` as in `compose`."""
        if self.centroids is None:
            return score(self.model, sequences)
        with compose(self.model, self.centroids, **settings) as focus:
            return score(focus, sequences)


def run_regime(
    plan: RegimePlan,
    model: Any,
    tokenizer: Any,
    texts: list[str],
    config: FocusConfig,
    *,
    twin: bool = False,
    model_id: str = "",
    on_step: Callable[[TrainStep], None] | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> RegimeResult:
    """Train one regime, or its twin.

    Weights are trained in fp32 on a copy, with dropout off; the model given stays as it is. `mixed_precision` applies
    only to the passes.

    Args:
        model: causal language model; "from_scratch" takes only its configuration.
        config: K, d_g, window, sinks, gate, layers of the routers.
        twin: full attention instead: only the phase of the weights, with the same sequences, learning rate and, from
            scratch, initial weights.
        checkpoint: folder with one file per phase; a finished phase is not run again on resume.
        should_stop: called after every step; True raises TrainingStopped, with the last step in the phase's file.
    """
    if isinstance(model, FocusModel):
        raise ModelError("this is what compose() returned, not a model", fix="give the model, before compose()")
    if resume and checkpoint is None:
        raise ConfigError("resume without a checkpoint folder", fix="give the folder the training was started with")
    longest = max(plan.weights.seq_len, plan.centroids.seq_len if plan.centroids is not None else 0)
    check_positions(model, longest)
    ids = encode_texts(tokenizer, texts, longest + 1, plan.weights.special_tokens)
    scratch = plan.regime == "from_scratch"
    network = initialised(model, plan.weights.seed) if scratch else copy.deepcopy(model).float()
    hashes = ModelHashes.of(network)
    identity = {
        "regime": plan.regime + (" twin" if twin else ""),
        "config": "" if twin else config.to_json(),
        "model": hashes.fingerprint,
        "texts": texts_sha256(texts),
        "earlier": "" if twin or scratch else repr(plan.centroids),
    }
    files = {phase: None if checkpoint is None else checkpoint / f"{phase}.ckpt" for phase in PHASES[plan.regime]}
    if not resume and PartialState().is_main_process:
        for file in files.values():
            if file is not None:
                file.unlink(missing_ok=True)  # else a later resume would skip what it belongs to
    result = RegimeResult(plan, twin, network, None, weights_before=hashes.weights)
    if scratch and not twin:
        result.centroids = random_centroids(network, config, seed=plan.weights.seed, name="trained")
    elif plan.centroids is not None and not twin:
        result.centroids = train_centroids(
            network,
            tokenizer,
            texts,
            config,
            plan.centroids,
            model_id=model_id,
            on_step=on_step,
            checkpoint=files["centroids"],
            resume=resume,
            should_stop=should_stop,
            history=result.phases.setdefault("centroids", []),
            hashes=hashes,
        )
        result.phase_seconds["centroids"] = result.centroids.training.get("seconds")
    later = files["weights"]  # has no checkpoint to resume where the phase before it was not finished
    loop_of_weights = _weights_loop(result, ids, identity, later)
    with loop_of_weights as loop, checkpointing(network, plan.weights.gradient_checkpointing):
        if resume and (twin or scratch or (later is not None and later.exists())):
            loop.resume()
        loop.run(on_step, should_stop)
    result.phases["weights"], result.phase_seconds["weights"] = loop.history, loop.seconds
    after = ModelHashes.of(network)
    result.weights_after = after.weights
    if result.centroids is not None:
        result.centroids.base_model, result.centroids.base_fingerprint = model_id, after.fingerprint
        _finish(plan, result, result.centroids, ids)
    return result


def initialised(model: Any, seed: int) -> Any:
    """A model of the same configuration with fresh fp32 weights, the same for the same seed on every device."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = type(model)(copy.deepcopy(model.config))
    return fresh.float().to(input_device(model)).eval()


@contextmanager
def _weights_loop(
    result: RegimeResult, ids: TokenStream, identity: dict[str, Any], checkpoint: Path | None
) -> Iterator[Loop]:
    """The loop that trains all weights, with the routers or with full attention."""
    network, settings = result.model, result.plan.weights
    weights, rate = list(network.parameters()), result.plan.router_rate
    common: dict[str, Any] = {"identity": identity, "checkpoint": checkpoint, "phase": "weights"}
    if result.centroids is None:
        with gradients_of(network, True):
            yield Loop(ids, settings, weights, lambda batch: language_loss(network, batch), **common)
        return
    with training_focus(network, result.centroids, weights=True) as focus:
        yield centroid_loop(focus, result.centroids, ids, settings, weights=weights, router_rate=rate, **common)


def _finish(plan: RegimePlan, result: RegimeResult, centroids: Centroids, ids: TokenStream) -> None:
    """Estimate potentials for the trained weights, and record the training in the centroids."""
    settings = plan.weights
    calibrate_potentials(result.model, centroids, calibration_sequences(result.model, ids, settings))
    steps = result.phases["weights"]
    centroids.training = {
        "regime": plan.regime,
        "weights": asdict(settings),
        "router_rate": plan.router_rate,
        "centroids": None if plan.centroids is None else asdict(plan.centroids),
        "final_loss": steps[-1].loss,
        "final_dominance": steps[-1].dominance,
        "training_tokens": ids.numel(),
        **recorded_special_tokens(ids),
    }
