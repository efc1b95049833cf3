"""Middleware that answers calls of functions there are none of: Gradio fails on them."""

from __future__ import annotations

import re
from collections.abc import Collection

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

CALL = re.compile(r"/gradio_api/(?:call/v2|call|run|api)/([^/]+)/?")
BY_NUMBER = "predict"  # what the page's script calls functions by that have a number alone
UNKNOWN = "There is no function of this name; /gradio_api/info lists those there are."


class KnownFunctions:
    """Answers 404 to calls of unknown functions.

    Args:
        app: what answers the other requests.
        functions: names of the page's functions.
    """

    def __init__(self, app: ASGIApp, functions: Collection[str]) -> None:
        self.app, self.functions = app, frozenset((BY_NUMBER, *functions))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        found = CALL.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if found is not None and found[1] not in self.functions:
            await JSONResponse({"detail": UNKNOWN}, 404)(scope, receive, send)
        else:
            await self.app(scope, receive, send)
