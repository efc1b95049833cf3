"""Named requests of the browser, each answered by one function; every view has a file with its table of requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from focus_explorer.errors import InputError
from focus_explorer.usecases.service import Service
from focus_explorer.web.parameters import Payload, check_values
from focus_explorer.web.requests import compare, exports, groups, run, sparsity, statistics

Handler = Callable[[Service, dict[str, Any]], Payload]

HANDLERS: dict[str, Handler] = {
    name: function
    for view in (run, groups, sparsity, compare, statistics, exports)
    for name, function in view.REQUESTS.items()
}


def dispatch(service: Service, request: dict[str, Any]) -> dict[str, Any]:
    """Answer a request of the page with JSON-ready values.

    Args:
        service: database and model.
        request: `what` names the request; the rest are its parameters.

    Raises:
        InputError: there is no such request, or its parameters make no sense.
    """
    check_values(request)
    what = request.get("what")
    if not isinstance(what, str) or what not in HANDLERS:
        raise InputError(f"the page requested {what!r}", expected="a request this version knows", fix="reload the page")
    return dict(HANDLERS[what](service, request))
