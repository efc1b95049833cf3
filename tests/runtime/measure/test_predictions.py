"""Predictions against all logits at once, in several families, and across slabs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focus_runtime.measure import loss
from focus_runtime.measure.loss import final_hidden, token_nll, token_predictions
from tests.helpers import random_ids
from tests.runtime.families import family_model, logits


@pytest.mark.parametrize("family", ["Llama", "Gemma2", "Granite", "GPT2"])
def test_they_are_those_of_all_logits(family, monkeypatch, fresh_seed):
    monkeypatch.setattr(loss, "CHUNK", 7)
    model, ids = family_model(family), random_ids(30, seed=fresh_seed % 1000)
    with torch.no_grad():
        hidden = final_hidden(model, ids)
    made = token_predictions(model, hidden, ids)
    expected = logits(model, ids)[0, :-1].double().softmax(dim=-1)
    best = expected.topk(5, dim=-1)
    assert np.allclose(made.probabilities, best.values.numpy(), atol=1e-5)
    chosen = expected.gather(1, torch.from_numpy(made.token_ids))  # ties may go either way
    torch.testing.assert_close(chosen, best.values, rtol=1e-4, atol=1e-6)
    own = expected.gather(1, ids[0, 1:, None])
    surely, perhaps = (1 + (expected > own * factor).sum(dim=1).numpy() for factor in (1 + 1e-5, 1 - 1e-5))
    assert (surely <= made.ranks).all()  # where two probabilities differ by float32's rounding, either rank is right
    assert (made.ranks < perhaps).all()  # `perhaps` counts the token itself
    assert np.allclose(made.nll, -own[:, 0].log().numpy(), atol=1e-4)
    assert np.array_equal(made.nll, token_nll(model, hidden, ids)[0].double().detach().numpy())


def test_a_small_vocabulary_has_fewer():
    model, ids = family_model("Llama"), random_ids(6)
    with torch.no_grad():
        made = token_predictions(model, final_hidden(model, ids), ids, most_probable=1000)
    assert made.token_ids.shape == (5, 128)
    assert np.allclose(made.probabilities.sum(axis=1), 1, atol=1e-5)
