"""Factors of logits by the share of a text beyond the window, whole and step by step; full attention knows none."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from focus_runtime.budget import HeadException, HeadSetting
from focus_runtime.composition.attach import compose
from focus_runtime.composition.modes import Alternatives
from focus_runtime.errors import CentroidFileError, ConfigError
from focus_runtime.fit.objective import layer_errors
from focus_runtime.models.structure import attention_modules, head_counts, sliding_window_of
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.explain.dense import explicit_masks, head_allowed

BUDGET = (
    HeadException(layer=0, head=1, window=9),
    HeadException(layer=1, head=0, top_k=2),
    HeadException(layer=2, head=1, full=True),
)


def with_factors(model, seed, **changes):
    """Centroids with factors between a half and two."""
    centroids = build_centroids(model, window=3)
    generator = torch.Generator().manual_seed(seed)
    for router in centroids.routers.values():
        values = torch.rand(head_counts(model).query, generator=generator) * 1.5 + 0.5
        router.logit_factors = torch.nn.Parameter(values, requires_grad=False)
    centroids.config = centroids.config.replace(logit_factors=True, **changes)
    return centroids


def by_row(model, centroids, length, budget):
    """What each row's logits are multiplied by, (Hq, T) float64 for every layer, from the definition."""
    table = {}
    for index, module in attention_modules(model).items():
        seen = [min(n, sliding_window_of(module) or n) for n in range(1, length + 1)]
        factors = centroids.routers[index].logit_factors.tolist()
        rows = []
        for head, factor in enumerate(factors):
            own = {entry.head: entry for entry in budget if entry.layer == index}.get(head // 2)  # two share a key head
            if own is not None and own.full:
                rows.append([1.0] * length)
                continue
            reach = (own.window if own is not None and own.window is not None else 3) + 1
            rows.append([factor ** max(0.0, (n - reach) / n) for n in seen])
        table[index] = torch.tensor(rows, dtype=torch.float64)
    return table


@pytest.mark.parametrize(
    ("family", "budget"), [("Llama", ()), *((family, BUDGET) for family in ("Llama", "Gemma2", "Qwen3", "Mistral"))]
)
def test_they_are_logits_multiplied_by_the_share_beyond_each_window(family, budget, fresh_seed):
    model = build_model(family, num_hidden_layers=3)
    centroids = with_factors(model, fresh_seed)
    ids = random_ids(50, seed=fresh_seed % 1000)
    exact, factors = copy.deepcopy(model).double(), by_row(model, centroids, 50, budget)
    focus = compose(model, centroids, budget=budget, sliding_layers="focus")
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits
        masks = head_allowed(focus)
        with focus.full_attention():
            full = model(ids, use_cache=False).logits
    focus.detach()
    with torch.no_grad():
        torch.testing.assert_close(full, model(ids, use_cache=False).logits)
        with explicit_masks(exact, masks, factors=factors):
            expected = exact(ids, use_cache=False).logits
    torch.testing.assert_close(logits.double(), expected, rtol=2e-4, atol=2e-4)
    assert not torch.allclose(logits, full, atol=1e-2)


@pytest.mark.parametrize("setting", [HeadSetting(0, 0, full=True), HeadSetting(1, 12), HeadSetting(2, 0)], ids=str)
def test_other_settings_are_measured_with_the_factors_that_they_would_have(setting, fresh_seed):
    model = build_model(num_hidden_layers=1)
    ids = random_ids(40, seed=fresh_seed % 1000)
    focus = compose(model, with_factors(model, fresh_seed), top_k=1)
    wide = {"full": True} if setting.full else {"top_k": setting.top_k, "window": setting.window}
    outputs = []
    project = next(iter(attention_modules(model).values())).o_proj
    project.register_forward_pre_hook(lambda module, args: outputs.append(args[0].sum()))
    with focus.entered(Alternatives((setting,))) as alternatives:
        model(ids, use_cache=False)
    (slope,) = torch.autograd.grad(outputs[0], [alternatives.weights[0]])
    budget = tuple(HeadException(layer=0, head=head, **wide) for head in range(2))
    with torch.no_grad(), focus.with_config(focus.config.replace(budget=budget)):
        model(ids, use_cache=False)
    torch.testing.assert_close(slope.sum(), outputs[1] - outputs[0].detach(), rtol=1e-3, atol=1e-3)


def test_layers_are_compared_with_full_attention_as_it_is(fresh_seed):
    model = build_model(num_hidden_layers=3)
    centroids = with_factors(model, fresh_seed)
    for router in centroids.routers.values():  # none near 1, which changes nothing
        router.logit_factors.copy_(torch.where(router.logit_factors > 1, 2.0, 0.4))
    ids = random_ids(60, seed=fresh_seed % 1000)
    every = centroids.config.num_groups  # the mask drops nothing: only factors change something
    focus = compose(model, centroids, top_k=every)
    assert all(error.item() > 1e-4 for error in layer_errors(focus, ids).values())
    focus.detach()
    focus = compose(model, centroids, top_k=every, logit_factors=False)
    assert all(error.item() < 1e-10 for error in layer_errors(focus, ids).values())


def test_a_file_keeps_them_in_a_version_of_its_own(tmp_path, fresh_seed):
    model = build_model()
    centroids = with_factors(model, fresh_seed)
    path = tmp_path / "factors.safetensors"
    save_centroids(centroids, path)
    assert safe_open(path, "pt").metadata()["format_version"] == "5"
    read = load_centroids(path)
    assert read.config == centroids.config
    for index, router in centroids.routers.items():
        assert torch.equal(read.routers[index].logit_factors, router.logit_factors)
    assert save_centroids(read, tmp_path / "again.safetensors") == read.sha256


def test_those_of_the_older_rule_are_left_out_and_said_to_be(tmp_path, fresh_seed):
    model = build_model()
    centroids = with_factors(model, fresh_seed)
    path, older = tmp_path / "now.safetensors", tmp_path / "older.safetensors"
    save_centroids(centroids, path)
    save_file(load_file(path), older, safe_open(path, "pt").metadata() | {"format_version": "4"})
    read = load_centroids(older)
    assert not read.config.logit_factors
    assert all(router.logit_factors is None for router in read.routers.values())
    assert any("format version 4" in warning and "--learn factors" in warning for warning in read.warnings)
    save_centroids(read, tmp_path / "again.safetensors")
    again = safe_open(tmp_path / "again.safetensors", "pt").metadata()
    assert again["format_version"] == "1"
    assert "logit_factors" not in json.loads(again["config"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (torch.tensor([1.0, float("nan"), 1.0, 1.0]), "outside its range"),
        (torch.tensor([1.0, -1.0, 1.0, 1.0]), "outside its range"),
        (torch.tensor([1.0, 1.0, 1.0, 101.0]), "outside its range"),
        (torch.ones(2, 2), "one number a head"),
        (None, "its configuration says all"),
        (torch.ones(3), "query heads"),
    ],
)
def test_what_cannot_be_used_is_refused(values, message, tmp_path):
    model = build_model()
    centroids = build_centroids(model)
    for router in centroids.routers.values():
        router.logit_factors = None if values is None else torch.nn.Parameter(values.clone(), requires_grad=False)
    centroids.config = centroids.config.replace(logit_factors=True)
    save_centroids(centroids, tmp_path / "a.safetensors")
    with pytest.raises(CentroidFileError, match=message):
        compose(model, load_centroids(tmp_path / "a.safetensors"))


@pytest.mark.parametrize("growth", [None, (3, 12), (2, 9)])
@pytest.mark.parametrize("factors", [True, False])
@torch.no_grad()
def test_up_to_so_many_tokens_focus_is_full_attention(growth, factors, fresh_seed):
    """A token more is enough for another result: `FocusConfig.full_up_to` is neither too large nor too small."""
    model = build_model(num_hidden_layers=3)
    centroids = with_factors(model, fresh_seed, window_growth=growth, num_sinks=2)
    budget = (HeadException(layer=1, query_head=0, top_k=0, window=2), HeadException(layer=2, full=True))
    centroids.config = centroids.config.replace(budget=budget, logit_factors=factors)
    most = centroids.config.full_up_to
    for length, same in ((most, True), (most + 1, False)):
        ids = random_ids(length, seed=fresh_seed % 1000)
        plain = model(input_ids=ids, use_cache=False).logits
        focus = compose(model, centroids)
        sparse = model(input_ids=ids, use_cache=False).logits
        focus.detach()
        assert torch.allclose(sparse, plain, rtol=1e-5, atol=1e-5) is same, (length, most)


def test_factors_that_the_configuration_does_not_name_are_refused_and_not_written(tmp_path, fresh_seed):
    model = build_model()
    centroids = with_factors(model, fresh_seed)
    save_centroids(centroids, tmp_path / "with.safetensors")
    centroids.config = centroids.config.replace(logit_factors=False)
    save_centroids(centroids, tmp_path / "without.safetensors")
    without = load_centroids(tmp_path / "without.safetensors")
    assert all(router.logit_factors is None for router in without.routers.values())
    assert safe_open(tmp_path / "without.safetensors", "pt").metadata()["format_version"] == "1"
    metadata = safe_open(tmp_path / "without.safetensors", "pt").metadata()
    save_file(load_file(tmp_path / "with.safetensors"), tmp_path / "mixed.safetensors", metadata)
    with pytest.raises(CentroidFileError, match="its configuration says none"):
        load_centroids(tmp_path / "mixed.safetensors")


def test_the_setting_is_true_or_false_and_needs_them():
    model = build_model()
    with pytest.raises(ConfigError, match="no factors of the logits"):
        compose(model, build_centroids(model), logit_factors=True)
    with pytest.raises(ConfigError, match="logit_factors"):
        build_centroids(build_model()).config.replace(logit_factors=1)
