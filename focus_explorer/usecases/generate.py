"""What a run's model, centroids and setting do with other text, unstored: a prompt continued by full attention and by
Focus, and the groups of a text while it is being typed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import ConfigError, TextError
from focus_explorer.usecases.jobs import Job
from focus_explorer.usecases.models import LoadedModel
from focus_explorer.usecases.run_model import backend_again, compose_run, composed_run, lease_run_model
from focus_explorer.usecases.runs import check_beginning, run_special_tokens
from focus_explorer.usecases.service import Latest, Service
from focus_explorer.views.payloads.comparisons import GeneratedSidePayload
from focus_explorer.views.payloads.runs import LiveTextPayload
from focus_explorer.views.run import encode
from focus_runtime.failures import Advice
from focus_runtime.text.special import text_ids
from focus_runtime.text.tokens import vocabulary_piece

if TYPE_CHECKING:
    from focus_runtime.run.cached_text import LiveText


MOST_TOKENS, LONGEST_PROMPT = 512, 4096
MAX_TEMPERATURE = 2.0
SHORTER_PROMPT = Advice(
    fits="give a prompt of at most {0} tokens", otherwise="give a shorter prompt, or close other programs"
)

TYPED_TOKENS = 2000
NEXT_TOKENS = 5
KEPT_TEXTS = 4  # each with the keys and values of its tokens
SHORTER = Advice(fits="type at most {0} tokens", otherwise="type a shorter text, or close other programs")


def check_generation(service: Service, run_id: str, prompt: str, max_tokens: int, temperature: float) -> None:
    if not prompt.strip():
        raise TextError("the prompt is empty", expected="some words to continue from")
    if not 1 <= max_tokens <= MOST_TOKENS:
        raise ConfigError(f"the length is {max_tokens}", expected=f"1 to {MOST_TOKENS} tokens")
    if not 0 <= temperature <= MAX_TEMPERATURE:
        raise ConfigError(f"the temperature is {temperature:g}", expected=f"0 to {MAX_TEMPERATURE:g}")
    check_beginning(fetch_run(service.database, run_id), 0)


def generate(
    service: Service,
    run_id: str,
    prompt: str,
    job: Job,
    *,
    max_tokens: int = 60,
    temperature: float = 0.0,
    seed: int = 0,
) -> None:
    """Continue a prompt with full attention and with Focus, published in `job.partial` by mode.

    `groups` (by token, by layer) of full attention, whose text Focus reads afterwards, are filled at the end. What was
    generated before a stop stays.
    """
    import torch

    from focus_runtime.models.devices import input_device

    run = fetch_run(service.database, run_id)
    with lease_run_model(service, run, SHORTER_PROMPT, progress=job.step) as loaded:
        job.step("Loading the model", 0.0)
        ids = text_ids(loaded.tokenizer, prompt, run_special_tokens(run))
        if len(ids) > LONGEST_PROMPT:
            raise TextError(f"the prompt has {len(ids):,} tokens", expected=f"at most {LONGEST_PROMPT:,}")
        start = torch.tensor([ids], device=input_device(loaded.model))
        with composed_run(service, run, loaded, assignment="causal", backend=backend_again(run)) as focus:
            _generate_both(loaded, focus, start, job, max_tokens=max_tokens, temperature=temperature, seed=seed)


def _generate_both(
    loaded: LoadedModel, focus: Any, start: Any, job: Job, *, max_tokens: int, temperature: float, seed: int
) -> None:
    """Generate token by token; `start` (1, T) holds the prompt's ids."""
    from focus_runtime.run.cached_text import generate_both

    written: dict[str, list[int]] = {"full": [], "focus": []}
    sides: dict[str, GeneratedSidePayload] = {
        mode: {"text": "", "ids": [], "pieces": [], "groups": [], "ms": []} for mode in written
    }
    job.partial.update(sides, prompt_tokens=start.shape[1])
    try:
        job.step("Reading the prompt", 0.0)
        for step in generate_both(
            focus, start, max_tokens=max_tokens, temperature=temperature, seed=seed, stop_ids=_stop_ids(loaded.model)
        ):
            job.step("Writing", len(written[step.mode]) / max_tokens)
            written[step.mode].append(step.token_id)
            _add(loaded.tokenizer, sides[step.mode], written[step.mode], step)
    finally:
        _finish(focus, start, written["full"], sides["full"])


def _add(tokenizer: Any, side: GeneratedSidePayload, written: list[int], step: Any) -> None:
    text = tokenizer.decode(written, clean_up_tokenization_spaces=False)
    whole = text.rstrip("\ufffd")  # bytes of a character that is not finished yet
    side["ids"].append(step.token_id)
    side["pieces"].append(whole[len(side["text"]) :])
    side["text"] = whole
    side["ms"].append(step.milliseconds)
    if step.groups is not None:
        side["groups"].append({str(layer): group for layer, group in step.groups.items()})


def _finish(focus: Any, start: Any, written: list[int], side: GeneratedSidePayload) -> None:
    """The groups Focus would give to what full attention wrote."""
    import torch

    from focus_runtime.run.cached_text import groups_afterwards

    if not written:
        return
    whole = torch.cat([start, torch.tensor([written], device=start.device)], dim=1)
    by_token = groups_afterwards(focus, whole, start.shape[1])
    side["groups"] = [{str(layer): group for layer, group in groups.items()} for groups in by_token]


def _stop_ids(model: Any) -> set[int]:
    ends = getattr(model.generation_config, "eos_token_id", None)
    if ends is None:
        return set()
    return set(ends) if isinstance(ends, list) else {int(ends)}


class LiveTexts:
    """Texts that visitors are typing, the latest few; safe to use from several threads."""

    LARGE = True  # see `VisitorService.part`

    def __init__(self, service: Service) -> None:
        self.service = service
        self._texts: Latest[tuple[str, str], LiveText] = Latest(KEPT_TEXTS)

    def read(self, run_id: str, text: str, session: str) -> LiveTextPayload:
        """Groups of every token of a text; only what differs from the session's last text is computed."""
        run = fetch_run(self.service.database, run_id)
        with lease_run_model(self.service, run, SHORTER) as loaded:
            from focus_runtime.text.tokens import pieces_of

            ids, pieces = pieces_of(loaded.tokenizer, text, special_tokens=run_special_tokens(run))
            if len(ids) > TYPED_TOKENS:
                raise TextError(f"the text has {len(ids):,} tokens", expected=f"at most {TYPED_TOKENS:,} while typing")
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
        from focus_runtime.run.cached_text import LiveText

        key = (str(run["run_id"]), session)
        live = self._texts.get(key)
        if live is None or live.focus.model is not loaded.model:
            focus = compose_run(self.service, run, loaded)
            focus.detach()
            live = self._texts.keep(key, LiveText(focus))
        return live


def _next(live: LiveText, tokenizer: Any) -> list[tuple[str, float]]:
    """The most probable tokens after the last one, with their probabilities; none after an empty text."""
    if live.logits is None:
        return []
    best = live.logits.softmax(dim=-1).topk(min(NEXT_TOKENS, live.logits.shape[-1]))
    return [
        (vocabulary_piece(tokenizer, token_id), probability)
        for token_id, probability in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
