"""Turns at a lock: fair between users, in order for each, told and counted, given up, taken again by its holder."""

from __future__ import annotations

import random
import threading
import time

import pytest

from focus_explorer.usecases import fair_lock
from focus_explorer.usecases.fair_lock import FairLock
from focus_explorer.usecases.models import in_line


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
    monkeypatch.setattr(fair_lock, "LOOK_SECONDS", 0.01)


def test_users_take_turns_and_keep_their_own_order():
    lock = FairLock()
    with lock.held("z"):
        queue = Queue(lock, ["a", "a", "a", "b", "c", "b"])
    queue.join()
    assert queue.served == [("a", 0), ("b", 3), ("c", 4), ("a", 1), ("b", 5), ("a", 2)]


def test_who_was_served_before_waits_behind_who_was_not():
    lock = FairLock()
    with lock.held("a"):
        queue = Queue(lock, ["a", "b"])
    queue.join()
    assert queue.served == [("b", 1), ("a", 0)]


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
    monkeypatch.setattr(fair_lock, "SHORT_SECONDS", 0.0)
    lock = FairLock()
    lock._holds.extend([2.0, 4.0])
    with lock.held("z"):
        queue = Queue(lock, ["a", "a", "b"])
        while not all(queue.told.get(number) for number in range(3)):
            time.sleep(0.01)
        assert [queue.told[number][-1][0] for number in range(3)] == [1, 3, 2]  # b comes before the second of a
        assert queue.told[1][-1][1] == pytest.approx(9.0, abs=1.0)
    queue.join()
    assert queue.told[2][0][1] is not None


def test_nobody_knows_the_time_at_first():
    lock = FairLock()
    with lock.held():
        queue = Queue(lock, ["a"])
        while not queue.told[0]:
            time.sleep(0.01)
    queue.join()
    assert set(queue.told[0]) == {(1, None)}


def test_who_gives_up_leaves_the_line():
    lock, raised = FairLock(), []

    def give_up(ahead, seconds):
        raise KeyboardInterrupt

    def impatient():
        try:
            with lock.held("a", give_up):
                pytest.fail("it never got the lock")
        except KeyboardInterrupt:
            raised.append(True)

    with lock.held("z"):
        thread = threading.Thread(target=impatient)
        thread.start()
        thread.join(10)
        assert raised
        assert lock._waiting == []
        queue = Queue(lock, ["b"])
    queue.join()
    assert queue.served == [("b", 0)]


def test_it_is_not_taken_from_who_waits():
    lock, taken = FairLock(), []

    def look():
        taken.append(lock.try_acquire())

    with lock.held("z"):
        assert lock.try_acquire()  # its holder may
        lock.release()
        thread = threading.Thread(target=look)
        thread.start()
        thread.join(10)
    assert taken == [False]


@pytest.mark.parametrize(
    ("ahead", "seconds", "words"),
    [
        (1, None, "Waiting for the model: 1 before you"),
        (3, 40.4, "Waiting for the model: 3 before you, about 40 s"),
        (12, 240.0, "Waiting for the model: 12 before you, about 4 min"),
        (900, 9000.0, "Waiting for the model: 900 before you, about 2 h"),
        (1, 0.0, "Waiting for the model: 1 before you, about 1 s"),
    ],
)
def test_it_is_said_in_words(ahead, seconds, words):
    assert in_line(ahead, seconds) == words
