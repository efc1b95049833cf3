"""Tensors that do not fit a method are named."""

from __future__ import annotations

import pytest

from focus_runtime.errors import InputError
from paper.methods.window_only import window_attention
from tests.paper.methods.naive import random_heads


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda q, k, v: (q[0], k, v), "query"),
        (lambda q, k, v: (q, k, v[:, :, 1:]), "value"),
        (lambda q, k, v: (q[:, :3], k, v), "multiple of key"),
        (lambda q, k, v: (q, k.float(), v), "key is"),
        (lambda q, k, v: (q[:, :, 1:], k, v), "as many"),
        (lambda q, k, v: (q, k, None), "value is NoneType"),
    ],
)
def test_tensors_that_do_not_fit_are_named(change, words):
    with pytest.raises(InputError, match=words):
        window_attention(*change(*random_heads(5)), window=2)
