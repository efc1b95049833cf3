"""The page's requests, each answered by name: a payload, or its problem in one line; packed and kept."""

from __future__ import annotations

import gzip
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from fastapi import Response
from fastapi.encoders import jsonable_encoder

from focus_explorer.errors import DeletedRunError, InputError
from focus_explorer.usecases.request import Payload, UseCase
from focus_explorer.usecases.service import Service
from focus_explorer.web.requests.table import PAGE

PACKED_FROM = 4096  # bytes; below, compression costs more than it saves
MOST_KEPT_BYTES = 64 * 1024 * 1024
KIND = "application/json"


def dispatch(service: Service, request: Any) -> dict[str, Any]:
    """Answer a request of the page: `what` names it, `run` is the open run, the rest are its parameters."""
    request = _fields(request)
    what = request.get("what")
    if not isinstance(what, str) or what not in PAGE:
        raise InputError(f"the page requested {what!r}", expected="a request this version knows", fix="reload the page")
    use_case = PAGE[what]
    values = {name: value for name, value in request.items() if name not in ("what", "run")}
    if "run" in request and "run_id" in use_case.request.model_fields:
        values["run_id"] = request["run"]  # the page names its run in every request
    return dict(use_case.answer(service, values))


def _fields(request: Any) -> dict[str, Any]:
    if request is not None and not isinstance(request, dict):
        raise InputError(f"the request is a {type(request).__name__}", expected="a JSON object")
    return request or {}


def guarded(work: Callable[[], Payload]) -> dict[str, Any]:
    """An answer for the browser: what `work` returns, or its one-line problem under `error`.

    A run that was deleted, and can be brought back, is named under `deleted`.
    """
    try:
        return dict(work())
    except DeletedRunError as error:
        return {"error": str(error), "deleted": True}
    except InputError as error:
        return {"error": str(error)}


def component_functions(
    service: Service, *functions: Callable[..., Payload], kept: KeptAnswers | None = None
) -> list[Callable[[Any], Response]]:
    """Functions as a component of the page offers them: called with the JSON object of a request, or with nothing.

    Their parameters after the service are the fields of the request; their answers stay in `kept`.
    """

    def offered(use_case: UseCase) -> Callable[[Any], Response]:
        def call(request: Any) -> Response:
            def work() -> Payload:
                return use_case.answer(service, _fields(request))

            return packed(guarded(work)) if kept is None else kept.packed(json.dumps(request), work)

        call.__name__ = use_case.function.__name__  # not `wraps`: Gradio counts the parameters
        return call

    return [offered(UseCase(function)) for function in functions]


def asking(service: Service) -> Callable[[Any], Response]:
    """The function of a component that answers the page's requests."""

    def ask(request: Any) -> Response:
        return packed(guarded(lambda: dispatch(service, request)))

    return ask


def packed(content: dict[str, Any]) -> Response:
    """An answer as compressed JSON: Gradio would walk through every number of it first, which takes seconds."""
    return _response(*_pack(content))


def _pack(content: dict[str, Any]) -> tuple[bytes, bool]:
    """The body, and whether it is compressed."""
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":"), default=jsonable_encoder).encode()
    return (body, False) if len(body) < PACKED_FROM else (gzip.compress(body, 1), True)


def _response(body: bytes, compressed: bool) -> Response:
    return Response(body, media_type=KIND, headers={"Content-Encoding": "gzip"} if compressed else None)


class KeptAnswers:
    """Packed answers of the latest requests, for as long as the database file they were read from is unchanged.

    `state` tells a state of the database from every other one, or is None. The oldest answers go beyond `most_bytes`.
    """

    def __init__(self, state: Callable[[], Hashable], most_bytes: int = MOST_KEPT_BYTES) -> None:
        self._state, self._most_bytes = state, most_bytes
        self._kept: OrderedDict[str, tuple[Hashable, bytes, bool]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def packed(self, name: str, work: Callable[[], Payload]) -> Response:
        """The answer of that name, packed; problems are not kept."""
        state = self._state()  # before the work: what changes meanwhile leads to another state
        with self._lock:
            known = self._kept.get(name)
            if known is not None and known[0] == state:
                self._kept.move_to_end(name)
                return _response(*known[1:])
        content = guarded(work)
        body, compressed = _pack(content)
        if state is not None and "error" not in content:
            self._keep(name, (state, body, compressed))
        return _response(body, compressed)

    def _keep(self, name: str, answer: tuple[Hashable, bytes, bool]) -> None:
        with self._lock:
            of_earlier = [key for key, kept in self._kept.items() if _is_earlier(kept[0], answer[0])]
            for key in {name, *of_earlier} & self._kept.keys():  # nobody can get them any more
                self._bytes -= len(self._kept.pop(key)[1])
            self._bytes += len(answer[1])
            self._kept[name] = answer
            while self._bytes > self._most_bytes:
                self._bytes -= len(self._kept.popitem(last=False)[1][1])


def _is_earlier(state: Hashable, now: Hashable) -> bool:
    """Whether a state of `Database.state` is another one of the same file, which begins with its device and number."""
    return state != now and isinstance(state, tuple) and isinstance(now, tuple) and state[:2] == now[:2]
