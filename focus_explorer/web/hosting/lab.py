"""A lab's page: requests of nobody who has logged in are refused, the others are done for the user who has."""

from __future__ import annotations

from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any

from gradio.context import LocalContext
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from focus_explorer.usecases.acting_user import USER_SOURCES, acting_as
from focus_explorer.web.hosting.modes import Hosting

USER_HEADER = "x-focus-explorer-user"  # from here on inwards: events that a queue does later carry it; clients cannot
LONGEST_NAME = 200
# What Gradio's login page loads, what its server requests of itself, and what a supervisor asks.
WITHOUT_LOGIN = (
    "/assets/",
    "/static/",
    "/svelte/",
    "/focus-explorer/page/",
    "/login",
    "/logout",
    "/health",
    "/ready",
    "/theme.css",
    "/favicon.ico",
    "/manifest.json",
    "/robots.txt",
    "/gradio_api/startup-events",
    "/gradio_api/login_check",
    "/gradio_api/user",
)


def session_user(app: Any) -> Callable[[Scope], str]:
    """Reads the user that Gradio's login put into a session, from a request; empty where there is none."""

    def user(scope: Scope) -> str:
        cookies = cookies_of(scope)
        names = (f"access-token-{app.cookie_id}", f"access-token-unsecure-{app.cookie_id}")
        token = next((cookies[name] for name in names if name in cookies), None)
        return str(app.tokens.get(token) or "")

    return user


class LoginRequired:
    """Refuses requests of nobody on a lab's page.

    Args:
        app: what answers the requests.
        hosting: how the page is hosted.
        user: reads the user that has logged in from a request.
    """

    def __init__(self, app: ASGIApp, hosting: Hosting, user: Callable[[Scope], str]) -> None:
        self.app, self.hosting, self.user = app, hosting, user

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer that a login is missing."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        header = self.hosting.trusted_header
        user = self._user_of(scope) if self.hosting.mode == "lab" else None
        if user is None or user or self._needs_no_login(scope):
            put_user(scope, user)
            with acting_as(user):
                await self.app(scope, receive, send)
            return
        words = "log in first" if header is None else f"the proxy sent no user in {header}"
        answer = JSONResponse({"detail": {"error": "Not authenticated", "auth_message": words}}, 401)
        await answer(scope, receive, send)

    def _needs_no_login(self, scope: Scope) -> bool:
        login_page = self.hosting.trusted_header is None and scope["path"] == "/"
        return login_page or scope["path"].startswith(WITHOUT_LOGIN)

    def _user_of(self, scope: Scope) -> str:
        header = self.hosting.trusted_header
        return self.user(scope) if header is None else _only(Headers(scope=scope).getlist(header))


def event_user() -> str | None:
    """User of the request that put the event into Gradio's queue which this code works for; None without users."""
    request = LocalContext.request.get(None)
    user = None if request is None else getattr(request, "headers", {}).get(USER_HEADER)
    return None if user is None else str(user)


USER_SOURCES.append(event_user)


def put_user(scope: Scope, user: str | None) -> None:
    """Let a request carry its user inwards, in place of whatever a client has sent under that name.

    Args:
        scope: of the request, changed in place: the log reads from it what answered.
        user: None for nobody.
    """
    others = [item for item in scope["headers"] if item[0] != USER_HEADER.encode()]
    own = [] if user is None else [(USER_HEADER.encode(), user.encode("latin-1", "replace"))]
    scope["headers"] = [*others, *own]


def _only(values: list[str]) -> str:
    """The one value of a header; empty where there is none, or several of which one may be forged."""
    value = values[0].strip() if len(values) == 1 else ""
    return "" if len(value) > LONGEST_NAME else value


def cookies_of(scope: Scope) -> dict[str, str]:
    """The cookies of a request; none where they cannot be read."""
    try:
        parsed: SimpleCookie = SimpleCookie(Headers(scope=scope).get("cookie", ""))
    except CookieError:
        return {}
    return {name: morsel.value for name, morsel in parsed.items()}
