"""Packed documents, fixed chunks and masks that Focus cannot execute."""

import itertools

import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.composition.modes import SoftGate
from focus_runtime.errors import InputError, ModelError
from focus_runtime.evaluate.doctor.families import tiny_model
from tests.helpers import build_centroids, random_ids
from tests.runtime.families import family_model

CUTS = (0, 7, 19, 30)


@pytest.fixture
def ids():
    return random_ids(30)


def positions():
    return torch.cat([torch.arange(stop - start) for start, stop in itertools.pairwise(CUTS)])[None]


def packed(model, ids, **more):
    return model(input_ids=ids, position_ids=positions(), use_cache=False, **more).logits


def each_alone(model, ids):
    parts = [ids[:, start:stop] for start, stop in itertools.pairwise(CUTS)]
    return torch.cat([model(input_ids=part, use_cache=False).logits for part in parts], dim=1)


@torch.no_grad()
@pytest.mark.parametrize(
    ("family", "assignment"),
    [("Llama", "sinkhorn"), *((family, "causal") for family in ("Llama", "Mistral", "Gemma2", "Qwen3"))],
)
def test_packed_documents_are_those_documents(family, assignment, ids):
    model = family_model(family)
    centroids = build_centroids(model)
    settings = {"window": 3, "num_sinks": 2, "assignment": assignment, "window_growth": (4, 16)}
    focus = compose(model, centroids, **settings)
    try:
        torch.testing.assert_close(packed(model, ids), each_alone(model, ids), rtol=1e-4, atol=1e-4)
        packed(model, ids)
        with pytest.raises(InputError, match="run the documents one by one"):
            focus.head_masks()
    finally:
        focus.detach()


@torch.no_grad()
def test_lengths_of_a_padding_free_collator(ids):
    """TRL passes the edges beside the positions; alone they say the same, as with FlashAttention."""
    model = family_model("Llama")
    edges = torch.tensor(CUTS, dtype=torch.int32)
    focus = compose(model, build_centroids(model), window=3)
    try:
        both = packed(model, ids, cu_seq_lens_q=edges, cu_seq_lens_k=edges, max_length_q=12, max_length_k=12)
        torch.testing.assert_close(both, each_alone(model, ids), rtol=1e-4, atol=1e-4)
        with pytest.raises(InputError, match="ends at 29; there are 1 rows of 30 tokens"):
            packed(model, ids, cu_seq_lens_q=torch.tensor([0, 7, 29]))
        with pytest.raises(InputError, match="different documents"):
            packed(model, ids, cu_seq_lens_q=torch.tensor([0, 8, 30]))
        with pytest.raises(InputError, match="cu_seq_lens_q is"):
            packed(model, ids, cu_seq_lens_q=torch.tensor([3, 7, 30]))
        with pytest.raises(InputError, match="with a cache"):
            model(input_ids=ids, use_cache=True, cu_seq_lens_q=edges)
    finally:
        focus.detach()


def test_gradients_of_packed_documents(ids):
    """Soft gates, as in training: the loss and its gradients are those of the documents one by one."""
    model = family_model("Llama")
    found = []
    for run in (packed, each_alone):
        centroids = build_centroids(model)
        focus = compose(model, centroids, window=2)
        try:
            with focus.entered(SoftGate()):
                run(model, ids).square().mean().backward()
        finally:
            focus.detach()
        found.append(torch.stack([router.projection.grad for router in centroids.routers.values()]))
    assert found[0].abs().max() > 0
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-6)


@torch.no_grad()
def test_fixed_chunks_keep_their_own_attention():
    """Llama 4: chunks of 8 tokens in some layers, Focus on the others; padded batches, and decoding with its cache."""
    model = tiny_model("llama4_text")
    ids, mask = random_ids(24), torch.ones(2, 24, dtype=torch.long)
    ids = ids.expand(2, -1).contiguous()
    mask[1, :5] = 0
    plain = model(input_ids=ids, attention_mask=mask).logits
    said = model.generate(ids, attention_mask=mask, max_new_tokens=12, do_sample=False, eos_token_id=None)
    focus = compose(model, build_centroids(model), top_k=4)
    assert focus.focused_layers, "no global layer"
    assert len(focus.focused_layers) < model.config.num_hidden_layers, "no layer of chunks"
    found = model(input_ids=ids, attention_mask=mask).logits
    torch.testing.assert_close(found[mask.bool()], plain[mask.bool()], rtol=1e-4, atol=1e-4)
    assert torch.equal(
        model.generate(ids, attention_mask=mask, max_new_tokens=12, do_sample=False, eos_token_id=None), said
    )


@torch.no_grad()
def test_masks_of_single_pairs_are_refused(ids):
    model = family_model("Llama")
    focus = compose(model, build_centroids(model))
    try:
        with pytest.raises(ModelError, match="of single pairs"):
            model(input_ids=ids, attention_mask=torch.ones(1, 1, 30, 30, dtype=torch.bool).tril(), use_cache=False)
        with pytest.raises(ModelError, match="attend to later ones"):
            model(input_ids=ids, is_causal=False, use_cache=False)
    finally:
        focus.detach()


@torch.no_grad()
def test_images_in_a_text_are_refused_and_text_alone_is_not():
    model = tiny_model("gemma3")
    ids, kinds = random_ids(20), torch.zeros(1, 20, dtype=torch.long)
    plain = model(input_ids=ids, token_type_ids=kinds).logits
    compose(model, build_centroids(model), top_k=4)
    torch.testing.assert_close(model(input_ids=ids, token_type_ids=kinds).logits, plain, rtol=1e-4, atol=1e-4)
    kinds[0, 4:9] = 1
    with pytest.raises(ModelError, match="attend to later ones"):
        model(input_ids=ids, token_type_ids=kinds)
