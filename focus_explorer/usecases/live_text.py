"""Groups of a text while it is being typed, with a run's model, centroids and settings; nothing is stored."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import TextError
from focus_explorer.usecases.run_model import compose_run, lease_run_model
from focus_explorer.usecases.runs import run_special_tokens
from focus_explorer.usecases.service import Service
from focus_explorer.views.payloads.runs import LiveTextPayload
from focus_explorer.views.run import encode
from focus_runtime.failures import Advice

if TYPE_CHECKING:
    from focus_runtime.run.live_text import LiveText

MOST_TOKENS = 2000
NEXT_TOKENS = 5
KEPT_TEXTS = 4  # each with the keys and values of its tokens
SHORTER = Advice(fits="type at most {0} tokens", otherwise="type a shorter text, or close other programs")


class LiveTexts:
    """Texts that visitors are typing, the latest few; safe to use from several threads."""

    LARGE = True  # see `VisitorService.part`

    def __init__(self, service: Service) -> None:
        self.service = service
        self._texts: OrderedDict[tuple[str, str], LiveText] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, run_id: str, text: str, session: str) -> LiveTextPayload:
        """Groups of every token of a text; only what differs from the session's last text is computed.

        Args:
            run_id: of the run whose model, centroids and settings are used, without changes made by hand.
            text: as it is now.
            session: names who types; each has a text of its own.

        Raises:
            InputError: the text is too long, or the run's model, centroids or settings cannot be used.
        """
        run = fetch_run(self.service.database, run_id)
        with lease_run_model(self.service, run, SHORTER) as loaded:
            from focus_runtime.text.tokens import pieces_of

            ids, pieces = pieces_of(loaded.tokenizer, text, special_tokens=run_special_tokens(run))
            if len(ids) > MOST_TOKENS:
                raise TextError(f"the text has {len(ids):,} tokens", expected=f"at most {MOST_TOKENS:,} while typing")
            live = self._live(run, session, loaded)
            started = time.perf_counter()
            with live.focus.attached():
                read = live.read(ids)
                milliseconds = 1000 * (time.perf_counter() - started)
            return {
                "pieces": pieces,
                "layers": list(live.groups),
                "top": encode(np.stack([*live.groups.values()]).astype(np.uint8)) if live.groups else "",
                "tokens_read": read,
                "milliseconds": milliseconds,
                "next": _next(live, loaded.tokenizer),
            }

    def _live(self, run: dict[str, Any], session: str, loaded: Any) -> LiveText:
        """The text of a session; begun anew where the model was loaded again since."""
        from focus_runtime.run.live_text import LiveText

        key = (str(run["run_id"]), session)
        with self._lock:
            live = self._texts.get(key)
            if live is None or live.focus.model is not loaded.model:
                focus = compose_run(self.service, run, loaded)
                focus.detach()
                self._texts[key] = live = LiveText(focus)
            self._texts.move_to_end(key)
            while len(self._texts) > KEPT_TEXTS:
                self._texts.popitem(last=False)
        return live


def _next(live: LiveText, tokenizer: Any) -> list[tuple[str, float]]:
    """The most probable tokens after the last one, with their probabilities; none after an empty text."""
    from focus_runtime.text.tokens import vocabulary_piece

    if live.logits is None:
        return []
    best = live.logits.softmax(dim=-1).topk(min(NEXT_TOKENS, live.logits.shape[-1]))
    return [
        (vocabulary_piece(tokenizer, token_id), probability)
        for token_id, probability in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
