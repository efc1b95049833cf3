"""What groups keep by chance is what they keep on average once they are permuted at random, whatever the heads are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from focus_explorer.data.parts import Part, chance_beyond, sums_by_part
from focus_explorer.statistics.describe import describe, measure
from focus_explorer.statistics.pair_tables import distances_table
from focus_explorer.statistics.sample import Groups, MassByQuery, Sample
from focus_explorer.views.pairs import distance_payload, mean_counts, mean_payload
from focus_explorer.views.statistics import judged
from focus_runtime.mask.distances import count_by_distance
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure.attention_mass import pair_causes

pytestmark = pytest.mark.slow

TOKENS, GROUPS, DRAWS = 48, 3, 200
APART = np.subtract.outer(np.arange(TOKENS), np.arange(TOKENS))
GROWTH = (12, 36)


def part(number, heads, top_k, window, sliding=None, *, by_query=False):
    return Part(number, heads, top_k, PairRule(window, 2, sliding, GROWTH), by_query)


LAYERS = [  # of four key-value heads that two query heads share each
    (part(0, (0,), 1, 3), part(1, (1,), 2, 9), part(2, (2,), None, 3), part(3, (3,), 0, 1)),
    (part(0, (0, 1, 2), 1, 48), part(1, (3,), None, 3)),  # full heads alone have distant pairs
    (part(0, (0, 1, 2, 3), 1, 3),),
    (part(0, (0, 3, 4, 5, 6, 7), 1, 2, 20, by_query=True), part(1, (1, 2), 2, 6, 20, by_query=True)),
]


def test_attention_of_fewer_heads_than_there_are_is_no_error():
    """As a database may hold that something else wrote."""
    assert sums_by_part([0.5, 0.25], LAYERS[0]).tolist() == [0.5, 0.25, 0, 0]
    assert sums_by_part([0.5, 0.25], LAYERS[3]).tolist() == [0.5, 0.25]


@pytest.fixture
def draw(fresh_seed):
    """Makes samples of the same tokens, attention and group sizes, the groups at random places."""
    rng = np.random.default_rng(fresh_seed)
    chosen = rng.permuted(np.tile(np.arange(GROUPS), (TOKENS, 1)), axis=1)  # by rank
    chosen[rng.random(TOKENS) < 0.5, 0] = 0
    scores = 3 * rng.normal(size=(len(LAYERS), 8, TOKENS, TOKENS)) - rng.uniform(0, 0.3, (8, 1, 1)) * APART
    for scores_of_layer, parts in zip(scores, LAYERS, strict=True):
        reached = np.isin(APART, range(parts[0].rule.farthest(TOKENS) + 1))
        scores_of_layer[:, ~reached] = -np.inf
    attention = torch.softmax(torch.from_numpy(scores), -1).numpy()
    return lambda count: [sample(chosen[rng.permutation(TOKENS)], attention) for _ in range(count)]


def bits_of(chosen, top_k):
    return np.bitwise_or.reduce(1 << chosen[:, :top_k].astype(np.int64), axis=1, initial=0)


def sample(chosen, attention):
    usual, none = bits_of(chosen, 1), np.zeros((len(LAYERS), TOKENS), dtype=np.float32)
    others = {
        (place, one.number): bits_of(chosen, one.top_k)
        for place, parts in enumerate(LAYERS)
        for one in parts
        if one.top_k in (0, 2)
    }
    groups = Groups(
        np.tile(chosen[:, 0], (len(LAYERS), 1)).astype(np.uint8), np.tile(usual, (len(LAYERS), 1)), none, none, others
    )
    shares, far = [], []
    for place, parts in enumerate(LAYERS):
        by_head = mass(attention[place], groups, place, parts)
        shares.append(by_head.mean(axis=0))
        far.append(sums_by_part(by_head.mean(axis=1)[:, 2:].sum(axis=1), parts))
    return Sample(
        layers=list(range(len(LAYERS))),
        num_groups=GROUPS,
        parts=LAYERS,
        focus=groups,
        random=None,
        pieces=[f"word{place}" for place in range(TOKENS)],  # none is used twice, and none has a category: what is
        piece=np.arange(TOKENS),  # shuffled for those takes most of the time
        schemes={},
        units=np.zeros(TOKENS, dtype=np.int64),  # of one unit there are no intervals, which take time
        unit="sentence",
        starts=np.zeros(TOKENS, dtype=np.int64),
        mass={"focus": MassByQuery(np.stack(shares), tuple(far))},
    )


def mass(attention, groups, place, parts):
    """(8, T, 4) probability of each query head by cause."""
    of_head = {}
    for own in parts:
        bits = torch.from_numpy(groups.executed(place, own))[None]
        causes = pair_causes(bits, slice(0, TOKENS), slice(0, TOKENS), own.rule)[0].numpy()
        of_head |= {head: causes for head in range(8) if (head if own.by_query else head // 2) in own.heads}
    return np.stack([np.einsum("qk,qkc->qc", attention[head], of_head[head]) for head in range(8)])


def assert_chance(values, chances):
    """Whether the mean over draws is the chance level, which is the same in all of them."""
    assert np.ptp(chances) < 1e-12
    error = max(np.std(values) / np.sqrt(len(values)), 1e-12)
    assert abs(np.mean(values) - chances[0]) < 5 * error


@pytest.mark.long
def test_random_groups_have_their_chance_level_on_average_in_tables_and_on_the_page(draw):
    draws = draw(DRAWS)
    tables = []
    for one in draws:
        layers, resampler, bins = measure(one, resamples=2)
        tables.append((describe(one, layers, resampler), distances_table(one, layers, resampler, bins)))
    found = {}
    for row in itertools.chain(*(table.to_pylist() for table, _ in tables)):
        if row["statistic"] in ("pairs_kept", "distant_pairs_kept", "mass_kept", "distant_mass_kept"):
            found.setdefault((row["layer"], row["statistic"]), []).append((row["value"], row["shuffled"]))
    assert len(found) == 4 * (len(LAYERS) + 1)
    for rows in found.values():
        assert_chance(*np.transpose(rows))
    by_distance = np.array([[(row["share"], row["shuffled"]) for row in table.to_pylist()] for _, table in tables])
    for rows in by_distance.transpose(1, 2, 0):
        assert_chance(*rows)
    assert_chance_on_the_page(draws)


def assert_chance_on_the_page(draws):
    rules = [one.rule for parts in LAYERS for one in parts]
    answers, means = [], []
    for one in draws:
        layers = []
        for place, parts in enumerate(LAYERS):
            counts = [count_by_distance(one.focus.executed(place, own), own.rule, rules) for own in parts]
            layers.append(mean_counts(counts, parts))
        answers.append([distance_payload(layer) for layer in layers])
        means.append(mean_payload(layers))
    for place in range(len(LAYERS)):
        of_layer = [answer[place] for answer in answers]
        assert_chance(*zip(*[(row["beyond"][0], row["sharing"]) for row in of_layer], strict=True))
    assert_chance(*zip(*[(np.mean(row["beyond"]), np.mean(row["sharing"])) for row in means], strict=True))


def test_where_full_heads_alone_have_distant_pairs_there_is_nothing_to_tell(draw):
    [one] = draw(1)
    layers, resampler, _ = measure(one, resamples=20)
    rows = judged(describe(one, layers, resampler), "layer")
    row = next(row for row in rows if row["layer"] == 1 and row["statistic"] == "distant_pairs_kept")
    assert (row["value"], row["shuffled"], row["from_shuffled"]) == (1.0, 1.0, None)


def test_heads_count_with_what_they_have_beyond_window_and_sinks():
    parts = LAYERS[0]
    assert sums_by_part(range(8), parts).tolist() == [1, 5, 9, 13]
    assert sums_by_part(range(8), LAYERS[3]).tolist() == [25, 3]
    assert sums_by_part(range(6), (Part(0, (), 1, PairRule(3)),)).tolist() == [15]
    assert chance_beyond([0.2, 0.4, 1, 0], [0, 3, 1, 4], parts) == pytest.approx(2.2 / 8)
    assert chance_beyond([0.2, 0.4, 1, 0], [0, 0, 0, 0], parts) == pytest.approx(0.4)
