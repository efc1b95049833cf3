"""An attention call, and the state of composed modules and of the composition they belong to (`FocusModel`, attach.py).

Shape suffixes: B batch, H query heads (Hq), T tokens (Tq queries, Tk keys), D head size.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from focus_runtime.attention.clock import PassClock
from focus_runtime.attention.reference import Scoring
from focus_runtime.budget import HeadCounts
from focus_runtime.composition.cache import GroupHistory
from focus_runtime.composition.documents import Documents
from focus_runtime.composition.heads import Part, Plan, counts_of
from focus_runtime.config import FocusConfig
from focus_runtime.routing.router import Assignment, CentroidRouter

STATE = "_focus_layer"  # attribute of an attention module that holds its FocusLayer


@dataclass(slots=True)
class Call:
    """One attention call: the tensors, cropped to the tokens that exist, and how scores are formed."""

    query: Tensor  # (B, Hq, Tq, D)
    key: Tensor  # and value, (B, Hkv, Tk, D)
    value: Tensor
    padding: Tensor | None  # (B, Tk) bool, True for real tokens, or None when all are
    total: int  # tokens of the whole text so far; more than Tk where a sliding cache dropped some
    scoring: Scoring
    dropout: float
    sinks: Tensor | None = None  # (Hq,) learned sinks, one more logit for every query of a head

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.query, self.key, self.value

    @property
    def counts(self) -> HeadCounts:
        return counts_of(self.query, self.key)

    def part(self, part: Part) -> Call:
        """The same call for some of its heads."""
        sinks = None if self.sinks is None else self.sinks[part.query]
        query, key, value = self.query[:, part.query], self.key[:, part.key], self.value[:, part.key]
        return replace(self, query=query, key=key, value=value, sinks=sinks)


Attend = Callable[[nn.Module, "FocusLayer", Call], Tensor]  # gives (B, Q, H, D)


class Mode:
    """What a pass does besides executing the settings in force; modes.py has one class for each.

    Only while a composition has none may decode steps and texts take the short ways of decode.py and gpu.py.
    """

    full: ClassVar[bool] = False  # layers run their own attention, timed, and no groups are decided
    checks: ClassVar[bool] = False  # the pass is that of check.py
    continues: ClassVar[bool] = True  # from a key-value cache
    documents: ClassVar[bool] = False  # packed documents may be read

    def edited(self, layer: FocusLayer, assignment: Assignment) -> Assignment:
        """The groups of the new tokens of a layer, changed."""
        return assignment

    def attend(self, attend: Attend, module: nn.Module, layer: FocusLayer, call: Call) -> Tensor:
        """What a layer returns, (B, Q, H, D), where `attend` is without this mode; queries are without factors."""
        return attend(module, layer, call)


class PerThread(threading.local):
    """State that each thread has of its own; a copied or pickled model starts without it."""

    def __reduce__(self) -> tuple[type[PerThread], tuple[()]]:
        return type(self), ()


class FoundSinks(PerThread):
    """Text sinks of this thread's latest pass, (B, T) bool, found up to a layer and in it; see groups.py.

    A layer reads what the one before it has just written, also where layers are computed again for their gradients.
    """

    def __init__(self) -> None:
        self.by_layer: dict[int, Tensor] = {}

    def before(self, layer: int, shape: torch.Size, device: torch.device) -> Tensor | None:
        """(B, T) bool, found in the layers before one; None where none of them has looked."""
        known = self.by_layer.get(layer - 1)  # nearly always there, and six times as fast as to look for the latest
        if known is None:
            known = next((self.by_layer[index] for index in range(layer - 2, -1, -1) if index in self.by_layer), None)
        return None if known is None or known.shape != shape else known.to(device)

    def note(self, layer: int, found: Tensor | None) -> None:
        """Keep what a layer has found; what an earlier pass found there goes where it did not look."""
        if found is not None:
            self.by_layer[layer] = found
        else:
            self.by_layer.pop(layer, None)


@dataclass(eq=False)
class Composition:
    """State that all layers of one composition share."""

    model: nn.Module  # the frozen Hugging Face model
    config: FocusConfig  # current settings
    backend: str
    seconds: PassClock = field(default_factory=PassClock)  # since `reset_seconds()`; before it, a GPU is not timed
    paused: bool = False  # while the model runs its own implementation
    modes: tuple[Mode, ...] = ()
    found_sinks: FoundSinks = field(default_factory=FoundSinks)
    _id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def writer(self) -> Hashable:
        """Identifies who assigned a cache's groups: a cache filled by one writer cannot be continued by another."""
        return self._id, self.config.top_k, self.config.budget, self.config.text_sinks


@dataclass(slots=True)
class Pass:
    """State of one layer during a forward pass of one thread; between passes, of the latest one."""

    assignment: Assignment | None = None
    hidden: Tensor | None = None  # (1, 1, E) input of a decode step's token whose groups the attention call decides
    cached: Any = None  # the cache layer of a running pass
    history: GroupHistory | None = None  # the groups stored with its keys
    before: int = 0  # tokens that the cache held before the pass
    called: bool = False  # whether the running pass has reached the attention interface
    documents: Documents | None = None  # None where every row is one text
    backend: str = ""  # of the latest Focus call, as counts
    counts: HeadCounts | None = None

    def release(self) -> None:
        """Keep nothing of the cache: it alone has the groups."""
        self.cached, self.history, self.hidden, self.before = None, None, None, 0


class Passes(PerThread):
    """One `Pass` for each thread. torch.compile loses attributes that are set on a `threading.local` itself."""

    def __init__(self) -> None:
        self.own = Pass()


@dataclass(slots=True)
class FocusLayer:
    """State of one composed attention module."""

    index: int
    router: CentroidRouter | None  # None where the layer keeps its own attention
    owner: Composition
    sliding: int | None = None  # the layer's own window in tokens. None: a global layer.
    cache_layer: int = 0  # the layer whose keys and values it reads: its own, but where layers share them
    passes: Passes = field(default_factory=Passes)
    _plan: Plan | None = None

    @property
    def current_pass(self) -> Pass:
        """State of this thread's forward pass."""
        return self.passes.own

    @property
    def focused(self) -> bool:
        """Whether the layer runs Focus in this pass."""
        return self.router is not None and not any(mode.full for mode in self.owner.modes)

    def plan(self, call: Call) -> Plan:
        """What the layer's heads execute under the current settings, kept from one call to the next."""
        plan, counts, device = self._plan, call.counts, call.query.device
        if plan is None or plan.config is not self.owner.config or plan.counts != counts or plan.device != device:
            self._plan = plan = Plan(self.index, self.owner.config, counts, device)
        return plan

    @property
    def known_top_ks(self) -> tuple[int, ...]:
        """Each k that the layer's heads ask for; none before their number is known, which a call tells."""
        plan = self._plan
        return () if plan is None or plan.config is not self.owner.config else plan.heads.top_ks
