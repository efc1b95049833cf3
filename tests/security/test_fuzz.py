"""Centroid files, GGUF files and model folders that somebody has changed: one message, or a file that can be used."""

from __future__ import annotations

import json
import math
import struct
from contextlib import suppress

import pytest
import torch
from hypothesis import given
from safetensors.torch import save_file

from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError, InputError
from focus_runtime.models.loading import load_model
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from tests.helpers import build_centroids, build_model, build_tokenizer
from tests.security.model_files import write_gguf
from tests.security.mutations import FUZZ, FUZZ_SLOW, damaged, mutated

pytestmark = [pytest.mark.fuzz, pytest.mark.long]


@pytest.fixture
def centroid_file(tmp_path):
    save_centroids(build_centroids(build_model()), tmp_path / "good.safetensors")
    return tmp_path / "good.safetensors"


def usable_or_refused(path):
    """A file that is taken gives finite probabilities."""
    with suppress(InputError):
        centroids = load_centroids(path)
        for router in centroids.routers.values():
            hidden = 100 * torch.randn(1, 5, router.projection.shape[0])
            assert bool(torch.isfinite(router.own_assignment(hidden, assignment="sinkhorn").probabilities).all())


def test_centroid_files_with_other_bytes(centroid_file, tmp_path):
    @FUZZ
    @given(data=damaged(centroid_file.read_bytes()))
    def check(data):
        (tmp_path / "c.safetensors").write_bytes(data)
        usable_or_refused(tmp_path / "c.safetensors")

    check()


def test_headers_of_centroid_files(centroid_file, tmp_path):
    data = centroid_file.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])

    @FUZZ
    @given(header=mutated(json.loads(data[8 : 8 + size])))
    def check(header):
        text = json.dumps(header).encode()
        (tmp_path / "c.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])
        usable_or_refused(tmp_path / "c.safetensors")

    check()


def test_torch_files_with_other_bytes(tmp_path):
    torch.save(
        {"layers.0.projection": torch.randn(64, 16), "layers.0.centroids": torch.randn(4, 16)}, tmp_path / "g.pt"
    )
    data = (tmp_path / "g.pt").read_bytes()

    @FUZZ
    @given(data=damaged(data))
    def check(data):
        (tmp_path / "c.pt").write_bytes(data)
        usable_or_refused(tmp_path / "c.pt")

    check()


def test_configurations(tmp_path):
    good = FocusConfig(num_groups=4, text_sinks=0.9).to_dict() | {
        "budget": [{"layer": 0, "head": 1, "top_k": 2}, {"layer": 1, "full": True}]
    }
    tensors = {
        f"layers.{i}.{name}": torch.randn(n, 16) for i in (0, 1) for name, n in (("projection", 64), ("centroids", 4))
    }

    @FUZZ
    @given(values=mutated(good))
    def check(values):
        with suppress(ConfigError):
            config = FocusConfig.from_dict(values)
            assert math.isfinite(config.temperature)
        text = json.dumps(values)
        save_file(tensors, tmp_path / "c.safetensors", {"format": "focus-centroids", "config": text})
        usable_or_refused(tmp_path / "c.safetensors")

    check()


@pytest.mark.slow
def test_gguf_files_with_other_bytes(tmp_path):
    data = write_gguf(tmp_path / "good.gguf").read_bytes()
    load_model(str(tmp_path / "good.gguf"), cache_dir=tmp_path / "cache")
    header = data[:20_000]  # beyond are weights, of which any value is one

    @FUZZ_SLOW
    @given(start=damaged(header))
    def check(start):
        (tmp_path / "m.gguf").write_bytes(start + data[20_000:])
        with suppress(InputError):
            load_model(str(tmp_path / "m.gguf"), cache_dir=tmp_path / "cache")

    check()


@pytest.mark.slow
def test_configurations_of_models(tmp_path):
    build_model(vocab_size=512).save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    config = tmp_path / "config.json"
    load_model(str(tmp_path))

    @FUZZ_SLOW
    @given(values=mutated(json.loads(config.read_text())))
    def check(values):
        config.write_text(json.dumps(values))
        with suppress(InputError):
            load_model(str(tmp_path))

    check()
