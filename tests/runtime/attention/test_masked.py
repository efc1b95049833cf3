"""Masked attention, and that of sliding-window layers, against the oracle in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from focus_runtime.attention import masked as masked_module
from focus_runtime.attention.masked import WindowedFocus, covers_everything
from focus_runtime.composition.attach import compose
from focus_runtime.composition.modes import SoftGate
from focus_runtime.config import TextOptions
from focus_runtime.errors import InputError, ModelError
from focus_runtime.mask.rule import Extent, PairRule
from focus_runtime.models.structure import attention_modules
from focus_runtime.run.text import analyze
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.attention.by_keyword import masked_attention, sliding_attention
from tests.runtime.attention.inputs import FP32, assert_same, oracle, random_inputs, random_membership
from tests.runtime.families import logits


@pytest.mark.parametrize("block", [1, 7, 32])
@pytest.mark.parametrize("queries", [50, 20])
def test_masked_block_size_changes_nothing(block, queries, monkeypatch, fresh_seed):
    monkeypatch.setattr(masked_module, "BLOCK", block)
    monkeypatch.setattr(masked_module, "SQUARE", block)
    inputs, membership = random_inputs(50, queries=queries, dtype=torch.float32), random_membership(50)
    settings: dict[str, Any] = {"window": 3, "num_sinks": 2, "scale": 0.35}
    assert_same(masked_attention(*inputs, membership, **settings), oracle(inputs, membership, **settings), FP32)


@pytest.mark.parametrize(
    ("extent", "window", "expected"),
    [
        (Extent(8, 8, True), 3, True),
        (Extent(8, 2, True), 3, False),
        (Extent(1, 1, True), 3, True),
        (Extent(8, 1, True), 99, True),
    ],
)
def test_full_coverage_is_known_without_reading_a_gpu(extent, window, expected):
    """Values of a meta tensor cannot be read."""
    membership = torch.empty(2, 100, dtype=torch.int64, device="meta")
    assert covers_everything(membership, window, 100, extent) is expected


WINDOW = 8
INTERLEAVED = ["Gemma2", "Gemma3Text", "Qwen2", "Qwen3"]
_built: dict[str, torch.nn.Module] = {}


def family_model(family):
    """Layer 0 slides over 8 tokens, layer 1 sees everything; in Mistral and Phi-3 both slide."""
    if family not in _built:
        changes = {"sliding_window": WINDOW}
        if family in INTERLEAVED:
            changes["layer_types"] = ["sliding_attention", "full_attention"]
        if family.startswith("Qwen"):
            changes["use_sliding_window"] = True
        _built[family] = build_model(family, **changes)
    return _built[family]


@pytest.fixture
def composed(composing):
    return lambda family, **settings: composing(family_model(family), **settings)


def masks(length, sliding, membership, window, sinks):
    """(B, 1, T, T) additive mask by a double loop; `membership` None for no Focus, `sliding` None for no window."""
    batch = 1 if membership is None else membership.shape[0]
    mask = torch.full((batch, 1, length, length), torch.finfo(torch.float32).min)
    for b in range(batch):
        groups = None if membership is None else membership[b].tolist()
        for i in range(length):
            for j in range(i + 1):
                focus = groups is None or groups[i] & groups[j] or i - j <= window or j < sinks
                if focus and (sliding is None or i - j < sliding):
                    mask[b, 0, i, j] = 0.0
    return mask


# --- in the model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "sliding_layers", "backend"),
    [
        *((family, sliding, "auto") for family in (*INTERLEAVED, "Mistral", "Phi3") for sliding in ("auto", "focus")),
        ("Gemma2", "focus", "masked"),
    ],
)
def test_all_groups_is_the_original_model_beyond_the_window(family, sliding_layers, backend, composed, ids):
    expected = logits(family_model(family), ids)
    model, focus = composed(family, top_k=4, window=0, num_sinks=0, sliding_layers=sliding_layers, backend=backend)
    torch.testing.assert_close(logits(model, ids), expected, rtol=1e-5, atol=1e-5)
    assert focus.seconds.calls == 2
    with focus.measured_full_attention():
        torch.testing.assert_close(logits(model, ids), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "sliding_layers", "backend"),
    [
        *((family, sliding, "auto") for family in INTERLEAVED for sliding in ("auto", "own", "focus")),
        ("Gemma2", "focus", "masked"),
    ],
)
def test_the_masks_of_interleaved_models_are_the_definition(family, sliding_layers, backend, composed, ids):
    model, focus = composed(family, window=2, num_sinks=3, sliding_layers=sliding_layers, backend=backend)
    actual = logits(model, ids)
    groups = {index: assignment.membership for index, assignment in focus.assignments().items()}
    assert sorted(groups) == focus.focused_layers == ([0, 1] if sliding_layers == "focus" else [1])
    focus.detach()
    by_kind = {
        "full_attention": masks(40, None, groups[1], 2, 3),
        "sliding_attention": masks(40, WINDOW, groups.get(0), 2, 3),
    }
    torch.testing.assert_close(actual, logits(model, ids, attention_mask=by_kind), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(actual, logits(model, ids), atol=1e-3)


@pytest.mark.parametrize("family", ["Mistral", "Phi3"])
def test_where_every_layer_slides_focus_runs_inside_the_windows(family, ids):
    model = build_model(family, sliding_window=WINDOW, num_hidden_layers=1)
    focus = compose(model, build_centroids(model, window=2, num_sinks=3))
    actual = logits(model, ids)
    membership = focus.assignments()[0].membership
    focus.detach()
    expected = logits(model, ids, attention_mask=masks(40, WINDOW, membership, 2, 3))
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(actual, logits(model, ids), atol=1e-3)
    with pytest.raises(ModelError, match=rf"every layer of {family}ForCausalLM.*sliding_layers='focus'"):
        compose(model, build_centroids(model), sliding_layers="own")
    assert torch.isfinite(logits(model, ids)).all()


@pytest.mark.parametrize("family", [*INTERLEAVED, "Mistral"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("sliding_layers", ["auto", "focus"])
def test_padded_batches_equal_single_runs(family, side, sliding_layers, composed, fresh_seed):
    model, _ = composed(family, window=2, num_sinks=3, sliding_layers=sliding_layers)
    texts = [random_ids(n, seed=fresh_seed + n) for n in (30, 12, 23)]
    ids, mask = torch.zeros(3, 30, dtype=torch.long), torch.zeros(3, 30, dtype=torch.long)
    for row, text in enumerate(texts):
        place = slice(30 - text.shape[1], 30) if side == "left" else slice(0, text.shape[1])
        ids[row, place], mask[row, place] = text[0], 1
    batched = logits(model, ids, attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp_min(0))
    for row, text in enumerate(texts):
        torch.testing.assert_close(batched[row][mask[row].bool()], logits(model, text)[0], rtol=1e-4, atol=1e-4)


def test_a_run_tells_which_layers_kept_their_own_attention(tokenizer):
    model = family_model("Gemma2")
    trace = analyze(model, tokenizer, "The far-off lighthouse blinked.", build_centroids(model), TextOptions(repeats=1))
    assert [layer.layer for layer in trace.layers] == [1]
    assert any(note.startswith("1 layer(s) attend through a sliding window") for note in trace.notes)


def test_an_unknown_choice_is_refused(ids):
    model = family_model("Gemma2")
    with pytest.raises(InputError, match="sliding_layers is 'none'; expected auto or own or focus"):
        compose(model, build_centroids(model), sliding_layers="none")
    compose(model, build_centroids(model)).detach()


def test_training_beyond_the_window_is_refused(composed, ids):
    model, focus = composed("Mistral")
    with focus.entered(SoftGate()), pytest.raises(ModelError, match="last 8 tokens only, but the training text"):
        logits(model, ids)


def test_a_window_changed_after_composing_is_noticed(composed, ids):
    model, _ = composed("Gemma2")
    attention_modules(model)[0].sliding_window = 5
    try:
        with pytest.raises(ModelError, match="sliding window of 5 tokens, but its settings say 8"):
            logits(model, ids)
    finally:
        attention_modules(model)[0].sliding_window = WINDOW


def test_an_attention_that_makes_no_call_is_noticed(tiny_model, ids, monkeypatch):
    """Some architecture may accept the name and ignore it: that would be full attention called Focus."""
    before = logits(tiny_model, ids)
    focus = compose(tiny_model, build_centroids(tiny_model))
    kind = type(attention_modules(tiny_model)[0])
    with monkeypatch.context() as patch:
        patch.setattr(kind, "forward", lambda self, hidden_states, **_: (hidden_states, None))
        with pytest.raises(ModelError, match=r"LlamaAttention of LlamaForCausalLM ran layer 0 without calling"):
            logits(tiny_model, ids)
        with focus.full_attention():  # the original model may do as it likes
            logits(tiny_model, ids)
    focus.detach()
    assert torch.equal(logits(tiny_model, ids), before)


# --- the operation


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize(("length_q", "length_k"), [(70, 70), (20, 70), (1, 70), (5, 12)])
@pytest.mark.parametrize("with_focus", [False, True])
def test_sliding_attention_is_its_definition(softcap, length_q, length_k, with_focus, monkeypatch, fresh_seed):
    monkeypatch.setattr("focus_runtime.attention.masked.BLOCK", 16)
    query = torch.randn(2, 4, length_q, 16)
    key, value = (torch.randn(2, 2, length_k, 16) for _ in range(2))
    membership = torch.bitwise_left_shift(
        torch.ones(2, length_k, dtype=torch.int64), torch.randint(0, 5, (2, length_k))
    )
    position = torch.arange(length_k).repeat(2, 1) + 3  # a sliding cache has forgotten three tokens
    padding = torch.ones(2, length_k, dtype=torch.bool)
    padding[1, :4] = False
    focus = WindowedFocus(membership, position, PairRule(2, 5)) if with_focus else None
    out = sliding_attention(
        query, key, value, sliding_window=9, scale=0.3, softcap=softcap, key_padding=padding, focus=focus
    )
    distance = torch.arange(length_k - length_q, length_k)[:, None] - torch.arange(length_k)[None, :]
    allowed = ((distance >= 0) & (distance < 9)).repeat(2, 1, 1) & padding[:, None, :]
    if with_focus:
        shared = (membership[:, length_k - length_q :, None] & membership[:, None, :]) != 0
        allowed &= shared | (distance <= 2) | (position[:, None, :] < 5)
    scores = query.double() @ key.double().repeat_interleave(2, dim=1).transpose(-1, -2) * 0.3
    scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
    weights = torch.softmax(scores.masked_fill(~allowed[:, None], -torch.inf), dim=-1)
    expected = weights @ value.double().repeat_interleave(2, dim=1)
    real = padding[:, length_k - length_q :, None].transpose(1, 2).expand(2, 4, length_q)
    torch.testing.assert_close(out.double()[real], expected[real], rtol=0, atol=5e-6)


class Largest(TorchDispatchMode):
    """Elements of the largest tensor any operation returned."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.untyped_storage().nbytes())
        return result


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_memory_is_linear_in_the_text(softcap):
    largest = []
    for length in (2048, 8192):
        tensors = [torch.randn(1, 1, length, 4) for _ in range(3)]
        with Largest() as seen:
            sliding_attention(*tensors, sliding_window=64, scale=1.0, softcap=softcap)
        largest.append(seen.elements)
    assert largest[1] <= max(8192 * 4 * 4, 512 * 576 * 8)  # the output, or one block's distances: never T x T
    assert largest[1] <= 4 * largest[0]
