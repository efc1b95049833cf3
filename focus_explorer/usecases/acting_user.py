"""For which user of a lab's page this code works. Nobody in particular on a private page and the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from focus_explorer.errors import InputError
from focus_explorer.settings import process_user

USER_SOURCES: list[Callable[[], str | None]] = []
"""Asked first, such as for the request of an event that a server took from its queue; None where there is none."""

VISITOR = "visitor:"  # begins the name of a public page's visitor; no name in a file of users has a colon

_USER: ContextVar[str | None] = ContextVar("user", default=None)


@contextmanager
def acting_as(user: str | None) -> Iterator[None]:
    """Meanwhile this code works for a user.

    Args:
        user: name of a lab's user, empty for somebody who has not logged in; None for whoever owns the machine.
    """
    token = _USER.set(user)
    try:
        yield
    finally:
        _USER.reset(token)


def acting_user() -> str | None:
    """The user that this code works for: a name, empty for nobody who is known, None where there are no users."""
    user = next((user for source in USER_SOURCES if (user := source()) is not None), _USER.get())
    return process_user() if user is None else user


def visitor_of(user: str | None) -> str | None:
    """The visitor of a public page that a user is; None for any other user and for nobody."""
    return user.removeprefix(VISITOR) if user is not None and user.startswith(VISITOR) else None


def new_owner() -> str | None:
    """Whom what is made now belongs to; None where a database has one user, as a visitor's own has."""
    user = acting_user()
    return None if visitor_of(user) is not None else user or None


def check_owner(what: str, owner: str | None) -> None:
    """Refuse to change what belongs to somebody else.

    Args:
        what: begins the message, such as "the run 20261124-…".
        owner: name of the user it belongs to; None or empty for what the command line made.

    Raises:
        InputError: a lab's user wants to change what is not theirs.
    """
    user = acting_user()
    if user is None or visitor_of(user) is not None or (user and user == owner):
        return
    whose = f"belongs to {owner}" if owner else "was made without a login"
    raise InputError(
        f"{what} {whose}",
        expected="something of your own",
        fix=f"ask {owner}" if owner else "ask who hosts the page: the command line may change it",
    )
