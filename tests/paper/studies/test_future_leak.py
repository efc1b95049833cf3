"""Groups under causal and Sinkhorn assignment, and the effect of later tokens on them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.measure.loss import final_hidden, token_nll
from paper.studies.future_leak import assignment_leak, future_effect
from paper.studies.rows import variant

pytestmark = [
    pytest.mark.slow,  # many short trainings or compositions; they run in make test
    pytest.mark.usefixtures("centroids_unchanged"),
]


def test_leak_rows_pair_the_assignments(model, centroids, sequences):
    rows = assignment_leak(model, centroids, sequences)
    assert [row["setting"].get("assignment") for row in rows] == [None, *["causal", "sinkhorn"] * 3]
    for causal, sinkhorn in zip(rows[1::2], rows[2::2], strict=True):
        expected = np.subtract(sinkhorn["differences"], causal["differences"])
        np.testing.assert_allclose(sinkhorn["against_causal"], expected)
    assert max(map(abs, rows[-1]["against_causal"])) < 1e-5, "k = K is full attention under both"
    assert set(rows[-1]["tokens_differing"].values()) == {0.0}
    focus = compose(model, variant(centroids, top_k=1), assignment="causal")
    other = variant(centroids, top_k=1)
    shares = []
    with torch.no_grad():
        for ids in sequences.split(1):
            final_hidden(model, ids)
            embedded = model.get_input_embeddings()(ids)
            entering = model.model.layers[0].input_layernorm(embedded)
            sinkhorn = other.routers[0].assign(entering, assignment="sinkhorn").membership
            shares.append((focus.assignments()[0].membership != sinkhorn).double().mean().item())
    focus.detach()
    assert rows[2]["tokens_differing"][0] == pytest.approx(np.mean(shares))
    assert 0 < np.mean(shares) < 1
    json.dumps(rows)


def test_the_future_changes_sinkhorn_and_not_causal_groups(model, centroids, sequences):
    rows = future_effect(model, centroids, sequences, top_ks=(1, 3))
    focus = compose(model, variant(centroids, top_k=1), assignment="sinkhorn")
    with torch.no_grad():
        halves = [row[None, :20] for row in sequences]
        alone = [token_nll(model, final_hidden(model, half), half).mean().item() for half in halves]
        whole = [token_nll(model, final_hidden(model, row[None]), row[None])[:, :19].mean().item() for row in sequences]
    focus.detach()
    np.testing.assert_allclose(rows[0]["differences"], np.subtract(whole, alone), atol=1e-5)
    assert max(map(abs, rows[0]["differences"])) > 1e-3
    assert max(map(abs, rows[1]["differences"])) < 1e-5, "with k = K groups decide nothing"
    assert rows[0]["scored_tokens"] == 3 * 19
