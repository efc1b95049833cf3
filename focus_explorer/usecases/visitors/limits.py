"""What one visitor of a public page may use, and how much of it is left."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields

from focus_explorer.errors import InputError
from focus_explorer.progress import about
from focus_explorer.words import counted

WINDOW_SECONDS = 3600.0
VISITORS_OF_ADDRESS = 4  # shares of a visitor that everyone of one network address has together
MOST_REMEMBERED = 20_000  # visitors and addresses; those seen longest ago are forgotten
CHARACTERS_OF_TOKEN = 16  # texts of more characters than that are not even cut into tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class VisitorLimits:
    """What one visitor may use.

    Attributes:
        tokens: of the longest text.
        runs: stored in an hour.
        minutes: that the model works for them in an hour.
        kept_runs: at a time, deleted ones included.
        hours: after their last visit, when all that is theirs is removed.
    """

    tokens: int = 2000
    runs: int = 20
    minutes: float = 5.0
    kept_runs: int = 60
    hours: float = 24.0

    def check(self) -> None:
        """Refuse limits that let nobody do anything.

        Raises:
            InputError: one is not positive, or the longest text is too short to be explored.
        """
        for each in fields(self):
            if not getattr(self, each.name) > 0:
                raise InputError(f"--visitor-{each.name.replace('_', '-')} is {getattr(self, each.name)}")
        if self.tokens < 2:
            raise InputError("--visitor-tokens is 1", expected="at least 2")


class Share:
    """How much of something was used within the last hour, by key; safe to use from several threads.

    Args:
        most: that one key may use.
        clock: seconds, growing.
    """

    def __init__(self, most: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.most, self._clock = most, clock
        self._used: dict[str, deque[tuple[float, float]]] = {}
        self._lock = threading.Lock()

    def used(self, key: str) -> float:
        """What a key has used within the last hour."""
        with self._lock:
            return sum(amount for _, amount in self._recent(key))

    def spend(self, key: str, amount: float) -> None:
        """Count what a key uses now."""
        with self._lock:
            self._recent(key).append((self._clock(), amount))
            while len(self._used) > MOST_REMEMBERED:
                del self._used[next(iter(self._used))]

    def seconds_left(self, key: str, times: int = 1) -> float:
        """How long a key has to wait until it may use more; 0 where it may now.

        Args:
            key: whose.
            times: so many shares belong to it.
        """
        with self._lock:
            recent = self._recent(key)
            over = sum(amount for _, amount in recent) - times * self.most
            for since, amount in recent:
                if over < 0:
                    return 0.0
                over -= amount
                if over < 0:
                    return max(0.0, since + WINDOW_SECONDS - self._clock())
            return 0.0

    def _recent(self, key: str) -> deque[tuple[float, float]]:
        recent = self._used.pop(key, None)
        recent = deque() if recent is None else recent
        self._used[key] = recent  # the last of all
        while recent and recent[0][0] <= self._clock() - WINDOW_SECONDS:
            recent.popleft()
        return recent


class Shares:
    """What visitors and their network addresses have used of a page.

    Args:
        limits: of one visitor.
        clock: seconds, growing.
    """

    def __init__(self, limits: VisitorLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.runs = Share(limits.runs, clock)
        self.seconds = Share(60 * limits.minutes, clock)

    def admit(self, share: Share, visitor: str, address: str) -> None:
        """Let a visitor use more of something.

        Raises:
            InputError: they, or everyone of their address together, have used what they may within an hour.
        """
        own, all_there = share.seconds_left(visitor), share.seconds_left(address, VISITORS_OF_ADDRESS)
        if not own and not all_there:
            return
        what = (
            counted(self.limits.runs, "run") if share is self.runs else f"{self.limits.minutes:g} minutes of the model"
        )
        whose = "you have" if own else "your network address has"
        raise InputError(
            f"{whose} used what one visitor may use of this page within an hour ({what})",
            fix=f"try again in about {about(max(own, all_there))}, or install Focus Explorer on your own machine",
        )

    @staticmethod
    def spend(share: Share, visitor: str, address: str, amount: float) -> None:
        """Count what a visitor uses."""
        share.spend(visitor, amount)
        share.spend(address, amount)
