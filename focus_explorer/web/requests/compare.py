"""Requests of the Compare view: settings, other runs, lengths and generation."""

from __future__ import annotations

from focus_explorer.usecases.compare.costs import measured_heads, measured_links
from focus_explorer.usecases.compare.jobs import Comparisons
from focus_explorer.usecases.compare.lengths import lengths
from focus_explorer.usecases.compare.runs import compare_numbers, compare_runs, partners
from focus_explorer.usecases.compare.settings import REPEATS, grid
from focus_explorer.usecases.compare.what_if import WhatIfs, repeated_by
from focus_explorer.usecases.service import Service
from focus_explorer.views.payloads.comparisons import (
    GenerationPayload,
    GridPayload,
    HeadCostsPayload,
    LengthsPayload,
    MatchedRunsPayload,
    MissingLinksPayload,
    PartnersPayload,
    RunNumbersPayload,
    WhatIfPayload,
)
from focus_explorer.views.payloads.runs import JobAnswerPayload, JobPayload
from focus_explorer.web.parameters import Request, number, run_of, whole_number, whole_numbers, words


def _job(service: Service) -> JobPayload | None:
    """The newest comparison; its state is read before its results, which are whole once it is done."""
    return service.part(Comparisons).status()


def settings_grid(service: Service, request: Request) -> GridPayload:
    """Settings measured so far: run."""
    job = _job(service)
    return {**grid(service, run_of(request)), "job": job}


def start_grid(service: Service, request: Request) -> GridPayload:
    """Measure settings: run, top_k and window as lists, repeats."""
    repeats = whole_number(request, "repeats", REPEATS)
    top_k, window = whole_numbers(request, "top_k"), whole_numbers(request, "window")
    service.part(Comparisons).start_grid(run_of(request), top_k, window, repeats)
    return settings_grid(service, request)


def stop(service: Service, request: Request) -> JobAnswerPayload:
    """Stop the comparison under way."""
    service.part(Comparisons).stop()
    return {"job": _job(service)}


def other_runs(service: Service, request: Request) -> PartnersPayload:
    """Other runs of the same tokens: run."""
    return {"runs": partners(service, run_of(request))}


def same_tokens(service: Service, request: Request) -> MatchedRunsPayload:
    """Two runs of the same tokens: run, other."""
    return compare_runs(service, run_of(request), run_of(request, "other"))


def numbers(service: Service, request: Request) -> RunNumbersPayload:
    """The numbers of any two runs: run, other."""
    return compare_numbers(service, run_of(request), run_of(request, "other"))


def times_by_length(service: Service, request: Request) -> LengthsPayload:
    """Lengths measured so far: run."""
    job = _job(service)
    return {**lengths(service, run_of(request)), "job": job}


def start_lengths(service: Service, request: Request) -> LengthsPayload:
    """Measure growing lengths: run, layer, seconds."""
    layer, seconds = whole_number(request, "layer"), number(request, "seconds", 30)
    service.part(Comparisons).start_lengths(run_of(request), layer, seconds)
    return times_by_length(service, request)


def missing_links(service: Service, request: Request) -> MissingLinksPayload:
    """Tokens explained so far, and one of them: run, token."""
    token = whole_number(request, "token") if request.get("token") is not None else None
    job = _job(service)
    return {**measured_links(service, run_of(request), token), "job": job}


def start_missing_links(service: Service, request: Request) -> MissingLinksPayload:
    """Explain a token: run, token."""
    service.part(Comparisons).start_links(run_of(request), whole_number(request, "token"))
    return missing_links(service, request)


def head_costs(service: Service, request: Request) -> HeadCostsPayload:
    """What the mask costs head by head, as far as it was measured: run."""
    job = _job(service)
    return {**measured_heads(service, run_of(request)), "job": job}


def start_head_costs(service: Service, request: Request) -> HeadCostsPayload:
    """Measure it: run."""
    service.part(Comparisons).start_heads(run_of(request))
    return head_costs(service, request)


def what_if(service: Service, request: Request) -> WhatIfPayload:
    """A run with changes, as far as it was measured: run, changes, layer, token."""
    run_id, texts = run_of(request), words(request, "changes")
    layer, token = (
        whole_number(request, name) if request.get(name) is not None else None for name in ("layer", "token")
    )
    comparisons, job = service.part(Comparisons), _job(service)
    measured = service.part(WhatIfs).measured(run_id, texts, layer, token)
    return {**measured, "saved": comparisons.saved(run_id), "command": repeated_by(run_id, texts), "job": job}


def start_what_if(service: Service, request: Request) -> WhatIfPayload:
    """Measure it: run, changes."""
    service.part(Comparisons).start_what_if(run_of(request), words(request, "changes"))
    return what_if(service, request)


def save_what_if(service: Service, request: Request) -> WhatIfPayload:
    """Store it as a run: run, changes."""
    service.part(Comparisons).start_saving(run_of(request), words(request, "changes"))
    return what_if(service, request)


def start_generation(service: Service, request: Request) -> GenerationPayload:
    """Continue a prompt both ways: run, prompt, max_tokens, temperature, seed."""
    service.part(Comparisons).start_generation(
        run_of(request),
        str(request.get("prompt", "")),
        max_tokens=whole_number(request, "max_tokens", 60),
        temperature=number(request, "temperature", 0),
        seed=whole_number(request, "seed", 0),
    )
    return generation(service, request)


def generation(service: Service, request: Request) -> GenerationPayload:
    """Text the newest generation of this run has written so far: run."""
    job = _job(service)
    return {"sides": service.part(Comparisons).generated(run_of(request)), "job": job}


REQUESTS = {
    "compare_grid": settings_grid,
    "compare_grid_start": start_grid,
    "compare_stop": stop,
    "compare_partners": other_runs,
    "compare_beside": same_tokens,
    "compare_numbers": numbers,
    "compare_lengths": times_by_length,
    "compare_lengths_start": start_lengths,
    "compare_links": missing_links,
    "compare_links_start": start_missing_links,
    "compare_heads": head_costs,
    "compare_heads_start": start_head_costs,
    "what_if": what_if,
    "what_if_start": start_what_if,
    "what_if_save": save_what_if,
    "compare_generation": generation,
    "compare_generation_start": start_generation,
}
