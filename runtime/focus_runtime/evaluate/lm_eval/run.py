"""Benchmarks through lm-eval, with a composed model as its model. lm-eval is an optional extra, imported when used.

What a benchmark says of Focus depends on how long its items are: within the window the mask is full attention. So every
result carries the share of items beyond the window, and comparisons give those items apart.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import logging
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from focus_runtime.composition.attach import FocusModel
from focus_runtime.errors import InputError, first_line
from focus_runtime.measure.intervals import mcnemar_test, mean_interval, sign_flip_test
from focus_runtime.text.special import DEFAULT

LOCAL_FORMATS = ("json", "csv", "parquet", "text", "arrow")
FEWSHOT_SEED = 1234  # lm-eval's own
ALIASES = {"arc": "ai2_arc"}  # what people call it: what lm-eval does
FOLDERS = {  # of lm-eval's own tasks; reading all 14,000 of them takes longer than many a run
    **dict.fromkeys(("truthfulqa_mc1", "truthfulqa_mc2"), "truthfulqa"),
    **dict.fromkeys(("arc", "ai2_arc", "arc_easy", "arc_challenge"), "arc"),
    **dict.fromkeys(("lambada", "lambada_openai", "lambada_standard"), "lambada"),
    **{name: name for name in ("hellaswag", "piqa", "gsm8k", "wikitext")},
}


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a task.

    `items`: (N,) its values item by item; for a perplexity the log-likelihoods. None where there are none.
    """

    value: float
    stderr: float | None  # standard error over items; None where it is neither a mean nor the exp of one
    items: NDArray[np.float64] | None


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What one model gave on one task."""

    task: str
    metrics: dict[str, Metric]  # by name, with the filter's name where the task has several
    tokens: NDArray[np.int64]  # (N,) int64, tokens of context and continuation of each item, as fed to the model
    cut: int  # items whose context was cut to the model's positions
    window: int  # of the setting that item lengths are held against
    full_up_to: int  # tokens up to which that setting drops nothing
    written: bool = False  # whether answers are written token by token; then `tokens` depend on what the model wrote

    @property
    def items(self) -> int:
        """How many items were scored."""
        return int(self.tokens.size)

    @property
    def beyond_window(self) -> NDArray[np.bool_]:
        """(N,) whether an item has more than window + 1 tokens."""
        return self.tokens > self.window + 1

    @property
    def may_differ(self) -> NDArray[np.bool_]:
        """(N,) whether Focus can drop a pair, where the last token is not fed; the others see full attention."""
        return self.tokens - 1 > self.full_up_to


def require_harness() -> None:
    """Raises: InputError: lm-eval is not installed."""
    try:
        with _quiet():
            import lm_eval.models.huggingface  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"benchmarks need lm-eval, which cannot be imported ({error})", fix="pip install 'focus-explorer[eval]'"
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No log lines, warnings or bars of the libraries between our own output; errors still come as exceptions."""
    loggers = [logging.getLogger(name) for name in ("lm_eval", "datasets", "huggingface_hub", "httpx")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def load_tasks(names: Sequence[str], *, task_folder: str | Path | None = None) -> dict[str, Any]:
    """Find tasks by name and load their data: lm-eval's task objects by name, groups and tags resolved.

    Args:
        names: tasks, groups or tags of lm-eval or of the folder; none stands for all tasks of the folder.
        task_folder: folder of task YAML files, for the user's tasks and where the network is out of reach. Data files
            named there are resolved relative to the YAML file.
    """
    require_harness()
    if not names and task_folder is None:
        raise InputError("no task is named", expected="names such as lambada_openai,hellaswag")
    folder = None if task_folder is None else Path(task_folder).expanduser()
    if folder is not None and not any(folder.rglob("*.yaml")):
        raise InputError(
            f"{task_folder} holds no tasks",
            expected="a folder with lm-eval task files (.yaml)",
            fix="make one with `focus-explorer evaluate make-task`",
        )
    manager = _manager(names, folder)
    tasks: dict[str, Any] = {}
    for name in names or manager.all_subtasks:
        for task in _members(manager, name):
            tasks |= _load(manager, task)
    return tasks


def _manager(names: Sequence[str], folder: Path | None) -> Any:
    """lm-eval's index of the folder's tasks and of the named ones; of all its tasks where a name is not among them."""
    from lm_eval import tasks

    folders = [str(folder)] if folder else []
    root = Path(tasks.__file__).parent
    known = sorted({str(root / FOLDERS[name]) for name in names if name in FOLDERS})
    with _quiet():
        manager = tasks.TaskManager(include_path=[*known, *folders], include_defaults=False)
        if any(ALIASES.get(name, name) not in manager.task_index for name in names):
            manager = tasks.TaskManager(include_path=folders)
    return manager


def _members(manager: Any, name: str) -> list[str]:
    """The tasks of a tag; a task or a group alone."""
    index = manager.task_index
    task = name if name in index else ALIASES.get(name, name)
    if task not in index:
        near = difflib.get_close_matches(name, index, n=3)
        raise InputError(
            f"the task {name!r} is unknown",
            expected="a task of lm-eval, or of the folder given with --task-folder",
            fix=f"did you mean {' or '.join(near)}?" if near else "`lm-eval ls tasks` lists them",
        )
    entry = index[task]
    return sorted(entry.tags) if entry.kind.name == "TAG" else [task]


def _load(manager: Any, name: str) -> dict[str, Any]:
    entry = manager.task_index[name]
    config = entry.cfg or {}
    local = config.get("dataset_path") in LOCAL_FORMATS and (config.get("dataset_kwargs") or {}).get("data_files")
    with tempfile.TemporaryDirectory() as scratch:  # datasets would keep a copy of every local file for ever
        spec: Any = name
        if local:
            kwargs = {
                **config["dataset_kwargs"],
                "data_files": _relative_to(entry.yaml_path, local),
                "cache_dir": scratch,
                "keep_in_memory": True,
            }
            spec = {"group": "here", "task": [{"task": name, "dataset_kwargs": kwargs}]}
        try:
            with _quiet():
                loaded = dict(manager.load([spec])["tasks"])
        except Exception as error:  # datasets, hub clients and task code raise whatever they meet
            if local:
                raise InputError(
                    f"the task {name} cannot be loaded: {first_line(error)}", fix="check its files"
                ) from error
            raise InputError(
                f"the data of task {name} could not be fetched: {first_line(error)}",
                fix="check the network connection, or give tasks with local data by --task-folder "
                "(`focus-explorer evaluate make-task` makes some from plain text)",
            ) from error
    for task, loaded_task in loaded.items():
        if len(loaded_task.eval_docs) == 0:
            raise InputError(f"the task {task} has no items", fix="check its data")
    return loaded


def _relative_to(yaml: Path, files: Any) -> Any:
    """Data files as absolute paths."""
    if isinstance(files, Mapping):
        return {split: _relative_to(yaml, value) for split, value in files.items()}
    if isinstance(files, list | tuple):
        return [_relative_to(yaml, value) for value in files]
    if "://" in str(files):
        return files
    path = Path(yaml).resolve().parent / str(files)
    if not path.is_file() and not any(path.parent.glob(path.name)):
        raise InputError(f"{Path(yaml).name} names the data file {files}, which is not there", fix="check the folder")
    return str(path)


def run_tasks(
    model: Any,
    tokenizer: Any,
    tasks: Mapping[str, Any],
    *,
    window: int,
    num_sinks: int = 0,
    full_up_to: int | None = None,
    limit: int | None = None,
    batch_size: int = 1,
    special_tokens: str = DEFAULT,
    progress: Callable[[float], None] | None = None,
) -> dict[str, TaskResult]:
    """Run what `load_tasks` gave; results by task name.

    Args:
        model: a Hugging Face causal language model as it is, or what `compose` returned (then under Focus).
        window, num_sinks: setting that item lengths are held against; give full attention those of Focus.
        full_up_to: tokens up to which that setting drops nothing, where heads have windows of their own or windows
            grow (`FocusConfig.full_up_to`). None: window + num_sinks + 1.
        limit: only the first so many items of each task.
    """
    for name, number in (("limit", limit), ("batch_size", batch_size)):
        if number is not None and number < 1:
            raise InputError(f"{name} is {number}", expected="at least 1")
    from lm_eval.evaluator import evaluate

    from focus_runtime.evaluate.lm_eval.model import HarnessModel

    for task in tasks.values():
        if task.get_config("num_fewshot") is None:
            task.set_config(key="num_fewshot", value=0)
        task.set_fewshot_seed(seed=FEWSHOT_SEED)  # also between runs, so that both see the same examples
    with _quiet():
        network = model.model if isinstance(model, FocusModel) else model
        wrapped = HarnessModel(
            network, tokenizer, batch_size=batch_size, special_tokens=special_tokens, progress=progress
        )
        evaluated = evaluate(wrapped, {"tasks": dict(tasks)}, limit=limit, bootstrap_iters=0, log_samples=True)
    assert evaluated is not None, "one process runs alone"
    results = {}
    for name in tasks:
        documents = sorted(number for task, number in wrapped.lengths if task == name)
        tokens = np.array([wrapped.lengths[name, number] for number in documents], dtype=np.int64)
        metrics = _metrics(evaluated["results"][name], evaluated["samples"][name])
        cut = sum(task == name for task, _ in wrapped.cut)
        written = tasks[name].OUTPUT_TYPE == "generate_until"
        whole = window + num_sinks + 1 if full_up_to is None else full_up_to
        results[name] = TaskResult(name, metrics, tokens, cut, window, whole, written)
    return results


def _metrics(values: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> dict[str, Metric]:
    filters = {sample["filter"] for sample in samples}
    metrics = {}
    for key, value in values.items():
        name, _, choice = key.partition(",")
        if not choice or name.endswith("_stderr") or not isinstance(value, int | float | np.number):
            continue
        rows = sorted((s for s in samples if s["filter"] == choice), key=lambda sample: sample["doc_id"])
        scores = [row.get(name) for row in rows]
        plain = all(isinstance(item, int | float | np.number) for item in scores) and bool(scores)
        items = np.array(scores, dtype=np.float64) if plain else None
        metrics[key if len(filters) > 1 else name] = Metric(float(value), _stderr(float(value), items), items)
    return metrics


def _stderr(value: float, items: NDArray[np.float64] | None) -> float | None:
    """Standard error of a mean, or by the delta method of exp(-mean), as lm-eval aggregates accuracy and perplexity."""
    if items is None or items.size < 2:
        return None
    spread = float(items.std(ddof=1) / math.sqrt(items.size))
    if math.isclose(value, items.mean(), rel_tol=1e-9, abs_tol=1e-12):
        return spread
    return value * spread if math.isclose(math.log(value), -items.mean(), rel_tol=1e-9) else None


def compare_tasks(
    full: Mapping[str, TaskResult], focus: Mapping[str, TaskResult], *, seed: int = 0
) -> dict[str, dict[str, Any]]:
    """Focus against full attention, item by item.

    By task, JSON-ready: items, their tokens, the share of them `longer_than_window` and the share on which Focus
    `may_differ`; for each metric both values, the mean paired difference with its interval over items (for a perplexity
    in nats, of the log-likelihoods) and p-value, for all items and for the longer ones alone.
    """
    report = {}
    for name, plain in full.items():
        sparse, tokens = focus[name], focus[name].tokens
        if plain.items != sparse.items or not (plain.written or np.array_equal(plain.tokens, sparse.tokens)):
            raise InputError(f"the results of {name} are of different items", expected="the same task and limit")
        report[name] = {
            "items": sparse.items,
            "tokens": {"median": float(np.median(tokens)), "low": int(tokens.min()), "high": int(tokens.max())},
            "longer_than_window": float(sparse.beyond_window.mean()),
            "may_differ": float(sparse.may_differ.mean()),
            "cut": sparse.cut,
            "metrics": {
                metric: _compare_metric(plain.metrics[metric], sparse.metrics[metric], sparse.beyond_window, seed)
                for metric in plain.metrics
            },
        }
    return report


def _compare_metric(full: Metric, focus: Metric, longer: NDArray[np.bool_], seed: int) -> dict[str, Any]:
    row: dict[str, Any] = {"full": full.value, "full_stderr": full.stderr}
    row |= {"focus": focus.value, "focus_stderr": focus.stderr}
    if full.items is None or focus.items is None:
        return row
    row |= _paired(full.items, focus.items, seed)
    if longer.any() and not longer.all():
        row["longer_items"] = {
            "items": int(longer.sum()),
            "full": float(full.items[longer].mean()),
            "focus": float(focus.items[longer].mean()),
            **_paired(full.items[longer], focus.items[longer], seed),
        }
    return row


def _paired(full: NDArray[np.float64], focus: NDArray[np.float64], seed: int) -> dict[str, Any]:
    difference = mean_interval(focus - full, seed=seed).to_dict()
    if np.isin(np.concatenate([full, focus]), (0, 1)).all():
        test = mcnemar_test(full, focus)
        counts = {"lost": test.only_first, "gained": test.only_second}
        return {"difference": difference, "p_value": test.p_value, "test": "McNemar", **counts}
    return {"difference": difference, "p_value": sign_flip_test(focus - full, seed=seed), "test": "sign flips"}
