"""Focus with a key-value cache: every way of producing tokens equals one prefill, and a foreign cache is refused."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from transformers import DynamicCache, StaticCache

from focus_runtime.composition import attend
from focus_runtime.composition.attach import compose
from focus_runtime.composition.modes import SoftGate
from focus_runtime.errors import InputError
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.families import logits

SLIDING = 8
FAMILIES = ["Llama", "GPT2", "Mistral", "Qwen2", "Qwen3", "Olmo2", "Gemma2", "Gemma3Text", "Phi3"]
_built: dict[str, torch.nn.Module] = {}


def family_model(family):
    """One model of each family for the module; windows of sliding layers are shorter than the texts."""
    if family not in _built:
        sliding = {"sliding_window": SLIDING} if family in ("Mistral", "Gemma2", "Gemma3Text") else {}
        _built[family] = build_model(family, **sliding)
        _built[family].generation_config.eos_token_id = None  # random models would stop anywhere
    return _built[family]


@pytest.fixture
def composed(composing):
    return lambda family="Llama", **settings: composing(family_model(family), **settings)


@torch.no_grad()
def in_steps(model, ids, sizes, cache=None, mask=None):
    """Logits of the text fed in pieces, and the cache."""
    outs, start = [], 0 if cache is None else int(cache.get_seq_length())
    offset = start
    positions = None if mask is None else (mask.cumsum(-1) - 1).clamp_min(0)
    for size in sizes:
        stop = start + size
        extra = {} if mask is None else {"attention_mask": mask[:, :stop], "position_ids": positions[:, start:stop]}
        new = ids[:, start - offset : stop - offset]
        out = model(input_ids=new, past_key_values=cache, use_cache=True, **extra)
        cache, start = out.past_key_values, stop
        outs.append(out.logits)
    return torch.cat(outs, dim=1), cache


def close(actual, expected, atol=1e-5):
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=atol)


# --- decoding equals prefill


SIZES = {"tokens": [20] + [1] * 10, "first": [1] * 30, "chunks": [3, 13, 1, 8, 1, 4]}


@pytest.mark.parametrize(
    ("family", "name"), [*((family, "tokens") for family in FAMILIES), ("Gemma2", "first"), ("Gemma2", "chunks")]
)
def test_decode_equals_one_prefill(family, name, composed, fresh_seed):
    sizes = SIZES[name]
    model, _ = composed(family, window=3, num_sinks=2)
    ids = random_ids(30, batch=2, seed=fresh_seed)
    expected = logits(model, ids)
    close(in_steps(model, ids, sizes)[0], expected)
    static = StaticCache(config=model.config, max_cache_len=50)
    close(in_steps(model, ids, sizes, static)[0], expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "sliding_layers"),
    [
        ("Llama", "auto"),
        ("GPT2", "auto"),
        ("Gemma2", "auto"),
        *((f, "focus") for f in ("Mistral", "Gemma2", "Gemma3Text")),
    ],
)
@pytest.mark.parametrize("side", ["left", "right"])
def test_decode_of_a_padded_batch_equals_single_runs(family, side, sliding_layers, composed, fresh_seed):
    """Right padding lies between the prompt and what follows; sinks and positions count from the first real token."""
    model, _ = composed(family, window=2, num_sinks=3, sliding_layers=sliding_layers)
    texts = [random_ids(n, seed=fresh_seed + n) for n in (24, 11, 17)]
    ids, mask = torch.zeros(3, 24, dtype=torch.long), torch.zeros(3, 24, dtype=torch.long)
    for row, text in enumerate(texts):
        n = text.shape[1]
        place = slice(24 - n, 24) if side == "left" else slice(0, n)
        ids[row, place], mask[row, place] = text[0], 1
    for sizes in ([14] + [1] * 10, [5, 9, 1, 9]):
        actual, _ = in_steps(model, ids, sizes, mask=mask)
        for row, text in enumerate(texts):
            close(actual[row][mask[row].bool()], logits(model, text)[0], atol=2e-5)


# --- generate


def greedy_without_cache(model, ids, count):
    for _ in range(count):
        ids = torch.cat([ids, logits(model, ids)[:, -1:].argmax(-1)], dim=1)
    return ids


WAYS = {
    "sampling": {"do_sample": True, "top_k": 20},
    "several samples": {"do_sample": True, "num_return_sequences": 3},
    "beams": {"num_beams": 4, "num_return_sequences": 2, "do_sample": False},
    "beam sampling": {"num_beams": 3, "do_sample": True},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "way"), [*(("Llama", way) for way in WAYS), ("Gemma2", "beams"), ("Mistral", "beams")]
)
def test_sampling_and_beams_equal_generation_without_a_cache(family, way, composed, fresh_seed):
    model, _ = composed(family, window=2)
    ids = random_ids(10, batch=2, seed=fresh_seed)
    continuations = []
    for use_cache in (True, False):
        torch.manual_seed(fresh_seed)
        mask = torch.ones_like(ids)
        continuations.append(
            model.generate(ids, attention_mask=mask, max_new_tokens=7, use_cache=use_cache, **WAYS[way])
        )
    assert torch.equal(*continuations)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["Llama", "Gemma2"])
def test_assisted_generation_crops_the_groups(family, composed, fresh_seed):
    """Rejected candidates are cropped from the cache; an assistant, composed or not, has a cache of its own."""
    model, _ = composed(family, window=2)
    ids = random_ids(10, seed=fresh_seed)
    common = {"max_new_tokens": 9, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    expected = model.generate(ids, **common)
    assert torch.equal(model.generate(ids, prompt_lookup_num_tokens=3, **common), expected)
    other = build_model(family, seed=3, **({"sliding_window": SLIDING} if family == "Gemma2" else {}))
    other.generation_config.eos_token_id = None
    assert torch.equal(model.generate(ids, assistant_model=other, **common), expected)
    compose(other, build_centroids(other))
    assert torch.equal(model.generate(ids, assistant_model=other, **common), expected)
    near = copy.deepcopy(model)  # a composed copy whose candidates are accepted sometimes
    with torch.no_grad():
        for parameter in near.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    assert torch.equal(model.generate(ids, assistant_model=near, **common), expected)


def test_chunked_prefill_and_continued_chats(composed, fresh_seed):
    model, _ = composed()
    ids = random_ids(25, seed=fresh_seed)
    common = {"do_sample": False, "max_new_tokens": 5, "attention_mask": torch.ones_like(ids)}
    expected = model.generate(ids, **common)
    assert torch.equal(model.generate(ids, prefill_chunk_size=7, **common), expected)
    cache = DynamicCache(config=model.config)
    first = model.generate(ids[:, :15], past_key_values=cache, do_sample=False, max_new_tokens=5)
    longer = torch.cat([first, random_ids(6, seed=fresh_seed + 1)], dim=1)
    again = model.generate(longer, past_key_values=cache, do_sample=False, max_new_tokens=5)
    assert torch.equal(again, greedy_without_cache(model, longer, 5))


# --- the groups follow the cache


@pytest.mark.slow
@pytest.mark.parametrize("family", ["Llama", "Gemma2", "Mistral"])
@pytest.mark.parametrize("operation", ["reorder", "select", "repeat", "crop", "reset", "copy", "pickle"])
def test_groups_follow_every_cache_operation(family, operation, composed, fresh_seed):
    model, _ = composed(family, window=2, sliding_layers="focus")
    ids = random_ids(20, batch=3, seed=fresh_seed)
    length = 6 if operation == "crop" else 12  # transformers crops a sliding layer only before its window is full
    _, cache = in_steps(model, ids[:, :length], [length])
    kept = ids
    if operation == "reorder":
        order = torch.tensor([2, 0, 0])
        cache.reorder_cache(order)
        kept = ids[order]
    elif operation == "select":
        cache.batch_select_indices(torch.tensor([2, 1]))
        kept = ids[[2, 1]]
    elif operation == "repeat":
        cache.batch_repeat_interleave(2)
        kept = ids.repeat_interleave(2, dim=0)
    elif operation == "crop":
        cache.crop(-2)
        length -= 2
    elif operation == "reset":
        cache.reset()
        length = 0
        assert cache.get_seq_length() == 0
    elif operation == "copy":
        twin = copy.deepcopy(cache)
        in_steps(model, random_ids(5, batch=3, seed=1), [5], twin)  # what the copy does must not reach the original
    else:
        file = io.BytesIO()
        torch.save(cache, file)
        cache = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
    rest, _ = in_steps(model, kept[:, length:], [1, 3, 1], cache)
    close(rest, logits(model, kept[:, : length + 5])[:, length:])


def test_a_cache_filled_in_inference_mode_can_be_continued(composed, ids):
    model, _ = composed()
    expected = logits(model, ids)
    with torch.inference_mode():
        cache = model(input_ids=ids[:, :30], use_cache=True).past_key_values
        cache = model(input_ids=ids[:, 30:31], past_key_values=cache).past_key_values
    close(in_steps(model, ids[:, 31:], [1, 8], cache)[0], expected[:, 31:])


# --- refused


def message(model, cache, count=1):
    with pytest.raises(InputError) as caught:
        in_steps(model, random_ids(count, seed=5), [count], cache)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["full_attention", "measured_full_attention"])
def test_a_cache_filled_without_focus_is_refused_until_those_tokens_are_gone(kind, composed, ids):
    model, focus = composed()
    with getattr(focus, kind)():
        _, foreign = in_steps(model, ids[:, :10], [10])
    assert "computed without Focus; expected a cache that was filled with Focus alone; start" in message(model, foreign)
    _, cache = in_steps(model, ids[:, :10], [10])
    with getattr(focus, kind)():
        in_steps(model, ids[:, 10:15], [5], cache)
    assert "holds 15 tokens in layer 0 but groups of 10" in message(model, cache)
    cache.crop(-5)
    close(in_steps(model, ids[:, 10:], [3, 27], cache)[0], logits(model, ids)[:, 10:])
    foreign.reset()
    if all(layer.get_seq_length() == 0 for layer in foreign.layers):  # transformers 5.17 keeps zeroed tokens
        close(in_steps(model, ids, [40], foreign)[0], logits(model, ids))
    else:
        assert "computed without Focus" in message(model, foreign)


def test_groups_of_another_composition_are_refused(composed, ids):
    model, focus = composed()
    cache = in_steps(model, ids, [40])[1]
    focus.config = focus.config.replace(top_k=2)
    assert "another top_k" in message(model, cache)
    focus.config = focus.config.replace(top_k=1, window=9)  # the window is no part of the groups
    in_steps(model, ids[:, :1], [1], cache)
    focus.detach()
    again = compose(model, build_centroids(model, seed=7))
    try:
        assert "filled by another composition" in message(model, cache)
    finally:
        again.detach()


def test_sinkhorn_refuses_to_continue_and_says_why(composed, ids):
    model, _ = composed(assignment="sinkhorn")
    with torch.no_grad():
        out = model(input_ids=ids)  # use_cache is True by default, and nothing continues
    close(out.logits, logits(model, ids))
    words = message(model, out.past_key_values)
    assert "column sums run over the whole text" in words
    assert 'assignment="causal"' in words
    with pytest.raises(InputError, match="sinkhorn"):
        model.generate(ids, max_new_tokens=3)
    assert model.generate(ids, max_new_tokens=1).shape[1] == 41


def test_a_training_gate_refuses_to_continue(composed, ids):
    model, focus = composed()
    with focus.entered(SoftGate()):
        cache = in_steps(model, ids, [40])[1]
        assert "training gate" in message(model, cache)


def test_keys_removed_behind_our_back_are_noticed(composed, ids):
    model, _ = composed()
    cache = in_steps(model, ids, [40])[1]
    for entry in cache.layers:
        entry.keys, entry.values = entry.keys[:, :, :30], entry.values[:, :, :30]
    assert "got 31 keys but groups of 41 tokens" in message(model, cache)


def test_a_mask_of_the_new_tokens_alone_is_refused(composed, ids):
    model, _ = composed()
    cache = in_steps(model, ids, [40])[1]
    with pytest.raises(InputError, match=r"attention_mask has shape \(1, 1\).*\(1, 41\)"):
        model(input_ids=ids[:, :1], past_key_values=cache, attention_mask=torch.zeros(1, 1))


# --- full attention with a cache, exceptions, detaching


@pytest.mark.parametrize("family", ["Llama", "Gemma2", "GPT2"])
def test_full_attention_with_a_cache_is_the_original_model(family, ids):
    model = family_model(family)
    before = in_steps(model, ids, [20, 1, 1, 18])[0]
    focus = compose(model, build_centroids(model))
    try:
        with focus.full_attention():
            assert torch.equal(in_steps(model, ids, [20, 1, 1, 18])[0], before)
        with focus.measured_full_attention():
            close(in_steps(model, ids, [20, 1, 1, 18])[0], before)
            static = StaticCache(config=model.config, max_cache_len=60)
            close(in_steps(model, ids, [20, 1, 1, 18], static)[0], before)
    finally:
        focus.detach()


def test_after_an_exception_in_attention_the_cache_can_be_cropped(composed, ids, monkeypatch):
    model, focus = composed()
    expected = logits(model, ids)
    cache = in_steps(model, ids, [30])[1]

    def fail(*_, **__):
        raise KeyError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(attend, "attend", fail)
        patch.setattr("focus_runtime.composition.decode.fused_step", fail)
        with pytest.raises(KeyError):
            in_steps(model, ids[:, 30:], [1], cache)
    lengths = [int(entry.get_seq_length()) for entry in cache.layers]
    assert lengths == [31, 30]  # as without Focus, the layers that ran hold one token more
    cache.layers[0].crop(-1)
    close(in_steps(model, ids[:, 30:], [10], cache)[0], expected[:, 30:])
    focus.detach()
    with torch.no_grad():
        assert model.generate(ids, max_new_tokens=2, do_sample=False).shape[1] == 42


def test_after_detaching_the_cache_belongs_to_the_model_again(ids):
    model = family_model("Llama")
    before = in_steps(model, ids, [30, 1, 9])[0]
    focus = compose(model, build_centroids(model), top_k=4)  # full attention by another way
    cache = in_steps(model, ids, [30])[1]
    focus.detach()
    close(in_steps(model, ids[:, 30:], [1, 9], cache)[0], before[:, 30:])
    assert type(cache.layers[0]).__name__ == "DynamicLayer"


def test_generation_is_not_compiled_while_composed(composed):
    """transformers compiles static caches on a GPU; the setting is put back afterwards."""
    model, focus = composed()
    assert model.generation_config.disable_compile is True
    focus.detach()
    assert not model.generation_config.disable_compile
