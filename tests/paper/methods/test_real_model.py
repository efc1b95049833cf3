"""Baselines on the embedded model: they come off without a trace, and order as their papers would have them."""

from __future__ import annotations

import pytest
import torch

from focus_explorer.usecases.texts import sample_text
from focus_runtime.measure.perplexity import score
from focus_runtime.models.loading import load_model
from paper.methods import BASELINES

pytestmark = pytest.mark.model


def test_baselines_on_the_embedded_model():
    model, tokenizer = load_model("smollm2-135m")
    ids = torch.tensor([tokenizer(sample_text("Novel"), add_special_tokens=False).input_ids[:192]])
    full = score(model, ids)
    perplexities = {}
    for label, name, settings in (
        ("window", "window_only", {"window": 31}),
        ("sinks", "window_only", {"window": 27, "num_sinks": 4}),
        ("sparq", "sparq", {"num_keys": 32, "components": 32, "reallocate": False}),
        ("all", "sparq", {"num_keys": 192}),
    ):
        with BASELINES[name](**settings).attach(model) as handle:
            perplexities[label] = score(model, ids).perplexity
            assert (handle.keys_per_query() <= 32) == (label != "all")
    assert (score(model, ids).nll == full.nll).all()
    assert perplexities["all"] == pytest.approx(full.perplexity, rel=1e-4)
    assert full.perplexity < perplexities["sparq"] < perplexities["sinks"] < perplexities["window"]
