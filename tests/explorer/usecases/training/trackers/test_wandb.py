"""When Weights & Biases is used online; the client itself runs in test_clients.py."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from focus_explorer.usecases.training.trackers.tracker import TrackedRun
from focus_explorer.usecases.training.trackers.wandb import WandbTracker


@pytest.mark.parametrize(
    ("mode", "has_key", "used"),
    [("online", True, None), ("online", False, "offline"), ("shared", False, "offline"), ("offline", False, None)],
)
@pytest.mark.parametrize("fields", [{}, {"x_transaction_log_flush_interval": 15.0}])
def test_without_a_key_it_writes_files_and_nobody_is_asked(monkeypatch, mode, has_key, used, fields):
    started = {}
    prompts = []

    def settings(**values):
        assert values.keys() - {"console"} == fields.keys()
        return values

    settings.model_fields = fields
    client = SimpleNamespace(
        setup=lambda: SimpleNamespace(settings=SimpleNamespace(mode=mode)),
        login=lambda *, prompt: prompts.append(prompt) or has_key,
        init=lambda **values: started.update(values),
        Settings=settings,
    )
    monkeypatch.setitem(sys.modules, "wandb", client)
    assert WandbTracker("p").open(TrackedRun(key="a-1", resumed=True), 3) is None
    assert (started["mode"], started["id"], started["resume"]) == (used, "a-1", "allow")
    assert not any(prompts)
