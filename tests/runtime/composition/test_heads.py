"""Heads of one layer with settings of their own, against eager attention with one explicit mask for each head."""

from __future__ import annotations

import pytest
import torch
from transformers import StaticCache

from focus_runtime.attention.fused import fused_available
from focus_runtime.composition import attend, decode
from focus_runtime.composition.attach import compose
from focus_runtime.composition.modes import SoftGate
from focus_runtime.errors import ConfigError, InputError
from focus_runtime.measure.attention_mass import MASS_CAUSES, mass_under_groups
from focus_runtime.measure.loss import layer_shares
from focus_runtime.measure.perplexity import score
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.composition.test_attach import explicit_mask
from tests.runtime.explain.dense import head_allowed
from tests.runtime.families import logits

K, SINKS, WINDOW = 6, 2, 3
FAMILIES = ["Llama", "GPT2", "Gemma2", "Qwen3", "Phi3", "Mistral"]
# every kind of exception; heads 0 and 3 are the only ones alike and do not lie side by side
BUDGET = [{"layer": 0, "head": 1, "full": True}, {"layer": 0, "head": 2, "top_k": 3, "window": 1}]
# two query heads share a key head: both of key head 0 differ, head 3 has no groups, head 6 sees everything
BY_QUERY = [
    {"layer": 0, "query_head": 1, "top_k": 3, "window": 1},
    {"layer": 0, "head": 1, "window": 5},
    {"layer": 0, "query_head": 3, "top_k": 0},
    {"layer": 0, "query_head": 6, "full": True},
]
USUAL, FULL = (1, WINDOW), (K, 0)  # top-k and window; in all groups every token sees every other
BY_KEY_HEAD = (BUDGET, (USUAL, FULL, (3, 1), USUAL))
BY_QUERY_HEAD = (BY_QUERY, (USUAL, (3, 1), (1, 5), (0, WINDOW), USUAL, USUAL, FULL, USUAL))
both_budgets = pytest.mark.parametrize("executed", [BY_KEY_HEAD, BY_QUERY_HEAD], ids=["key heads", "query heads"])


def wide_model(family, **changes):
    """Four key-value heads; with eight query heads where the family shares keys."""
    heads = {"num_attention_heads": 4 if family == "GPT2" else 8, "num_key_value_heads": 4}
    sliding = {"sliding_window": 10} if family == "Mistral" else {}
    return build_model(family, num_hidden_layers=1, **heads, **sliding, **changes)


def top_groups(focus, top_k):
    """(B, T) bit sets from the probabilities, by a loop over ranks."""
    order = focus.assignments()[0].probabilities.sort(dim=-1, descending=True, stable=True).indices
    return sum((1 << order[..., rank] for rank in range(top_k)), start=torch.zeros_like(order[..., 0]))


def mask_of(focus, settings):
    """(B, Hq, T, T) additive mask of heads with these settings, written out, within the layer's own sliding window."""
    config = focus.model.config
    masks = [explicit_mask(top_groups(focus, top_k), window, SINKS) for top_k, window in settings]
    mask = torch.cat([mask for mask in masks for _ in range(config.num_attention_heads // len(settings))], dim=1)
    sliding = config.sliding_window if config.model_type == "mistral" else None
    if sliding is not None:
        length = mask.shape[-1]
        distance = torch.arange(length)[:, None] - torch.arange(length)
        mask = mask.masked_fill(distance >= sliding, torch.finfo(torch.float32).min)
    return mask


@pytest.fixture
def centroids_of(fresh_seed):
    return lambda model: build_centroids(model, seed=fresh_seed, num_groups=K, window=WINDOW, num_sinks=SINKS)


@pytest.mark.parametrize("family", FAMILIES)
@both_budgets
def test_every_head_executes_its_own_setting(executed, family, ids, centroids_of):
    model, (budget, settings) = wide_model(family), executed
    if model.config.num_attention_heads < len(settings):
        pytest.skip("a key head for each query head")
    before = logits(model, ids)
    focus = compose(model, centroids_of(model), budget=budget)
    actual, mask = logits(model, ids), mask_of(focus, settings)
    assert "full attention" in focus.backends()[0]
    focus.detach()
    torch.testing.assert_close(actual, logits(model, ids, attention_mask=mask), rtol=1e-5, atol=1e-5)
    assert torch.equal(logits(model, ids), before)
    assert not torch.allclose(actual, before, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend", ["reference", "masked", "decomposed", pytest.param("flex", marks=pytest.mark.long), "fused"]
)
@both_budgets
def test_every_backend_agrees(executed, backend, ids, centroids_of):
    if backend == "fused" and not fused_available():
        pytest.skip("needs a C++ compiler")
    model, (budget, settings) = wide_model("Llama"), executed
    focus = compose(model, centroids_of(model), budget=budget, backend=backend)
    actual = logits(model, ids)
    assert set(focus.backends()[0].split(", ")) == {backend, "full attention"}
    mask = mask_of(focus, settings)
    focus.detach()
    torch.testing.assert_close(actual, logits(model, ids, attention_mask=mask), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "cached", "compiled"),
    [
        ("Llama", "dynamic", True),
        ("Llama", "static", False),
        ("Gemma2", "static", True),
        ("Mistral", "dynamic", True),
        ("Mistral", "static", False),
    ],
)
@both_budgets
def test_decoding_continues_with_every_heads_groups(executed, family, cached, compiled, centroids_of, monkeypatch):
    """A prefill, several tokens at once, and single ones give the logits of the whole text."""
    if compiled and not fused_available():
        pytest.skip("needs a C++ compiler")
    model, (budget, _) = wide_model(family), executed
    ids = random_ids(40, batch=2, seed=5)
    focus = compose(model, centroids_of(model), budget=budget)
    whole = logits(model, ids)
    if not compiled:
        for module in (attend, decode):
            monkeypatch.setattr(module, "step_fits", lambda *tensors: False)
        monkeypatch.setattr(decode, "few_tokens_fit", lambda hidden: False)
    cache = StaticCache(config=model.config, max_cache_len=48) if cached == "static" else None
    parts = []
    with torch.no_grad():
        for first, last in [(0, 17), (17, 22), *((t, t + 1) for t in range(22, 40))]:
            result = model(ids[:, first:last], past_key_values=cache, use_cache=True)
            cache = result.past_key_values
            parts.append(result.logits)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-4, atol=1e-4)
    focus.detach()


def test_a_cache_is_not_continued_with_another_budget(centroids_of):
    model = wide_model("Llama")
    focus = compose(model, centroids_of(model), budget=BUDGET)
    cache = model(random_ids(12), use_cache=True).past_key_values
    focus.config = focus.config.replace(budget=BUDGET[:1])
    with pytest.raises(InputError, match="another top_k or budget"):
        model(random_ids(1), past_key_values=cache, use_cache=True)
    focus.detach()


def test_a_layer_of_full_heads_attends_as_the_model_does(ids, centroids_of):
    model = build_model(num_hidden_layers=1)
    before = logits(model, ids)
    centroids = centroids_of(build_model())
    del centroids.routers[1]
    centroids.num_model_layers = 1
    focus = compose(model, centroids)
    focus.config = focus.config.replace(budget=[{"layer": 0, "full": True}])
    torch.testing.assert_close(logits(model, ids), before, rtol=1e-5, atol=1e-5)
    assert layer_shares(focus.head_masks()[0]) == (1.0, 1.0)
    focus.detach()


def test_a_budget_is_checked_against_the_model(centroids_of):
    model = build_model()
    for budget, words in (
        ([{"layer": 2, "full": True}], "names layer 2, which has no router"),
        ([{"layer": 0, "head": 2, "full": True}], "names layer 0, head 2, but a layer of this model has 2"),
        ([{"layer": 0, "query_head": 4, "full": True}], "query head 4, but a layer of this model has 4 query heads"),
        ([{"layer": 0, "full": True}, {"layer": 1, "full": True}], "Focus would run nowhere"),
    ):
        with pytest.raises(ConfigError, match=words):
            compose(model, centroids_of(model), budget=budget)
        assert "focus" not in model.config._attn_implementation


@pytest.mark.parametrize("hard", [False, True])
def test_training_gates_follow_the_budget(hard, ids, centroids_of):
    """The same exception for every head is another configuration; a full head passes no gradient to the router."""
    model = wide_model("Llama")
    gate = SoftGate(hard=hard)

    def loss_and_gradient(**settings):
        centroids = centroids_of(model)
        for router in centroids.routers.values():
            router.requires_grad_(True)
        focus = compose(model, centroids, assignment="sinkhorn", **settings)
        with focus.entered(gate):
            loss = model(ids, use_cache=False).logits.square().mean()
        focus.detach()
        loss.backward()
        return loss.detach(), [p.grad for r in centroids.routers.values() for p in r.parameters()]

    by_head = loss_and_gradient(budget=[{"layer": 0, "head": h, "top_k": 2, "window": 1} for h in range(4)])
    uniform = loss_and_gradient(top_k=2, window=1)
    torch.testing.assert_close(by_head, uniform)
    one_full = loss_and_gradient(budget=BUDGET[:1])
    assert not torch.equal(one_full[0], loss_and_gradient()[0])
    assert all(torch.isfinite(gradient).all() and gradient.abs().sum() > 0 for gradient in one_full[1])


def test_distant_pairs_are_those_of_the_heads_that_have_some(ids, centroids_of):
    model = wide_model("Llama")
    length = ids.shape[1]
    focus = compose(model, centroids_of(model), budget=[*BUDGET[1:], {"layer": 0, "head": 1, "window": length}])
    logits(model, ids)
    settings = (USUAL, (1, length), (3, 1), USUAL)
    place, allowed, shares = torch.arange(length), mask_of(focus, settings)[:, ::2] == 0, []
    for head, window in ((0, WINDOW), (2, 1), (3, WINDOW)):
        beyond = (place[:, None] - place > window) & (place >= SINKS)
        shares += [own[beyond].float().mean() for own in allowed[:, head]]
    assert layer_shares(focus.head_masks()[0])[1] == pytest.approx(torch.stack(shares).mean().item())
    assert score(focus, ids[:1]).mean_distant_kept < 1
    focus.config = focus.config.replace(budget=(), window=length)
    logits(model, ids)
    assert layer_shares(focus.head_masks()[0]) == (1.0, None)
    assert score(focus, ids).mean_distant_kept is None
    focus.detach()


@both_budgets
def test_masks_shares_and_mass_are_those_of_every_head(executed, ids, centroids_of):
    model, (budget, settings) = wide_model("Llama").double(), executed
    weights = model(input_ids=ids[:1], use_cache=False, output_attentions=True).attentions[0][0]
    focus = compose(model, centroids_of(model), budget=budget)
    logits(model, ids[:1])
    mask, length = mask_of(focus, settings), ids.shape[1]
    kept = (mask == 0).float().sum(dim=(2, 3)).mean() / (length * (length + 1) / 2)
    assert layer_shares(focus.head_masks()[0])[0] == pytest.approx(kept.item())
    assert score(focus, ids[:1]).retained_pairs.mean() == pytest.approx(kept.item())
    assert torch.equal(head_allowed(focus)[0], mask[0] == 0)
    mass = mass_under_groups(focus, ids[:1], focus.head_masks())
    expected = (weights * (mask[0] != 0)).sum(dim=-1).mean(dim=-1)
    place = MASS_CAUSES.index("dropped")
    torch.testing.assert_close(mass[0, 0, :, place], expected.double(), rtol=1e-5, atol=1e-7)
    focus.detach()


def test_gradients_of_heads_that_no_slice_selects(ids, centroids_of):
    """Autograd refuses writes by number into a view that a slice wrote into: head 0, then heads 1, 2 and 5."""
    model = wide_model("Llama").double()
    own = {0: 12, 3: 9, 4: 9, 6: 9, 7: 9}
    budget = [{"layer": 0, "query_head": head, "window": window} for head, window in own.items()]
    weights, mask = model.get_input_embeddings().weight, None

    def gradient():
        weights.grad = None
        model(ids, use_cache=False, attention_mask=mask).logits.square().mean().backward()
        return weights.grad.clone()

    focus = compose(model, centroids_of(model), budget=budget, assignment="sinkhorn")
    actual = gradient()
    groups = top_groups(focus, 1)
    focus.detach()
    mask = torch.cat([explicit_mask(groups, own.get(head, WINDOW), SINKS) for head in range(8)], dim=1).double()
    expected = gradient()
    assert (actual - expected).norm() < 1e-5 * expected.norm()
