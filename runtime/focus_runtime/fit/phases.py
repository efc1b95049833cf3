"""The soft gate and, for the last steps or where factors of logits are learned, the settings of inference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from focus_runtime.composition.attach import FocusModel, SoftGate
from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError
from focus_runtime.fit.settings import TrainConfig, steepness_at


@dataclass(frozen=True, slots=True)
class Phases:
    """How a composed model attends in every step of a training; steps count from 0.

    Attributes:
        focus: the composed model.
        settings: of the training; `hard_steps` is the length of the last phase.
        inference: settings of later use, in force in the last phase.
    """

    focus: FocusModel
    settings: TrainConfig
    inference: FocusConfig

    def __post_init__(self) -> None:
        if self.settings.hard_steps and self.focus.config.gate != "log":
            raise ConfigError(
                f"hard_steps goes with the log gate, not with gate {self.focus.config.gate!r}",
                fix="choose the log gate, or no steps on the hard mask",
            )

    def is_hard(self, step: int) -> bool:
        """Whether a step belongs to the last phase."""
        return step >= self.settings.steps - self.settings.hard_steps

    def precedes_hard(self, step: int) -> bool:
        """Whether the last phase starts after this step."""
        return self.is_hard(step + 1) and not self.is_hard(step) and self.settings.hard_steps > 0

    @contextmanager
    def config(self, step: int) -> Iterator[None]:
        """The window, sinks, top-k and assignment of a step."""
        if not self.is_hard(step) and self.settings.learn != "factors":
            yield
            return
        with self.focus.with_config(self.inference):
            yield

    @contextmanager
    def attention(self, step: int) -> Iterator[None]:
        """Config and gate of a step's forward and backward passes."""
        settings = self.settings
        if settings.learn == "factors":
            with self.config(step):
                yield
            return
        gate = SoftGate(self.focus.config.gate, steepness_at(step, settings), settings.hard or self.is_hard(step))
        with self.config(step), self.focus.training_gate(gate):
            yield
