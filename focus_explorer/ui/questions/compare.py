"""Questions of the Compare view: settings, other runs, lengths and generation."""

from __future__ import annotations

from focus_explorer.services.compare.jobs import Comparisons
from focus_explorer.services.compare.lengths import lengths
from focus_explorer.services.compare.runs import compare_numbers, compare_runs, partners
from focus_explorer.services.compare.settings import REPEATS, grid
from focus_explorer.services.service import Service
from focus_explorer.ui.parameters import Question, number, run_of, whole_number, whole_numbers
from focus_explorer.views.payloads.comparisons import (
    GenerationPayload,
    GridPayload,
    LengthsPayload,
    MatchedRunsPayload,
    PartnersPayload,
    RunNumbersPayload,
)
from focus_explorer.views.payloads.jobs import JobAnswerPayload, JobPayload


def _job(service: Service) -> JobPayload | None:
    return service.part(Comparisons).status()


def settings_grid(service: Service, question: Question) -> GridPayload:
    """Settings measured so far: run."""
    return {**grid(service, run_of(question)), "job": _job(service)}


def start_grid(service: Service, question: Question) -> GridPayload:
    """Measure settings: run, top_k and window as lists, repeats."""
    repeats = whole_number(question, "repeats", REPEATS)
    top_k, window = whole_numbers(question, "top_k"), whole_numbers(question, "window")
    service.part(Comparisons).start_grid(run_of(question), top_k, window, repeats)
    return settings_grid(service, question)


def stop(service: Service, question: Question) -> JobAnswerPayload:
    """Stop the comparison under way."""
    service.part(Comparisons).stop()
    return {"job": _job(service)}


def other_runs(service: Service, question: Question) -> PartnersPayload:
    """Other runs of the same tokens: run."""
    return {"runs": partners(service, run_of(question))}


def same_tokens(service: Service, question: Question) -> MatchedRunsPayload:
    """Two runs of the same tokens: run, other."""
    return compare_runs(service, run_of(question), run_of(question, "other"))


def numbers(service: Service, question: Question) -> RunNumbersPayload:
    """The numbers of any two runs: run, other."""
    return compare_numbers(service, run_of(question), run_of(question, "other"))


def times_by_length(service: Service, question: Question) -> LengthsPayload:
    """Lengths measured so far: run."""
    return {**lengths(service, run_of(question)), "job": _job(service)}


def start_lengths(service: Service, question: Question) -> LengthsPayload:
    """Measure growing lengths: run, layer, seconds."""
    layer, seconds = whole_number(question, "layer"), number(question, "seconds", 30)
    service.part(Comparisons).start_lengths(run_of(question), layer, seconds)
    return times_by_length(service, question)


def start_generation(service: Service, question: Question) -> GenerationPayload:
    """Continue a prompt both ways: run, prompt, max_tokens, temperature, seed."""
    service.part(Comparisons).start_generation(
        run_of(question),
        str(question.get("prompt", "")),
        max_tokens=whole_number(question, "max_tokens", 60),
        temperature=number(question, "temperature", 0),
        seed=whole_number(question, "seed", 0),
    )
    return generation(service, question)


def generation(service: Service, question: Question) -> GenerationPayload:
    """Text the newest generation of this run has written so far: run."""
    return {"sides": service.part(Comparisons).generated(run_of(question)), "job": _job(service)}


QUESTIONS = {
    "compare_grid": settings_grid,
    "compare_grid_start": start_grid,
    "compare_stop": stop,
    "compare_partners": other_runs,
    "compare_beside": same_tokens,
    "compare_numbers": numbers,
    "compare_lengths": times_by_length,
    "compare_lengths_start": start_lengths,
    "compare_generation": generation,
    "compare_generation_start": start_generation,
}
