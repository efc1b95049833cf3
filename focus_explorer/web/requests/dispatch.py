"""The page's requests, each answered by name: a payload, or its problem in one line; packed and kept."""

from __future__ import annotations

import gzip
import inspect
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from fastapi import Response
from fastapi.encoders import jsonable_encoder

from focus_explorer.errors import DeletedRunError, InputError
from focus_explorer.usecases.registry import request_of
from focus_explorer.usecases.request import Payload, check_values, fields_of
from focus_explorer.usecases.service import Service
from focus_explorer.web.requests.table import PAGE

PACKED_FROM = 4096  # bytes; below, compression costs more than it saves
MOST_KEPT_BYTES = 64 * 1024 * 1024
KIND = "application/json"


def dispatch(service: Service, request: dict[str, Any]) -> dict[str, Any]:
    """Answer a request of the page with JSON-ready values.

    Args:
        request: `what` names the request and `run` the open run; the rest are its parameters.

    Raises:
        InputError: there is no such request, or its parameters make no sense.
    """
    what = request.get("what")
    if not isinstance(what, str) or what not in PAGE:
        raise InputError(f"the page requested {what!r}", expected="a request this version knows", fix="reload the page")
    use_case = PAGE[what]
    values = {name: value for name, value in request.items() if name not in ("what", "run")}
    if "run" in request and "run_id" in use_case.request.model_fields:
        values["run_id"] = request["run"]  # the page names its run in every request
    return dict(use_case.answer(service, values))


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


def of_objects(functions: Sequence[Callable[..., Any]]) -> list[Callable[[Any], Any]]:
    """Functions of a component that are called with a JSON object, or with nothing; anything else is refused in words.

    Args:
        functions: each takes `request`, the object, or its parameters are the fields of one.
    """

    def checked(function: Callable[..., Any]) -> Callable[[Any], Any]:
        parameters = inspect.signature(function, eval_str=True).parameters

        def call(request: Any) -> Any:
            if request is not None and not isinstance(request, dict):
                return {"error": f"the request is a {type(request).__name__}; expected a JSON object"}
            try:
                check_values(request)
                if "request" in parameters:
                    return function(request or {})
                fields = fields_of(request_of(function.__name__, parameters.values()).read(request or {}))
            except InputError as error:
                return {"error": str(error)}
            return function(**fields)

        call.__name__ = function.__name__  # not `wraps`: Gradio counts the parameters
        return call

    return [checked(function) for function in functions]


def renamed(function: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    """The same function under another name, which a component calls it by."""

    def call(request: Any) -> Any:
        return function(request)

    call.__name__ = name
    return call


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

    Args:
        state: tells a state of the database from every other one; None where it cannot.
        most_bytes: of all answers together; the one that was least recently requested goes first.
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
