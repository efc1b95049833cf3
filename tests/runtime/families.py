"""One tiny model of each family for all tests, each of which leaves it as it was."""

from __future__ import annotations

import functools

import torch
import transformers
from packaging.version import Version

from tests.helpers import build_model

AROUND_THE_INTERFACE = ["Bloom", "Falcon"]  # families whose attention no interface of transformers replaces
if Version(transformers.__version__) < Version("5.24"):
    AROUND_THE_INTERFACE.append("GPTJ")


@functools.cache
def family_model(family):
    """A tiny model with the family's own settings; not for tests that change its configuration or weights."""
    return build_model(family)


@torch.no_grad()
def logits(model, ids, **kwargs):
    """(B, T, V) of a whole text in one pass."""
    return model(input_ids=ids, use_cache=False, **kwargs).logits
