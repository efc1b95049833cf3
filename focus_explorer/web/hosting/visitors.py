"""A public page's visitors: who they are, how often they may ask, and what is not for them."""

from __future__ import annotations

import hashlib
import ipaddress
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from focus_explorer.usecases.acting_user import VISITOR, acting_as
from focus_explorer.web.hosting.lab import cookies_of, put_user

COOKIE, HEADER = "focus-explorer-visitor", "x-focus-visitor"
REFUSED = ("/gradio_api/upload", "/gradio_api/deep_link", "/gradio_api/process_recording", "/gradio_api/vibe")
BURST, A_SECOND = 400.0, 20.0  # requests of one network address: at once, and for ever
MOST_ADDRESSES = 20_000
_TOKEN = re.compile(r"[0-9a-f]{32,128}")
WITHOUT_VISITOR = ("/health", "/ready")  # asked by whoever supervises the server
NO_UPLOADS = "This page takes no uploads."
TOO_OFTEN = "Too many requests from your network address; try again in a moment."


def visitor_name(token: str) -> str:
    """The name that a visitor is known by here; the token itself is theirs alone."""
    return hashlib.sha256(token.encode()).hexdigest()[:32]


def network(address: str) -> str:
    """The network address that requests are counted by: of IPv6 the first half, which one household has.

    Args:
        address: as the connection or a proxy's header has it; anything else counts as one address.
    """
    try:
        parsed = ipaddress.ip_address(address.strip().strip("[]"))
    except ValueError:
        return "unknown"
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False).network_address)
    return str(parsed)


class Visitors:
    """Gives every browser a name of its own in a cookie, and does its requests for that visitor.

    Args:
        app: what answers the requests.
        seen: takes a visitor and the network address of each request.
        address_header: request header in which a proxy gives the visitor's address; the connection's own when None.
        framed: other sites may show the page in a frame, where browsers send no other cookies than such; needs HTTPS.
        clock: seconds, growing.
    """

    def __init__(
        self,
        app: ASGIApp,
        seen: Callable[[str, str], None],
        address_header: str | None = None,
        *,
        framed: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.app, self.seen, self.address_header, self._clock = app, seen, address_header, clock
        self.framed = framed
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # by address: requests left, and when

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on for its visitor, or refuse it."""
        if scope["type"] != "http" or scope["path"] in WITHOUT_VISITOR:
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        address = network(self._address(scope, headers))
        if not self._may_ask(address):
            await JSONResponse({"detail": TOO_OFTEN}, 429, {"Retry-After": "5"})(scope, receive, send)
            return
        if scope["path"].rstrip("/").startswith(REFUSED):
            await JSONResponse({"detail": NO_UPLOADS}, 403)(scope, receive, send)
            return
        token = _token(scope, headers)
        own = token or secrets.token_hex(32)
        visitor = visitor_name(own)
        self.seen(visitor, address)
        put_user(scope, VISITOR + visitor)

        async def with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                value = f"{COOKIE}={own}; Path=/; Max-Age=31536000; HttpOnly; {self._reach(scope)}"
                MutableHeaders(scope=message).append("set-cookie", value)
            await send(message)

        with acting_as(VISITOR + visitor):
            await self.app(scope, receive, with_cookie if token is None else send)

    def _reach(self, scope: Scope) -> str:
        """Where browsers send the cookie: in frames to each surrounding site a cookie of its own."""
        if self.framed:
            return "SameSite=None; Secure; Partitioned"
        return "SameSite=Lax; Secure" if scope.get("scheme") == "https" else "SameSite=Lax"

    def _address(self, scope: Scope, headers: Headers) -> str:
        if self.address_header is None:
            return str((scope.get("client") or ("",))[0])
        given = headers.getlist(self.address_header)
        return given[-1].rsplit(",", 1)[-1] if given else ""  # what the nearest proxy has added is the last

    def _may_ask(self, address: str) -> bool:
        now = self._clock()
        left, since = self._left.pop(address, (BURST, now))
        left = min(BURST, left + A_SECOND * (now - since))
        self._left[address] = (max(0.0, left - 1), now)
        while len(self._left) > MOST_ADDRESSES:
            self._left.popitem(last=False)
        return left >= 1


def _token(scope: Scope, headers: Headers) -> str | None:
    """What a browser was given before, or a program has chosen for itself."""
    given = cookies_of(scope).get(COOKIE, headers.get(HEADER, ""))
    return given if _TOKEN.fullmatch(given) else None
