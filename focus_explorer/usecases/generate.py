"""A prompt continued by full attention and by Focus, with a run's model, centroids and setting."""

from __future__ import annotations

from typing import Any

from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import ConfigError, TextError
from focus_explorer.usecases.jobs import Job
from focus_explorer.usecases.models import LoadedModel
from focus_explorer.usecases.run_model import backend_again, composed_run, lease_run_model
from focus_explorer.usecases.runs import check_beginning, run_special_tokens
from focus_explorer.usecases.service import Service
from focus_explorer.views.payloads.comparisons import GeneratedSidePayload
from focus_runtime.failures import Advice
from focus_runtime.models.device_map import input_device

MOST_TOKENS, LONGEST_PROMPT = 512, 4096
MAX_TEMPERATURE = 2.0
SHORTER_PROMPT = Advice(
    fits="give a prompt of at most {0} tokens", otherwise="give a shorter prompt, or close other programs"
)


def check_generation(service: Service, run_id: str, prompt: str, max_tokens: int, temperature: float) -> None:
    """Refuse a generation that cannot be made.

    Args:
        service: whose database has the run.
        run_id: of the run.
        prompt: text to continue.
        max_tokens: tokens to generate.
        temperature: 0 always takes the most probable token.

    Raises:
        InputError: with what is wrong.
    """
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
    """Continue a prompt with full attention and with Focus.

    Args:
        service: database and model.
        run_id: of the run whose model, centroids and settings are used.
        prompt: text to continue.
        job: publishes in `job.partial`, by mode, `ids`, `pieces`, `groups` (by token, by layer; filled at the end for
            full attention, whose text Focus reads afterwards) and `ms`, and `prompt_tokens`.
        max_tokens: tokens to generate.
        temperature: 0 always takes the most probable token.
        seed: of the draws.

    Raises:
        Cancelled: the job was stopped; what was generated stays.
        InputError: the model, centroids or prompt cannot be used.
    """
    import torch

    from focus_runtime.text.special import text_ids

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
            focus,
            start,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
            stop_ids=_stop_ids(loaded.model),
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
