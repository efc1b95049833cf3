"""Middleware around everything the page answers: other host names and other sites are refused before any route.

Nor may another site show the page in a frame, where it could lay something else over what a click does.

It lies outside Gradio's own middleware, which would answer preflights of other origins and repeat them as allowed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from focus_explorer.web.hosting.addresses import Addresses

OTHER_HOST = "This page does not answer to the name {host}. Whoever serves it can allow it with --allow-host.\n"
OTHER_SITE = "This page takes no requests from other sites. Whoever serves it can allow one with --allow-host.\n"


class Guard:
    """Refuses requests whose `Host` or `Origin` is not the page's own.

    Args:
        app: what answers the other requests.
        addresses: names and origins of the page.
        frames: origins of other sites that may show it in a frame.
    """

    def __init__(self, app: ASGIApp, addresses: Addresses, frames: Iterable[str] = ()) -> None:
        self.app, self.addresses = app, addresses
        self.policy = " ".join(("frame-ancestors 'self'", *frames))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        problem = self._problem(scope) if scope["type"] in ("http", "websocket") else None

        async def framed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).append("content-security-policy", self.policy)
            await send(message)

        if problem is None:
            await self.app(scope, receive, framed)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "refused"})
        else:
            status, words = problem
            await PlainTextResponse(words, status)(scope, receive, framed)

    def _problem(self, scope: Scope) -> tuple[int, str] | None:
        """Status and message of a request that is refused."""
        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not self.addresses.answers_to(hosts[0]):
            return 421, OTHER_HOST.format(host=repr(hosts[0][:100]) if hosts else "of none")
        if any(not self.addresses.takes_from(origin, hosts[0]) for origin in origins):
            return 403, OTHER_SITE
        # Browsers leave `Origin` out of some requests to other sites, such as images, but not this; a link navigates.
        foreign = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        followed = headers.get("sec-fetch-mode") == "navigate" and scope.get("method") in ("GET", "HEAD")
        if foreign and not origins and not followed:
            return 403, OTHER_SITE
        return None


def guarded_lifespan(wrap: Callable[[ASGIApp, Any], ASGIApp]) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """A lifespan that puts middleware around the whole application, before the server opens its port.

    Args:
        wrap: takes what answers the requests, and the application; Gradio puts its own middleware outside any that the
            application is made with.
    """

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        app.middleware_stack = wrap(app.middleware_stack, app)
        yield

    return lifespan
