"""The lease of the loaded model: one model is kept, and one thread has it at a time."""

from __future__ import annotations

import threading

import pytest

from focus_explorer.errors import ModelError
from focus_explorer.services.models import LoadedModel, ModelStore


@pytest.fixture
def loads():
    """Names loaded so far."""
    return []


@pytest.fixture
def store(loads):
    def load(name):
        loads.append(name)
        if name == "missing":
            raise ModelError("there is no such model")
        return LoadedModel(name, object(), object(), f"fingerprint of {name}")

    return ModelStore(load)


def test_the_model_loaded_last_is_kept_and_no_other(store, loads):
    with store.lease("a") as first:
        pass
    with store.lease("a") as again:
        assert again is first
    with store.lease("b"), store.lease("a") as reloaded:
        assert reloaded is not first
    assert loads == ["a", "b", "a"]


def test_a_model_that_cannot_be_loaded_leaves_the_store_free(store, loads):
    with pytest.raises(ModelError), store.lease("missing"):
        pass
    taken = []

    def other_thread():
        with store.lease("a") as loaded:
            taken.append(loaded.name)

    thread = threading.Thread(target=other_thread)
    thread.start()
    thread.join(5)
    assert taken == ["a"]


def test_a_second_thread_waits_until_the_lease_ends(store):
    order, started = [], threading.Event()

    def second():
        started.set()
        with store.lease("a"):
            order.append("second")

    thread = threading.Thread(target=second)
    with store.lease("a"), store.lease("a"):  # the same thread may take it again
        thread.start()
        assert started.wait(5)
        thread.join(0.2)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]
