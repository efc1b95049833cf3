"""State of composed attention modules, and of the composition they belong to; `FocusModel` in attach.py provides it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from focus_runtime.attention.clock import PassClock
from focus_runtime.attention.fused import HeadRules
from focus_runtime.budget import HeadCounts, HeadSetting
from focus_runtime.composition.cache import GroupHistory
from focus_runtime.composition.documents import Documents
from focus_runtime.composition.edits import LayerEdit
from focus_runtime.composition.gpu_plan import RoutePlan, StepPlan, TextPlan
from focus_runtime.composition.heads import LayerHeads, layer_heads
from focus_runtime.composition.reach import Reach, reach_of
from focus_runtime.composition.text_sinks import FoundSinks
from focus_runtime.config import FocusConfig
from focus_runtime.mask.rule import PairRule
from focus_runtime.routing.router import Assignment, CentroidRouter, top_k_membership

FULL = "full attention"  # named with the backends, for heads whose budget gives them that
STATE = "_focus_layer"  # attribute of an attention module that holds its FocusLayer


@dataclass
class SoftGate:
    """Settings of a training forward pass; see `gated_attention`.

    Attributes:
        gate: "log" or "paper".
        steepness: lambda of the paper gate.
        hard: the hard mask with straight-through gradients. On the CPU beyond 4,096 tokens in memory linear in the
            text, and then without a gradient from dropped pairs (`straight_through_attention`).
    """

    gate: str = "log"
    steepness: float = 8.0
    hard: bool = False


@dataclass
class Alternatives:
    """Other settings, mixed into what every head returns with weight 0: gradients tell what each would change.

    With weight a, a head returns (1 - a) of what it executes and a of what it would return at the other setting.

    Attributes:
        settings: S settings.
        weights: by layer, (S, Hkv) fp32 zeros that require gradients; filled by the first pass.
    """

    settings: tuple[HeadSetting, ...]
    weights: dict[int, Tensor] = field(default_factory=dict)

    def of_layer(self, layer: int, num_heads: int, device: torch.device) -> Tensor:
        """A layer's weights, (S, Hkv)."""
        if layer not in self.weights:
            self.weights[layer] = torch.zeros(len(self.settings), num_heads, device=device, requires_grad=True)
        return self.weights[layer]


@dataclass
class Comparison:
    """Errors of Focus in every layer while the model runs with full attention; see training/layerwise.py.

    Attributes:
        errors: by layer, scalar in fp32 that carries the gradient of the layer's router.
    """

    errors: dict[int, Tensor] = field(default_factory=dict)


@dataclass
class Probe:
    """What every head would do to the loss at other settings, while the model runs with full attention.

    Attributes:
        settings: S settings.
        leaf: scalar 0, added to what every layer returns: a gradient for it passes through all of them.
        found: by layer, (S, B, H, T) fp32: the gradient of the loss with respect to what a head returns for a token,
            times what a setting would change there; filled by the backward pass.
    """

    settings: tuple[HeadSetting, ...]
    leaf: Tensor = field(default_factory=lambda: torch.zeros((), requires_grad=True))
    found: dict[int, Tensor] = field(default_factory=dict)


# Called with the layer, its call and what the call returned; see `observe_focus` in observe.py.
AttentionObserver = Callable[["FocusLayer", Any, Tensor], object]


class Composition(Protocol):
    """State that all layers of one composition share.

    Attributes:
        model: the frozen model.
        config: settings in force.
        backend: attention backend, "auto" or a name.
        seconds: clock of routing and attention.
        measuring_full: every layer runs its own full attention, timed.
        paused: the model runs its own attention implementation; nothing is routed.
        soft_gate: set during training forward passes.
        alternatives: other settings whose effect on the loss is measured; None outside such a measurement.
        comparison: takes what Focus changes in each layer, which returns full attention; None outside such a pass.
        probe: takes what other settings would do to the loss, while layers return full attention; None outside such a
            pass.
        added_pairs: by layer, (N, 3) query head, query and key positions that attend in addition to the mask.
        edits: by layer, tokens moved, linked or silenced by hand.
        found_sinks: text sinks of the running pass; see text_sinks.py.
        observer: called after every Focus call; None where nobody listens.
        checking: the pass is that of check.py.
    """

    model: nn.Module
    config: FocusConfig
    backend: str
    seconds: PassClock
    measuring_full: bool
    paused: bool
    soft_gate: SoftGate | None
    alternatives: Alternatives | None
    comparison: Comparison | None
    probe: Probe | None
    added_pairs: Mapping[int, Tensor]
    edits: Mapping[int, LayerEdit]
    found_sinks: FoundSinks
    observer: AttentionObserver | None
    checking: bool

    @property
    def writer(self) -> str:
        """Identifies who assigned a cache's groups."""


def is_plain(owner: Composition, *, gated: bool = False) -> bool:
    """Whether nothing but the settings decides what attention computes, and nothing but its output is asked for.

    Args:
        owner: of a layer.
        gated: whether a training gate and an observer are plain too.
    """
    return (
        (gated or owner.soft_gate is owner.observer is None)
        and owner.alternatives is owner.comparison is owner.probe is None
        and not owner.added_pairs
        and not owner.measuring_full
    )


@dataclass(slots=True)  # not frozen: setting attributes of frozen ones takes longer, and there is one in every step
class Decided:
    """The groups of the one new token of a decode step, as the kernel left them.

    Attributes:
        probabilities: (K,) fp32.
        membership: bit set of the token's groups at the configuration's top-k.
        sink: whether it belongs to all groups whatever the k, see text_sinks.py.
        potential: (K,) of the router.
    """

    probabilities: Tensor
    membership: int
    sink: bool
    potential: Tensor

    def assignment(self) -> Assignment:
        """The same as a router returns it."""
        own = Assignment(
            self.probabilities[None, None], torch.tensor([[self.membership]]), self.potential, uniform=not self.sink
        )
        return own.in_all_groups(torch.ones(1, 1, dtype=torch.bool)) if self.sink else own


@dataclass(slots=True)
class LateDecided:
    """The same on a GPU, where the host does not wait to know them.

    Attributes:
        probabilities: (K,) fp32.
        top_k: the configuration's.
        found: (1, 1) bool, whether the token belongs to all groups whatever the k; None where nobody looked.
        potential: (K,) of the router.
    """

    probabilities: Tensor
    top_k: int
    found: Tensor | None
    potential: Tensor

    def assignment(self) -> Assignment:
        """The same as a router returns it."""
        membership = top_k_membership(self.probabilities, self.top_k)[None, None]
        own = Assignment(self.probabilities[None, None], membership, self.potential, uniform=True)
        return own if self.found is None else own.in_all_groups(self.found)


@dataclass(slots=True)
class DecidedText:
    """The groups of a text's tokens, as the kernel left them.

    Attributes:
        probabilities: (B, T, K) fp32.
        sets: (S, B, T) int64 bit sets for each k of the plan.
        found: (B, T) bool, whether a token belongs to all groups whatever the k; None where nobody looked.
        potential: (K,) of the router.
        plan: what was decided.
    """

    probabilities: Tensor
    sets: Tensor
    found: Tensor | None
    potential: Tensor
    plan: RoutePlan

    @property
    def asked(self) -> Tensor:
        """The sets that attention asks for."""
        return self.sets if self.plan.asked is self.plan.top_ks else self.sets[: len(self.plan.asked)]

    def assignment(self) -> Assignment:
        """The same as a router returns it."""
        found, plan = self.found, self.plan
        return Assignment(
            self.probabilities,
            self.sets[plan.usual],
            self.potential,
            uniform=found is None,
            everywhere=found,
            beyond=found is not None,
            by_top_k=(plan.asked, self.asked) if plan.asked else None,
        )


class Pass:
    """State of one layer during a forward pass of one thread; between passes, of the latest one.

    Attributes:
        hidden: input of a running pass whose groups the attention call decides; None where they are decided.
        decided: what it decided, until somebody asks for the assignment.
        cached, history: the cache layer of a running pass, and the groups stored with its keys.
        called: whether the running pass has reached the attention interface.
        documents: of the running pass; None where every row is one text.
        backend: backend of the latest Focus call, several joined by commas where heads differ; empty before one.
        counts: heads of that call; None before one.
    """

    def __init__(self) -> None:
        self._assignment: Assignment | None = None
        self.decided: Decided | LateDecided | DecidedText | None = None
        self.hidden: Tensor | None = None
        self.cached: Any = None
        self.history: GroupHistory | None = None
        self.called = False
        self.documents: Documents | None = None
        self.backend = ""
        self.counts: HeadCounts | None = None

    @property
    def assignment(self) -> Assignment | None:
        """The groups of that pass's tokens."""
        if self.decided is not None:
            self.assignment = self.decided.assignment()
        return self._assignment

    @assignment.setter
    def assignment(self, assignment: Assignment | None) -> None:
        self._assignment, self.decided = assignment, None

    def decide(self, decided: DecidedText) -> None:
        """Set the groups, as an assignment only when somebody asks for it."""
        self._assignment, self.decided = None, decided


class Passes(threading.local):
    """One `Pass` for each thread. torch.compile loses attributes that are set on a `threading.local` itself."""

    def __init__(self) -> None:
        self.own = Pass()

    def __reduce__(self) -> tuple[type[Passes], tuple[()]]:
        """A copied or pickled model starts without a pass."""
        return Passes, ()


@dataclass(slots=True)
class FocusLayer:
    """State of one composed attention module.

    Attributes:
        index: layer number.
        router: None where the layer keeps its own attention.
        owner: state shared by all layers.
        sliding: the layer's own window in tokens, None for a global layer.
        cache_layer: the layer whose keys and values it reads: its own, but where layers share them.
        passes: state of a forward pass; each thread has its own, so that several may run the model at once.
        gpu_plan: what decode steps on a GPU have in common, see gpu_step.py; None before one.
        route_plan, text_plan: the same of whole texts, see gpu_text.py and by_head.py.
    """

    index: int
    router: CentroidRouter | None
    owner: Composition
    sliding: int | None = None
    cache_layer: int = 0
    passes: Passes = field(default_factory=Passes)
    gpu_plan: StepPlan | None = None
    route_plan: RoutePlan | None = None
    text_plan: TextPlan | None = None
    _heads: tuple[FocusConfig, HeadCounts, LayerHeads] | None = None
    _step: tuple[LayerHeads, HeadRules, str, PairRule] | None = None
    _reach: tuple[LayerHeads, torch.device, Reach] | None = None

    @property
    def current_pass(self) -> Pass:
        """State of this thread's forward pass."""
        return self.passes.own

    def heads(self, counts: HeadCounts) -> LayerHeads:
        """What the layer's heads execute under the settings in force."""
        known, config = self._heads, self.owner.config
        if known is None or known[0] is not config or known[1] != counts:
            self._heads = known = (config, counts, layer_heads(config, self.index, counts))
        return known[2]

    @property
    def known_heads(self) -> LayerHeads | None:
        """The same as of the latest call; None before one under these settings."""
        known = self._heads
        return None if known is None or known[0] is not self.owner.config else known[2]

    def reach(self, heads: LayerHeads, counts: HeadCounts, device: torch.device) -> Reach:
        """How far the windows of the same heads reach, kept from one call to the next; see `reach_of`."""
        known = self._reach
        if known is None or known[0] is not heads or known[1] != device:
            reach = reach_of(heads.groups, counts, device, self.owner.config.window_growth)
            self._reach = known = (heads, device, reach)
        return known[2]

    def step_heads(self, heads: LayerHeads) -> HeadRules:
        """What the same heads see in a decode step, kept from one to the next."""
        return self._known_step(heads)[1]

    def step_backends(self, heads: LayerHeads) -> str:
        """What runs the same heads in a decode step, joined by commas."""
        return self._known_step(heads)[2]

    def step_rule(self, heads: LayerHeads) -> PairRule:
        """Sinks, and how windows grow, of the same heads in a decode step; the windows are those of `step_heads`."""
        return self._known_step(heads)[3]

    def _known_step(self, heads: LayerHeads) -> tuple[LayerHeads, HeadRules, str, PairRule]:
        known = self._step
        if known is None or known[0] is not heads:
            names = {FULL if group.setting.full else "fused": None for group in heads.groups}
            self._step = known = (heads, heads.rules(), ", ".join(names), PairRule.of(self.owner.config, 0))
        return known
