"""Windows that grow with the position, in a model: whole texts, caches, padding, training, files."""

from __future__ import annotations

import copy

import pytest
import torch
from safetensors import safe_open
from transformers import StaticCache

from focus_runtime.budget import HeadException
from focus_runtime.composition.attach import compose
from focus_runtime.config import CONSTANT
from focus_runtime.errors import CentroidFileError, ConfigError
from focus_runtime.models.structure import attention_modules, head_counts, sliding_window_of
from focus_runtime.routing import centroid_file
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.explain.dense import explicit_masks, head_allowed
from tests.runtime.families import logits

WINDOW, GROWTH, LENGTH = 3, (10, 35), 60
FAMILIES = ["Llama", "GPT2", "Gemma2", "Qwen3", "Mistral"]
BUDGET = (
    HeadException(layer=0, head=1, window=6),
    HeadException(layer=1, head=0, top_k=2),
    HeadException(layer=1, head=1, top_k=0, window=1),
    HeadException(layer=2, head=1, full=True),
)


def growing(model, seed=0, **settings):
    return build_centroids(model, seed=seed, window=WINDOW, num_sinks=1, window_growth=GROWTH, **settings)


def with_factors(centroids, seed):
    generator = torch.Generator().manual_seed(seed)
    for router in centroids.routers.values():
        values = torch.rand(head_counts(build_model()).query, generator=generator) + 0.5
        router.logit_factors = torch.nn.Parameter(values, requires_grad=False)
    centroids.config = centroids.config.replace(logit_factors=True)
    return centroids


def grown(position):
    """How many times as long the windows of a query are, from the definition."""
    return max(GROWTH[0], min(position, GROWTH[1])) / GROWTH[0]


def by_row(model, centroids, budget):
    """What each row's logits are multiplied by, (Hq, T) float64 for every layer, from the definition."""
    table = {}
    for index, module in attention_modules(model).items():
        sliding, rows = sliding_window_of(module) or LENGTH, []
        for head, factor in enumerate(centroids.routers[index].logit_factors.tolist()):
            own = {entry.head: entry for entry in budget if entry.layer == index}.get(head // 2)  # two share a key head
            window = WINDOW if own is None or own.window is None else own.window
            shares = [max(0.0, 1 - (window + 1) * grown(i) / min(i + 1, sliding)) for i in range(LENGTH)]
            rows.append([1.0 if own is not None and own.full else factor**share for share in shares])
        table[index] = torch.tensor(rows, dtype=torch.float64)
    return table


def grown_masks(focus):
    """What the mask would be without groups, sinks and layers' own windows, at least: (T, T) by layer and head."""
    distance, masks = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH), {}
    for layer, of_heads in focus.head_masks().items():
        masks[layer] = {}
        for mask in of_heads:
            setting = mask.group.setting
            near = torch.tensor([int(setting.window * grown(place) + 1e-9) for place in range(LENGTH)])
            if not setting.full:
                own = (distance >= 0) & (distance <= near[:, None])
                masks[layer] |= dict.fromkeys(mask.group.heads, own)
    return masks


@pytest.mark.slow
@pytest.mark.parametrize(("family", "budget"), [("Llama", ()), *((family, BUDGET) for family in FAMILIES)])
def test_a_whole_text_is_that_under_the_grown_masks(family, budget, fresh_seed):
    model = build_model(family, num_hidden_layers=3)
    centroids = growing(model, fresh_seed)
    factors = None
    if family != "GPT2":  # whose heads share no keys
        with_factors(centroids, fresh_seed)
        factors = by_row(model, centroids, budget)
    ids, exact = random_ids(LENGTH, seed=fresh_seed % 1000), copy.deepcopy(model).double()
    focus = compose(model, centroids, budget=budget, sliding_layers="focus")
    actual = logits(model, ids)
    masks = head_allowed(focus)
    for layer, of_heads in grown_masks(focus).items():
        reach = sliding_window_of(attention_modules(model)[layer]) or LENGTH
        shared = masks[layer].shape[0] // max(1, len({h for m in focus.head_masks()[layer] for h in m.group.heads}))
        inside = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH) < reach
        for head, near in of_heads.items():
            assert masks[layer][head * shared][near & inside].all()
    focus.detach()
    with torch.no_grad(), explicit_masks(exact, masks, factors=factors):
        expected = exact(ids, use_cache=False).logits
    torch.testing.assert_close(actual.double(), expected, rtol=2e-4, atol=2e-4)
    focus = compose(model, centroids, budget=budget, sliding_layers="focus", window_growth=CONSTANT)
    assert not torch.allclose(logits(model, ids)[:, GROWTH[0] + 4 :], actual[:, GROWTH[0] + 4 :], atol=1e-4)
    torch.testing.assert_close(logits(model, ids[:, : GROWTH[0]]), actual[:, : GROWTH[0]])  # it has not begun there


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "cached", "budget"),
    [
        ("Llama", "static", ()),
        ("Llama", "dynamic", BUDGET),
        ("Gemma2", "dynamic", BUDGET),
        ("Mistral", "dynamic", ()),
        ("Mistral", "static", BUDGET),
    ],
)
def test_a_text_continued_from_a_cache(family, cached, budget, fresh_seed):
    model = build_model(family, num_hidden_layers=3)
    compose(model, with_factors(growing(model, fresh_seed), fresh_seed), budget=budget, sliding_layers="focus")
    ids = random_ids(LENGTH, batch=2, seed=fresh_seed % 1000)
    whole = logits(model, ids)
    cache = StaticCache(config=model.config, max_cache_len=LENGTH + 8) if cached == "static" else None
    parts = []
    with torch.no_grad():
        for first, last in [(0, 8), (8, 31), (31, 36), *((t, t + 1) for t in range(36, LENGTH))]:
            result = model(ids[:, first:last], past_key_values=cache, use_cache=True)
            cache = result.past_key_values
            parts.append(result.logits)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=2e-4, atol=2e-4)


def test_padding_in_front_counts_for_nothing(fresh_seed):
    model = build_model(num_hidden_layers=3)
    compose(model, with_factors(growing(model, fresh_seed), fresh_seed), budget=BUDGET)
    ids = random_ids(LENGTH, seed=fresh_seed % 1000)
    padded = torch.cat([torch.zeros(1, 9, dtype=ids.dtype), ids[:, 9:]], dim=1)
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    mask[1, :9] = 0
    alone = [logits(model, each)[0] for each in (ids, ids[:, 9:])]
    with torch.no_grad():
        places = (mask.cumsum(1) - 1).clamp_min(0)
        both = model(torch.cat([ids, padded]), attention_mask=mask, position_ids=places, use_cache=False).logits
    torch.testing.assert_close(both[0], alone[0], rtol=2e-4, atol=2e-4)
    torch.testing.assert_close(both[1, 9:], alone[1], rtol=2e-4, atol=2e-4)


def test_a_file_keeps_it_in_a_version_of_its_own(tmp_path, monkeypatch):
    model = build_model()
    centroids, path = growing(model), tmp_path / "growing.safetensors"
    save_centroids(centroids, path)
    assert safe_open(path, "pt").metadata()["format_version"] == "7"
    read = load_centroids(path)
    assert read.config.window_growth == GROWTH
    assert save_centroids(read, tmp_path / "again.safetensors") == read.sha256
    read.config = read.config.replace(window_growth=CONSTANT)
    save_centroids(read, tmp_path / "constant.safetensors")
    assert safe_open(tmp_path / "constant.safetensors", "pt").metadata()["format_version"] == "1"
    monkeypatch.setattr(centroid_file, "FORMAT_VERSION", 6)  # what an older version says of it
    with pytest.raises(CentroidFileError, match="format version"):
        load_centroids(path)


@pytest.mark.parametrize("growth", [(0, 5), (9, 3), [4], "1:2", (1, 2.5), 7])
def test_what_is_no_growth_is_refused(growth):
    model = build_model()
    with pytest.raises(ConfigError, match=r"window_growth is .*such as 1024 and 8192"):
        build_centroids(model, window_growth=growth)
    with pytest.raises(ConfigError, match="window_growth is"):
        compose(model, build_centroids(model), window_growth=growth)
