"""Middleware for an application of one page: Gradio fails where the query names another one."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

from starlette.types import ASGIApp, Receive, Scope, Send


class OnePage:
    """Leaves `page` out of the query.

    Args:
        app: what answers the requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http" and b"page=" in scope["query_string"]:
            fields = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            kept = [(name, value) for name, value in fields if name != "page"]
            scope = {**scope, "query_string": urlencode(kept).encode("latin-1")}
        await self.app(scope, receive, send)
