"""Middleware that lets browsers keep files named by their content: else every opened page fetches them again."""

from __future__ import annotations

import re

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Gradio's scripts and styles, and ours: a hash of the content is part of the name.
_NAMED_BY_CONTENT = re.compile(r"/assets/[^/]+-[\w-]{8,}\.(js|css|woff2?|svg|png)$|/explorer-[0-9a-f]{12}\.(js|css)$")
FOR_A_YEAR = "private, max-age=31536000, immutable"


class KeepNamedByContent:
    """Marks such files as unchanging.

    Args:
        app: what answers the requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in (200, 206, 304):
                MutableHeaders(scope=message)["cache-control"] = FOR_A_YEAR
            await send(message)

        kept = scope["type"] == "http" and _NAMED_BY_CONTENT.search(scope["path"]) is not None
        await self.app(scope, receive, marked if kept else send)
