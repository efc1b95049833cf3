"""Shares of groups by layer and block, before and after calibration."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.errors import InputError
from focus_runtime.measure.loss import final_hidden
from paper.studies.group_balance import group_balance
from paper.studies.rows import variant
from tests.helpers import random_ids

pytestmark = [
    pytest.mark.slow,  # many short trainings or compositions; they run in make test
    pytest.mark.usefixtures("centroids_unchanged"),
]


def test_balance_counts_groups_and_calibration_mends_them(model, centroids):
    text = random_ids(60, batch=4, seed=9)
    rows = group_balance(model, centroids, text, text, blocks=3, top_k=1)
    assert [(row["layer"], row["when"]) for row in rows] == [(i, w) for w in ("before", "after") for i in range(3)]
    focus = compose(model, variant(centroids, top_k=1))
    top = []
    with torch.no_grad():
        for ids in text.split(1):
            final_hidden(model, ids)
            top.append(focus.assignments()[0].probabilities[0].argmax(dim=-1))
    focus.detach()
    counts = torch.bincount(torch.cat(top), minlength=3)
    np.testing.assert_allclose(rows[0]["group_shares"], counts / counts.sum())
    assert rows[0]["dominance"] == pytest.approx(counts.max().item() / 240)
    middle = torch.bincount(torch.stack(top)[:, 20:40].flatten(), minlength=3)
    assert rows[0]["dominance_by_block"][1] == pytest.approx(middle.max().item() / 80)
    assert rows[0]["exceeds"] == (rows[0]["dominance"] > 0.5)
    assert rows[3]["dominance"] < 0.36 < rows[0]["dominance"]
    with pytest.raises(InputError, match="blocks is 0"):
        group_balance(model, centroids, text, blocks=0)
