"""What every baseline looks like to its user: settings with `attach`, and a handle that takes it off again."""

from __future__ import annotations

from types import TracebackType
from typing import Any, ClassVar, Protocol

from torch import Tensor, nn


class Handle:
    """A model with a baseline on it; `detach()` gives the original back, bit for bit. Leaving a `with` detaches too.

    Attributes:
        model: the Hugging Face model, to be scored, trained or run like any other.
    """

    model: Any

    def parameters(self) -> list[nn.Parameter]:
        """What an optimiser may change; nothing for a method that is not trained."""
        return []

    def retained_pairs(self) -> float:
        """Share of the causal query-key pairs that attention reads exactly; 1 for full attention.

        Where it depends on the data it is that of the last forward pass, mean over the layers the method runs in.

        Raises:
            InputError: it depends on the data and no forward pass has run.
        """
        return 1.0

    def train(self, mode: bool = True) -> None:
        """Whether forward passes update what the method learns without gradients; `model.training` stays as it is."""

    def after_step(self) -> None:
        """Apply the updates observed in forward passes since the last call; call it after every optimiser step."""

    def detach(self) -> Any:
        """Take the baseline off and return the model. Calling it twice is fine."""
        raise NotImplementedError

    def __enter__(self) -> Handle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()


class Baseline(Protocol):
    """Settings of one method: a frozen dataclass, checked when it is made."""

    name: ClassVar[str]

    def attach(self, model: Any, *, text: Tensor | None = None) -> Handle:
        """Put the method onto a model.

        Args:
            model: a Hugging Face causal language model.
            text: (N, T) token ids for what a method estimates without gradients; methods without such a part ignore it.

        Raises:
            ModelError: the model cannot take the method. InputError: a text is needed and missing, or is no text.
        """
        ...
