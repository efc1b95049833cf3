"""Token streams of texts, and the sequences cut from them."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from focus_runtime.text.sequences import encode_texts, even_sequences, random_sequences, step_sequences


def test_texts_are_joined_in_order(tokenizer):
    assert tokenizer.decode(encode_texts(tokenizer, ["ab", "cd"], 1)) == "abcd"


def test_a_step_sees_the_same_data_however_it_was_reached():
    ids = torch.arange(400)
    rows = [step_sequences(ids, step, 3, 16, 5) for step in range(4)]
    assert torch.equal(rows[2], step_sequences(ids, 2, 3, 16, 5))
    assert not torch.equal(rows[2], rows[3])
    assert not torch.equal(rows[2], step_sequences(ids, 2, 3, 16, 6))


@settings(max_examples=100, deadline=None)
@given(st.integers(16, 3000), st.integers(1, 40), st.integers(16, 200))
def test_even_sequences_are_slices_that_never_overlap(total, count, length):
    if total < length:
        return
    rows = even_sequences(torch.arange(total), count, length)
    assert rows.shape == (min(count, total // length), length)
    assert torch.equal(rows, rows[:, :1] + torch.arange(length))
    assert (rows[1:, 0] > rows[:-1, -1]).all()
    assert rows[0, 0] == 0
    assert rows[-1, -1] < total


def test_random_sequences_reach_both_ends():
    starts = random_sequences(torch.arange(20), 500, 16, torch.Generator().manual_seed(0))
    assert torch.equal(starts, starts[:, :1] + torch.arange(16))
    assert set(starts[:, 0].tolist()) == {0, 1, 2, 3, 4}
