"""Every method on tiny models of many families: what runs is the method, and nothing of it stays behind."""

from __future__ import annotations

import copy
import sys

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from focus_explorer.usecases.texts import sample_text
from focus_runtime.composition.attach import compose
from focus_runtime.errors import InputError, ModelError
from focus_runtime.measure.perplexity import score
from focus_runtime.models.loading import load_model, weights_sha256
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
from paper.methods.base import IMPLEMENTATION, STATE
from paper.methods.weights import lora_targets
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.families import AROUND_THE_INTERFACE, family_model, logits

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


@pytest.mark.parametrize("name", list(SPARSE))
def test_rows_of_a_batch_are_independent(name, tiny_model):
    texts = [random_ids(20, seed=s) for s in range(3)]
    with attached(name, tiny_model):
        batched = logits(tiny_model, torch.cat(texts))
        for row, text in enumerate(texts):
            torch.testing.assert_close(batched[row], logits(tiny_model, text)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", list(METHODS))
def test_scores_come_from_the_method(name, tiny_model):
    texts = random_ids(30, batch=2, seed=4)
    full = score(tiny_model, texts).nll
    with attached(name, tiny_model) as handle:
        nll = score(handle.model, texts).nll
    assert (abs(nll - full).max() > 1e-3) == (name in SPARSE)
    assert (score(tiny_model, texts).nll == full).all()


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


def test_centroids_move_only_while_the_handle_trains(tiny_model, ids):
    with RoutingTransformer(num_clusters=4, window=2).attach(tiny_model) as handle:
        logits(tiny_model, ids)
        start = [layer.state.centroids.clone() for layer in handle.layers()]
        handle.after_step()
        assert all(torch.equal(layer.state.centroids, old) for layer, old in zip(handle.layers(), start, strict=True))
        handle.train()
        logits(tiny_model, ids)
        handle.after_step()
        handle.train(False)
        moved = [layer.state.centroids.clone() for layer in handle.layers()]
        assert not any(torch.allclose(new, old) for new, old in zip(moved, start, strict=True))
        logits(tiny_model, ids)
        handle.after_step()
        assert all(torch.equal(layer.state.centroids, old) for layer, old in zip(handle.layers(), moved, strict=True))


def test_the_mean_key_of_the_text_is_what_magicpig_centres_on(tiny_model, monkeypatch):
    keys = []
    observe = MagicPIG.observe
    monkeypatch.setattr(MagicPIG, "observe", lambda self, call: keys.append(call.key) or observe(self, call))
    text = random_ids(20, batch=3, seed=8)
    with MagicPIG(window=40).attach(tiny_model, text=text) as handle:  # a window over the text: full attention
        for index, layer in enumerate(handle.layers()):
            mean = torch.cat(keys[index::2]).mean(dim=(0, 2))
            torch.testing.assert_close(layer.state.centre[:, 0], mean, rtol=1e-4, atol=1e-5)


def test_sliding_layers_keep_their_own_attention_among_global_ones(ids):
    model = build_model("Gemma2", sliding_window=8, layer_types=["sliding_attention", "full_attention"])
    before = logits(model, ids)
    with Longformer(window=40).attach(model) as handle:
        assert [layer.own for layer in handle.layers()] == [True, False]
        torch.testing.assert_close(logits(model, ids), before, rtol=1e-4, atol=1e-4)


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


@pytest.mark.parametrize("family", AROUND_THE_INTERFACE)
def test_models_that_bypass_the_attention_interface_are_refused(family, ids):
    model = build_model(family)
    before = logits(model, ids)
    with pytest.raises(ModelError, match=f"{type(model).__name__}.*attention interface"):
        attached("longformer", model)
    assert torch.equal(logits(model, ids), before)
    assert not any(STATE in vars(module) for module in model.modules())


def test_learned_sinks_are_not_dropped_silently(ids):
    model = build_model("GptOss")
    with Longformer().attach(model), pytest.raises(ModelError, match="learned attention sinks"):
        logits(model, ids)


def test_a_twin_with_the_same_configuration_object_gets_a_clear_error(tiny_model, ids):
    twin = type(tiny_model)(tiny_model.config).eval()
    with attached("longformer", tiny_model), pytest.raises(ModelError, match="shares this model's configuration"):
        logits(twin, ids)


def test_a_copy_of_the_model_is_independent(tiny_model, ids):
    other = copy.deepcopy(tiny_model)
    before = logits(other, ids)
    with attached("longformer", tiny_model):
        assert tiny_model.config._attn_implementation == IMPLEMENTATION
        assert torch.equal(logits(other, ids), before)


def test_asking_too_early_is_said_and_a_failed_text_leaves_nothing(tiny_model, ids):
    with Longformer().attach(tiny_model) as handle, pytest.raises(InputError, match="no forward pass"):
        handle.retained_pairs()
    before = logits(tiny_model, ids)
    with pytest.raises(IndexError):
        RoutingTransformer().attach(tiny_model, text=torch.full((1, 8), 10**6))
    assert torch.equal(logits(tiny_model, ids), before)


@pytest.mark.parametrize("family", ["Qwen3", "Gemma2"])
@pytest.mark.parametrize("name", list(SPARSE))
def test_autocast(name, family, ids):
    """Autocast mixes dtypes between query, key and value."""
    if (name, family) == ("performer", "Gemma2"):
        pytest.skip("its scores are capped")
    model = family_model(family)
    with SPARSE[name].attach(model):
        expected = logits(model, ids)
        with torch.autocast("cpu", torch.bfloat16):
            actual = logits(model, ids)
        assert (actual.float() - expected).abs().mean() < 0.3 * expected.abs().mean()
        torch.testing.assert_close(logits(model, ids), expected)


# --- LoRA


@pytest.mark.parametrize(
    ("family", "children"),
    [("Llama", ["q_proj", "v_proj"]), ("GPT2", ["c_attn"]), ("Qwen3", ["q_proj", "v_proj"]), ("Phi3", ["qkv_proj"])],
)
def test_queries_and_values_of_every_layer_are_adapted(family, children):
    model = build_model(family)
    targets = lora_targets(model)
    assert [name.rpartition(".")[2] for name in targets] == children * 2
    before = {name for name, _ in model.named_modules()}
    handle = LoRA(rank=3).attach(model)
    adapted = {n.rpartition(".lora_A")[0] for n, _ in model.named_modules() if n.endswith("lora_A")}
    assert adapted == set(targets)
    counted = sum(parameter.numel() for parameter in handle.parameters())
    handle.detach()
    assert counted == sum(3 * sum(model.get_submodule(name).weight.shape) for name in targets)
    assert {name for name, _ in model.named_modules()} == before


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


def test_the_seed_decides_the_first_factors_and_the_global_generator_is_left_alone(tiny_model):
    first = {}
    torch.manual_seed(1)
    expected = torch.rand(1)
    for seed in (0, 0, 1):
        torch.manual_seed(1)
        with LoRA(rank=2, seed=seed).attach(tiny_model) as handle:
            first.setdefault(seed, []).append(torch.cat([p.detach().flatten() for p in handle.parameters()]))
        assert torch.equal(torch.rand(1), expected)
    assert torch.equal(*first[0])
    assert not torch.equal(first[0][0], first[1][0])


def test_new_modules_follow_the_models_mode(tiny_model):
    with LoRA().attach(tiny_model):
        assert not any(module.training for module in tiny_model.modules())
    tiny_model.train()
    with LoRA().attach(tiny_model):
        assert all(module.training for module in tiny_model.modules())


def test_adapters_on_adapters_are_refused(tiny_model):
    with LoRA().attach(tiny_model), pytest.raises(ModelError, match="already has peft adapters"):
        LoRA().attach(tiny_model)


def test_without_peft_the_message_says_what_to_install(tiny_model, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(InputError, match=r"pip install 'focus-explorer\[lora\]'"):
        LoRA().attach(tiny_model)


@pytest.mark.model
def test_methods_on_the_embedded_model():
    """They come off without a trace, and order as their papers would have them."""
    model, tokenizer = load_model("smollm2-135m")
    ids = torch.tensor([tokenizer(sample_text("Novel"), add_special_tokens=False).input_ids[:192]])
    full = score(model, ids)
    perplexities = {}
    for label, method in (
        ("window", Longformer(window=31, num_globals=0)),
        ("sinks", Longformer(window=27, num_globals=4)),
        ("sparq", SparQ(num_keys=32, components=32, reallocate=False)),
        ("all", SparQ(num_keys=192)),
    ):
        with method.attach(model) as handle:
            perplexities[label] = score(model, ids).perplexity
            assert (handle.retained_pairs() * 193 / 2 <= 32) == (label != "all")
    assert (score(model, ids).nll == full.nll).all()
    assert perplexities["all"] == pytest.approx(full.perplexity, rel=1e-4)
    assert full.perplexity < perplexities["sparq"] < perplexities["sinks"] < perplexities["window"]
