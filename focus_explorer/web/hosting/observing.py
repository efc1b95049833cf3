"""Middleware that gives every request an id, counts and times it, and logs it without anything its user wrote."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Collection

from gradio.context import LocalContext
from starlette.datastructures import Headers
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from focus_explorer.usecases.logs import LOG, REQUEST_ID_SOURCES, working_for
from focus_explorer.web.hosting.lab import USER_HEADER
from focus_explorer.web.hosting.metrics import Metrics

HEADER = "x-request-id"
GIVEN = re.compile(r"[A-Za-z0-9._-]{1,64}")
CLOSED = 499  # nginx's status of a request whose client left before it was answered
OTHER = "other"  # routes and functions that there are none of: their names are whatever a client chose


class Observed:
    """Takes or makes a request's id, answers with it, and records how the request ended.

    Args:
        app: what answers the requests.
        metrics: where requests are counted.
        functions: names of the page's functions, the only ones that are logged.
        routes: the application's own besides Gradio's; FastAPI does not tell which of them answered.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, functions: Collection[str], routes: Collection[Route]) -> None:
        self.app, self.metrics, self.functions = app, metrics, frozenset(functions)
        self.paths: dict[object, str] = {route.endpoint: route.path for route in routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and record it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        identity = given if GIVEN.fullmatch(given) else uuid.uuid4().hex
        others = [item for item in scope["headers"] if item[0] != HEADER.encode()]
        scope["headers"] = [*others, (HEADER.encode(), identity.encode())]
        status = CLOSED

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (HEADER.encode(), identity.encode())]
            await send(message)

        started = time.monotonic()
        with working_for(identity):
            try:
                with self.metrics.in_progress.track_inprogress():
                    await self.app(scope, receive, send_with_id)
            except Exception:
                status = 500
                raise
            finally:
                self._record(scope, status, time.monotonic() - started)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "") or self.paths.get(scope.get("endpoint", ""), OTHER)
        named = scope.get("path_params", {}).get("api_name", "")
        function = named if named in self.functions else OTHER if named else ""
        method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "OPTIONS") else OTHER
        self.metrics.count_request(method, route, function, status, seconds)
        fields = {"method": method, "route": route, "function": function, "status": status}
        if user := Headers(scope=scope).get(USER_HEADER):  # which what lies inside has put there
            fields["user"] = user
        LOG.info("request", extra={"fields": fields | {"seconds": round(seconds, 4)}})


def event_request_id() -> str:
    """Id of the request that put the event into Gradio's queue which this code works for; else empty."""
    request = LocalContext.request.get(None)
    return str(getattr(request, "headers", {}).get(HEADER, "")) if request is not None else ""


REQUEST_ID_SOURCES.append(event_request_id)
