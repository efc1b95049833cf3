"""The training loop every training shares: data order, schedule, accumulation, precision, checkpoint and resume.

The caller gives the parameters and the loss. With several processes (started by `accelerate launch`) each takes its
share of a step's sequences and gradients are averaged, so the loss curve is that of one process with a larger batch.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, astuple, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from torch import Tensor, nn

from focus_runtime.errors import ConfigError, InputError, MemoryShortError, TrainingError, TrainingStopped
from focus_runtime.files import replacing
from focus_runtime.fit.objective import StepLoss
from focus_runtime.fit.settings import TrainConfig, TrainStep
from focus_runtime.fit.validation import Validation, average
from focus_runtime.measure.memory import failures_named, longest_that_fits, tokens
from focus_runtime.text.sequences import Mixture, TokenStream, step_sequences

FORMAT = "focus-training-1"
SHORTEST = 16  # tokens of a sequence, as TrainConfig has it
LATER_SETTINGS = ("loss", "distil_weight", "hard_steps", "steepness_start", "special_tokens")  # older checkpoints: none
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}

Shares = tuple[float, float, float]  # dominance (mean, largest) and retained pairs
NO_GROUPS: Shares = (math.nan, math.nan, math.nan)


@dataclass(eq=False)
class Loop:
    """One training.

    Attributes:
        after_step: called after each optimiser step; returns dominance (mean, largest) and retained pairs.
        state: further tensors a checkpoint must hold, written back in place on resume.
        around_step: step counted from 0 -> context in which its forward and backward passes run.
        rates: peak learning rate of every parameter, where they differ. None: the configuration's.
        history: every finished step's report, those before a resume included.
    """

    ids: TokenStream | Mixture
    config: TrainConfig
    parameters: Sequence[nn.Parameter]
    loss: Callable[[Tensor], StepLoss]  # (B, T) token ids -> what is minimised; runs under autocast
    after_step: Callable[[int], Shares] = lambda step: NO_GROUPS
    state: dict[str, Tensor] = field(default_factory=dict)
    identity: dict[str, Any] = field(default_factory=dict)  # what a checkpoint must have been made for
    checkpoint: Path | None = None
    around_step: Callable[[int], AbstractContextManager[Any]] = nullcontext
    phase: str = ""
    rates: Sequence[float] | None = None
    history: list[TrainStep] = field(default_factory=list)
    validation: Validation | None = None

    def __post_init__(self) -> None:
        self.processes = PartialState()
        self.device = self.parameters[0].device
        self.optimiser = torch.optim.AdamW(
            self._groups(), lr=self.config.learning_rate, weight_decay=self.config.weight_decay
        )
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.config.mixed_precision == "fp16")
        self.done = 0
        self._started = time.perf_counter()
        self._earlier_seconds: float | None = 0.0
        lasting = asdict(self.config)
        del lasting["checkpoint_every"]  # how often a resumed training saves may change
        for option in fields(self.config):
            if option.name in LATER_SETTINGS and lasting[option.name] == option.default:
                del lasting[option.name]
        self.identity = {
            **self.identity,
            **({} if self.rates is None else {"rates": sorted(set(self.rates))}),
            "settings": lasting,
            "phase": self.phase,
            "processes": self.processes.num_processes,
            "tokens": self.ids.numel(),
        }
        if self.ids.special_tokens is not None:  # else the tokenizer adds none, and older checkpoints do not say
            self.identity["special_tokens"] = self.ids.special_tokens
        if self.validation is not None:
            self.identity["validation"] = self.validation.plan.identity

    @property
    def values(self) -> list[Tensor]:
        """Everything the training changes."""
        return [*self.parameters, *self.state.values()]

    @property
    def seconds(self) -> float | None:
        """How long the training took so far, pauses left out. None: it resumed an older version's checkpoint."""
        if self._earlier_seconds is None:
            return None
        return self._earlier_seconds + time.perf_counter() - self._started

    def _groups(self) -> list[dict[str, Any]]:
        """AdamW's parameter groups: one for each learning rate, as a factor of the configuration's."""
        rates = self.rates if self.rates is not None else [self.config.learning_rate] * len(self.parameters)
        groups: dict[float, list[nn.Parameter]] = {}
        for parameter, rate in zip(self.parameters, rates, strict=True):
            groups.setdefault(rate / self.config.learning_rate, []).append(parameter)
        return [{"params": members, "factor": factor} for factor, members in groups.items()]

    def resume(self) -> None:
        """Take up the checkpoint."""
        assert self.checkpoint is not None
        self.done, content = load_state(self.checkpoint, self.identity)
        with torch.no_grad():
            for parameter, value in zip(self.parameters, content["parameters"], strict=True):
                parameter.copy_(value)
            for name, target in self.state.items():
                target.copy_(content["state"][name])
        self.optimiser.load_state_dict(content["optimiser"])
        self.scaler.load_state_dict(content["scaler"])
        self._earlier_seconds = content.get("seconds")
        self.history[:] = [TrainStep(*row) for row in content.get("history", [])]
        if self.validation is not None:
            self.validation.load(content["validation"], self.values)

    def save(self) -> None:
        """Write the checkpoint; only the first process does."""
        if self.checkpoint is None or not self.processes.is_main_process:
            return
        content = {
            "parameters": [p.detach().cpu() for p in self.parameters],
            "state": {name: value.detach().cpu() for name, value in self.state.items()},
            "optimiser": self.optimiser.state_dict(),
            "scaler": self.scaler.state_dict(),
            "history": [astuple(step) for step in self.history],
            "seconds": self.seconds,
            "validation": None if self.validation is None else self.validation.state(),
        }
        save_state(self.checkpoint, self.identity, self.done, content)

    def run(
        self,
        on_step: Callable[[TrainStep], None] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        until: int | None = None,
    ) -> None:
        """Run the steps that are left, up to `until` in all.

        A stop by `should_stop` or Ctrl-C raises TrainingStopped, with the last finished step in the checkpoint.
        """
        last = min(self.config.steps, self.config.steps if until is None else until)
        with failures_named(self._shortage):
            try:
                self._evaluate()  # the one that a stop came before
                while self.done < last and not self.ended_early:
                    self._step(self.done)
                    if self.done % self.config.checkpoint_every == 0 or self.done == self.config.steps:
                        self.save()
                    if on_step is not None:
                        on_step(self.history[-1])
                    self._evaluate()
                    if self.done < last and not self.ended_early and self._agreed(should_stop()):
                        raise KeyboardInterrupt
            except KeyboardInterrupt:
                self.save()
                raise TrainingStopped(self.done, self.checkpoint) from None

    def _shortage(self) -> InputError:
        """The error for a step that did not fit, with what would fit in its place."""
        config = self.config
        moments = 0 if self.optimiser.state else sum(2 * p.numel() * p.element_size() for p in self.parameters)

        def read(count: int) -> None:
            length = min(count, config.seq_len)
            stream = self.ids.streams[0] if isinstance(self.ids, Mixture) else self.ids
            rows = stream.cut([0], length).expand(-(-count // length), -1)
            with self.around_step(self.done), self._autocast():
                objective = self.loss(rows.to(self.device)).objective
            self.scaler.scale(objective).backward()

        room = longest_that_fits(read, config.batch * config.seq_len, self.device, reserve=moments)
        return training_shortage(config, str(self.device), room, self.checkpoint)

    def _autocast(self) -> AbstractContextManager[Any]:
        precision = AUTOCAST.get(self.config.mixed_precision)
        return torch.autocast(self.device.type, dtype=precision) if precision else nullcontext()

    @property
    def ended_early(self) -> bool:
        """Whether held-out text says that more steps do not help."""
        return self.validation is not None and self.validation.has_ended

    @property
    def stop_reason(self) -> str:
        """Why no step follows the last one."""
        if self.validation is None or not self.validation.has_ended:
            return f"all {self.done} steps are done"
        count = self.validation.plan.patience
        return f"no lower held-out loss in {count} {'evaluation' if count == 1 else 'evaluations'}, at step {self.done}"

    def _evaluate(self) -> None:
        if self.validation is None or not self.validation.is_due(self.done, self.config.steps):
            return
        evaluation = self.validation.run(self.done, self.values)
        self.save()
        self.validation.report(evaluation)

    def _agreed(self, stop: bool) -> bool:
        """Whether a stop was requested in any process; all then stop after the same step."""
        if self.processes.num_processes == 1:
            return stop
        return bool(average(torch.tensor(float(stop), device=self.device)).item() > 0)

    def _step(self, step: int) -> None:
        clock = time.perf_counter()
        config, world = self.config, self.processes.num_processes
        rate = config.rate_at(step)
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group.get("factor", 1.0)  # older checkpoints hold none
        count = config.batch * config.accumulation * world
        rows = step_sequences(self.ids, step, count, config.seq_len, config.seed)
        local_rows = rows[self.processes.process_index :: world].to(self.device)
        self.optimiser.zero_grad(set_to_none=True)
        total = np.zeros(4)
        for part in local_rows.split(config.batch):
            with self.around_step(step):
                with self._autocast():
                    loss = self.loss(part)
                total += np.array(loss.values()) / config.accumulation
                if not math.isfinite(total[0]):
                    break
                self.scaler.scale(loss.objective / config.accumulation).backward()
        means = average(torch.tensor(total, dtype=torch.float64, device=self.device)).tolist()
        objective, nll, divergence, layer_error = means
        self._check(objective, step)
        with signals_deferred():
            self._apply(step)
            shares = self.after_step(step)
            self.done = step + 1
            speed = rows.numel() / (time.perf_counter() - clock)
            parts = (self.phase, divergence, layer_error)
            self.history.append(TrainStep(self.done, nll, *shares, rate, speed, *parts))

    def _check(self, value: float, step: int, quantity: str = "the loss") -> None:
        """Refuse a value that is not finite before it reaches the weights."""
        if math.isfinite(value):
            return
        kept = "nothing was kept"
        if self.checkpoint is not None and self.checkpoint.exists():
            kept = f"the last good checkpoint is still in {self.checkpoint}"
        raise TrainingError(
            f"{quantity} became {value} at step {step + 1}; {kept}",
            expected="finite numbers",
            fix=f"start again with a learning rate below {self.config.learning_rate:g}, a longer warm-up, or without "
            "fp16",
        )

    def _apply(self, step: int) -> None:
        grads = [p.grad for p in self.parameters if p.grad is not None]
        if self.processes.num_processes > 1:
            flat = average(torch.cat([g.flatten() for g in grads]))
            for grad, mean in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
                grad.copy_(mean.view_as(grad))
        self.scaler.unscale_(self.optimiser)
        for group in self.optimiser.param_groups:  # apart, so that routers do not shorten the weights' steps
            norm = nn.utils.clip_grad_norm_(group["params"], self.config.clip)
            if not self.scaler.is_enabled():  # the scaler leaves such a step out by itself
                self._check(float(norm), step, "the gradient's norm")
        self.scaler.step(self.optimiser)
        self.scaler.update()


@contextmanager
def gradients_of(model: Any, enabled: bool) -> Iterator[None]:
    """Whether a model's own weights get gradients while the block runs."""
    before = {p: p.requires_grad for p in model.parameters()}
    model.requires_grad_(enabled)
    try:
        yield
    finally:
        for parameter, required in before.items():
            parameter.requires_grad_(required)
            if enabled:
                parameter.grad = None  # as large as the model, and unused


@contextmanager
def checkpointing(model: Any, enabled: bool) -> Iterator[None]:
    """Gradient checkpointing while the block runs, without switching dropout on."""
    if not enabled:
        yield
        return
    if not getattr(model, "supports_gradient_checkpointing", False):
        raise ConfigError(f"{type(model).__name__} does not support gradient checkpointing", fix="leave it off")
    keep = {"use_reentrant": False}
    if hasattr(model, "activation_checkpointing_enable"):  # its name in newer transformers
        model.activation_checkpointing_enable(activation_checkpointing_kwargs=keep)
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=keep)
    layers = [m for m in model.modules() if getattr(m, "gradient_checkpointing", False)]
    before = [layer.training for layer in layers]
    for layer in layers:
        layer.training = True  # of the layer alone: its children, dropout among them, stay as they are
    try:
        yield
    finally:
        for layer, training in zip(layers, before, strict=True):
            layer.training = training
        getattr(model, "activation_checkpointing_disable", model.gradient_checkpointing_disable)()


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Delay SIGINT and SIGTERM until the block ends, so that no half-finished update is kept."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[tuple[int, Any]] = []
    before = {
        one: signal.signal(one, lambda number, frame: received.append((number, frame)))
        for one in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    for number, frame in received:
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)
        elif handler is not signal.SIG_IGN:
            raise KeyboardInterrupt


def save_state(path: Path, identity: Mapping[str, Any], step: int, content: Mapping[str, Any]) -> None:
    """Replace a checkpoint; if that fails (TrainingError), the old one stays as it was."""

    def explain(target: Path, error: Exception) -> TrainingError:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        return TrainingError(
            f"the checkpoint {target} cannot be written after step {step}: {reason}",
            fix="free some space; an older checkpoint is still there, continue with --resume"
            if target.exists()
            else "free some space or choose another folder, and start again; no checkpoint was written yet",
        )

    try:
        with replacing(path, explain=explain, mode=0o600, sync=True) as part, part.open("wb") as stream:
            torch.save({"format": FORMAT, "identity": dict(identity), "step": step, "content": dict(content)}, stream)
    except RuntimeError as error:  # how torch reports a full disk
        raise explain(path, error) from error


def load_state(path: Path, identity: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Steps finished and content of a checkpoint of this very training, else a TrainingError with the difference."""
    if not path.exists():
        raise TrainingError(f"there is no checkpoint {path}", fix="start without --resume, or give the same --out")
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises its own and pickle's types for damaged or unsafe files
        raise TrainingError(
            f"the checkpoint {path} is damaged or no training checkpoint", fix="start again without --resume"
        ) from error
    if not isinstance(saved, dict) or saved.get("format") != FORMAT:
        raise TrainingError(f"{path} is no training checkpoint", fix="start again without --resume")
    before = saved["identity"]
    for name in {**before, **identity}:
        if before.get(name) != identity.get(name):
            was, now = (_short(one.get(name)) for one in (before, identity))
            raise TrainingError(
                f"the checkpoint {path} is of another training: {name} was {was}, now it is {now}",
                expected="the same model, texts and settings",
                fix="give the settings it was started with, or start again without --resume",
            )
    return saved["step"], saved["content"]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def training_shortage(config: TrainConfig, device: str, room: int | None, checkpoint: Path | None) -> MemoryShortError:
    """The error for a pass that did not fit, with settings that would: `room` is the tokens of one, if known."""
    problem = f"a training pass over {tokens(config.batch, config.seq_len)} needs more memory than there is on {device}"
    more = "" if config.gradient_checkpointing else ", or add --gradient-checkpointing"
    if checkpoint is not None and checkpoint.exists():
        more += f"; {checkpoint} keeps the training as it was, for --resume with the same settings"
    if room is None or room < SHORTEST:
        fix = "set fewer tokens per sequence (--seq-len), fewer sequences per pass (--batch)"
        return MemoryShortError(problem, fix=fix + more)
    if room < config.seq_len:
        alone = ", --batch 1" if config.batch > 1 else ""
        fix = f"set the tokens per sequence to {room} (--seq-len {room}{alone})"
    else:
        batch = min(config.batch - 1, room // config.seq_len)
        passes = -(-config.batch * config.accumulation // batch)
        fix = f"set the sequences per pass to {batch} (--batch {batch}; --accumulate {passes} keeps the step's size)"
    return MemoryShortError(problem, expected=f"about {room:,} tokens or fewer at a time", fix=fix + more)
