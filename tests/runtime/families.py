"""One tiny model of each family for all tests, each of which leaves it as it was."""

from __future__ import annotations

import functools

import torch

from tests.helpers import build_model


@functools.cache
def family_model(family):
    """A tiny model with the family's own settings; not for tests that change its configuration or weights."""
    return build_model(family)


@torch.no_grad()
def logits(model, ids, **kwargs):
    """(B, T, V) of a whole text in one pass."""
    return model(input_ids=ids, use_cache=False, **kwargs).logits
