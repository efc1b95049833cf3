"""Answers to tasks: last words of the held-out text, and the paper's benchmarks where they are measured."""

from __future__ import annotations

from typing import Any

from focus_runtime.errors import InputError, TextError
from focus_runtime.evaluate.last_word import write_last_word_tasks
from focus_runtime.evaluate.lm_eval.run import TaskResult, compare_tasks, load_tasks, run_tasks
from focus_runtime.measure.intervals import Interval
from paper.reports.lab import Lab
from paper.reports.report import Column, agreed, unharmed

LAST_WORDS, UNCHANGED, BY_NAME = "last words", "the model as it is", "by name"  # what a laboratory keeps of them
TASKS = {"hellaswag": "hellaswag", "arc_easy": "arc_easy", "piqa": "piqa", "lambada": "lambada_openai"}
LABELS = {"hellaswag": "HellaSwag", "arc_easy": "ARC-E", "piqa": "PIQA", "lambada": "LAMBADA"}
LAST_WORD_COLUMNS = [
    Column("short", "last word, within the window", 1, percent=True),
    Column("long", "last word, long passages", 1, percent=True),
]
BENCHMARK_COLUMNS = [Column(name, label, 1, percent=True) for name, label in LABELS.items()]
OF_PAPER = [Column(f"paper_{name}", label, 1, paper=True) for name, label in LABELS.items()]
ITEMS_NOTE = (
    "Last word: lm-eval on passages of the held-out text, once no longer than half the window, where every mask is "
    "full attention, and once as long as the training sequences, where the word occurred only beyond the window. 95 % "
    "intervals over items."
)


def answer_columns(lab: Lab) -> list[Column]:
    """Columns of last words, and of the paper's benchmarks where they are measured."""
    return [*LAST_WORD_COLUMNS, *(BENCHMARK_COLUMNS if lab.scale.benchmarks else [])]


def answers(lab: Lab, model: Any) -> dict[str, Any]:
    """Both, as cells of a row."""
    return last_words(lab, model) | benchmarks(lab, model)


def last_words(lab: Lab, model: Any) -> dict[str, Any]:
    """Last-word accuracy within the window and far beyond it, with intervals, and the share of long items.

    None where the held-out text is too short for such passages. `tests` are the paired comparisons, short and long,
    with the laboratory's model as it is, whichever model is asked first; `unharmed` whether both stayed. The first
    call must come while nothing is attached to the laboratory's model.
    """
    try:
        tasks = _last_word_tasks(lab)
    except TextError as error:
        lab.log(f"no last-word accuracy: {error}")
        return {"short": None, "long": None, "beyond": None, "unharmed": None, "tests": {}}
    first = UNCHANGED not in lab.answers
    if first:
        lab.answers[UNCHANGED] = _run(lab, lab.model, tasks)
    results = lab.answers[UNCHANGED] if first and model is lab.model else _run(lab, model, tasks)
    test = compare_tasks(lab.answers[UNCHANGED], results)
    names = sorted(tasks, key=_length_of)
    short, long = (results[name].metrics["acc"] for name in names)
    beyond = float(results[names[-1]].beyond_window.mean())
    lab.log(
        f"last-word accuracy: short {short.value:.3f} of {results[names[0]].items} items, long {long.value:.3f} of "
        f"{results[names[-1]].items}; {beyond:.0%} of the long ones beyond the window"
    )
    return {
        "short": with_error(short.value, short.stderr),
        "long": with_error(long.value, long.stderr),
        "beyond": beyond,
        "unharmed": agreed(unharmed(test[name]["metrics"]["acc"], test[name]["items"]) for name in names),
        "tests": {part: test[name]["metrics"]["acc"] for part, name in zip(("short", "long"), names, strict=False)},
    }


def _run(lab: Lab, model: Any, tasks: dict[str, Any]) -> dict[str, TaskResult]:
    return run_tasks(model, lab.tokenizer, tasks, window=lab.scale.window, num_sinks=lab.recipe.num_sinks)


def _last_word_tasks(lab: Lab) -> dict[str, Any]:
    """One within the window, one much longer."""
    if LAST_WORDS not in lab.answers:
        scale = lab.scale
        lengths = (max(16, scale.window // 2), scale.seq_len)
        folder = lab.folder / "tasks" / lab.key("tasks", lengths, scale.task_items)
        if not folder.exists():
            texts = list(zip(lab.names["val"], lab.held_out, strict=True))
            write_last_word_tasks(
                texts, lab.tokenizer, folder, lengths=lengths, items=scale.task_items, window=scale.window
            )
        names = [f"last_word_{length}" for length in sorted(set(lengths))]
        lab.answers[LAST_WORDS] = load_tasks(names, task_folder=folder)
    return lab.answers[LAST_WORDS]


def _length_of(task: str) -> int:
    return int(task.rsplit("_", 1)[1])


def benchmarks(lab: Lab, model: Any) -> dict[str, Interval]:
    """The paper's benchmarks by lm-eval's own tasks, where the scale has items enough for them to be fetched.

    Below the scale of the paper none: the last-word tasks stand in for them. A task that cannot be had is logged.
    """
    cells: dict[str, Interval] = {}
    if not lab.scale.benchmarks:
        return cells
    by_name = lab.answers.setdefault(BY_NAME, {})
    for key, task in TASKS.items():
        try:
            loaded = by_name.get(task) or load_tasks([task])
        except InputError as error:
            lab.log(f"{task} is not measured: {error}")
            continue
        by_name[task] = loaded
        result = _run(lab, model, loaded)[task]
        cells[key] = with_error(result.metrics["acc"].value, result.metrics["acc"].stderr)
        lab.log(f"{task}: accuracy {cells[key].value:.3f} of {result.items} items")
    return cells


def with_error(value: float, error: float | None) -> Interval:
    """A proportion with twice its standard error to both sides."""
    if error is None:
        return Interval(value, None, None, 0)
    return Interval(value, max(0.0, value - 1.96 * error), min(1.0, value + 1.96 * error), 0)
