"""FlexAttention: block lists against the mask token by token, values and logsumexp against the oracle in float64."""

from __future__ import annotations

import shutil

import pytest
import torch

from focus_runtime.attention import flex
from focus_runtime.attention.flex import BLOCK, block_lists
from focus_runtime.config import CONSTANT
from focus_runtime.errors import InputError
from focus_runtime.mask.allowed_pairs import allowed_pairs, token_positions
from focus_runtime.mask.rule import Extent, PairRule
from tests.runtime.attention.by_keyword import flex_focus_attention, order_tokens, reference_attention
from tests.runtime.attention.inputs import assert_same, padded, random_inputs, random_membership


def dense(counts, columns):
    """(B, 1, Nq), (B, 1, Nq, Nk) lists of blocks -> (B, Nq, Nk) bool."""
    listed = torch.arange(columns.shape[-1]) < counts[..., None]
    flags = torch.zeros(columns.shape, dtype=torch.int64)
    flags.scatter_add_(-1, columns.long(), listed.long())
    assert flags.max() <= 1, "a block is listed twice"
    return flags[:, 0] == 1


def expected_mask(membership, order, length_q, rule, real):
    """The definition of the mask, permuted into the kernel's order: (B, Tq, Tk) bool and its padding left out."""
    position = token_positions(membership, real)
    first = membership.shape[1] - length_q
    allowed = allowed_pairs(membership[:, first:], membership, position[:, first:], position, rule)
    if real is not None:
        allowed &= real[:, None, :]
    rows = order.index_q[:, :length_q, None].expand(-1, -1, allowed.shape[2])
    columns = order.index_k[:, None, : allowed.shape[2]].expand(-1, length_q, -1)
    return allowed.gather(1, rows).gather(2, columns)


@pytest.mark.slow
@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize(
    ("window", "num_sinks", "growth"),
    [
        *((window, sinks, CONSTANT) for window, sinks in ((0, 0), (40, 0), (3, 5), (150, 300), (5000, 0))),
        (40, 5, (200, 700)),
    ],
)
@pytest.mark.parametrize(("length_q", "side"), [(900, None), (300, "left"), (900, "right")])
def test_block_lists_cover_the_mask_exactly(sort, window, num_sinks, growth, length_q, side, fresh_seed, monkeypatch):
    top_k = 1 + fresh_seed % 3
    monkeypatch.setattr(flex, "FLAGS_AT_ONCE", 3 * 16)  # several chunks of rows
    membership = random_membership(900, top_k=top_k, batch=2, groups=5)
    real = padded(900, 2, side) if side else None
    settings = {"window": window, "num_sinks": num_sinks, "growth": growth}
    order = order_tokens(membership, length_q, key_padding=real, sort=sort, **settings)
    counts, columns, full_counts, full_columns = block_lists(order)
    partial, full = dense(counts, columns), dense(full_counts, full_columns)
    assert not (partial & full).any()
    allowed = expected_mask(membership, order, length_q, PairRule(window, num_sinks, growth=growth), real)
    pad = torch.nn.functional.pad
    grow = (0, -900 % BLOCK, 0, -length_q % BLOCK)

    def blocks(x):
        return x.unflatten(2, (-1, BLOCK)).unflatten(1, (-1, BLOCK)).transpose(2, 3).flatten(3)

    some = blocks(pad(allowed, grow)).any(-1)
    assert (some <= (partial | full)).all(), "an allowed pair lies in a skipped block"
    padded_rows = torch.arange(length_q + grow[3]) >= length_q  # their output is thrown away
    every = blocks(pad(allowed, grow) | padded_rows[:, None]).all(-1)
    assert (full <= every).all(), "a full block holds a forbidden pair"


def test_block_lists_never_build_a_square_of_tokens(fresh_seed):
    """A million tokens: a T x T tensor of bytes would be a terabyte."""
    membership = random_membership(1 << 17, groups=8)
    order = order_tokens(membership, 1 << 17, window=128, num_sinks=4, key_padding=None, sort=True)
    assert block_lists(order)[1].shape == (1, 1, 1024, 1024)


CASES = [
    {"top_k": 1},
    {"top_k": 3, "side": "left", "length_q": 77},
    {"top_k": 1, "side": "right", "length_q": 130},
    {"top_k": 2, "softcap": 3.0, "groups": 63, "heads": (6, 2), "window": 0, "num_sinks": 0},
    {"top_k": 1, "length": 1},
]


@pytest.mark.slow
@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(f"{k}={v}" for k, v in case.items()))
def test_flex_equals_the_oracle(case, sort, fresh_seed):
    values = {"length": 200, "length_q": None, "groups": 4, "side": None, "heads": (4, 2), "window": 9, "num_sinks": 3}
    values |= {"softcap": None, **case}
    heads, kv_heads = values["heads"]
    inputs = random_inputs(values["length"], batch=2, heads=heads, kv_heads=kv_heads, queries=values["length_q"])
    membership = random_membership(values["length"], top_k=values["top_k"], groups=values["groups"], batch=2)
    settings = {
        "window": values["window"],
        "num_sinks": values["num_sinks"],
        "scale": 0.35,
        "softcap": values["softcap"],
        "key_padding": padded(values["length"], 2, values["side"]) if values["side"] else None,
    }
    actual = flex_focus_attention(*inputs, membership, sort=sort, **settings)
    assert_same(actual, reference_attention(*inputs, membership, **settings), 1e-10)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler")
def test_compiled_flex_on_the_cpu_stands_alone(fresh_seed, monkeypatch):
    monkeypatch.setattr(flex, "EAGER_LIMIT", 0)
    membership = random_membership(300, top_k=2)
    settings = {"window": 9, "num_sinks": 2, "scale": 0.35}
    for _ in range(2):  # a new mask of the same shape must not compile again
        inputs = random_inputs(300, dtype=torch.float32)
        before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        out, lse = flex_focus_attention(*inputs, membership, sort=True, return_lse=False, **settings)
        assert lse is None
        expected = reference_attention(*(x.double() for x in inputs), membership, **settings)[0]
        torch.testing.assert_close(out.double(), expected, rtol=5e-6, atol=5e-6)
        membership = random_membership(300, top_k=2)
        settings["window"], settings["num_sinks"] = 40, 5
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before


@pytest.mark.parametrize(("dtype", "return_lse"), [(torch.float32, True), (torch.float64, False)])
def test_what_the_cpu_cannot_do_is_said(dtype, return_lse, monkeypatch):
    monkeypatch.setattr(flex, "EAGER_LIMIT", 10)
    inputs, membership = random_inputs(20, dtype=dtype), random_membership(20)
    with pytest.raises(InputError, match="at most 10 tokens"):
        flex_focus_attention(*inputs, membership, window=2, scale=0.3, return_lse=return_lse)


def test_gradients_on_the_cpu_are_refused():
    inputs, membership = random_inputs(20), random_membership(20)
    inputs[0].requires_grad_()
    with pytest.raises(InputError, match="gradients"):
        flex_focus_attention(*inputs, membership, window=2, scale=0.3)


def test_a_missing_compiler_is_named(monkeypatch):
    """Torch's own error, as seen with CXX=/nonexistent, names the wrong thing for a user of this package."""

    def fails(*inputs, **arguments):
        raise RuntimeError("LoweringException: InvalidCxxCompiler: No working C++ compiler found")

    monkeypatch.setattr(flex, "EAGER_LIMIT", 0)
    monkeypatch.setattr(flex, "_compiled", lambda device: fails)
    inputs, membership = random_inputs(20, dtype=torch.float32), random_membership(20)
    with pytest.raises(InputError, match=r"found no C\+\+ compiler"):
        flex_focus_attention(*inputs, membership, window=2, scale=0.3, return_lse=False)


@pytest.mark.slow
@pytest.mark.parametrize("top_k", [1, 2])
def test_what_is_known_of_the_groups_changes_nothing(top_k, fresh_seed):
    inputs, membership = random_inputs(200, batch=2), random_membership(200, groups=6, top_k=top_k, batch=2)
    settings = {"window": 20, "num_sinks": 3, "scale": 0.35, "sort": True}
    looked_up = flex_focus_attention(*inputs, membership, **settings)
    known = flex_focus_attention(*inputs, membership, extent=Extent(6, top_k, uniform=True), **settings)
    assert torch.equal(looked_up[0], known[0])
    assert torch.equal(looked_up[1], known[1])
