"""Login to a lab's page, through Gradio's own form and sessions."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable

from anyio import CapacityLimiter, to_thread

from focus_explorer.usecases.users import is_password, read_users
from focus_explorer.web.hosting.modes import Hosting

MOST_ATTEMPTS, WITHIN_SECONDS = 10, 60.0  # failed ones, of one name
MOST_NAMES = 1000  # whose failures are remembered


class Login:
    """Checks names and passwords against a file, which is read again at every attempt.

    Args:
        path: of the file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._failed: dict[str, deque[float]] = {}
        self._limit: CapacityLimiter | None = None  # made in the loop it belongs to

    async def __call__(self, name: str, password: str) -> bool:
        """Whether this user may log in; False too after too many failures of the name."""
        failed = self._failed.setdefault(name[:64], deque(maxlen=MOST_ATTEMPTS))
        now = time.monotonic()
        if len(failed) == MOST_ATTEMPTS and now - failed[0] < WITHIN_SECONDS:
            return False
        failed.append(now)  # before the work, so that attempts at the same time count too
        while len(self._failed) > MOST_NAMES:
            del self._failed[next(iter(self._failed))]
        self._limit = self._limit or CapacityLimiter(1)
        right = await to_thread.run_sync(
            lambda: is_password(read_users(self.path), name, password), limiter=self._limit
        )
        if right:
            self._failed.pop(name[:64], None)
        return right


def login(hosting: Hosting) -> Callable[[str, str], Awaitable[bool]] | None:
    """What Gradio checks logins with; None where nobody logs in here.

    A function, since Gradio awaits no object that is merely callable.
    """
    if hosting.users is None:
        return None
    check = Login(hosting.users)

    async def is_user(name: str, password: str) -> bool:
        return await check(name, password)

    return is_user
