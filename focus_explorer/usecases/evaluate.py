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
from focus_explorer.usecases.models import load_at
from focus_explorer.usecases.request import (
    AsJson,
    Computed,
    File,
    FocusOptions,
    Names,
    Numbers,
    TextBegins,
    numbers,
    option,
    setting,
)
from focus_explorer.usecases.texts import read_text_file, special_token_notes, text_files
from focus_runtime.failures import SEQUENCES, Advice
from focus_runtime.files import cannot_write, check_writable, replacing

if TYPE_CHECKING:
    from focus_runtime.evaluate.doctor.doctor import Report
    from focus_runtime.evaluate.doctor.families import FamilyRow


TASKS = Advice(otherwise="set a smaller --batch, choose tasks with shorter texts, or close other programs")


class EvaluateRequest(FocusOptions, TextBegins, Computed, AsJson):
    model: File = setting("model")
    centroids: tuple[File, ...] = option(
        ("default",),
        "default, or centroid files; several that differ in their training seed give intervals over seeds",
    )
    text: tuple[File, ...] = option((), "held-out text files, or folders of .txt files")
    seq_len: int = option(1024, "tokens of a sequence", ge=2)
    sequences: int = option(24, "sequences over all texts", ge=1)
    tasks: Names | None = option(
        None,
        "lm-eval tasks such as lambada_openai,hellaswag (default: all of --task-folder)",
        expected="names such as lambada_openai,hellaswag",
        type=str,
        nargs=None,
    )
    task_folder: File | None = option(None, "folder with lm-eval task files of your own")
    limit: int | None = option(None, "only the first so many items of each task", ge=1)
    batch: int = option(1, "task requests at once", ge=1)
    seed: int = option(0, "of resampling", ge=0)
    out: File | None = option(None, "JSON file to write")


class TaskRequest(AsJson):
    text: tuple[File, ...] = option(..., "text files, or folders of .txt files", action="extend")
    out: File = option(..., "folder to make")
    model: File = setting("model")
    lengths: Numbers = numbers((96, 512, 1024), "most tokens of a passage", "tokens such as 96,512,1024")
    items: int = option(100, "passages of each length")
    window: int = option(128, "in passages longer than this, the word occurred before but not within so many tokens")
    seed: int = option(0, "which passages are taken")


@dataclass(slots=True)
class _Sample:
    """Held-out sequences and where they are from."""

    sequences: Any
    documents: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def evaluate(request: EvaluateRequest, *, bar: StageBar = no_stages) -> dict[str, Any]:
    """Measure, write `request.out` as a whole or not at all, and return what is written, JSON-ready."""
    if request.tasks is None and request.task_folder is None and not request.text:
        raise InputError("there is nothing to evaluate", fix="give --text, --tasks or --task-folder")
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
    has_tasks = request.tasks is not None or request.task_folder is not None
    tasks = load_tasks(list(request.tasks or ()), task_folder=request.task_folder) if has_tasks else {}
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
        focus = compose(model, centroids, settings=request.settings, backend=request.backend)
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


def examine(model: str, *, attention: str, tokens: int, device: str, progress: Progress) -> Report:
    """The doctor's findings on a model with an implementation of attention, on texts of so many tokens."""
    from focus_runtime.evaluate.doctor.doctor import doctor

    implementation = registered(attention)
    loaded, tokenizer, _ = load_at(model, device, "float32", held_at(progress, 0.0))
    with redirect_stdout(sys.stderr):  # models print warnings
        return doctor(loaded, tokenizer, attention=implementation, tokens=tokens, progress=progress)


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
