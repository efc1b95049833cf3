"""The lease of the loaded model: one model is kept, and one thread has it at a time."""

from __future__ import annotations

import random
import threading
import time

import pytest

from focus_explorer.errors import ModelError
from focus_explorer.usecases import models
from focus_explorer.usecases.models import FairLock, LoadedModel, ModelStore, device_choices, in_line
from focus_runtime.errors import DeviceError
from focus_runtime.models.devices import Device, Placement
from tests.helpers import build_model, build_tokenizer


class Queue:
    """Users that come one after the other while the lock is held; `served` is the order in which they got it."""

    def __init__(self, lock, users):
        self.lock, self.served, self.told = lock, [], {}
        self.threads = []
        for number, user in enumerate(users):
            self.threads.append(threading.Thread(target=self.come, args=(number, user)))
            self.threads[-1].start()
            while len(lock._waiting) <= number:
                time.sleep(0.001)

    def come(self, number, user):
        told = self.told.setdefault(number, [])
        with self.lock.held(user, lambda ahead, seconds: told.append((ahead, seconds))):
            self.served.append((user, number))

    def join(self):
        for thread in self.threads:
            thread.join(10)
            assert not thread.is_alive()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(models, "LOOK_SECONDS", 0.01)


def test_users_take_turns_and_keep_their_own_order():
    lock = FairLock()
    with lock.held("z"):
        queue = Queue(lock, ["a", "a", "a", "b", "c", "b"])
    queue.join()
    assert queue.served == [("a", 0), ("b", 3), ("c", 4), ("a", 1), ("b", 5), ("a", 2)]


def test_one_at_a_time_whatever_comes(fresh_seed):
    lock, inside, most = FairLock(), [], []
    draw = random.Random(fresh_seed)

    def work(user, pauses):
        for pause in pauses:
            with lock.held(user), lock.held(user):
                inside.append(user)
                most.append(len(inside))
                time.sleep(pause)
                inside.remove(user)

    pauses = [[draw.random() / 500 for _ in range(20)] for _ in range(6)]
    threads = [threading.Thread(target=work, args=(draw.choice("abc"), one)) for one in pauses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(most) == 120
    assert set(most) == {1}
    assert lock.try_acquire()
    lock.release()


def test_the_place_in_line_and_the_time_are_told(monkeypatch):
    monkeypatch.setattr(models, "SHORT_SECONDS", 0.0)
    lock = FairLock()
    with lock.held():
        queue = Queue(lock, ["a"])
        while not queue.told[0]:
            time.sleep(0.01)
    queue.join()
    assert set(queue.told[0]) == {(1, None)}  # nobody knows the time at first
    lock._holds.clear()
    lock._holds.extend([2.0, 4.0])
    with lock.held("z"):
        queue = Queue(lock, ["a", "a", "b"])
        while not all(queue.told.get(number) for number in range(3)):
            time.sleep(0.01)
        assert [queue.told[number][-1][0] for number in range(3)] == [1, 3, 2]  # b comes before the second of a
        assert queue.told[1][-1][1] == pytest.approx(9.0, abs=1.0)
    queue.join()
    assert queue.told[2][0][1] is not None


def test_the_place_in_line_in_words():
    assert in_line(1, None) == "Waiting for the model: 1 before you"
    assert in_line(12, 240.0) == "Waiting for the model: 12 before you, about 4 min"
    assert in_line(900, 9000.0) == "Waiting for the model: 900 before you, about 2 h"


@pytest.fixture
def loads():
    """Names loaded so far."""
    return []


@pytest.fixture
def store(loads):
    def load(name, placement, progress):
        loads.append(name if placement.dtype == "float32" else f"{name} in {placement.dtype}")
        if name == "missing":
            raise ModelError("there is no such model")
        return LoadedModel(name, build_model(), object(), f"fingerprint of {name}")

    return ModelStore(load, device="cpu")


def test_the_model_loaded_last_is_kept_and_no_other(store, loads):
    with store.lease("a") as first:
        pass
    with store.lease("a") as again:
        assert again is first
    with store.lease("b"), store.lease("a") as reloaded:
        assert reloaded is not first
    assert loads == ["a", "b", "a"]


def test_another_precision_is_another_model(store, loads):
    with store.lease("a") as first, store.lease("a", dtype="bfloat16") as other:
        assert other is not first
    with store.lease("a", device="cpu", dtype="bfloat16") as again:
        assert again is other
    store.dtype = "bfloat16"  # which a page may be started with
    with store.lease("a") as preferred:
        assert preferred is other
    assert loads == ["a", "a in bfloat16"]


def test_a_device_that_is_not_here_loads_nothing(store, loads):
    with pytest.raises(DeviceError, match=r"device cuda:99 is not available"), store.lease("a", device="cuda:99"):
        pass
    assert loads == []


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


def test_a_training_is_offered_single_devices_and_no_precision(monkeypatch):
    listed = [Device("cpu", "A CPU", None, ("float32",)), Device("cuda:0", "A GPU", 1 << 34, ("bfloat16",))]
    listed.append(Device("split", "1 GPU and main memory", 1 << 34, ("bfloat16",)))
    monkeypatch.setattr("focus_runtime.models.devices.devices", lambda: listed)
    monkeypatch.setattr("focus_runtime.models.devices.place", lambda: Placement("cuda:0", "bfloat16"))
    assert device_choices() == [
        ("auto (cuda:0, bfloat16)", "auto"),
        ("cpu (A CPU)", "cpu"),
        ("cuda:0 (A GPU, 16 GB)", "cuda:0"),
        ("split (1 GPU and main memory, 16 GB)", "split"),
    ]
    assert device_choices(training=True) == [
        ("auto (cuda:0)", "auto"),
        ("cpu (A CPU)", "cpu"),
        ("cuda:0 (A GPU, 16 GB)", "cuda:0"),
    ]


def test_the_tokenizer_of_a_busy_model_is_not_waited_for(store, tmp_path):
    answers = []
    with store.lease("a") as loaded:
        assert store.tokenizer("a") is loaded.tokenizer  # the thread that has the model
        asking = threading.Thread(target=lambda: answers.append(store.tokenizer("a")))
        asking.start()
        asking.join(timeout=20)
    assert answers == [None]
    assert store.tokenizer("a") is loaded.tokenizer
    assert store.tokenizer(str(tmp_path / "missing")) is None


def test_a_tokenizer_is_loaded_without_its_model(store, loads, tmp_path):
    build_tokenizer().save_pretrained(tmp_path)
    tokenizer = store.tokenizer(str(tmp_path))
    assert len(tokenizer("The cat sat.").input_ids) > 1
    assert store.tokenizer(str(tmp_path)) is tokenizer
    assert loads == []
