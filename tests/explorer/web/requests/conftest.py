"""How to wait for an answer that is computed in the background."""

from __future__ import annotations

import time

from focus_explorer.web.requests.dispatch import dispatch


def until_done(service, question):
    for _ in range(200):
        answer = dispatch(service, question)
        if answer.get("state") != "computing":
            return answer
        time.sleep(0.05)
    raise AssertionError("never answered")
