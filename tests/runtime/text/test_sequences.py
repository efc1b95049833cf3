"""Token streams of texts, and the sequences cut from them."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from focus_runtime.text.sequences import Mixture, TokenStream, encode_texts, even_sequences, step_sequences


def test_texts_are_joined_in_order(tokenizer):
    assert tokenizer.decode(encode_texts(tokenizer, ["ab", "cd"], 1).ids) == "abcd"


def test_a_step_sees_the_same_data_however_it_was_reached():
    ids = TokenStream(torch.arange(400))
    rows = [step_sequences(ids, step, 3, 16, 5) for step in range(4)]
    assert torch.equal(rows[2], step_sequences(ids, 2, 3, 16, 5))
    assert not torch.equal(rows[2], rows[3])
    assert not torch.equal(rows[2], step_sequences(ids, 2, 3, 16, 6))


@settings(max_examples=100, deadline=None)
@given(st.integers(16, 3000), st.integers(1, 40), st.integers(16, 200))
def test_even_sequences_are_slices_that_never_overlap(total, count, length):
    if total < length:
        return
    rows = even_sequences(TokenStream(torch.arange(total)), count, length)
    assert rows.shape == (min(count, total // length), length)
    assert torch.equal(rows, rows[:, :1] + torch.arange(length))
    assert (rows[1:, 0] > rows[:-1, -1]).all()
    assert rows[0, 0] == 0
    assert rows[-1, -1] < total


def test_random_sequences_reach_both_ends():
    starts = step_sequences(TokenStream(torch.arange(20)), 0, 500, 16, 0)
    assert torch.equal(starts, starts[:, :1] + torch.arange(16))
    assert set(starts[:, 0].tolist()) == {0, 1, 2, 3, 4}


def mixture(*weights):
    streams = tuple(TokenStream(torch.arange(1000 * i, 1000 * i + 400)) for i in range(len(weights)))
    return Mixture(tuple("abcdef"[: len(weights)]), streams, weights)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.05, 20), min_size=1, max_size=6), st.integers(0, 1 << 40), st.integers(0, 10_000))
def test_domains_are_drawn_in_the_shares_of_their_weights(weights, seed, first):
    mixed = mixture(*weights)
    drawn = mixed.chosen(first, 400, seed)
    for domain, share in enumerate(mixed.shares):
        assert abs(drawn.count(domain) - 400 * share) <= 5


def test_the_order_of_domains_depends_on_seed_and_number_alone():
    mixed = mixture(3.0, 1.0, 2.0)
    whole = mixed.chosen(0, 60, 7)
    assert [mixed.chosen(first, 3, 7) for first in range(0, 60, 3)] == [whole[i : i + 3] for i in range(0, 60, 3)]
    assert whole != mixed.chosen(0, 60, 8)
    rows = torch.cat([step_sequences(mixed, step, 3, 16, 7) for step in range(20)])
    assert [int(row[0]) // 1000 for row in rows] == whole
    assert torch.equal(rows, rows[:, :1] + torch.arange(16))


def test_even_sequences_of_a_mixture_hold_every_domain():
    rows = even_sequences(mixture(6.0, 1.0, 0.01), 14, 16)
    assert torch.bincount(rows[:, 0] // 1000).tolist() == [12, 2, 1]


def test_one_domain_alone_is_read_as_a_plain_text():
    ids = TokenStream(torch.arange(400))
    assert torch.equal(even_sequences(mixture(2.0), 9, 16), even_sequences(ids, 9, 16))
