"""A tiny saved model, and a database with one run of it.

Commands load the model anew and most tests begin a database of their own, which takes longer than what they look at:
tiny models are read once, and a new database is a copy of an empty one.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import tempfile
from contextlib import suppress

import pytest
import torch

from focus_explorer.cli.main import main
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.service import Service
from focus_runtime.budget import read_budget
from focus_runtime.config import FocusConfig
from focus_runtime.fit.calibrate import calibrate_potentials
from focus_runtime.models import loading
from focus_runtime.models.loading import load_model
from focus_runtime.routing.centroid_file import save_centroids
from focus_runtime.routing.centroids import random_centroids
from focus_runtime.store.database import Database
from tests.helpers import build_model, build_tokenizer

TEXT = "The harbour was quiet. <script>alert('x')</script> Déjà vu 🙂 — the cat sat on the mat & left.\n" * 6


TINY = 4 << 20  # bytes of a model's files


@pytest.fixture(scope="session", autouse=True)
def tiny_models_are_read_once():
    load, read = loading._load_folder, {}

    def load_folder(source, dtype):
        states = [(path.name, path.stat()) for path in sorted(source.iterdir())] if source.is_dir() else []
        if not states or sum(state.st_size for _, state in states) > TINY:
            return load(source, dtype)
        key = (str(source), dtype, *((name, state.st_mtime_ns, state.st_size) for name, state in states))
        if key not in read:
            read[key] = load(source, dtype)
        return copy.deepcopy(read[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "_load_folder", load_folder)
        yield


@pytest.fixture(scope="session", autouse=True)
def new_databases_are_copies(tmp_path_factory):
    folder, connect = tmp_path_factory.mktemp("empty"), Database._open
    with Database(folder / "empty.duckdb").write():
        pass

    def opened(self, *, read_only):
        if not read_only and os.path.isdir(self.path.parent) and not os.path.lexists(self.path):
            with suppress(OSError), tempfile.NamedTemporaryFile(dir=folder) as part:
                shutil.copy(folder / "empty.duckdb", part.name)
                os.link(part.name, self.path)  # at once: other processes may look
        return connect(self, read_only=read_only)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "_open", opened)
        yield


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny-model")
    build_model(vocab_size=512).save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def service(tmp_path_factory):
    return Service(tmp_path_factory.mktemp("db") / "runs.duckdb")


@pytest.fixture(scope="session")
def run_id(service, model_folder):
    request = AnalyzeRequest(model=model_folder, centroids="random", top_k=1, window=8, num_sinks=2, repeats=2)
    return analyze(service, TEXT, request, command="focus-explorer test")


@pytest.fixture(scope="session")
def sliding_run(service, tmp_path_factory):
    """A run of a model all of whose layers attend to their last 24 tokens only, with the same text and settings."""
    folder = tmp_path_factory.mktemp("sliding-model")
    build_model("Mistral", vocab_size=512, sliding_window=24).save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    request = AnalyzeRequest(model=str(folder), centroids="random", top_k=1, window=8, num_sinks=2, repeats=1)
    return analyze(service, TEXT, request, command="focus-explorer test")


BUDGET = read_budget(
    [
        {"layer": 0, "full": True},
        {"layer": 1, "head": 0, "top_k": 2, "window": 3},
        {"layer": 1, "head": 2, "full": True},
        {"layer": 3, "top_k": 3},
    ]
)


@pytest.fixture(scope="session")
def heads_model(tmp_path_factory):
    """A model with four key-value heads, each shared by two query heads."""
    folder = tmp_path_factory.mktemp("heads-model")
    model = build_model(vocab_size=512, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4)
    model.save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def budget_run(service, heads_model, tmp_path_factory):
    """Layer 0 in full, layer 1 in three parts of heads, layer 2 as usual, layer 3 with another top-k; windows grow."""
    model, tokenizer = load_model(heads_model)
    config = FocusConfig(num_groups=6, top_k=1, window=8, num_sinks=2, budget=BUDGET, window_growth=(15, 45))
    centroids = random_centroids(model, config)
    calibrate_potentials(model, centroids, torch.tensor([tokenizer(TEXT)["input_ids"]]))
    path = tmp_path_factory.mktemp("budget") / "growing.safetensors"
    save_centroids(centroids, path)
    request = AnalyzeRequest(model=heads_model, centroids=str(path), repeats=1)
    return analyze(service, TEXT, request, command="focus-explorer test")


def ran(capsys, *words):
    """The JSON object that a command printed last.

    Args:
        capsys: pytest's fixture.
        words: of the command line.
    """
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out.splitlines()[-1])
