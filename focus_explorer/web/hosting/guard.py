"""Middleware around everything the page answers: what passes, and for which user or visitor.

It lies outside Gradio's own middleware, which would answer preflights of other origins and repeat them as allowed.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

from anyio import CapacityLimiter, to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from focus_explorer.errors import InputError
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.users import USER_SOURCES, VISITOR, acting_as, is_password, read_users
from focus_explorer.web.gradio_internals import event_header
from focus_explorer.web.hosting.modes import Addresses, Hosting

OTHER_HOST = "This page does not answer to the name {host}. Whoever serves it can allow it with --allow-host.\n"
OTHER_SITE = "This page takes no requests from other sites. Whoever serves it can allow one with --allow-host.\n"

# Gradio's scripts and styles, and ours: a hash of the content is part of the name.
_NAMED_BY_CONTENT = re.compile(r"/assets/[^/]+-[\w-]{8,}\.(js|css|woff2?|svg|png)$|/explorer-[0-9a-f]{12}\.(js|css)$")
FOR_A_YEAR = "private, max-age=31536000, immutable"
_CALL = re.compile(r"/gradio_api/(?:call/v2|call|run|api)/([^/]+)/?")
BY_NUMBER = "predict"  # the name by which the page's script calls functions that only have a number
UNKNOWN = "There is no function of this name; /gradio_api/info lists those there are."

USER_HEADER = "x-focus-explorer-user"  # from here on inwards: events that a queue does later carry it; clients cannot
LONGEST_NAME = 200
# What Gradio's login page loads, what its server requests of itself, and what a supervisor asks.
WITHOUT_LOGIN = (
    *("/assets/", "/static/", "/svelte/", "/focus-explorer/page/", "/login", "/logout", "/health", "/ready"),
    *("/theme.css", "/favicon.ico", "/manifest.json", "/robots.txt"),
    *("/gradio_api/startup-events", "/gradio_api/login_check", "/gradio_api/user"),
)
MOST_ATTEMPTS, WITHIN_SECONDS = 10, 60.0  # failed ones, of one name
MOST_NAMES = 1000  # whose failures are remembered

COOKIE, HEADER = "focus-explorer-visitor", "x-focus-visitor"
REFUSED = ("/gradio_api/upload", "/gradio_api/deep_link", "/gradio_api/process_recording", "/gradio_api/vibe")
BURST, A_SECOND = 400.0, 20.0  # requests of one network address: at once, and for ever
MOST_ADDRESSES = 20_000
_TOKEN = re.compile(r"[0-9a-f]{32,128}")
WITHOUT_VISITOR = ("/health", "/ready")  # asked by whoever supervises the server
NO_UPLOADS = "This page takes no uploads."
TOO_OFTEN = "Too many requests from your network address; try again in a moment."

USER_SOURCES.append(lambda: event_header(USER_HEADER))


def guarded_lifespan(wrap: Callable[[ASGIApp, Any], ASGIApp]) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """A lifespan that puts middleware around the whole application, Gradio's own included, before its port opens."""

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        app.middleware_stack = wrap(app.middleware_stack, app)
        yield

    return lifespan


def health_routes(service: Service) -> list[Route]:
    """`/health`: the server answers. `/ready`: it can read its database too; 503 where it cannot."""

    async def health(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    def ready(request: Request) -> JSONResponse:
        try:
            with service.database.read() as connection:
                connection.execute("SELECT 1")
        except InputError:  # its message names the file, which is not for strangers
            return JSONResponse({"status": "the database cannot be read"}, 503)
        return JSONResponse({"status": "ok"})

    return [Route("/health", health), Route("/ready", ready)]


class Guard:
    """Refuses requests whose `Host` or `Origin` is not the page's own.

    It refuses frames of sites other than `frames` too: one could lay something over what a click does.
    """

    def __init__(self, app: ASGIApp, addresses: Addresses, frames: Iterable[str] = ()) -> None:
        self.app, self.addresses = app, addresses
        self.policy = " ".join(("frame-ancestors 'self'", *frames))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = self._problem(scope) if scope["type"] in ("http", "websocket") else None
        framed = on_answer(send, lambda headers, status: headers.append("content-security-policy", self.policy))
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


class AroundGradio:
    """Mends Gradio, which fails on unknown functions and on a query that names another page, and has no file kept."""

    def __init__(self, app: ASGIApp, functions: Collection[str] = ()) -> None:
        self.app, self.functions = app, frozenset((BY_NUMBER, *functions))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        called = _CALL.fullmatch(scope["path"]) if scope["method"] == "POST" else None
        if called is not None and called[1] not in self.functions:
            await JSONResponse({"detail": UNKNOWN}, 404)(scope, receive, send)
            return
        if b"page=" in scope["query_string"]:
            fields = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            kept = [(name, value) for name, value in fields if name != "page"]
            scope = {**scope, "query_string": urlencode(kept).encode("latin-1")}
        if _NAMED_BY_CONTENT.search(scope["path"]):
            send = on_answer(send, _keep_for_a_year)
        await self.app(scope, receive, send)


def _keep_for_a_year(headers: MutableHeaders, status: int) -> None:
    if status in (200, 206, 304):
        headers["cache-control"] = FOR_A_YEAR


class LoginRequired:
    """Refuses requests of nobody on a lab's page; the others are done for the user who has logged in (`user`)."""

    def __init__(self, app: ASGIApp, hosting: Hosting, user: Callable[[Scope], str]) -> None:
        self.app, self.hosting, self.user = app, hosting, user

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        header = self.hosting.trusted_header
        user = self._user_of(scope) if self.hosting.mode == "lab" else None
        login_page = header is None and scope["path"] == "/"
        if user is None or user or login_page or scope["path"].startswith(WITHOUT_LOGIN):
            put_header(scope, USER_HEADER, user)
            with acting_as(user):
                await self.app(scope, receive, send)
            return
        words = "log in first" if header is None else f"the proxy sent no user in {header}"
        answer = JSONResponse({"detail": {"error": "Not authenticated", "auth_message": words}}, 401)
        await answer(scope, receive, send)

    def _user_of(self, scope: Scope) -> str:
        header = self.hosting.trusted_header
        if header is None:
            return self.user(scope)
        values = Headers(scope=scope).getlist(header)
        value = values[0].strip() if len(values) == 1 else ""  # of several one may be forged
        return "" if len(value) > LONGEST_NAME else value


class Login:
    """Checks names and passwords against a file of users, which is read again at every attempt."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._failed: dict[str, deque[float]] = {}
        self._limit: CapacityLimiter | None = None  # made in the loop it belongs to

    async def check(self, name: str, password: str) -> bool:
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


class Visitors:
    """Gives every browser of a public page a name of its own in a cookie, and does its requests for that visitor.

    Args:
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
        given = cookies_of(scope).get(COOKIE, headers.get(HEADER, ""))  # a program may have chosen one for itself
        token = given if _TOKEN.fullmatch(given) else None
        own = token or secrets.token_hex(32)
        visitor = hashlib.sha256(own.encode()).hexdigest()[:32]  # the name that is known here; the token is theirs
        self.seen(visitor, address)
        put_header(scope, USER_HEADER, VISITOR + visitor)
        if token is None:
            cookie = f"{COOKIE}={own}; Path=/; Max-Age=31536000; HttpOnly; {self._reach(scope)}"
            send = on_answer(send, lambda headers, status: headers.append("set-cookie", cookie))
        with acting_as(VISITOR + visitor):
            await self.app(scope, receive, send)

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


def network(address: str) -> str:
    """The network address that requests are counted by: of IPv6 the first half, which one household has."""
    try:
        parsed = ipaddress.ip_address(address.strip().strip("[]"))
    except ValueError:
        return "unknown"
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False).network_address)
    return str(parsed)


def put_header(scope: Scope, name: str, value: str | None) -> None:
    """Replace a header that a client may have sent, in place: the log reads from the scope what answered."""
    others = [item for item in scope["headers"] if item[0] != name.encode()]
    own = [] if value is None else [(name.encode(), value.encode("latin-1", "replace"))]
    scope["headers"] = [*others, *own]


def cookies_of(scope: Scope) -> dict[str, str]:
    """The cookies of a request; none where they cannot be read."""
    try:
        parsed: SimpleCookie = SimpleCookie(Headers(scope=scope).get("cookie", ""))
    except CookieError:
        return {}
    return {name: morsel.value for name, morsel in parsed.items()}


def on_answer(send: Send, change: Callable[[MutableHeaders, int], None]) -> Send:
    """Sends an answer after `change` has seen its headers and its status."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            change(MutableHeaders(scope=message), message["status"])
        await send(message)

    return sent
