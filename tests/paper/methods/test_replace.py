"""Every baseline on tiny models of many families: what runs is the method, and nothing of it stays behind."""

from __future__ import annotations

import copy

import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.errors import ConfigError, InputError, ModelError
from focus_runtime.measure.perplexity import score
from focus_runtime.models.loading import weights_sha256
from paper.methods import BASELINES, Handle
from paper.methods.replace import IMPLEMENTATION, STATE
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.families import AROUND_THE_INTERFACE, family_model, logits

pytestmark = pytest.mark.slow  # many short trainings or compositions; they run in make test

FAMILIES = ["Llama", "GPT2", "Mistral", "Qwen2", "Qwen3", "Gemma2"]
SPARSE = {
    "window_only": {"window": 3, "num_sinks": 1},
    "random_centroids": {"window": 3, "num_sinks": 1},
    "longformer": {"window": 3, "num_globals": 1, "positions": (9,)},
    "performer": {"num_features": 16},
    "routing_transformer": {"num_clusters": 4, "window": 3},
    "sparq": {"components": 4, "num_keys": 6, "num_local": 3},
    "magicpig": {"bits": 4, "tables": 6, "window": 3, "num_sinks": 1},
}
REPLACING = [name for name in SPARSE if name != "random_centroids"]
EVERYTHING = {  # settings under which a method is full attention
    "window_only": {"window": 40},
    "random_centroids": {"top_k": 4},
    "longformer": {"window": 0, "positions": tuple(range(40)), "num_globals": 0},
    "routing_transformer": {"num_clusters": 1, "window": 0},
    "sparq": {"num_keys": 40, "components": 1, "num_local": 0},
    "magicpig": {"window": 40, "bits": 2, "tables": 2},
}
TRAINED = {"lora": {"rank": 2}, "full_finetune": {}, "temperature": {"pairs": "far", "window": 3}}


def attached(name, model, **settings):
    return BASELINES[name](**{**SPARSE.get(name, TRAINED.get(name, {})), **settings}).attach(
        model, text=random_ids(40, batch=2, seed=5)
    )


def test_the_registry_has_every_method_under_its_name():
    assert set(BASELINES) == set(SPARSE) | set(TRAINED)
    for name, method in BASELINES.items():
        assert method.name == name
        assert hash(method()) == hash(method())
        assert type(method()).__dataclass_params__.frozen
        with pytest.raises(TypeError):
            method(no_such_setting=1)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", list(BASELINES))
def test_detaching_gives_the_untouched_models_logits_bit_for_bit(name, family, ids):
    model = family_model(family)
    before, weights = logits(model, ids), weights_sha256(model)
    keys = [set(vars(m)) for m in model.modules()]
    hooks = [(len(m._forward_pre_hooks), len(m._forward_hooks)) for m in model.modules()]
    trained = [p.requires_grad for p in model.parameters()]
    if (name, family) == ("performer", "Gemma2"):
        with pytest.raises(ModelError, match=r"layer 1 .*caps its scores"):
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
@pytest.mark.parametrize("name", list(EVERYTHING))
def test_reading_everything_is_full_attention(name, family, ids):
    """So heads, scale, softcap and positions reach the method as the model means them."""
    model = family_model(family)
    before = logits(model, ids)
    with attached(name, model, **EVERYTHING[name]) as handle:
        torch.testing.assert_close(logits(model, ids), before, rtol=1e-4, atol=1e-4)
        assert handle.retained_pairs() == pytest.approx(1.0)


@pytest.mark.parametrize("family", ["Llama", "GPT2", "Gemma2"])
@pytest.mark.parametrize("name", ["window_only", "longformer"])
def test_the_mask_in_the_model_is_the_definition(name, family, ids):
    """Eager attention with an explicit mask gives the same logits; one layer, so one mask serves the model."""
    changes = {"layer_types": ["full_attention"]} if family == "Gemma2" else {}
    model = build_model(family, num_hidden_layers=1, **changes)
    mask = torch.full((1, 1, 40, 40), torch.finfo(torch.float32).min)
    special = (0, 9) if name == "longformer" else (0,)
    for i in range(40):
        for j in range(i + 1):
            if i - j <= 3 or j in special or (i in special and name == "longformer"):
                mask[0, 0, i, j] = 0.0
    with attached(name, model) as handle:
        actual = logits(model, ids)
        assert handle.retained_pairs() == pytest.approx((mask == 0).sum().item() / 820)
        assert handle.keys_per_query() == pytest.approx((mask == 0).sum().item() / 40)
    torch.testing.assert_close(actual, logits(model, ids, attention_mask=mask), rtol=1e-4, atol=1e-4)


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


@pytest.mark.parametrize("name", list(BASELINES))
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
    with BASELINES["routing_transformer"](num_clusters=4, window=2).attach(tiny_model) as handle:
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


def test_the_mean_key_of_the_text_is_what_magicpig_centres_on(tiny_model):
    text = random_ids(20, batch=3, seed=8)
    keys = []
    with BASELINES["magicpig"](window=40).attach(tiny_model, text=text) as handle:
        method = handle.method
        observe = type(method).observe
        try:
            type(method).observe = lambda self, state, query, key: keys.append(key)
            handle.train()
            for row in text.split(1):  # a window over the text: keys are those of full attention
                logits(tiny_model, row)
        finally:
            type(method).observe = observe
        for index, layer in enumerate(handle.layers()):
            mean = torch.cat(keys[index::2]).mean(dim=(0, 2))
            torch.testing.assert_close(layer.state.centre[:, 0], mean, rtol=1e-4, atol=1e-5)


def test_full_layers_keep_their_own_attention(ids):
    model = build_model(num_hidden_layers=3)
    before = logits(model, ids)
    hidden: dict[str, torch.Tensor] = {}
    hook = model.model.layers[0].register_forward_hook(lambda m, a, out: hidden.__setitem__("now", out))
    logits(model, ids)
    first = hidden["now"]
    with attached("magicpig", model, full_layers=(0,)) as handle:
        sparse = logits(model, ids)
        torch.testing.assert_close(hidden["now"], first, rtol=1e-5, atol=1e-5)
        assert [layer.own for layer in handle.layers()] == [True, False, False]
    hook.remove()
    assert not torch.allclose(sparse, before, atol=1e-3)
    with pytest.raises(ConfigError, match="layer 3"):
        attached("magicpig", model, full_layers=(3,))
    with pytest.raises(ConfigError, match="nowhere"):
        attached("magicpig", model, full_layers=(0, 1, 2))
    assert torch.equal(logits(model, ids), before)


# --- sliding windows


def test_sliding_layers_keep_their_own_attention_among_global_ones(ids):
    model = build_model("Gemma2", sliding_window=8, layer_types=["sliding_attention", "full_attention"])
    before = logits(model, ids)
    with attached("window_only", model, window=40) as handle:
        assert [layer.own for layer in handle.layers()] == [True, False]
        torch.testing.assert_close(logits(model, ids), before, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", REPLACING)
def test_texts_beyond_the_models_own_window_are_refused(name, ids):
    model = build_model("Mistral", sliding_window=8)
    before = logits(model, ids)
    handle = BASELINES[name](**SPARSE[name]).attach(model)
    assert torch.isfinite(logits(model, ids[:, :8])).all()
    with pytest.raises(ModelError, match="last 8 tokens only, but the text has 40"):
        logits(model, ids)
    handle.detach()
    assert torch.equal(logits(model, ids), before)


# --- what a baseline cannot take


def test_padding_and_caches_are_refused(tiny_model, ids):
    mask = torch.ones_like(ids)
    with attached("window_only", tiny_model):
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


@pytest.mark.parametrize("name", REPLACING)
def test_two_methods_at_once_are_refused_and_leave_the_first_in_place(name, tiny_model, ids):
    with attached("longformer", tiny_model):
        before = logits(tiny_model, ids)
        with pytest.raises(ModelError, match="already replaces"):
            attached(name, tiny_model)
        assert torch.equal(logits(tiny_model, ids), before)
    focus = compose(tiny_model, build_centroids(tiny_model))
    with pytest.raises(ModelError, match="already replaces"):
        attached(name, tiny_model)
    with pytest.raises(ModelError, match="handle, not a model"):
        attached(name, focus)
    focus.detach()


@pytest.mark.parametrize("name", [*REPLACING, *TRAINED])
def test_a_handle_is_no_model(name, tiny_model):
    with attached("longformer", tiny_model) as handle, pytest.raises(ModelError, match="handle, not a model"):
        attached(name, handle)


@pytest.mark.parametrize("family", AROUND_THE_INTERFACE)
def test_models_that_bypass_the_attention_interface_are_refused(family, ids):
    model = build_model(family)
    before = logits(model, ids)
    with pytest.raises(ModelError, match=f"{type(model).__name__}.*attention interface"):
        attached("window_only", model)
    assert torch.equal(logits(model, ids), before)
    assert not any(STATE in vars(module) for module in model.modules())


def test_learned_sinks_are_not_dropped_silently(ids):
    model = build_model("GptOss")
    with BASELINES["window_only"]().attach(model), pytest.raises(ModelError, match="learned attention sinks"):
        logits(model, ids)


def test_a_twin_with_the_same_configuration_object_gets_a_clear_error(tiny_model, ids):
    twin = type(tiny_model)(tiny_model.config).eval()
    with attached("window_only", tiny_model), pytest.raises(ModelError, match="shares this model's configuration"):
        logits(twin, ids)


def test_a_copy_of_the_model_is_independent(tiny_model, ids):
    other = copy.deepcopy(tiny_model)
    before = logits(other, ids)
    with attached("window_only", tiny_model):
        assert tiny_model.config._attn_implementation == IMPLEMENTATION
        assert torch.equal(logits(other, ids), before)


@pytest.mark.parametrize("text", ["words", torch.rand(2, 8), torch.arange(8), torch.empty(0, 4, dtype=torch.long)])
@pytest.mark.parametrize("name", ["routing_transformer", "random_centroids"])
def test_a_text_that_is_none_is_refused_and_nothing_stays(name, text, tiny_model, ids):
    before = logits(tiny_model, ids)
    with pytest.raises(InputError, match="text is"):
        BASELINES[name]().attach(tiny_model, text=text)
    assert torch.equal(logits(tiny_model, ids), before)


def test_asking_too_early_or_too_late_is_said(tiny_model, ids):
    handle = BASELINES["window_only"]().attach(tiny_model)
    with pytest.raises(InputError, match="no forward pass"):
        handle.retained_pairs()
    handle.detach()
    with pytest.raises(InputError, match="detached"):
        handle.retained_pairs()


@pytest.mark.parametrize("family", ["Llama", "Qwen3", "Gemma2"])
@pytest.mark.parametrize("name", REPLACING)
def test_autocast(name, family, ids):
    """Autocast mixes dtypes between query, key and value."""
    if (name, family) == ("performer", "Gemma2"):
        pytest.skip("its scores are capped")
    model = family_model(family)
    with BASELINES[name](**SPARSE[name]).attach(model):
        expected = logits(model, ids)
        with torch.autocast("cpu", torch.bfloat16):
            actual = logits(model, ids)
        assert (actual.float() - expected).abs().mean() < 0.3 * expected.abs().mean()
        torch.testing.assert_close(logits(model, ids), expected)
