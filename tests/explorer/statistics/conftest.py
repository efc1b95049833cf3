"""A made-up sample whose truth is known, and what is measured of it."""

from __future__ import annotations

import numpy as np
import pytest

from focus_explorer.data.parts import Part
from focus_explorer.statistics.describe import describe, measure
from focus_explorer.statistics.rows import SCHEMA
from focus_explorer.statistics.sample import Groups, MassByQuery, Sample, Scheme
from focus_runtime.mask.rule import PairRule

TOKENS = 600


def groups(tops, rng):
    confidence = rng.uniform(0.5, 1.0, tops.shape).astype(np.float32)
    return Groups(tops.astype(np.uint8), 1 << tops.astype(np.int64), confidence, 1 - confidence)


@pytest.fixture
def sample(fresh_seed):
    """Layer 3: groups are the parts of speech. Layer 7: groups at random."""
    rng = np.random.default_rng(fresh_seed)
    tags = rng.integers(0, 4, TOKENS)
    tops = np.stack([tags, rng.integers(0, 4, TOKENS)])
    piece = tags * 3 + rng.integers(0, 3, TOKENS)
    shares = rng.dirichlet(np.ones(4), (2, TOKENS))
    return Sample(
        layers=[3, 7],
        num_groups=4,
        parts=[(Part(0, (0,), 1, rule),) for rule in (PairRule(5, 2), PairRule(5, 2, 40))],
        focus=groups(tops, rng),
        random=groups(rng.integers(0, 4, (2, TOKENS)), rng),
        pieces=[f" word{n}" for n in range(12)],
        piece=piece,
        schemes={"pos": Scheme(["ADJ", "DET", "NOUN", "VERB"], tags.astype(np.uint8))},
        units=np.arange(TOKENS) // 12,
        unit="sentence",
        starts=np.zeros(TOKENS, dtype=np.int64),
        mass={"focus": MassByQuery(shares), "random": MassByQuery(shares[:, ::-1])},
    )


@pytest.fixture
def measured(sample):
    layers, resampler, bins = measure(sample, resamples=300)
    rows = describe(sample, layers, resampler)
    assert rows.schema == SCHEMA
    return rows.to_pylist(), layers, resampler, bins
