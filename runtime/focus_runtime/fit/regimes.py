"""Three ways to train with Focus, each with a full-attention twin that sees the same sequences in the same order.

"centroid_only": routers of a frozen model. "two_phase": routers first, then all weights with them. "from_scratch":
weights and routers together, both from random initialisation (paper, section 4). Evaluation is `RegimeResult.score`,
always under the hard mask.
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
from torch import Tensor, nn

from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError, ModelError
from focus_runtime.fit.calibrate import calibrate_potentials
from focus_runtime.fit.centroids import centroid_loop, train_centroids, training_focus
from focus_runtime.fit.contexts import checkpointing
from focus_runtime.fit.domains import texts_sha256
from focus_runtime.fit.hashes import ModelHashes
from focus_runtime.fit.loop import Loop
from focus_runtime.fit.settings import TrainConfig, TrainStep
from focus_runtime.measure.loss import check_positions, final_hidden, token_nll
from focus_runtime.measure.perplexity import Scores, score
from focus_runtime.models.devices import input_device
from focus_runtime.routing.centroids import Centroids, random_centroids
from focus_runtime.text.sequences import TokenStream, encode_texts, even_sequences, recorded_special_tokens

PHASES = {"centroid_only": ("centroids",), "two_phase": ("centroids", "weights"), "from_scratch": ("weights",)}
ROUTER_RATE = 3e-4


@dataclass(frozen=True, kw_only=True, slots=True)
class RegimePlan:
    """What is trained, for how long and how fast.

    Attributes:
        regime: "centroid_only", "two_phase" or "from_scratch".
        centroids: the phase that trains routers alone; its `seed` also initialises the routers.
        weights: the phase that trains all weights with the routers; `learning_rate` is the weights', `seed`
            initialises a model from scratch, and `hard` trains on the hard mask (straight-through) instead of the
            soft gate. Every phase counts its steps from 0, so equal seeds show both phases the same sequences.
        router_rate: the routers' peak learning rate while weights train, on the same schedule. The default is a tenth
            of the usual rate of routers alone, which is where the first phase's cosine ends.
    """

    regime: str
    centroids: TrainConfig | None = None
    weights: TrainConfig | None = None
    router_rate: float = ROUTER_RATE

    def __post_init__(self) -> None:
        if self.regime not in PHASES:
            raise ConfigError(f"regime is {self.regime!r}", expected=" or ".join(PHASES))
        for phase in ("centroids", "weights"):
            needed, present = phase in PHASES[self.regime], getattr(self, phase) is not None
            if needed != present:
                raise ConfigError(
                    f"regime {self.regime!r} {'needs' if needed else 'has no phase for'} {phase!r} settings",
                    expected="settings for " + " and ".join(repr(name) for name in PHASES[self.regime]),
                )
        if not 0 < self.router_rate < 10:
            raise ConfigError(f"router_rate is {self.router_rate}", expected="between 0 and 10")
        if len({phase.special_tokens for phase in self.phases}) > 1:
            raise ConfigError("the phases differ in special_tokens", expected="the same in both")

    @property
    def phases(self) -> list[TrainConfig]:
        """Settings of the phases, in order."""
        return [phase for phase in (self.centroids, self.weights) if phase is not None]


@dataclass(eq=False)
class RegimeResult:
    """A trained model with its routers.

    Attributes:
        plan: what it was trained by.
        twin: True for full attention.
        model: the trained network; the caller's own object where no weight was trained, or with `in_place`.
        centroids: calibrated routers; None for a twin.
        phases: every step's report by phase, "centroids" and "weights".
        weights_before, weights_after: sha256 of the weights at the start of training and at its end.
        phase_seconds: how long each phase trained, its parts before a resume included and pauses left out; None where
            a checkpoint of an older version does not say.
    """

    plan: RegimePlan
    twin: bool
    model: Any
    centroids: Centroids | None
    phases: dict[str, list[TrainStep]] = field(default_factory=dict)
    weights_before: str = ""
    weights_after: str = ""
    phase_seconds: dict[str, float | None] = field(default_factory=dict)

    @property
    def seconds(self) -> float | None:
        """How long all phases trained together; None where that of one is not known."""
        known = [seconds for seconds in self.phase_seconds.values() if seconds is not None]
        return sum(known) if len(known) == len(self.phase_seconds) else None

    @contextmanager
    def attending(self, **settings: Any) -> Iterator[Any]:
        """The model as it is evaluated: under the hard mask, `settings` as in `compose`; a twin with full attention."""
        if self.centroids is None:
            yield self.model
            return
        focus = compose(self.model, self.centroids, **settings)
        try:
            yield focus
        finally:
            focus.detach()

    def score(self, sequences: Tensor, **settings: Any) -> Scores:
        """Losses on (N, T) token ids, under the hard mask unless it is a twin; `settings` as in `compose`."""
        with self.attending(**settings) as model:
            return score(model, sequences)


@dataclass(frozen=True, slots=True)
class _Session:
    """What all phases of one training share."""

    tokenizer: Any
    texts: list[str]
    config: FocusConfig
    plan: RegimePlan
    twin: bool
    identity: dict[str, Any]
    folder: Path | None
    resume: bool
    on_step: Callable[[TrainStep], None] | None
    should_stop: Callable[[], bool]

    def file(self, phase: str) -> Path | None:
        """Checkpoint of a phase."""
        return None if self.folder is None else self.folder / f"{phase}.ckpt"

    def resumes(self, phase: str) -> bool:
        """The first phase must have a checkpoint to resume; a later one starts when it has none."""
        file = self.file(phase)
        first = self.twin or phase == PHASES[self.plan.regime][0]
        return self.resume and (first or (file is not None and file.exists()))


def run_regime(
    plan: RegimePlan,
    model: Any,
    tokenizer: Any,
    texts: list[str],
    config: FocusConfig,
    *,
    twin: bool = False,
    in_place: bool = False,
    model_id: str = "",
    on_step: Callable[[TrainStep], None] | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> RegimeResult:
    """Train one regime, or its twin.

    Weights are trained in fp32 on a copy, with dropout off; the model given stays as it is. `mixed_precision` applies
    to the passes alone.

    Args:
        plan: regime and settings of its phases.
        model: causal language model; "from_scratch" takes its configuration alone.
        tokenizer: the model's.
        texts: training texts.
        config: K, d_g, window, sinks, gate, layers of the routers.
        twin: full attention instead: the untouched model for "centroid_only", else the phase of the weights alone,
            with the same sequences, learning rate and, from scratch, initial weights.
        in_place: train the model given rather than a copy, where memory holds only one (fp32 weights needed).
        model_id: recorded in the centroids.
        on_step: called after every step; `TrainStep.phase` says of which phase.
        checkpoint: folder with one file per phase; a finished phase is not run again on resume.
        resume: continue from that folder; the losses are those of a training that was never interrupted.
        should_stop: called after every step; True stops the training.

    Raises:
        ConfigError: the plan or a setting is wrong. ModelError: the model cannot be trained so. TextError: too little
        text. TrainingError: a checkpoint does not fit, cannot be written, or the loss is no number. TrainingStopped:
        stopped by the user; the phase's last step is in its file.
    """
    if isinstance(model, FocusModel):
        raise ModelError("this is what compose() returned, not a model", fix="give the model, before compose()")
    if resume and checkpoint is None:
        raise ConfigError("resume without a checkpoint folder", fix="give the folder the training was started with")
    longest = max(phase.seq_len for phase in plan.phases)
    check_positions(model, longest)
    ids = encode_texts(tokenizer, texts, longest + 1, plan.phases[-1].special_tokens)
    network = _network(plan, model, in_place)
    hashes = ModelHashes.of(network)
    identity = {
        "regime": plan.regime + (" twin" if twin else ""),
        "config": "" if twin else config.to_json(),
        "model": hashes.fingerprint,
        "texts": texts_sha256(texts),
        "earlier": "" if twin or plan.regime != "two_phase" else repr(plan.centroids),
    }
    session = _Session(tokenizer, texts, config, plan, twin, identity, checkpoint, resume, on_step, should_stop)
    if checkpoint is not None and not resume and PartialState().is_main_process:
        for phase in PHASES[plan.regime]:
            (checkpoint / f"{phase}.ckpt").unlink(missing_ok=True)  # else a later resume would skip what it belongs to
    result = RegimeResult(plan, twin, network, None, weights_before=hashes.weights, weights_after=hashes.weights)
    if not twin:
        result.centroids = _first_phase(session, result, model_id, hashes)
    if plan.weights is not None:
        _train_weights(session, result, ids)
        after = ModelHashes.of(network)
        result.weights_after = after.weights
        if result.centroids is not None:
            result.centroids.base_model, result.centroids.base_fingerprint = model_id, after.fingerprint
            _finish(session, result, ids)
    return result


def _network(plan: RegimePlan, model: Any, in_place: bool) -> Any:
    """The model whose weights are trained."""
    if plan.weights is None:
        return model
    if plan.regime == "from_scratch":
        fresh = initialised(model, plan.weights.seed)
        if not in_place:
            return fresh
        model.load_state_dict(fresh.state_dict())
    network = model if in_place else copy.deepcopy(model).float()
    if next(network.parameters()).dtype != torch.float32:
        raise ModelError(
            f"the weights are {next(network.parameters()).dtype}",
            expected="float32 to train them in place",
            fix='load the model with dtype="float32" and ask for mixed_precision="bf16", or train a copy',
        )
    return network


def initialised(model: Any, seed: int) -> Any:
    """A model of the same configuration with fresh fp32 weights, the same for the same seed on every device."""
    configuration = copy.deepcopy(model.config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = type(model)(configuration)
    return fresh.float().to(input_device(model)).eval()


def _first_phase(session: _Session, result: RegimeResult, model_id: str, hashes: ModelHashes) -> Centroids:
    """The routers with which the phase of the weights starts: trained alone, or random."""
    plan = session.plan
    if plan.centroids is None:
        assert plan.weights is not None
        return random_centroids(result.model, session.config, seed=plan.weights.seed, name="trained")
    centroids = train_centroids(
        result.model,
        session.tokenizer,
        session.texts,
        session.config,
        plan.centroids,
        model_id=model_id,
        on_step=session.on_step,
        checkpoint=session.file("centroids"),
        resume=session.resumes("centroids"),
        should_stop=session.should_stop,
        history=result.phases.setdefault("centroids", []),
        hashes=hashes,
    )
    result.phase_seconds["centroids"] = centroids.training.get("seconds")
    return centroids


def _train_weights(session: _Session, result: RegimeResult, ids: TokenStream) -> None:
    """All weights, with the routers or with full attention."""
    settings, network = session.plan.weights, result.model
    assert settings is not None

    def run(loop: Loop) -> None:
        if session.resumes("weights"):
            loop.resume()
        with checkpointing(network, settings.gradient_checkpointing):
            loop.run(session.on_step, session.should_stop)
        result.phases["weights"], result.phase_seconds["weights"] = loop.history, loop.seconds

    common: dict[str, Any] = {"identity": session.identity, "checkpoint": session.file("weights"), "phase": "weights"}
    if result.centroids is not None:
        with training_focus(network, result.centroids, weights=True) as focus:
            weights = list(network.parameters())
            run(
                centroid_loop(
                    focus,
                    result.centroids,
                    ids,
                    settings,
                    weights=weights,
                    router_rate=session.plan.router_rate,
                    **common,
                )
            )
        return
    with _all_trained(network) as weights:
        run(
            Loop(
                ids,
                settings,
                weights,
                lambda batch: token_nll(network, final_hidden(network, batch), batch).mean(),
                **common,
            )
        )


@contextmanager
def _all_trained(network: Any) -> Iterator[list[nn.Parameter]]:
    weights = list(network.parameters())
    before = [p.requires_grad for p in weights]
    network.requires_grad_(True)
    try:
        yield weights
    finally:
        for parameter, required in zip(weights, before, strict=True):
            parameter.requires_grad_(required)
            parameter.grad = None


def _finish(session: _Session, result: RegimeResult, ids: TokenStream) -> None:
    """Estimate potentials for the trained weights, and record the training in the centroids."""
    settings, centroids, network = session.plan.weights, result.centroids, result.model
    assert settings is not None
    assert centroids is not None
    sequences = even_sequences(ids, settings.calibration_sequences, settings.seq_len)
    calibrate_potentials(network, centroids, sequences.to(input_device(network)))
    steps = result.phases["weights"]
    centroids.training = {
        "regime": session.plan.regime,
        "weights": asdict(settings),
        "router_rate": session.plan.router_rate,
        "centroids": None if session.plan.centroids is None else asdict(session.plan.centroids),
        "final_loss": steps[-1].loss,
        "final_dominance": steps[-1].dominance,
        "training_tokens": ids.numel(),
        **recorded_special_tokens(ids),
    }
