"""Every method on tiny models of many families: what runs is the method, and nothing of it stays behind."""

from __future__ import annotations

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from focus_runtime.composition.attach import compose
from focus_runtime.errors import InputError, ModelError
from focus_runtime.models.loading import weights_sha256
from paper.methods import (
    FullFinetune,
    Handle,
    Longformer,
    LoRA,
    MagicPIG,
    Performer,
    RoutingTransformer,
    SparQ,
    Temperature,
)
from paper.methods.weights import lora_targets
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.families import family_model, logits

pytestmark = pytest.mark.slow  # many compositions; they run in make test

FAMILIES = ["Llama", "GPT2", "Qwen3", "Gemma2"]
SPARSE = {
    "longformer": Longformer(window=3, num_globals=1),
    "performer": Performer(num_features=16),
    "routing_transformer": RoutingTransformer(num_clusters=4, window=3),
    "sparq": SparQ(components=4, num_keys=6, num_local=3),
    "magicpig": MagicPIG(bits=4, tables=6, window=3, num_sinks=1),
}
TRAINED = {"lora": LoRA(rank=2), "full_finetune": FullFinetune(), "temperature": Temperature(far_only=True, window=3)}
METHODS = SPARSE | TRAINED
EVERYTHING = [  # settings under which a method is full attention
    Longformer(window=40),
    RoutingTransformer(num_clusters=1, window=0),
    SparQ(num_keys=40, components=1, num_local=0),
    MagicPIG(window=40, bits=2, tables=2),
]


def attached(name, model):
    return METHODS[name].attach(model, text=random_ids(40, batch=2, seed=5))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", list(METHODS))
def test_detaching_gives_the_untouched_models_logits_bit_for_bit(name, family, ids):
    model = family_model(family)
    before, weights = logits(model, ids), weights_sha256(model)
    keys = [set(vars(m)) for m in model.modules()]
    hooks = [(len(m._forward_pre_hooks), len(m._forward_hooks)) for m in model.modules()]
    trained = [p.requires_grad for p in model.parameters()]
    if (name, family) == ("performer", "Gemma2"):
        with pytest.raises(ModelError, match=r"layer .*caps its scores"):
            attached(name, model)
    else:
        handle = attached(name, model)
        assert isinstance(handle, Handle)
        assert handle.model is model
        during = logits(model, ids)
        assert torch.isfinite(during).all()
        assert torch.allclose(during, before, atol=1e-3) == (name in TRAINED)
        assert 0 < handle.retained_pairs() <= 1
        assert (handle.retained_pairs() < 1) == (name in SPARSE and name != "performer")
        assert bool(handle.parameters()) == (name in TRAINED)
        assert handle.detach() is model
        assert handle.detach() is model
    assert torch.equal(logits(model, ids), before)
    assert weights_sha256(model) == weights
    assert [set(vars(m)) for m in model.modules()] == keys
    assert [(len(m._forward_pre_hooks), len(m._forward_hooks)) for m in model.modules()] == hooks
    assert [p.requires_grad for p in model.parameters()] == trained
    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", EVERYTHING, ids=lambda method: type(method).__name__)
def test_reading_everything_is_full_attention(method, family, ids):
    """So heads, scale, softcap and positions reach the method as the model means them."""
    model = family_model(family)
    before = logits(model, ids)
    with method.attach(model, text=random_ids(40, batch=2, seed=5)) as handle:
        torch.testing.assert_close(logits(model, ids), before, rtol=1e-4, atol=1e-4)
        assert handle.retained_pairs() == pytest.approx(1.0)


@pytest.mark.parametrize("name", list(SPARSE))
def test_no_method_looks_ahead(name, tiny_model, ids):
    changed = ids.clone()
    changed[:, 25:] = random_ids(15, seed=9)
    with attached(name, tiny_model):
        one, other = logits(tiny_model, ids)[:, :25], logits(tiny_model, changed)[:, :25]
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("trained", "name"),
    [*(("lora", name) for name in (None, *SPARSE)), ("full_finetune", None), ("full_finetune", "performer")],
)
def test_training_under_a_method_lowers_the_loss_and_leaves_no_trace(trained, name, tiny_model):
    """A retrofit: the method replaces attention, low-rank updates or all weights learn to live with it."""
    ids = random_ids(24, batch=2, seed=6)
    before, weights = logits(tiny_model, ids), weights_sha256(tiny_model)
    outer = attached(name, tiny_model) if name else None
    inner = attached(trained, tiny_model)
    optimiser = torch.optim.AdamW(inner.parameters(), lr=3e-3)
    losses = []
    if outer is not None:
        outer.train()
    for _ in range(4):
        loss = tiny_model(input_ids=ids, labels=ids, use_cache=False).loss
        optimiser.zero_grad()
        loss.backward()
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in inner.parameters())
        optimiser.step()
        if outer is not None:
            outer.after_step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    inner.detach()
    if outer is not None:
        outer.detach()
    assert torch.equal(logits(tiny_model, ids), before)
    assert weights_sha256(tiny_model) == weights


def test_texts_beyond_the_models_own_window_are_refused(ids):
    model = build_model("Mistral", sliding_window=8)
    before = logits(model, ids)
    handle = SPARSE["longformer"].attach(model)
    assert torch.isfinite(logits(model, ids[:, :8])).all()
    with pytest.raises(ModelError, match="last 8 tokens only, but the text has 40"):
        logits(model, ids)
    handle.detach()
    assert torch.equal(logits(model, ids), before)


def test_padding_and_caches_are_refused(tiny_model, ids):
    mask = torch.ones_like(ids)
    with attached("longformer", tiny_model):
        before = logits(tiny_model, ids)
        assert torch.equal(logits(tiny_model, ids, attention_mask=mask), before)
        mask[:, :3] = 0
        with pytest.raises(InputError, match="padded"):
            logits(tiny_model, ids, attention_mask=mask)
        with torch.no_grad():
            first = tiny_model(input_ids=ids, use_cache=True)
            torch.testing.assert_close(first.logits, before)
            with pytest.raises(InputError, match="key-value cache"):
                tiny_model(input_ids=ids[:, :1], past_key_values=first.past_key_values)


def test_two_methods_at_once_are_refused_and_leave_the_first_in_place(tiny_model, ids):
    with attached("longformer", tiny_model) as handle:
        before = logits(tiny_model, ids)
        with pytest.raises(ModelError, match="already replaces"):
            attached("sparq", tiny_model)
        for name in METHODS:
            with pytest.raises(ModelError, match="handle, not a model"):
                attached(name, handle)
        assert torch.equal(logits(tiny_model, ids), before)
    focus = compose(tiny_model, build_centroids(tiny_model))
    with pytest.raises(ModelError, match="already replaces"):
        attached("sparq", tiny_model)
    with pytest.raises(ModelError, match="handle, not a model"):
        attached("sparq", focus)
    focus.detach()


# --- LoRA


@pytest.mark.parametrize(("rank", "count"), [(4, 147_456), (16, 589_824)])
def test_the_papers_parameter_counts(rank, count):
    """147K and 590K on GPT-2 124M."""
    with torch.device("meta"):
        model = GPT2LMHeadModel(GPT2Config())
    assert sum(rank * sum(model.get_submodule(name).weight.shape) for name in lora_targets(model)) == count


def test_updates_are_alpha_over_rank_times_both_factors(tiny_model):
    layer = tiny_model.model.layers[1].self_attn
    weight = layer.q_proj.weight.detach().clone()
    x = torch.randn(2, 5, 64)
    with LoRA(rank=2, alpha=6.0).attach(tiny_model):
        factor = layer.q_proj.lora_B["default"].weight
        assert (factor == 0).all()
        torch.nn.init.normal_(factor)
        update = factor @ layer.q_proj.lora_A["default"].weight
        torch.testing.assert_close(layer.q_proj(x), x @ (weight + 3.0 * update).T, rtol=1e-5, atol=1e-5)
    assert torch.equal(layer.q_proj.weight, weight)
