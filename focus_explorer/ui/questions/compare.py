"""Questions of the Compare view: settings, other runs, lengths and generation."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import InputError
from focus_explorer.services.compare.lengths import lengths, measure_lengths
from focus_explorer.services.compare.runs import beside, numbers, partners
from focus_explorer.services.compare.settings import REPEATS, check_grid, grid, measure_grid
from focus_explorer.services.generate import check_wish, generate
from focus_explorer.services.jobs import Jobs
from focus_explorer.services.service import Service

_JOBS: WeakKeyDictionary[Service, Jobs] = WeakKeyDictionary()
Question = dict[str, Any]


def jobs(service: Service) -> Jobs:
    """The background work of one service."""
    return _JOBS.setdefault(service, Jobs())


def _number(question: Question, name: str, default: float | None = None) -> float:
    value = question.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name} is {value!r}", expected="a number")
    return value


def _whole(question: Question, name: str, default: int | None = None) -> int:
    value = _number(question, name, default)
    if value != int(value):
        raise InputError(f"{name} is {value!r}", expected="a whole number")
    return int(value)


def _numbers(question: Question, name: str) -> list[int]:
    values = question.get(name)
    if not isinstance(values, list):
        raise InputError(f"{name} is {values!r}", expected="whole numbers")
    return [_whole({name: value}, name) for value in values]


def _told(service: Service, run_id: str, found: Question) -> Question:
    return found | {"job": jobs(service).told()}


def _grid(service: Service, question: Question) -> Question:
    return _told(service, question["run"], grid(service, str(question.get("run"))))


def _start_grid(service: Service, question: Question) -> Question:
    run_id, repeats = str(question.get("run")), _whole(question, "repeats", REPEATS)
    top_k, window = _numbers(question, "top_k"), _numbers(question, "window")
    check_grid(fetch_run(service.database, run_id), top_k, window, repeats)
    jobs(service).start(
        "grid",
        run_id,
        lambda job: measure_grid(
            service,
            run_id,
            top_k,
            window,
            repeats=repeats,
            progress=job.step,
            cancelled=job.stopped.is_set,
        ),
    )
    return _grid(service, question)


def _stop(service: Service, question: Question) -> Question:
    jobs(service).stop()
    return {"job": jobs(service).told()}


def _partners(service: Service, question: Question) -> Question:
    return {"runs": partners(service, str(question.get("run")))}


def _beside(service: Service, question: Question) -> Question:
    return beside(service, str(question.get("run")), str(question.get("other")))


def _both_numbers(service: Service, question: Question) -> Question:
    return numbers(service, str(question.get("run")), str(question.get("other")))


def _lengths(service: Service, question: Question) -> Question:
    return _told(service, question["run"], lengths(service, str(question.get("run"))))


def _start_lengths(service: Service, question: Question) -> Question:
    run_id, layer = str(question.get("run")), _whole(question, "layer")
    seconds = _number(question, "seconds", 30)
    if not 1 <= seconds <= 3600:
        raise InputError(f"the time is {seconds:g} seconds", expected="1 to 3,600")
    fetch_run(service.database, run_id)
    jobs(service).start(
        "lengths",
        run_id,
        lambda job: measure_lengths(
            service,
            run_id,
            layer,
            seconds=seconds,
            progress=job.step,
            cancelled=job.stopped.is_set,
        ),
    )
    return _lengths(service, question)


def _start_generation(service: Service, question: Question) -> Question:
    run_id, prompt = str(question.get("run")), str(question.get("prompt", ""))
    max_tokens, temperature = _whole(question, "max_tokens", 60), _number(question, "temperature", 0)
    seed = _whole(question, "seed", 0)
    check_wish(service, run_id, prompt, max_tokens, temperature)
    jobs(service).start(
        "generation",
        run_id,
        lambda job: generate(
            service,
            run_id,
            prompt,
            job,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
        ),
    )
    return _generation(service, question)


def _generation(service: Service, question: Question) -> Question:
    """What the newest generation of this run has written so far."""
    job = jobs(service).newest
    mine = job is not None and job.kind == "generation" and job.run_id == question.get("run")
    return {"job": jobs(service).told(), "sides": dict(job.result) if job is not None and mine else {}}


COMPARE_ANSWERS = {
    "compare_grid": _grid,
    "compare_grid_start": _start_grid,
    "compare_stop": _stop,
    "compare_partners": _partners,
    "compare_beside": _beside,
    "compare_numbers": _both_numbers,
    "compare_lengths": _lengths,
    "compare_lengths_start": _start_lengths,
    "compare_generation": _generation,
    "compare_generation_start": _start_generation,
}
