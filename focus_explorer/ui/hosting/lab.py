"""A lab's page: requests of nobody who has logged in are refused."""

from __future__ import annotations

from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from focus_explorer.ui.hosting.modes import Hosting

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
        cookies = _cookies(scope)
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
        if scope["type"] != "http" or self.hosting.mode == "private" or self._is_allowed(scope):
            await self.app(scope, receive, send)
            return
        header = self.hosting.trusted_header
        words = "log in first" if header is None else f"the proxy sent no user in {header}"
        answer = JSONResponse({"detail": {"error": "Not authenticated", "auth_message": words}}, 401)
        await answer(scope, receive, send)

    def _is_allowed(self, scope: Scope) -> bool:
        header = self.hosting.trusted_header
        if scope["path"].startswith(WITHOUT_LOGIN) or (header is None and scope["path"] == "/"):
            return True
        return bool(self.user(scope) if header is None else _only(Headers(scope=scope).getlist(header)))


def _only(values: list[str]) -> str:
    """The one value of a header; empty where there is none, or several of which one may be forged."""
    value = values[0].strip() if len(values) == 1 else ""
    return "" if len(value) > LONGEST_NAME else value


def _cookies(scope: Scope) -> dict[str, str]:
    try:
        parsed: SimpleCookie = SimpleCookie(Headers(scope=scope).get("cookie", ""))
    except CookieError:
        return {}
    return {name: morsel.value for name, morsel in parsed.items()}
