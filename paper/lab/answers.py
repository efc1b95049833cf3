"""Answers to lm-eval tasks, compared in pairs with those of the model as it is; last words of the held-out text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from focus_runtime.errors import TextError
from focus_runtime.evaluate.last_word import write_last_word_tasks, write_task
from focus_runtime.evaluate.lm_eval.run import TaskResult, compare_tasks, load_tasks, run_tasks
from focus_runtime.measure.intervals import Interval
from paper.lab.lab import Lab
from paper.output.report import Column, Row
from paper.verdicts import agreed, unharmed

LAST_WORDS = "last words"
LAST_WORD_COLUMNS = [
    Column("short", "last word, within the window", 1, percent=True),
    Column("long", "last word, long passages", 1, percent=True),
]
BENCHMARKS = {"hellaswag": "HellaSwag", "arc_easy": "ARC-E", "piqa": "PIQA", "lambada": "LAMBADA"}
OF_PAPER = [Column(f"paper_{name}", label, 1, paper=True) for name, label in BENCHMARKS.items()]
BENCHMARKS_NOTE = (
    "HellaSwag, ARC-E and PIQA need the hub: `focus-explorer evaluate --tasks` runs them where it can be reached."
)
ITEMS_NOTE = (
    "Last word: lm-eval on passages of the held-out text, once no longer than half the window, where every mask is "
    "full attention, and once as long as the training sequences, where the word occurred only beyond the window. 95 % "
    "intervals over items."
)


@dataclass(eq=False)
class Tasks:
    """Tasks that several models answer.

    Attributes:
        metric: of theirs that is compared.
        unchanged: results of the laboratory's model as it is; see `results`.
    """

    lab: Lab
    tasks: dict[str, Any]
    metric: str = "acc"
    unchanged: dict[str, TaskResult] = field(default_factory=dict)

    @classmethod
    def local(cls, lab: Lab, name: str, rows: Callable[[], Iterable[Row]], yaml: str, metric: str) -> Tasks:
        """One task made here of the texts at hand, kept in the laboratory's folder."""
        folder = lab.folder / "tasks" / lab.key(name, lab.scale.seq_len, lab.scale.task_items)
        if not folder.exists():
            write_task(folder, name, yaml, rows())
        return cls(lab, load_tasks([name], task_folder=folder), metric)

    def results(self, model: Any) -> tuple[dict[str, TaskResult], dict[str, Any]]:
        """What a model answers, and the paired comparison with the model as it is, task by task.

        The first call must come while nothing is attached to the laboratory's model.
        """
        first = not self.unchanged
        if first:
            self.unchanged = self._run(self.lab.model)
        results = self.unchanged if first and model is self.lab.model else self._run(model)
        compared = compare_tasks(self.unchanged, results)
        return results, {name: compared[name]["metrics"][self.metric] for name in results}

    def cells(self, model: Any) -> Row:
        """Accuracy of the one task with its interval, and its paired comparison with the model as it is."""
        results, tests = self.results(model)
        [(name, result)] = results.items()
        share = result.beyond_window.mean()
        value = accuracy(result, self.metric)
        self.lab.log(f"{name}: accuracy {value.value:.3f} on {result.items} items, {share:.0%} beyond the window")
        return {
            "accuracy": value,
            "accuracy_p": tests[name]["p_value"],
            "unharmed": unharmed(tests[name], result.items),
            "test": tests[name],
        }

    def setting(self) -> dict[str, Any]:
        """What was asked, for the setting of a report."""
        [(name, result)] = self.unchanged.items()
        share = f"{result.beyond_window.mean():.0%}"
        return {"task": name, "items": result.items, "share of items longer than the window": share}

    @property
    def items(self) -> int:
        """How many items the one task has."""
        return next(iter(self.unchanged.values())).items

    def _run(self, model: Any) -> dict[str, TaskResult]:
        lab = self.lab
        return run_tasks(model, lab.tokenizer, self.tasks, window=lab.scale.window, num_sinks=lab.recipe.num_sinks)


def accuracy(result: TaskResult, metric: str = "acc") -> Interval:
    """A proportion with twice its standard error to both sides."""
    value, error = result.metrics[metric].value, result.metrics[metric].stderr
    if error is None:
        return Interval(value, None, None, 0)
    return Interval(value, value - 1.96 * error, value + 1.96 * error, 0).within(0.0, 1.0)


def last_words(lab: Lab, model: Any) -> Row:
    """Last-word accuracy within the window and far beyond it, with intervals, and the share of long items.

    None where the held-out text is too short for such passages. `tests` are the paired comparisons, short and long,
    with the laboratory's model as it is; `unharmed` whether both stayed.
    """
    try:
        tasks = _last_word_tasks(lab)
    except TextError as error:
        lab.log(f"no last-word accuracy: {error}")
        return {"short": None, "long": None, "beyond": None, "unharmed": None, "tests": {}}
    results, tests = tasks.results(model)
    short, long = sorted(results, key=lambda name: int(name.rsplit("_", 1)[1]))
    cells = {"short": accuracy(results[short]), "long": accuracy(results[long])}
    beyond = float(results[long].beyond_window.mean())
    lab.log(
        f"last-word accuracy: short {cells['short'].value:.3f} of {results[short].items} items, long "
        f"{cells['long'].value:.3f} of {results[long].items}; {beyond:.0%} of the long ones beyond the window"
    )
    return {
        **cells,
        "beyond": beyond,
        "unharmed": agreed(unharmed(tests[name], results[name].items) for name in (short, long)),
        "tests": {"short": tests[short], "long": tests[long]},
    }


def _last_word_tasks(lab: Lab) -> Tasks:
    """One task within the window, one of much longer passages."""
    if LAST_WORDS not in lab.tasks:
        scale = lab.scale
        lengths = (max(16, scale.window // 2), scale.seq_len)
        folder = lab.folder / "tasks" / lab.key("tasks", lengths, scale.task_items)
        if not folder.exists():
            texts = list(zip(lab.names["val"], lab.held_out, strict=True))
            write_last_word_tasks(
                texts, lab.tokenizer, folder, lengths=lengths, items=scale.task_items, window=scale.window
            )
        names = [f"last_word_{length}" for length in sorted(set(lengths))]
        lab.tasks[LAST_WORDS] = Tasks(lab, load_tasks(names, task_folder=folder))
    tasks: Tasks = lab.tasks[LAST_WORDS]
    return tasks


def both_accuracies(row: Row) -> str:
    """Last words of a row, within the window and in long passages."""
    return "not measured" if row.get("long") is None else f"{row['short'].value:.1%} and {row['long'].value:.1%}"


def beyond_window(row: Row) -> str:
    """How many passages of the accuracies are longer than the window, in words."""
    share = row.get("beyond")
    return "not measured" if share is None else f"none of the short passages, {share:.0%} of the long ones"
