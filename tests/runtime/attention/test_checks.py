"""Bad arguments of the public op are refused with their name."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.attention import focus_attention
from focus_runtime.errors import InputError
from tests.runtime.attention.inputs import (
    INF,
    good,
    needs_compiler,
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("query", torch.zeros(4, 6, 8)),
        ("key", torch.zeros(2, 6, 8)),
        ("value", torch.zeros(2)),
        ("key", torch.zeros(1, 2, 6, 8, dtype=torch.float64)),
        ("value", torch.zeros(1, 2, 6, 8, dtype=torch.bfloat16)),
        ("value", torch.zeros(1, 2, 5, 8)),
        ("query", torch.zeros(1, 3, 6, 8)),
        ("query", torch.zeros(2, 4, 6, 8)),
        ("query", torch.zeros(1, 4, 6, 9)),
        ("query", torch.zeros(1, 4, 7, 8)),
        ("query", torch.zeros(1, 4, 0, 8)),
        ("membership", torch.zeros(1, 5, dtype=torch.int64)),
        ("membership", torch.zeros(6, dtype=torch.int64)),
        ("membership", torch.zeros(1, 6, dtype=torch.int32)),
        ("membership", torch.zeros(1, 6)),
        ("membership", torch.zeros(1, 6, dtype=torch.int64)),
        ("query", torch.full((1, 4, 6, 8), float("nan"))),
        ("key", torch.full((1, 2, 6, 8), float("nan"))),
        ("value", torch.full((1, 2, 6, 8), float("nan"))),
        ("value", torch.full((1, 2, 6, 8), INF)),
        ("query", None),
        ("query", torch.zeros(1, 4, 6, 8, device="meta")),
        ("query", torch.zeros(1, 4, 6, 8, dtype=torch.float8_e4m3fn)),
        ("membership", [1, 2, 4, 1, 2, 4]),
        ("membership", torch.full((1, 6), -1)),
        ("scale", "x"),
        ("scale", float("nan")),
        ("softcap", 0.0),
        ("softcap", -5.0),
        ("softcap", float("nan")),
        ("window", 2.5),
        ("num_sinks", True),
        ("window", -1),
        ("num_sinks", -1),
        ("key_padding", torch.ones(1, 5, dtype=torch.bool)),
        ("key_padding", torch.ones(1, 6)),
        ("backend", "flash"),
        ("backend", ""),
    ],
)
def test_argument_errors_name_the_argument(name, value):
    with pytest.raises(InputError, match=name) as caught:
        focus_attention(**{**good(), name: value})
    assert type(caught.value) is InputError


def test_integers_are_refused():
    values = {name: x.long() if name in ("query", "key", "value") else x for name, x in good().items()}
    with pytest.raises(InputError, match="query"):
        focus_attention(**values)


def test_no_key_heads_is_refused():
    with pytest.raises(InputError, match="heads"):
        focus_attention(**{**good(), "key": torch.zeros(1, 0, 6, 8), "value": torch.zeros(1, 0, 6, 8)})


@pytest.mark.parametrize("name", ["query", "key", "value"])
@pytest.mark.parametrize("backend", ["reference", "masked", "decomposed", pytest.param("fused", marks=needs_compiler)])
def test_one_bad_number_is_named(name, backend, fresh_seed):
    arguments = good()
    arguments[name][0, 1, 3, 5] = float("nan")
    with pytest.raises(InputError, match=f"{name} holds 1 values"):
        focus_attention(**arguments, backend=backend)
