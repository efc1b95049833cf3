"""Shared fixtures; the builders behind them are in tests/helpers.py."""

from __future__ import annotations

import atexit
import gc
import os
import random
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a test that would reach for the network fails at once instead

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels in Triton run on the CPU; read where Triton is imported

from focus_runtime.attention.costs import MachineCosts
from focus_runtime.routing.centroid_file import save_centroids
from tests.helpers import build_centroids, build_model, build_tokenizer, random_ids
from tests.local_hub import LocalHub


def pytest_collection_finish(session):
    """What was imported and collected stays: looking through it for garbage again and again takes a twentieth."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


atexit.register(gc.unfreeze)  # libraries look at the end whether everything of theirs is gone


@pytest.fixture(autouse=True, scope="session")
def own_database(tmp_path_factory):
    """The user's own database stays untouched by tests that name none, also in commands they start."""
    before = os.environ.get("FOCUS_EXPLORER_DB")
    os.environ["FOCUS_EXPLORER_DB"] = str(tmp_path_factory.mktemp("default") / "explorer.duckdb")
    yield
    if before is None:
        del os.environ["FOCUS_EXPLORER_DB"]
    else:
        os.environ["FOCUS_EXPLORER_DB"] = before


@pytest.fixture(autouse=True)
def no_calibration(monkeypatch):
    """Backends are chosen by the costs of the fit, so that no test depends on what this machine measures."""
    monkeypatch.setattr("focus_runtime.attention.dispatch.machine_costs", lambda dtype: MachineCosts())


@pytest.fixture
def fresh_seed():
    """A seed no earlier run has used; pytest shows the printed line when the test fails."""
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"fresh seed: {seed}")
    torch.manual_seed(seed)
    random.seed(seed)
    return seed


@pytest.fixture
def generator(fresh_seed):
    """Of numpy's random numbers."""
    return np.random.default_rng(fresh_seed)


@pytest.fixture
def tiny_model():
    """A Llama of two layers, hidden size 64, 4 query and 2 key-value heads of size 16, 128 tokens."""
    return build_model()


@pytest.fixture(scope="session")
def tokenizer():
    """Byte-level tokenizer with character offsets."""
    return build_tokenizer()


@pytest.fixture(scope="session")
def tiny_default(tmp_path_factory):
    """A folder of a tiny model with its tokenizer, and in it `c.safetensors` with random centroids."""
    folder = tmp_path_factory.mktemp("default-model")
    model = build_model(vocab_size=512, num_hidden_layers=14, max_position_embeddings=2048)
    model.save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    save_centroids(build_centroids(model, num_groups=8, window=32), folder / "c.safetensors")
    return folder


@pytest.fixture
def default_is_tiny(tiny_default, monkeypatch):
    """The default model is a tiny one, and every shipped file holds random centroids for it."""
    from focus_explorer.usecases.centroids.files import shipped_row

    monkeypatch.setattr("focus_runtime.models.loading.embedded_gguf", lambda cache: tiny_default)
    monkeypatch.setattr("focus_runtime.routing.places.asset_path", lambda *parts: tiny_default / "c.safetensors")
    shipped_row.cache_clear()
    yield
    shipped_row.cache_clear()


@pytest.fixture
def ids():
    """(1, 40) token ids."""
    return random_ids(40)


@pytest.fixture
def local_hub(monkeypatch, tmp_path):
    """A hub on this machine, with a cache of its own and no access token; see tests/local_hub.py."""
    from huggingface_hub import constants

    with LocalHub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield hub


@pytest.fixture
def count_calls(monkeypatch):
    """Count the calls of a function: in every module that imported it, or of a method in its class."""

    def count(function, owner=None):
        calls = []

        def counted(*args, **kwargs):
            calls.append(1)
            return function(*args, **kwargs)

        owners = [owner] if owner is not None else [m for n, m in list(sys.modules.items()) if n.startswith("focus_")]
        for place in owners:
            for name, value in list(vars(place).items()):
                if value is function:
                    monkeypatch.setattr(place, name, counted)
        return calls

    return count
