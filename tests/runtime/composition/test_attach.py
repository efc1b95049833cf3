"""Composing Focus onto tiny models of many families, and taking it off without a trace."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.composition.modes import SoftGate
from focus_runtime.errors import CentroidFileError, InputError, ModelError
from focus_runtime.models.structure import attention_modules
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.families import AROUND_THE_INTERFACE, family_model, logits

FAMILIES = ["Llama", "GPT2", "Mistral", "Qwen2", "Qwen3", "Olmo2", "Gemma2", "Phi3"]
KINDS = ["Llama", "GPT2", "Mistral", "Gemma2"]  # keys shared or not, a window of its own, a softcap


def explicit_mask(membership, window, sinks):
    """(B, 1, T, T) additive mask from METHOD section 3, by a double loop."""
    batch, length = membership.shape
    mask = torch.full((batch, 1, length, length), torch.finfo(torch.float32).min)
    for b in range(batch):
        groups = membership[b].tolist()
        for i in range(length):
            for j in range(i + 1):
                if groups[i] & groups[j] or i - j <= window or j < sinks:
                    mask[b, 0, i, j] = 0.0
    return mask


@pytest.mark.parametrize("family", FAMILIES)
def test_detach_gives_the_untouched_models_logits_bit_for_bit(family, ids):
    model = family_model(family)
    before = logits(model, ids)
    focus = compose(model, build_centroids(model))
    during = logits(model, ids)
    assert focus.seconds.calls == 2
    focus.reset_seconds()
    with focus.full_attention() as inner:
        assert inner is model
        assert torch.equal(logits(model, ids), before)
    assert (focus.seconds.routing, focus.seconds.calls) == (0.0, 0)
    assert torch.equal(logits(model, ids), during)
    focus.detach()
    assert torch.equal(logits(model, ids), before)
    assert not torch.allclose(during, before, atol=1e-3)


@pytest.mark.parametrize("family", KINDS)
def test_where_every_pair_is_kept_it_is_full_attention(family, ids):
    model = family_model(family)
    before = logits(model, ids)
    focus = compose(model, build_centroids(model), num_sinks=0)
    try:
        for settings in ({"window": 39}, {"top_k": 4, "window": 0}):
            with focus.with_config(focus.config.replace(**settings)):
                torch.testing.assert_close(logits(model, ids), before, rtol=1e-5, atol=1e-5)
    finally:
        focus.detach()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_mask_in_the_model_is_the_definition(family, ids):
    """Eager attention with an explicit 4-d mask gives the same logits. One layer, so one mask serves the model."""
    model = build_model(family, num_hidden_layers=1)
    assert len(attention_modules(model)) == 1
    full = logits(model, ids)
    for top_k in (1, 2):
        focus = compose(model, build_centroids(model, num_groups=6), top_k=top_k, window=3, num_sinks=2)
        actual = logits(model, ids)
        membership = focus.assignments()[0].membership
        focus.detach()
        expected = logits(model, ids, attention_mask=explicit_mask(membership, 3, 2))
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
        assert not torch.allclose(actual, full, atol=1e-3)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_detach_restores_the_implementation_weights_and_hooks(implementation, ids):
    model = build_model(implementation=implementation)
    before, weights = logits(model, ids), {n: p.clone() for n, p in model.named_parameters()}
    hooks = [len(m._forward_pre_hooks) for m in model.modules()]
    keys = [set(vars(m)) for m in model.modules()]
    focus = compose(model, build_centroids(model))
    logits(model, ids)
    assert focus.detach() is model
    assert model.config._attn_implementation == implementation
    assert [len(m._forward_pre_hooks) for m in model.modules()] == hooks
    assert [set(vars(m)) for m in model.modules()] == keys
    assert all(torch.equal(p, weights[n]) for n, p in model.named_parameters())
    assert torch.equal(logits(model, ids), before)


def test_composing_twice_is_refused_and_leaves_the_first_in_place(tiny_model, ids):
    centroids = build_centroids(tiny_model)
    plain = logits(tiny_model, ids)
    first = compose(tiny_model, centroids)
    sparse = logits(tiny_model, ids)
    with pytest.raises(ModelError, match="already has Focus"):
        compose(tiny_model, centroids)
    assert torch.equal(logits(tiny_model, ids), sparse)
    first.detach()
    assert torch.equal(logits(tiny_model, ids), plain)
    compose(tiny_model, centroids).detach()


def test_an_exception_inside_full_attention_returns_to_focus(tiny_model, ids):
    focus = compose(tiny_model, build_centroids(tiny_model))
    sparse = logits(tiny_model, ids)
    for context in (focus.full_attention, focus.measured_full_attention, lambda: focus.entered(SoftGate())):
        with pytest.raises(KeyError), context():
            raise KeyError("inside")
        assert torch.equal(logits(tiny_model, ids), sparse)


@pytest.mark.parametrize("family", KINDS)
def test_measured_full_attention_is_full_attention(family, ids):
    model = family_model(family)
    padded = {side: torch.ones_like(ids) for side in ("left", "right")}
    padded["left"][:, :5] = padded["right"][:, -5:] = 0
    plain = {side: logits(model, ids, attention_mask=mask) for side, mask in (padded | {"none": None}).items()}
    focus = compose(model, build_centroids(model))
    try:
        for side, before in plain.items():
            kept = padded[side][0].bool() if side in padded else slice(None)
            focus.reset_seconds()
            with focus.measured_full_attention():
                actual = logits(model, ids, attention_mask=padded.get(side))
            torch.testing.assert_close(actual[:, kept], before[:, kept], rtol=1e-5, atol=1e-5)
            assert focus.seconds.calls == 2
            assert focus.seconds.routing == 0.0
            assert focus.assignments() == {}
    finally:
        focus.detach()


# --- padding


def batch_of(lengths, total, side):
    """Texts padded to one length, their mask, and position ids that count real tokens only."""
    ids, mask = torch.zeros(len(lengths), total, dtype=torch.long), torch.zeros(len(lengths), total, dtype=torch.long)
    texts = [random_ids(n, seed=10 + i) for i, n in enumerate(lengths)]
    for row, text in enumerate(texts):
        place = slice(total - text.shape[1], total) if side == "left" else slice(0, text.shape[1])
        ids[row, place], mask[row, place] = text[0], 1
    return texts, ids, mask, (mask.cumsum(-1) - 1).clamp_min(0)


@pytest.mark.slow
@pytest.mark.parametrize("family", KINDS)
@pytest.mark.parametrize("assignment", ["causal", "sinkhorn"])
def test_padded_batches_equal_single_runs(family, assignment):
    model = family_model(family)
    focus = compose(model, build_centroids(model), window=3, num_sinks=2, assignment=assignment)
    try:
        for side in ("left", "right"):
            texts, ids, mask, positions = batch_of([30, 17, 25], 30, side)
            batched = logits(model, ids, attention_mask=mask, position_ids=positions)
            for row, text in enumerate(texts):
                torch.testing.assert_close(
                    batched[row][mask[row].bool()],
                    logits(model, text)[0],
                    rtol=1e-4,
                    atol=1e-4,
                    msg=lambda m, side=side: f"{side} {m}",
                )
    finally:
        focus.detach()


# --- what the handle tells


def test_assignments_cover_every_layer_and_come_from_the_modules_input(tiny_model, ids):
    centroids = build_centroids(tiny_model)
    seen = {}
    for index, module in attention_modules(tiny_model).items():
        module.register_forward_pre_hook(
            lambda m, a, kw, index=index: seen.__setitem__(index, kw["hidden_states"]), with_kwargs=True
        )
    focus = compose(tiny_model, centroids)
    logits(tiny_model, ids)
    assert sorted(focus.assignments()) == [0, 1]
    for index, assignment in focus.assignments().items():
        router = centroids.routers[index]
        scores = seen[index] @ router.projection @ router.centroids.T / 0.1 + router.potential
        assert torch.equal(assignment.membership, 1 << scores.argmax(-1))


def test_layers_without_a_router_keep_full_attention(ids):
    model = build_model(num_hidden_layers=3)
    focus = compose(model, build_centroids(model, layers=(1,)))
    hidden: dict[str, torch.Tensor] = {}
    handle = model.model.layers[0].register_forward_hook(lambda m, a, out: hidden.__setitem__("now", out))
    sparse = logits(model, ids)
    first = hidden["now"]
    assert list(focus.assignments()) == [1]
    focus.detach()
    full = logits(model, ids)
    handle.remove()
    torch.testing.assert_close(first, hidden["now"], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(sparse, full, atol=1e-3)


@pytest.mark.parametrize("family", ["Llama", "Gemma2"])
def test_straight_through_training_sees_the_hard_mask(family, ids):
    model = family_model(family)
    focus = compose(model, build_centroids(model))
    try:
        sparse = logits(model, ids)
        with focus.entered(SoftGate("log", hard=True)):
            torch.testing.assert_close(logits(model, ids), sparse, rtol=1e-5, atol=1e-5)
        with focus.entered(SoftGate("log")):
            assert not torch.allclose(logits(model, ids), sparse, atol=1e-3)
    finally:
        focus.detach()


@pytest.mark.parametrize("family", ["Llama", "Gemma2"])
def test_autocast(family, ids):
    """Autocast mixes dtypes between query, key and value."""
    model = family_model(family)
    focus = compose(model, build_centroids(model), window=8)
    try:
        expected = logits(model, ids)
        with torch.autocast("cpu", torch.bfloat16):
            actual = logits(model, ids)
        assert (actual.float() - expected).abs().mean() < 0.1 * expected.abs().mean()
        torch.testing.assert_close(logits(model, ids), expected)  # and leaves nothing behind
    finally:
        focus.detach()


def test_threads_do_not_mix_their_groups():
    model = build_model()
    texts = [random_ids(40, seed=seed) for seed in range(4)]
    focus = compose(model, build_centroids(model))
    expected = [logits(model, text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        outputs = list(pool.map(lambda number: logits(model, texts[number % 4]), range(80)))
    focus.detach()
    for number, one in enumerate(outputs):
        torch.testing.assert_close(one, expected[number % 4], rtol=1e-5, atol=1e-5)


def test_other_settings_hold_for_a_block_alone(tiny_model, ids):
    focus = compose(tiny_model, build_centroids(tiny_model))
    before = logits(tiny_model, ids)
    with focus.full_attention():
        full = logits(tiny_model, ids)
    with focus.with_config(focus.config.replace(window=64)):
        torch.testing.assert_close(logits(tiny_model, ids), full, rtol=1e-4, atol=1e-4)
    assert torch.equal(logits(tiny_model, ids), before)
    assert not torch.allclose(before, full, rtol=1e-4, atol=1e-4)
    focus.detach()


def test_long_texts_train_on_the_hard_mask_without_all_pairs(ids, monkeypatch):
    model = family_model("Llama")
    focus = compose(model, build_centroids(model))
    router = focus.routers[1].projection
    try:
        sparse = logits(model, ids)
        gradients = []
        for limit in (10_000, 10):
            monkeypatch.setattr("focus_runtime.composition.modes.DENSE_UP_TO", limit)
            with focus.entered(SoftGate("log", hard=True)):
                out = model(input_ids=ids, use_cache=False).logits
            torch.testing.assert_close(out, sparse, rtol=1e-5, atol=1e-5)
            gradients.append(torch.autograd.grad(out.square().sum(), [router])[0])
    finally:
        focus.detach()
    assert gradients[1].abs().max() > 0
    assert not torch.allclose(gradients[0], gradients[1], rtol=1e-2)  # dropped pairs give no gradient in linear memory


# --- settings and models that do not fit


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"top_k": 0}, "top_k"),
        ({"top_k": 5}, "top_k"),
        ({"window": -1}, "window"),
        ({"num_sinks": -1}, "num_sinks"),
        ({"assignment": "soft"}, "assignment"),
        ({"backend": "fast"}, "backend"),
    ],
)
def test_bad_settings_are_named_and_leave_the_model_alone(settings, name, tiny_model, ids):
    before = logits(tiny_model, ids)
    with pytest.raises(InputError, match=name):
        compose(tiny_model, build_centroids(tiny_model), **settings)
    assert torch.equal(logits(tiny_model, ids), before)


def test_causal_assignment_needs_potentials(tiny_model):
    centroids = build_centroids(tiny_model, potentials=False)
    with pytest.raises(InputError, match="calibrate_potentials"):
        compose(tiny_model, centroids)
    compose(tiny_model, centroids, assignment="sinkhorn").detach()


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"num_hidden_layers": 3}, "2 attention layers.*has 3"), ({"hidden_size": 32}, "width 64.*32 wide")],
)
def test_centroids_of_another_model_are_refused(changes, words, tiny_model):
    other = build_model(**changes)
    with pytest.raises(CentroidFileError, match=words):
        compose(other, build_centroids(tiny_model))
    assert other.config._attn_implementation == "eager"


@pytest.mark.parametrize("family", AROUND_THE_INTERFACE)
def test_models_that_bypass_the_attention_interface_are_refused(family, ids):
    """transformers only warns; without a check the result would be full attention called Focus."""
    model = build_model(family)
    before = logits(model, ids)
    with pytest.raises(ModelError, match=f"{type(model).__name__}.*attention interface"):
        compose(model, build_centroids(model))
    assert torch.equal(logits(model, ids), before)


def test_another_model_with_the_same_configuration_object_gets_a_clear_error(tiny_model, ids):
    twin = type(tiny_model)(tiny_model.config).eval()
    focus = compose(tiny_model, build_centroids(tiny_model))
    with pytest.raises(ModelError, match="same configuration object"):
        logits(twin, ids)
    focus.detach()
    logits(twin, ids)
