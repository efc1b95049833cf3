"""Perplexity and benchmark tasks with full attention and with Focus, with intervals and tests."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focus_explorer import settings
from focus_explorer.errors import CentroidFileError, InputError, TextError
from focus_explorer.progress import Progress, StageBar, held_at, no_stages
from focus_explorer.usecases.models import OnModel, load_at
from focus_explorer.usecases.texts import read_text_file, special_token_notes, text_files
from focus_runtime.failures import SEQUENCES, Advice
from focus_runtime.files import cannot_write, check_writable, replacing

if TYPE_CHECKING:
    from focus_runtime.evaluate.doctor.doctor import Report
    from focus_runtime.evaluate.doctor.families import FamilyRow


TASKS = Advice(otherwise="set a smaller --batch, choose tasks with shorter texts, or close other programs")


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluateRequest(OnModel):
    """What is measured.

    Attributes:
        centroids: names or files; several that differ in their training seed give intervals over seeds.
        text: held-out text files, or folders of .txt files; none measures no perplexity.
        seq_len, sequences: tokens of a sequence, and sequences over all texts.
        tasks, task_folder: names of lm-eval tasks, and a folder with task files; all of the folder without names.
        limit: only the first so many items of each task.
        out: JSON file to write; None writes none.
    """

    centroids: tuple[str, ...] = ("default",)
    text: tuple[str, ...] = ()
    seq_len: int = 1024
    sequences: int = 24
    tasks: tuple[str, ...] = ()
    task_folder: str | None = None
    limit: int | None = None
    batch: int = 1
    seed: int = 0
    out: str | None = None

    @property
    def has_tasks(self) -> bool:
        return bool(self.tasks) or self.task_folder is not None

    def check(self) -> None:
        if not self.has_tasks and not self.text:
            raise InputError("there is nothing to evaluate", fix="give --text, --tasks or --task-folder")
        for option, least in (("seq_len", 2), ("sequences", 1), ("limit", 1), ("batch", 1), ("seed", 0)):
            number = getattr(self, option)
            if number is not None and number < least:
                raise InputError(f"--{option.replace('_', '-')} is {number}", expected=f"at least {least}")


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRequest:
    """A folder of last-word tasks, one for each length in tokens; see `write_last_word_tasks`."""

    text: tuple[str, ...]
    out: str
    model: str = settings.SETTINGS["model"].default
    lengths: tuple[int, ...] = (96, 512, 1024)
    items: int = 100
    window: int = 128
    seed: int = 0


@dataclass(slots=True)
class _Sample:
    """Held-out sequences and where they are from."""

    sequences: Any
    documents: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def evaluate(request: EvaluateRequest, *, bar: StageBar = no_stages) -> dict[str, Any]:
    """Measure, write `request.out` as a whole or not at all, and return what is written, JSON-ready."""
    request.check()
    out = None if request.out is None else Path(os.path.expanduser(request.out))
    explain = cannot_write("choose another file for --out")
    if out is not None:
        check_writable(out, explain=explain)  # before minutes of work
    texts = [(path.name, read_text_file(path)) for path in text_files(request.text)]
    with bar() as progress:
        result = measure(request, texts, progress)
    if out is not None:
        with replacing(out, explain=explain) as part:
            part.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return result


def measure(request: EvaluateRequest, texts: list[tuple[str, str]], progress: Progress) -> dict[str, Any]:
    """Every measurement, JSON-ready; the held-out texts by name and content."""
    from focus_runtime.evaluate.lm_eval.run import load_tasks
    from focus_runtime.routing.centroid_file import load_centroids
    from focus_runtime.run.text import versions

    progress("Loading", 0.0)
    files = [load_centroids(source) for source in request.centroids]  # before the model: bad files are known at once
    tasks = load_tasks(list(request.tasks), task_folder=request.task_folder) if request.has_tasks else {}
    model, tokenizer, placement = load_at(request.model, request.device, request.dtype)
    sample = _sequences(model, tokenizer, texts, request) if texts else None
    config, runs = _run_all(request, (model, tokenizer), files, sample, tasks, progress)
    result: dict[str, Any] = {
        "model": request.model,
        "device": placement.device,
        "dtype": placement.dtype,
        "config": config.to_dict(),
        "versions": versions(),
        "centroids": [{"name": one.name, "sha256": one.sha256} for one in files],
        "special_tokens": request.special_tokens,
        "notes": special_token_notes(tokenizer, request.special_tokens, files),
        "seed": request.seed,
        "limit": request.limit,
        "perplexity": None,
        "tasks": None,
    }
    return result | _compared(request, runs, sample, tasks, [name for name, _ in texts])


Run = tuple[Any, dict[str, Any]]  # scores of the sequences, and results of the tasks


def _run_all(
    request: EvaluateRequest,
    loaded: tuple[Any, Any],
    files: list[Any],
    sample: _Sample | None,
    tasks: dict[str, Any],
    progress: Progress,
) -> tuple[Any, list[Run]]:
    """The configuration of all centroid files, and the runs: full attention first, then each file."""
    from focus_runtime.composition.attach import compose
    from focus_runtime.evaluate.lm_eval.run import run_tasks
    from focus_runtime.measure.memory import within_memory
    from focus_runtime.measure.perplexity import score

    (model, tokenizer), steps = loaded, len(files) + 1
    config: Any = None
    runs: list[Run] = []

    def run(attending: Any) -> None:
        start, scores, results = len(runs) / steps, None, {}
        if sample is not None:
            progress("Perplexity", start)
            with within_memory(model, SEQUENCES):
                scores = score(attending, sample.sequences)
        if tasks:
            with within_memory(model, TASKS):
                results = run_tasks(
                    attending,
                    tokenizer,
                    tasks,
                    window=config.shortest_window,
                    full_up_to=config.full_up_to,
                    limit=request.limit,
                    batch_size=request.batch,
                    special_tokens=request.special_tokens,
                    progress=lambda part: progress("Tasks", start + (0.5 + part / 2) / steps),
                )
        runs.append((scores, results))

    for centroids in files:
        focus = compose(model, centroids, settings=request, backend=request.backend)
        try:
            if config not in (None, focus.config):
                raise CentroidFileError(
                    f"{centroids.name} has other settings than the first centroid file",
                    expected="centroids that differ in their training seed alone",
                    fix="evaluate them one by one",
                )
            config = focus.config
            if not runs:
                with focus.full_attention():
                    run(model)
            run(focus)
        finally:
            focus.detach()
    return config, runs


def _compared(
    request: EvaluateRequest, runs: list[Run], sample: _Sample | None, tasks: dict[str, Any], names: list[str]
) -> dict[str, Any]:
    """Focus compared with full attention, for the sequences and for the tasks that were run."""
    from focus_runtime.evaluate.lm_eval.run import compare_tasks
    from focus_runtime.measure.perplexity import compare

    compared: dict[str, Any] = {}
    (full, plain), *focused = runs
    if sample is not None:
        row = compare(full, [scores for scores, _ in focused], documents=sample.documents, seed=request.seed)
        row["notes"] = sample.notes + row["notes"]
        compared["perplexity"] = {"seq_len": request.seq_len, "texts": names, **row}
    if tasks:
        compared["tasks"] = [compare_tasks(plain, results, seed=request.seed) for _, results in focused]
    return compared


def _sequences(model: Any, tokenizer: Any, texts: list[tuple[str, str]], request: EvaluateRequest) -> _Sample:
    """Sequences spread evenly over each text, as many of each as it has room for."""
    import torch

    from focus_runtime.measure.loss import check_positions
    from focus_runtime.text.sequences import encode_texts, even_sequences

    check_positions(model, request.seq_len)
    sample, parts = _Sample(None), []
    share = max(1, request.sequences // len(texts))
    for number, (name, text) in enumerate(texts):
        try:
            ids = encode_texts(tokenizer, [text], request.seq_len, request.special_tokens)
        except TextError as error:
            if len(texts) == 1:
                raise
            sample.notes.append(f"{name} was left out: {error.problem}, fewer than --seq-len")
            continue
        parts.append(even_sequences(ids, share, request.seq_len))
        sample.documents += [number] * parts[-1].shape[0]
    if not parts:
        raise TextError(
            f"none of the {len(texts)} texts has {request.seq_len} tokens", fix="give more text or a shorter --seq-len"
        )
    sample.sequences = torch.cat(parts)
    return sample


def make_task(request: TaskRequest, *, bar: StageBar = no_stages) -> dict[str, Any]:
    """Write a folder of last-word tasks, and return what its own description says of them."""
    from focus_runtime.evaluate.last_word import write_last_word_tasks
    from focus_runtime.models.loading import load_model

    texts = [(path.name, read_text_file(path)) for path in text_files(request.text)]
    with bar() as progress:
        progress("Loading the tokenizer", 0.0)
        _, tokenizer = load_model(request.model, cache_dir=settings.cache_dir())
        progress("Choosing passages", 0.3)
        return write_last_word_tasks(
            texts,
            tokenizer,
            os.path.expanduser(request.out),
            lengths=list(request.lengths),
            items=request.items,
            window=request.window,
            seed=request.seed,
            tokenizer_name=request.model,
        )


def registered(attention: str) -> str:
    """The name in NAME or MODULE:NAME of an implementation of attention, after importing its module."""
    module, _, name = attention.rpartition(":")
    if not module:
        return attention
    sys.path.insert(0, str(Path.cwd()))
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"module {module!r} cannot be imported ({error})", expected="MODULE:NAME") from error
    finally:
        sys.path.remove(str(Path.cwd()))
    return name


def examine(name: str, *, attention: str, tokens: int, device: str, progress: Progress) -> Report:
    """The doctor's findings on a model with an implementation of attention, on texts of so many tokens."""
    from focus_runtime.evaluate.doctor.doctor import doctor

    implementation = registered(attention)
    model, tokenizer, _ = load_at(name, device, "float32", held_at(progress, 0.0))
    with redirect_stdout(sys.stderr):  # models print warnings
        return doctor(model, tokenizer, attention=implementation, tokens=tokens, progress=progress)


def examine_families(names: Sequence[str], attention: str) -> Iterator[FamilyRow]:
    """The doctor's findings on a tiny model of each family by transformers' name; of all without names."""
    from focus_runtime.evaluate.doctor.families import examine_family, model_types

    implementation = registered(attention)
    for name in names or model_types():
        with redirect_stdout(sys.stderr):
            row = examine_family(name, implementation)
        yield row


def write_page(path: Path, rows: Sequence[FamilyRow], command: str) -> None:
    """Write the page of all families in Markdown, with the command that made it."""
    import torch
    import transformers

    from focus_runtime.evaluate.doctor.families import page

    versions = f"transformers {transformers.__version__} and torch {torch.__version__.partition('+')[0]}"
    with replacing(path) as part:
        part.write_text(page(rows, command, versions), encoding="utf-8")
