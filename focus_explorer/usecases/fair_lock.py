"""A lock whose waiting users take turns, each told how many are before them and about how long that takes."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

REMEMBERED = 16  # holds that an estimate is the mean of
SHORT_SECONDS = 0.5  # a shorter hold, such as of a text that is being typed, says nothing about those waited for
LOOK_SECONDS = 0.3  # between two looks at the place in line
Waiting = Callable[[int, float | None], None]


@dataclass(eq=False, slots=True)
class _Ticket:
    user: Hashable
    thread: int = field(default_factory=threading.get_ident)


class FairLock:
    """A re-entrant lock. Of the users that wait the one served least goes next; one user's requests keep their order.

    So somebody who asks for ten things at once waits behind somebody who asks for one.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holder: _Ticket | None = None
        self._depth = 0
        self._waiting: list[_Ticket] = []
        self._served: Counter[Hashable] = Counter()  # of users that wait or hold, since the lock was last free
        self._holds: deque[float] = deque(maxlen=REMEMBERED)  # seconds
        self._since = 0.0

    @contextmanager
    def held(self, user: Hashable = None, waiting: Waiting | None = None) -> Iterator[None]:
        """Hold the lock while the block runs.

        Args:
            user: who wants it.
            waiting: called every now and then while others are before: how many, the one who holds it included, and
                about how many seconds that takes, None while nobody knows. What it raises ends the waiting.
        """
        self._acquire(_Ticket(user), waiting)
        try:
            yield
        finally:
            self.release()

    def try_acquire(self) -> bool:
        """Take it where nobody holds it or waits; whether it was taken. `release` gives it back."""
        with self._changed:
            if self._is_mine():
                self._depth += 1
                return True
            free = self._holder is None and not self._waiting
            if free:
                self._take(_Ticket(None))
            return free

    def is_mine(self) -> bool:
        """Whether this thread holds it."""
        with self._changed:
            return self._is_mine()

    def release(self) -> None:
        """Give it back, as often as it was taken."""
        with self._changed:
            self._depth -= 1
            if self._depth:
                return
            held = time.monotonic() - self._since
            if held >= SHORT_SECONDS:
                self._holds.append(held)
            self._holder = None
            if not self._waiting:
                self._served.clear()
            self._changed.notify_all()

    def _acquire(self, ticket: _Ticket, waiting: Waiting | None) -> None:
        with self._changed:
            if self._is_mine():
                self._depth += 1
                return
            self._waiting.append(ticket)
        try:
            while True:
                with self._changed:
                    if self._changed.wait_for(lambda: self._is_next(ticket), LOOK_SECONDS):
                        self._waiting.remove(ticket)
                        self._take(ticket)
                        return
                    ahead = self._ahead(ticket)
                    seconds = self._estimate(ahead)
                if waiting is not None:
                    waiting(ahead, seconds)
        except BaseException:
            with self._changed:
                self._waiting.remove(ticket)
                self._changed.notify_all()
            raise

    def _take(self, ticket: _Ticket) -> None:
        self._holder, self._since, self._depth = ticket, time.monotonic(), 1
        self._served[ticket.user] += 1

    def _is_mine(self) -> bool:
        return self._holder is not None and self._holder.thread == threading.get_ident()

    def _is_next(self, ticket: _Ticket) -> bool:
        return self._holder is None and self._line()[0] is ticket

    def _line(self) -> list[_Ticket]:
        """Who waits, in the order in which they will be served if nobody else comes."""
        served, left, line = Counter(self._served), list(self._waiting), []
        while left:
            first = min(left, key=lambda ticket: served[ticket.user])  # the first of equals came first
            served[first.user] += 1
            left.remove(first)
            line.append(first)
        return line

    def _ahead(self, ticket: _Ticket) -> int:
        return self._line().index(ticket) + (self._holder is not None)

    def _estimate(self, ahead: int) -> float | None:
        if not self._holds:
            return None
        mean = sum(self._holds) / len(self._holds)
        return max(0.0, ahead * mean - min(time.monotonic() - self._since, mean) * (self._holder is not None))
