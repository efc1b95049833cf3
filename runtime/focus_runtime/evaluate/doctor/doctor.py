"""Run a model in every scenario with its own eager attention and with an attention patch, and compare."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import InputError, first_line
from focus_runtime.evaluate.doctor.dense import (
    EXACT,
    Difference,
    Trace,
    dense_focus,
    first_difference,
    noted_groups,
    recorded,
)
from focus_runtime.evaluate.doctor.scenarios import (
    LOGITS_ALONE,
    ONE_GROUP,
    SCENARIOS,
    Inputs,
    NotApplicable,
    Scenario,
    packed_documents,
)
from focus_runtime.models.structure import attention_implementation, set_attention_implementation
from focus_runtime.routing.centroids import random_centroids

FOCUS = "focus"
PLAIN = "every pair kept, against the model's own eager attention"
MASKED = "one group a token, against a dense mask"
ALONE = "one group a token, against the same row without padding"
NAMED = "against the model's own eager attention"
GROUPS, WINDOW, SINKS = 4, 3, 1  # of the centroids: few pairs are kept
BFLOAT16 = 4.0  # times the mean error of the model's own attention in bfloat16, which experts that swap make uneven

Patched = Callable[[nn.Module], AbstractContextManager[Any]]
Check = tuple[str, str, Callable[[], Difference | None]]  # scenario, what it is compared with, the comparison


def doctor(
    model: nn.Module,
    tokenizer: Any = None,
    *,
    attention: str = FOCUS,
    scenarios: Iterable[str] | None = None,
    tokens: int = 24,
    progress: Callable[[str, float], None] = lambda scenario, fraction: None,
) -> Report:
    """Whether an attention patch computes what it should on a model, in every way that a model is used.

    Focus with every pair kept is compared with the model's own eager attention and transformers' own masks, and Focus
    with one group a token with an independent dense mask. Any other implementation registered with transformers'
    `AttentionInterface` is compared with eager attention.

    Args:
        model: a causal language model in evaluation mode, with nothing composed onto it; it is left as it was.
        tokenizer: its tokenizer, of which a note says whether it adds a beginning of the text.
        attention: "focus", or the name of a registered implementation.
        scenarios: names from `SCENARIOS` and "bfloat16"; all when None.
        tokens: length of the texts, at least 16; only texts longer than a sliding window reach beyond it.
    """
    known = [*SCENARIOS, "bfloat16"]
    names = known if scenarios is None else list(scenarios)
    for name in names:
        if name not in known:
            raise InputError(f"there is no scenario {name!r}", expected="one of " + ", ".join(known))
    if getattr(model, "dtype", torch.float32) != torch.float32:
        raise InputError(
            f"the model is in {model.dtype}", expected="float32, whose rounding is small", fix="load it so"
        )
    if tokens < 16:
        raise InputError(f"the texts have {tokens} tokens", expected="at least 16")
    registered = sorted(ALL_ATTENTION_FUNCTIONS.valid_keys())
    if attention not in (FOCUS, *registered):
        raise InputError(
            f"no attention implementation is registered as {attention!r}",
            expected=f"{FOCUS} or one of " + ", ".join(registered),
            fix="register yours with transformers.AttentionInterface first",
        )
    inputs = Inputs(model, _random_ids(model, tokenizer, tokens))
    checks = list(_checks(inputs, attention, names))
    found = []
    before = attention_implementation(model)
    try:
        for done, (name, against, check) in enumerate(checks):
            progress(name, done / len(checks))
            found.append(_finding(name, against, check))
    finally:
        set_attention_implementation(model, before)
    return Report(type(model).__name__, attention, _notes(tokenizer), tuple(found))


def _random_ids(model: nn.Module, tokenizer: Any, tokens: int) -> Tensor:
    """(2, T) token ids without special tokens."""
    config: Any = model.config
    special = set(getattr(tokenizer, "all_special_ids", ()))
    for part in (config, config.get_text_config(decoder=True)):
        values = (value for name, value in part.to_dict().items() if name.endswith("token_id"))
        special |= {value for value in values if isinstance(value, int)}
    vocabulary = config.get_text_config(decoder=True).vocab_size
    allowed = torch.tensor([i for i in range(vocabulary) if i not in special])
    chosen = torch.randint(len(allowed), (2, tokens), generator=torch.Generator().manual_seed(0))
    return allowed[chosen].to(next(model.parameters()).device)


def _notes(tokenizer: Any) -> tuple[str, ...]:
    if tokenizer is None:
        return ()
    ids = list(tokenizer("a").input_ids)
    adds = tokenizer.bos_token_id is not None and ids[:1] == [tokenizer.bos_token_id]
    return (f"The tokenizer {'begins' if adds else 'does not begin'} a text with a beginning-of-text token.",)


def _checks(inputs: Inputs, attention: str, names: list[str]) -> Iterator[Check]:
    """Every scenario with what it is compared with; of Focus once with all pairs and once with one group a token."""
    every_pair = partial(_composed, top_k=GROUPS)
    against, patched = (PLAIN, every_pair) if attention == FOCUS else (NAMED, _implementation(attention))
    for name in names:
        if name == "bfloat16":
            yield name, against, partial(_in_bfloat16, inputs, patched)
        else:
            yield name, against, partial(_equals_eager, inputs, name, patched)
    if attention == FOCUS:
        for name in names:
            if name in ONE_GROUP:
                yield name, MASKED, partial(_equals_dense, inputs, name)
        if "left padding" in names:
            yield "left padding", ALONE, partial(_equals_alone, inputs)


def _finding(name: str, against: str, check: Callable[[], Difference | None]) -> Finding:
    try:
        difference = check()
    except NotApplicable as reason:
        return Finding(name, against, "not applicable", reason=str(reason))
    except InputError as refusal:
        return Finding(name, against, "refused", reason=str(refusal))
    except Exception as error:  # whatever the patch raises is the finding
        return Finding(name, against, "error", reason=f"{type(error).__name__}: {first_line(error)}")
    return Finding(name, against, "ok" if difference is None else "differs", difference)


def _implementation(name: str) -> Patched:
    """A registered implementation in place of eager attention; refused where the model does not call it."""

    @contextmanager
    def patched(model: nn.Module) -> Iterator[None]:
        try:
            set_attention_implementation(model, name)
        except (ValueError, ImportError) as error:
            raise InputError(first_line(error)) from error
        own, calls = ALL_ATTENTION_FUNCTIONS[name], 0

        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            return own(*args, **kwargs)

        ALL_ATTENTION_FUNCTIONS[name] = counted
        try:
            yield
        finally:
            del ALL_ATTENTION_FUNCTIONS[name]
            if ALL_ATTENTION_FUNCTIONS.get(name) is not own:  # it was there for this process alone
                ALL_ATTENTION_FUNCTIONS[name] = own
        if not calls:
            raise InputError(f"{type(model).__name__} never calls the attention implementation that was set")

    return patched


def _composed(model: nn.Module, top_k: int) -> FocusModel:
    """Focus with random centroids, each token in `top_k` of `GROUPS` groups."""
    centroids = random_centroids(model, FocusConfig(num_groups=GROUPS, window=WINDOW, num_sinks=SINKS))
    generator = torch.Generator().manual_seed(1)
    for router in centroids.routers.values():  # causal assignment asks for potentials
        router.potential.copy_(torch.randn(GROUPS, generator=generator))
        router.has_potential = True
    return compose(model, centroids, top_k=top_k)


def _run(inputs: Inputs, scenario: Scenario, *, layers: bool = True) -> Trace:
    torch.manual_seed(0)
    with torch.no_grad(), recorded(inputs.model, layers=layers) as trace:
        trace.returned = scenario(inputs) or []
    return trace


def _reference(inputs: Inputs, scenario: Scenario, *, layers: bool = True) -> Trace:
    """The scenario with the model's own eager attention."""
    try:
        set_attention_implementation(inputs.model, "eager")
        return _run(inputs, scenario, layers=layers)
    except NotApplicable:
        raise
    except Exception as error:  # the model itself cannot do this
        raise NotApplicable(f"the model itself raises {type(error).__name__}: {first_line(error)}") from error


def _equals_eager(inputs: Inputs, name: str, patched: Patched) -> Difference | None:
    layers = name not in LOGITS_ALONE
    expected = _reference(inputs, SCENARIOS[name], layers=layers)
    if name == "packing with lengths":
        _check_documents_apart(inputs, expected)
    with patched(inputs.model):
        found = _run(inputs, SCENARIOS[name], layers=layers)
    return first_difference(expected, found)


def _check_documents_apart(inputs: Inputs, packed: Trace) -> None:
    """Only flash attention reads the lengths; eager attention keeps documents apart where the model's mask does."""
    start = packed_documents(inputs)[2][-2]
    alone = _reference(Inputs(inputs.model, inputs.ids[:1, start:]), SCENARIOS["plain"])
    if first_difference(alone, packed.of_row(0, start)):
        raise NotApplicable("the model's own eager attention does not keep packed documents apart")


def _equals_dense(inputs: Inputs, name: str) -> Difference | None:
    """Focus with one group a token against the model's own attention with a second mask."""
    model, scenario = inputs.model, SCENARIOS[name]
    own = _reference(inputs, scenario)
    if name == "packing":  # else it is one text, whose sinks are at its beginning
        _check_documents_apart(inputs, own)
    with _composed(model, 1) as focus:
        found = _run(inputs, scenario)
        with noted_groups(focus) as groups:
            _run(inputs, scenario)
    set_attention_implementation(model, "eager")
    with dense_focus(model, groups, WINDOW, SINKS):
        expected = _run(inputs, scenario)
    return first_difference(expected, found)


def _equals_alone(inputs: Inputs) -> Difference | None:
    """A row with padding before it under Focus with one group a token, against the same row alone."""
    model = inputs.model
    alone = Inputs(model, inputs.ids[1:, inputs.ids.shape[1] // 4 :])

    def padded_row(trace: Trace) -> Trace:
        return trace.of_row(1, inputs.ids.shape[1] - alone.ids.shape[1])

    own = padded_row(_reference(inputs, SCENARIOS["left padding"]))
    if first_difference(_reference(alone, SCENARIOS["plain"]), own):
        raise NotApplicable("the model itself reads a row with padding otherwise than the row alone")
    with _composed(model, 1):
        expected = _run(alone, SCENARIOS["plain"])
        found = padded_row(_run(inputs, SCENARIOS["left padding"]))
    return first_difference(expected, found)


def _in_bfloat16(inputs: Inputs, patched: Patched) -> Difference | None:
    """One pass in bfloat16, whose error may be somewhat larger than that of the model's own attention."""
    exact = _reference(inputs, SCENARIOS["plain"], layers=False)
    half = Inputs(copy.deepcopy(inputs.model).to(torch.bfloat16), inputs.ids)
    rounded = _reference(half, SCENARIOS["plain"], layers=False)
    with patched(half.model):
        found = _run(half, SCENARIOS["plain"], layers=False)
    logits = [trace.entries[-1].value for trace in (exact, rounded, found)]
    own, error = ((logits[0] - other).abs().mean() for other in logits[1:])
    if error <= BFLOAT16 * own + EXACT * logits[0].abs().max():
        return None
    return first_difference(rounded, found)


OUTCOMES = ("ok", "refused", "differs", "error", "not applicable")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one scenario, which was compared with what `against` says."""

    scenario: str
    against: str
    outcome: str  # one of `OUTCOMES`
    difference: Difference | None = None
    reason: str = ""  # why the library refused, what was raised, or why the scenario does not apply

    @property
    def words(self) -> str:
        """The result in words."""
        if self.difference is not None:
            return differs(self.difference)
        return f"{self.outcome}: {self.reason}" if self.reason else self.outcome


@dataclass(frozen=True, slots=True)
class Report:
    """All findings of one model class, in the order of the scenarios, and notes for its user, one sentence each."""

    model: str
    attention: str
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing differs and nothing failed; refusals are sound."""
        return not any(finding.outcome in ("differs", "error") for finding in self.findings)

    def lines(self) -> list[str]:
        """The table."""
        width = max(len(finding.scenario) for finding in self.findings)
        lines = [f"{self.model}, attention {self.attention}", *self.notes]
        for against in dict.fromkeys(finding.against for finding in self.findings):
            found = [finding for finding in self.findings if finding.against == against]
            alike = len({finding.words for finding in found}) == 1 and found[0].outcome != "ok"
            rows = [("all scenarios", found[0].words)] if alike else [(f.scenario, f.words) for f in found]
            lines += ["", f"{against}:", *(f"  {scenario:<{width}}  {words}" for scenario, words in rows)]
        return [*lines, "", self.summary]

    @property
    def summary(self) -> str:
        """How many scenarios had which outcome."""
        counted = {outcome: sum(f.outcome == outcome for f in self.findings) for outcome in OUTCOMES}
        return ", ".join(f"{number} {outcome}" for outcome, number in counted.items() if number)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; a difference that has no size is null."""
        values = asdict(self) | {"healthy": self.healthy}
        for finding in values["findings"]:
            difference = finding["difference"] or {}
            difference.update({name: None for name in ("size", "logits") if difference.get(name) == math.inf})
        return values


def differs(difference: Difference) -> str:
    """Where two runs differ, in words."""
    place = "in the result" if difference.layer is None and difference.token is None else ""
    if not place:
        place = "in the logits" if difference.layer is None else f"at layer {difference.layer}"
        place += "" if difference.token is None else f", token {difference.token}"
    size = "" if math.isinf(difference.size) else f" by {difference.size:.2g}"
    logits = f"; logits by up to {difference.logits:.2g}" if difference.logits and difference.layer is not None else ""
    return f"differs first {place}{size}{logits}"


def worst(findings: Iterable[Finding]) -> Finding | None:
    """The finding that matters most: an error or a difference before a refusal, that before agreement."""
    order = ("error", "differs", "refused", "ok", "not applicable")
    return min(findings, key=lambda finding: order.index(finding.outcome), default=None)
