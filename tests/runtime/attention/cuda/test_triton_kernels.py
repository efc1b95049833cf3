"""Kernels in Triton against the float64 reference: on a GPU where there is one, else in Triton's interpreter.

The interpreter computes what the kernels say, one program after the other, on the CPU and in fp32; what a compiler
makes of them only a GPU can tell.
"""

from __future__ import annotations

import pytest
import torch

from focus_runtime.attention.masked import WindowedFocus, sliding_attention
from focus_runtime.attention.reference import Scoring, reference_attention
from focus_runtime.config import CONSTANT
from focus_runtime.mask.rule import Extent, PairRule
from focus_runtime.routing.router import all_groups, top_k_membership
from tests.helpers import needs_triton
from tests.runtime.attention.inputs import assert_same, oracle, random_membership

ON_GPU = torch.cuda.is_available()
needs_triton()

from focus_runtime.attention.cuda.decoding import Sinks, decide_on_gpu, decode_on_gpu  # noqa: E402
from focus_runtime.attention.cuda.grouped import Heads, grouped_attention, new_results  # noqa: E402
from focus_runtime.attention.cuda.pairwise import pairwise_attention  # noqa: E402
from focus_runtime.attention.cuda.sorting import sort_by_group  # noqa: E402
from focus_runtime.attention.cuda.tiles import HeadFactors, HeadSets, multiplied_on_gpu  # noqa: E402
from focus_runtime.routing.on_gpu import TextSinks, route_on_gpu  # noqa: E402

pytestmark = pytest.mark.gpu if ON_GPU else pytest.mark.slow
DEVICE = "cuda" if ON_GPU else "cpu"
DTYPE = torch.bfloat16 if ON_GPU else torch.float32
TOLERANCE = 1.5e-2 if ON_GPU else 5e-6
LONG = 300 if ON_GPU else 140  # tokens, three tiles; the interpreter takes seconds for a few hundred


def wide(*values):
    """What other values show too, in another combination."""
    return pytest.param(*values, marks=pytest.mark.long)


def random_inputs(length, *, batch=1, heads=2, kv_heads=1, dim=16, queries=None, dtype=DTYPE):
    """Laid out (B, T, H, D) and transposed, as models hand them over."""

    def draw(tokens, count):
        return torch.randn(batch, tokens, count, dim, device=DEVICE).to(dtype).transpose(1, 2)

    return draw(queries or length, heads), draw(length, kv_heads), draw(length, kv_heads)


def members(length, **settings):
    return random_membership(length, **settings).to(DEVICE)


def drawn_growth(length):
    """How windows grow, not at all or anyhow."""
    if torch.rand(()) < 0.5:
        return CONSTANT
    first, last = (torch.randint(1, length + 20, (2,))).sort().values.tolist()
    return first, last


def poisoned(monkeypatch):
    """New memory holds NaN or nonsense, so that what a kernel leaves unwritten shows."""
    empty = torch.empty

    def filled(*args, **kwargs):
        new = empty(*args, **kwargs)
        return new.fill_(float("nan")) if new.is_floating_point() else new.fill_(-(1 << 20))

    monkeypatch.setattr(torch, "empty", filled)


CASES = [
    # length, groups, k, window, sinks, text batch, heads, key heads
    (1, 3, 1, 5, 1, 1, 2, 1),
    (65, 3, 2, 500, 1, 1, 2, 1),
    (300, 4, 1, 20, 2, 1, 2, 1),
    (150, 3, 2, 30, 20, 2, 4, 2),
    (257, 6, 3, 10, 0, 1, 2, 1),
    (130, 40, 2, 5, 1, 1, 1, 1),
    (300, 3, 1, 200, 0, 1, 2, 2),
    (129, 4, 4, 3, 0, 1, 1, 1),
]


@pytest.mark.parametrize(
    ("case", "softcap", "copied"),
    [
        *((CASES[n], None, False) for n in (0, 1, 2, 3, 6, 7)),
        *((CASES[n], None, True) for n in (1, 2, 7)),
        *((CASES[2], 3.0, copied) for copied in (False, True)),
        *(wide(CASES[n], None, True) for n in (0, 3, 4, 5, 6)),
        *(wide(CASES[n], None, False) for n in (4, 5)),
    ],
    ids=str,
)
def test_grouped_attention_equals_the_oracle(case, softcap, copied, fresh_seed, monkeypatch):
    length, groups, top_k, window, sinks, batch, heads, kv_heads = case
    inputs = random_inputs(length, batch=batch, heads=heads, kv_heads=kv_heads)
    membership = members(length, groups=groups, top_k=top_k, batch=batch)
    growth = drawn_growth(length)
    settings = {"window": window, "growth": growth, "num_sinks": sinks, "softcap": softcap}
    expected = oracle(inputs, membership, scale=0.25, **settings)
    poisoned(monkeypatch)
    rule, extent = PairRule(window, sinks, growth=growth), Extent(groups, top_k, uniform=True)
    actual = grouped_attention(*inputs, membership, rule, Scoring(0.25, softcap), extent=extent, copied=copied)
    assert_same(actual, expected, TOLERANCE)


@pytest.mark.parametrize(
    ("case", "softcap"),
    [
        *((CASES[n], None) for n in (0, 1, 2, 3, 5, 6, 7)),
        *((CASES[n], 3.0) for n in (1, 2)),
        ((200, 60, 5, 10, 3, 1, 2, 1), None),
        wide(CASES[4], None),
    ],
    ids=str,
)
def test_pairs_one_by_one_equal_the_oracle(case, softcap, fresh_seed, monkeypatch):
    length, groups, top_k, window, sinks, batch, heads, kv_heads = case
    inputs = random_inputs(length, batch=batch, heads=heads, kv_heads=kv_heads)
    membership = members(length, groups=groups, top_k=top_k, batch=batch)
    membership[:, length // 2 : length // 2 + 3] = 0  # tokens of no group see the window and the sinks
    settings = {"window": window, "growth": drawn_growth(length), "num_sinks": sinks}
    expected = oracle(inputs, membership, scale=0.25, softcap=softcap, **settings)
    poisoned(monkeypatch)
    rule, scoring = PairRule(**settings), Scoring(0.25, softcap)
    _, lse = new_results(inputs[0])
    actual = pairwise_attention(*inputs, membership[None], rule, scoring, num_groups=groups, lse=lse)
    assert_same((actual.transpose(1, 2), lse), expected, TOLERANCE)
    if length < 100:
        without = pairwise_attention(*inputs, membership[None], rule, scoring, num_groups=groups)
        assert torch.equal(without, actual)


@pytest.mark.parametrize(("factored", "sliding", "growth"), [(False, None, CONSTANT), (True, 100, (40, 130))])
def test_pairs_one_by_one_for_heads_of_unequal_settings(factored, sliding, growth, fresh_seed, monkeypatch):
    inputs = random_inputs(LONG, batch=2, heads=6, kv_heads=3)
    groups = torch.stack([members(LONG, groups=5, top_k=top_k, batch=2) for top_k in (1, 2)])
    groups = torch.cat([groups, torch.zeros_like(groups[:1])])
    sets, windows = SETTINGS["by query head"]
    tokens = torch.tensor([30.0, 0.0, 1.0, 6.0, 10.0, 700.0], device=DEVICE)
    factors = HeadFactors(torch.rand(6, device=DEVICE) + 0.5, (tokens > 0).float(), tokens, growth)
    visible = torch.arange(1, LONG + 1, device=DEVICE).clamp(max=sliding or LONG)
    grown = torch.arange(LONG, device=DEVICE).clamp(*growth) / growth[0]
    share = (factors.acts.double()[:, None] - tokens.double()[:, None] * grown / visible).clamp_min(0)
    power = factors.factors.double()[:, None] ** share if factored else torch.ones(6, LONG, device=DEVICE)
    query, expected = (inputs[0].double() * power[..., None]).to(DTYPE), []
    for head in range(6):
        own = (query[:, head : head + 1], *(x[:, head // 2 : head // 2 + 1] for x in inputs[1:]))
        rule = PairRule(windows[head], 3, sliding, growth)
        expected.append(reference_attention(*(x.double() for x in own), groups[sets[head]], rule, Scoring(0.25)))
    poisoned(monkeypatch)
    heads = HeadSets(*(torch.tensor(x, dtype=torch.int32, device=DEVICE) for x in (sets, windows)))
    given = (*inputs, groups, PairRule(99, 3, sliding, growth), Scoring(0.25))
    _, lse = new_results(inputs[0])
    actual = pairwise_attention(*given, num_groups=5, heads=heads, factors=factors if factored else None, lse=lse)
    assert_same(
        (actual.transpose(1, 2), lse), [torch.cat(parts, 1) for parts in zip(*expected, strict=True)], TOLERANCE
    )


@pytest.mark.parametrize("copied", [False, wide(True)])
def test_tokens_of_unequal_numbers_of_groups(copied, fresh_seed, monkeypatch):
    """One group, two, none, or all of them, as text sinks have."""
    inputs = random_inputs(LONG, batch=2)
    one, two = members(LONG, batch=2, groups=5), members(LONG, batch=2, groups=5, top_k=2)
    membership = torch.where(torch.rand(2, LONG, device=DEVICE) < 0.5, one, two)
    membership[:, 17], membership[:, 100:110] = 31, 0
    expected = oracle(inputs, membership, window=9, growth=(40, 180), num_sinks=2, scale=0.25)
    poisoned(monkeypatch)
    extent = Extent(5, 5, uniform=False)
    actual = grouped_attention(
        *inputs, membership, PairRule(9, 2, growth=(40, 180)), Scoring(0.25), extent=extent, copied=copied
    )
    assert_same(actual, expected, TOLERANCE)


@pytest.mark.parametrize(
    ("top_k", "sliding", "growth"),
    [(2, None, (40, 130)), (1, 110, (40, 130)), wide(1, 110, CONSTANT), wide(2, 110, (40, 130))],
)
def test_a_few_tokens_beyond_the_usual_number_of_groups(top_k, sliding, growth, fresh_seed, monkeypatch):
    """They see what shares any of their groups, and are seen by it, without a pass for each of their groups."""
    inputs, membership = random_inputs(LONG, batch=2), members(LONG, groups=5, top_k=top_k, batch=2)
    more = torch.rand(2, LONG, device=DEVICE) < 0.1
    membership = torch.where(more, membership | members(LONG, groups=5, top_k=4, batch=2), membership)
    membership[0, 120], membership[1, 130] = 31, 0
    position, scoring = torch.arange(LONG, device=DEVICE).expand(2, -1), Scoring(0.25)
    focus = WindowedFocus(membership, position, PairRule(9, 2, growth=growth))
    expected = sliding_attention(*(x.double() for x in inputs), sliding or LONG, scoring, focus=focus)
    poisoned(monkeypatch)
    extent = Extent(5, top_k, uniform=False, beyond=True)
    actual, _ = grouped_attention(*inputs, membership, PairRule(9, 2, sliding, growth), scoring, extent=extent)
    torch.testing.assert_close(actual.double(), expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize(("beyond", "growth"), [wide(False, CONSTANT), (True, (40, 130))])
def test_heads_of_unequal_settings(beyond, growth, fresh_seed, monkeypatch):
    """Windows by query head, one of them without end; memberships of two k and of none fill one result."""
    inputs = random_inputs(100, batch=2, heads=8, kv_heads=4)
    windows = torch.tensor([7, 9, 1 << 30, 3, 0, 40, 40, 5], dtype=torch.int32, device=DEVICE)
    parts = {1: [0, 2, 3], 2: [4, 5, 6], 0: [1, 7]}
    groups = {top_k: members(100, groups=5, top_k=top_k, batch=2) for top_k in (1, 2)}
    if beyond:
        groups = {k: torch.where(torch.rand(2, 100, device=DEVICE) < 0.1, 31, sets) for k, sets in groups.items()}
    groups[0] = torch.zeros_like(groups[1])
    expected = []
    for head, window in enumerate(windows.tolist()):
        own = (inputs[0][:, head : head + 1], *(x[:, head // 2 : head // 2 + 1] for x in inputs[1:]))
        membership = next(groups[top_k] for top_k, numbers in parts.items() if head in numbers)
        expected.append(oracle(own, membership, window=window, growth=growth, num_sinks=3, scale=0.25))
    poisoned(monkeypatch)
    results = new_results(inputs[0])
    for top_k, numbers in parts.items():
        heads = Heads(torch.tensor(numbers, dtype=torch.int32, device=DEVICE), windows)
        extent = Extent(5, top_k, uniform=not beyond, beyond=beyond and top_k > 0)
        settings = {"extent": extent, "heads": heads, "results": results}
        actual = grouped_attention(*inputs, groups[top_k], PairRule(99, 3, growth=growth), Scoring(0.25), **settings)
    assert_same(actual, [torch.cat(parts, 1) for parts in zip(*expected, strict=True)], TOLERANCE)


SLIDING = [(300, 4, 1, 20, 2, 100), (170, 4, 2, 20, 5, 100), (300, 1, 1, 10, 5, 120), (200, 1, 1, 30, 3, 20)]
NARROW = (300, 4, 1, 30, 3, 31)


@pytest.mark.parametrize(
    ("case", "copied", "growth"),
    [
        *((SLIDING[n], False, (40, 130)) for n in (1, 3)),
        *((case, True, CONSTANT) for case in (SLIDING[2], NARROW)),
        wide(SLIDING[0], False, (40, 180)),
        wide(SLIDING[1], True, CONSTANT),
    ],
    ids=str,
)
def test_inside_a_sliding_window(case, copied, growth, fresh_seed):
    length, groups, top_k, window, sinks, sliding = case
    inputs, membership = random_inputs(length, batch=2), members(length, groups=groups, top_k=top_k, batch=2)
    position = torch.arange(length, device=DEVICE).expand(2, -1)
    focus, scoring = WindowedFocus(membership, position, PairRule(window, sinks, growth=growth)), Scoring(0.25)
    expected = sliding_attention(*(x.double() for x in inputs), sliding, scoring, focus=focus)
    rule, extent = PairRule(window, sinks, sliding, growth), Extent(groups, top_k, uniform=True)
    actual = grouped_attention(*inputs, membership, rule, scoring, extent=extent, copied=copied)
    torch.testing.assert_close(actual[0].double(), expected, rtol=TOLERANCE, atol=TOLERANCE)
    one_by_one = pairwise_attention(*inputs, membership[None], rule, scoring, num_groups=groups)
    torch.testing.assert_close(one_by_one.transpose(1, 2).double(), expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.skipif(not ON_GPU, reason="the interpreter would take minutes")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dim", [16, 64, 80, 128, 256])
@pytest.mark.parametrize("top_k", [1, 2])
@pytest.mark.parametrize("copied", [False, True])
def test_sizes_of_real_models(dtype, dim, top_k, copied, fresh_seed):
    inputs, membership = (
        random_inputs(4096, heads=6, kv_heads=2, dim=dim, dtype=dtype),
        members(4096, groups=8, top_k=top_k),
    )
    rule, scoring, extent = PairRule(128, 4), Scoring(dim**-0.5), Extent(8, top_k, uniform=True)
    actual = grouped_attention(*inputs, membership, rule, scoring, extent=extent, copied=copied)
    expected = oracle(inputs, membership, window=128, num_sinks=4, scale=dim**-0.5)
    assert_same(actual, expected, TOLERANCE)
    assert torch.nn.functional.cosine_similarity(actual[0].double(), expected[0], dim=-1).min() >= 0.9999


@pytest.mark.parametrize(
    ("length", "groups", "top_k"), [(5, 3, 1), (5, 40, 3), (700, 8, 2), (5000, 3, 1), (5000, 8, 2), wide(5000, 40, 3)]
)
def test_the_order_of_groups(length, groups, top_k, fresh_seed):
    """Few blocks are counted on the way, many by a kernel of their own."""
    length = min(length, 1200) if not ON_GPU and groups == 40 else length
    membership = members(length, groups=groups, top_k=top_k, batch=2)
    order = sort_by_group(membership, Extent(groups, top_k, uniform=True))
    for b in range(2):
        for g in range(groups):
            mine = (membership[b] >> g & 1).nonzero()[:, 0]
            start, stop = order.bounds[0, b, g : g + 2].tolist()
            assert order.key_token[b, start:stop].tolist() == mine.tolist()
            if top_k > 1:
                assert order.key_bits[b, start:stop].tolist() == membership[b, mine].tolist()
            for rank in range(top_k if top_k > 1 else 0):
                lower = [bin(bits & ((1 << g) - 1)).count("1") for bits in membership[b, mine].tolist()]
                own = [token for token, below in zip(mine.tolist(), lower, strict=True) if below == rank]
                first, last = order.bounds[1 + rank, b, g : g + 2].tolist()
                assert order.query_token[rank, b, first:last].tolist() == own
                place = order.query_place[rank, b, first:last].long()
                assert order.key_token[b, place].tolist() == own


@pytest.mark.parametrize(("width", "groups", "top_ks"), [(100, 8, (1,)), (64, 5, (3, 1)), (200, 20, (0, 2, 1))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("long", [False, True])
def test_routing_equals_its_definition(width, groups, top_ks, dtype, long, fresh_seed, monkeypatch):
    if long:
        monkeypatch.setattr("focus_runtime.routing.on_gpu.LONG_FROM", 0)
    dtype = dtype if ON_GPU else torch.float32
    hidden = torch.randn(2, 45, width, device=DEVICE).to(dtype)
    weights, potential = torch.randn(width, groups, device=DEVICE), torch.randn(groups, device=DEVICE)
    poisoned(monkeypatch)
    probabilities, sets, found = route_on_gpu(hidden, weights / width**0.5, potential, top_ks)
    expected = torch.softmax(hidden.double() @ (weights / width**0.5).double() + potential, -1)
    torch.testing.assert_close(probabilities.double(), expected, rtol=1e-5, atol=1e-6)
    ranked = expected.sort(-1, descending=True)[0]
    assert found is None
    for top_k, membership in zip(top_ks, sets, strict=True):
        gap = ranked[..., top_k - 1] - ranked[..., top_k] if top_k else torch.ones(2, 45, device=DEVICE)
        clear = gap > 1e-5  # of others rounding decides
        assert clear.double().mean() > 0.9
        assert torch.equal(membership[clear], top_k_membership(expected, top_k)[clear])


@pytest.mark.parametrize(("width", "groups"), [(100, 60), (576, 13), (64, 64)])
@pytest.mark.parametrize(
    ("first_movable", "padded", "knows"),
    [(-3, False, False), (0, True, False), (0, False, True), (4, True, True), (4, False, False), (100, True, True)],
)
def test_tokens_like_the_first(width, groups, first_movable, padded, knows, fresh_seed, monkeypatch):
    """They are in all groups of every top-k but 0, and so are those that were known before."""
    first = torch.randn(2, width, device=DEVICE).to(DTYPE)
    hidden = torch.randn(2, 37, width, device=DEVICE).to(DTYPE)
    hidden[:, ::5] += 3 * first[:, None]
    hidden[1, 7], known = 0, (torch.rand(2, 37, device=DEVICE) < 0.1) & knows
    similar = torch.nn.functional.cosine_similarity(hidden.double(), first[:, None].double(), dim=-1)
    assert (similar - 0.5).abs().min() > 1e-3  # none so near the threshold that rounding decides
    padding = torch.tensor([0, 9], device=DEVICE)
    movable = torch.arange(37, device=DEVICE) >= first_movable + padded * padding[:, None]
    expected = known | ((similar >= 0.5) & movable)
    weights, potential = torch.randn(width, groups, device=DEVICE) / width**0.5, torch.randn(groups, device=DEVICE)
    poisoned(monkeypatch)
    sinks = TextSinks(first, known if knows else None, 0.5, first_movable, padding if padded else None)
    probabilities, sets, found = route_on_gpu(hidden, weights, potential, (2, 0, 1), sinks)
    assert torch.equal(found, expected)
    assert torch.equal(sets[0], top_k_membership(probabilities, 2) | all_groups(expected, groups))
    assert not sets[1].any()
    assert torch.equal(sets[2], top_k_membership(probabilities, 1) | all_groups(expected, groups))


@pytest.mark.parametrize("new", [1, 70])
@pytest.mark.parametrize("furthest", [None, 40])
@pytest.mark.parametrize("growth", [CONSTANT, (40, 80)])
def test_queries_times_their_heads_factors(new, furthest, growth, fresh_seed, monkeypatch):
    query = random_inputs(90, batch=2, heads=3, queries=new)[0]
    factors, tokens = torch.rand(3, device=DEVICE) + 0.5, torch.tensor([20.0, 200.0, 0.0], device=DEVICE)
    acts = (tokens > 0).float()
    visible = torch.arange(90 - new + 1, 91, device=DEVICE).clamp(max=furthest or 90)
    grown = torch.arange(90 - new, 90, device=DEVICE).clamp(*growth) / growth[0]
    share = (acts.double()[:, None] - tokens.double()[:, None] * grown / visible).clamp_min(0)
    expected = query.double() * (factors.double()[:, None] ** share)[..., None]
    poisoned(monkeypatch)
    actual = multiplied_on_gpu(query, HeadFactors(factors, acts, tokens, growth), 90, furthest)
    torch.testing.assert_close(actual.double(), expected, rtol=4e-3 if ON_GPU else 1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("width", "groups", "top_ks", "factored"),
    [(100, 8, (1, 2), True), (576, 5, (2,), False), (700, 40, (0, 3, 1), True)],
)
@pytest.mark.parametrize(
    ("looks", "known", "sink"),
    [
        (False, None, False),
        (False, False, True),
        (False, True, False),
        (True, None, False),
        (True, None, True),
        (True, False, True),
        (True, True, False),
    ],
)
def test_what_a_new_token_is_given(width, groups, top_ks, factored, looks, known, sink, fresh_seed, monkeypatch):
    first = torch.randn(1, width, device=DEVICE).to(DTYPE)
    hidden = (torch.randn(1, 1, width, device=DEVICE) + (2 * first if sink else 0)).to(DTYPE)
    similar = torch.nn.functional.cosine_similarity(hidden[0].double(), first.double(), dim=-1)
    assert (similar >= 0.6) == sink
    weights, potential = torch.randn(width, groups, device=DEVICE) / width**0.5, torch.randn(groups, device=DEVICE)
    sets = torch.randint(1 << 20, (len(top_ks), 1, 9), device=DEVICE)
    query = random_inputs(1, heads=3, queries=1)[0]
    factors, tokens = torch.rand(3, device=DEVICE) + 0.5, torch.tensor([2.0, 200.0, 0.0], device=DEVICE)
    acts, before = (tokens > 0).float(), sets.clone()
    poisoned(monkeypatch)
    probabilities, found, scaled = decide_on_gpu(
        hidden,
        weights,
        potential,
        sets,
        7,
        top_ks,
        query,
        sinks=Sinks(None if known is None else torch.tensor([[known]], device=DEVICE), first if looks else None, 0.6),
        factors=HeadFactors(factors, acts, tokens, (5, 100)) if factored else None,
    )
    expected = torch.softmax(hidden[0, 0].double() @ weights.double() + potential, -1)
    torch.testing.assert_close(probabilities.double(), expected, rtol=1e-5, atol=1e-6)
    everywhere = bool(known) or (looks and sink)
    assert (found is None) == (known is None and not looks)
    assert found is None or found.item() == everywhere
    for number, top_k in enumerate(top_ks):
        own = top_k_membership(probabilities, top_k).item() | (int(everywhere and top_k > 0) * ((1 << groups) - 1))
        assert sets[number, 0, 7].item() == own
    before[:, :, 7] = sets[:, :, 7]
    assert torch.equal(sets, before)  # nothing else is written
    share = (acts - tokens * (7 / 5) / 8).clamp_min(0).double()
    power = factors.double() ** share if factored else torch.ones(3, device=DEVICE)
    expected_query = query.double() * power[:, None, None]
    torch.testing.assert_close(scaled.double(), expected_query, rtol=4e-3 if ON_GPU else 1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("heads", "length", "window", "sinks", "softcap"),
    [
        ((4, 2), 300, 20, 2, 3.0),
        ((1, 1), 1, 3, 0, None),
        ((6, 2), 300, 0, 0, None),
        ((6, 6), 200, 1000, 4, 3.0),
        ((2, 1), 700, 5, 30, None),
    ],
)
def test_a_decode_step_equals_the_oracle(heads, length, window, sinks, softcap, fresh_seed, monkeypatch):
    inputs = random_inputs(length, batch=2, heads=heads[0], kv_heads=heads[1], queries=1)
    membership = members(length, batch=2, top_k=2)
    settings = {"window": window, "growth": drawn_growth(length), "num_sinks": sinks}
    expected = oracle(inputs, membership, scale=0.25, softcap=softcap, **settings)
    poisoned(monkeypatch)
    out, parts = decode_on_gpu(*inputs, membership, PairRule(**settings), Scoring(0.25, softcap))
    assert_same((out, parts[-2 * heads[0] :].view(out.shape[:3])), expected, TOLERANCE)


SETTINGS = {
    "by key head": ([1, 0, 1], [30, 1 << 30, 0]),
    "by query head": ([1, 0, 2, 1, 1, 2], [30, 1 << 30, 0, 5, 9, 700]),
}


@pytest.mark.parametrize(("settings", "growth"), [("by key head", (100, 250)), ("by query head", CONSTANT)])
def test_a_decode_step_of_heads_of_unequal_settings(settings, growth, fresh_seed, monkeypatch):
    inputs = random_inputs(300, batch=2, heads=6, kv_heads=3, queries=1)
    groups = torch.stack([members(300, batch=2, top_k=top_k) for top_k in (1, 2)])
    groups = torch.cat([groups, torch.zeros_like(groups[:1])])
    sets, windows = SETTINGS[settings]
    expected = []
    for head in range(6):
        own = (inputs[0][:, head : head + 1], *(x[:, head // 2 : head // 2 + 1] for x in inputs[1:]))
        place = head * len(sets) // 6
        rule = {"window": windows[place], "growth": growth, "num_sinks": 2, "scale": 0.25}
        expected.append(oracle(own, groups[sets[place]], **rule))
    poisoned(monkeypatch)
    heads = HeadSets(*(torch.tensor(x, dtype=torch.int32, device=DEVICE) for x in (sets, windows)))
    out, parts = decode_on_gpu(*inputs, groups, PairRule(99, 2, growth=growth), Scoring(0.25), heads)
    actual = out, parts[-12:].view(2, 6, 1)
    assert_same(actual, [torch.cat(parts, 1) for parts in zip(*expected, strict=True)], TOLERANCE)
