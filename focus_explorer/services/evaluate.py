"""The evaluate command: perplexity and benchmark tasks of full attention beside Focus, with intervals and tests."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from focus_explorer import settings
from focus_explorer.errors import CentroidFileError, InputError, TextError
from focus_explorer.progress import stage_bar
from focus_explorer.services.texts import read_text_file


@dataclass(slots=True)
class _Sample:
    """Held-out sequences and where they are from."""

    sequences: Any
    documents: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def evaluate(arguments: argparse.Namespace) -> None:
    """Measure, print, and write --out as a whole or not at all."""
    names = _names(arguments)
    if not names and arguments.task_folder is None and not arguments.text:
        raise InputError("there is nothing to evaluate", fix="give --text, --tasks or --task-folder")
    for option, least in (("seq_len", 2), ("sequences", 1), ("limit", 1), ("batch", 1), ("seed", 0)):
        number = getattr(arguments, option)
        if number is not None and number < least:
            raise InputError(f"--{option.replace('_', '-')} is {number}", expected=f"at least {least}")
    if arguments.out is not None:
        _write(Path(os.path.expanduser(arguments.out)), None)  # know before minutes of work
    texts = _gather(arguments.text or [])
    with stage_bar() as progress:
        result = measure(arguments, names, texts, progress)
    data = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    if arguments.out is not None:
        _write(Path(os.path.expanduser(arguments.out)), data)
    print(json.dumps(result, ensure_ascii=False) if arguments.json else describe(result))


def _names(arguments: argparse.Namespace) -> list[str]:
    names = [name.strip() for name in (arguments.tasks or "").split(",")]
    if arguments.tasks is not None and not all(names):
        raise InputError(f"--tasks is {arguments.tasks!r}", expected="names such as lambada_openai,hellaswag")
    return [name for name in names if name]


def _write(target: Path, data: str | None) -> None:
    """Write a file whole; without data only find out whether it can be written."""
    try:
        if target.is_dir():
            raise IsADirectoryError(21, "it is a folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:50]}-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(data or "")
            if data is not None:
                os.chmod(temporary, 0o644)
                os.replace(temporary, target)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror}", fix="choose another file for --out") from error


def measure(
    arguments: argparse.Namespace, names: list[str], texts: list[tuple[str, str]], progress: Any
) -> dict[str, Any]:
    """Everything the command reports, JSON-ready."""
    from focus_runtime.composition.attach import compose
    from focus_runtime.measure.scores import compare
    from focus_runtime.models.loading import load_model
    from focus_runtime.routing.centroid_file import load_centroids
    from focus_runtime.run.engine import versions
    from focus_runtime.tasks.lm_eval.run import compare_tasks, load_tasks

    progress("Loading", 0.0)
    files = [load_centroids(source) for source in arguments.centroids]  # before the model: bad files are known at once
    wanted = bool(names) or arguments.task_folder is not None
    tasks = load_tasks(names, task_folder=arguments.task_folder) if wanted else {}
    model, tokenizer = load_model(
        arguments.model, dtype=arguments.dtype, device=_device(arguments.device), cache_dir=settings.cache_dir()
    )
    sample = _sequences(model, tokenizer, texts, arguments) if texts else None
    work = _Work(arguments, tokenizer, tasks, sample, progress, steps=len(files) + 1)
    config: Any = None
    runs: list[tuple[Any, dict[str, Any]]] = []
    for centroids in files:
        focus = compose(
            model,
            centroids,
            top_k=arguments.top_k,
            window=arguments.window,
            num_sinks=arguments.sinks,
            assignment=arguments.assignment,
        )
        try:
            config = _same_config(config, focus.config, centroids.name)
            if not runs:
                with focus.full_attention():
                    runs.append(work.run(model, focus.config))
            runs.append(work.run(focus, focus.config))
        finally:
            focus.detach()
    result: dict[str, Any] = {
        "model": arguments.model,
        "dtype": arguments.dtype,
        "config": config.to_dict(),
        "versions": versions(),
        "centroids": [{"name": one.name, "sha256": one.sha256} for one in files],
        "seed": arguments.seed,
        "limit": arguments.limit,
        "perplexity": None,
        "tasks": None,
    }
    (full, plain), *focused = runs
    if sample is not None:
        row = compare(full, [scores for scores, _ in focused], documents=sample.documents, seed=arguments.seed)
        row["notes"] = sample.notes + row["notes"]
        result["perplexity"] = {"seq_len": arguments.seq_len, "texts": [name for name, _ in texts], **row}
    if tasks:
        result["tasks"] = [compare_tasks(plain, found, seed=arguments.seed) for _, found in focused]
    return result


@dataclass(slots=True)
class _Work:
    """What is done alike for full attention and for every centroid file."""

    arguments: argparse.Namespace
    tokenizer: Any
    tasks: dict[str, Any]
    sample: _Sample | None
    progress: Any
    steps: int
    done: int = 0

    def run(self, model: Any, config: Any) -> tuple[Any, dict[str, Any]]:
        """Scores of the sequences, and results of the tasks."""
        from focus_runtime.measure.scores import score
        from focus_runtime.tasks.lm_eval.run import run_tasks

        start, scores, found = self.done / self.steps, None, {}
        if self.sample is not None:
            self.progress("Perplexity", start)
            scores = score(model, self.sample.sequences)
        if self.tasks:
            found = run_tasks(
                model,
                self.tokenizer,
                self.tasks,
                window=config.window,
                num_sinks=config.num_sinks,
                limit=self.arguments.limit,
                batch_size=self.arguments.batch,
                progress=lambda part: self.progress("Tasks", start + (0.5 + part / 2) / self.steps),
            )
        self.done += 1
        return scores, found


def _device(name: str) -> str:
    import torch

    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as error:  # unknown, or torch was built without it
        raise InputError(f"--device {name!r} cannot be used", expected="cpu, or cuda where there is a GPU") from error
    return name


def _same_config(before: Any, now: Any, name: str) -> Any:
    if before is not None and before != now:
        raise CentroidFileError(
            f"{name} has other settings than the first centroid file",
            expected="centroids that differ in their training seed alone",
            fix="evaluate them one by one",
        )
    return now


def _gather(sources: list[str]) -> list[tuple[str, str]]:
    """(name, text) of text files and of the .txt files in folders, sorted within each folder."""
    files: list[Path] = []
    for source in sources:
        path = Path(os.path.expanduser(source))
        found = sorted(path.glob("*.txt")) if path.is_dir() else [path]
        if not found:
            raise TextError(f"the folder {source} has no text", expected="files ending in .txt")
        files += found
    return [(path.name, read_text_file(path)) for path in files]


def _sequences(model: Any, tokenizer: Any, texts: list[tuple[str, str]], arguments: argparse.Namespace) -> _Sample:
    """Sequences spread evenly over each text, as many of each as it has room for."""
    import torch

    from focus_runtime.measure.loss import check_positions
    from focus_runtime.training.centroids import encode_texts, even_sequences

    check_positions(model, arguments.seq_len)
    sample, parts = _Sample(None), []
    share = max(1, arguments.sequences // len(texts))
    for number, (name, text) in enumerate(texts):
        try:
            ids = encode_texts(tokenizer, [text], arguments.seq_len)
        except TextError as error:
            if len(texts) == 1:
                raise
            sample.notes.append(f"{name} was left out: {error.problem}, fewer than --seq-len")
            continue
        parts.append(even_sequences(ids, share, arguments.seq_len))
        sample.documents += [number] * parts[-1].shape[0]
    if not parts:
        raise TextError(
            f"none of the {len(texts)} texts has {arguments.seq_len} tokens",
            fix="give more text or a shorter --seq-len",
        )
    sample.sequences = torch.cat(parts)
    return sample


def make_task(arguments: argparse.Namespace) -> None:
    """Write a folder of last-word tasks."""
    from focus_runtime.models.loading import load_model
    from focus_runtime.tasks.last_word import write_last_word_tasks

    try:
        lengths = sorted({int(part) for part in arguments.lengths.split(",")})
    except ValueError as error:
        raise InputError(f"--lengths is {arguments.lengths!r}", expected="tokens such as 96,512,1024") from error
    texts = _gather(arguments.text)
    with stage_bar() as progress:
        progress("Loading the tokenizer", 0.0)
        _, tokenizer = load_model(arguments.model, cache_dir=settings.cache_dir())
        progress("Choosing passages", 0.3)
        about = write_last_word_tasks(
            texts,
            tokenizer,
            os.path.expanduser(arguments.out),
            lengths=lengths,
            items=arguments.items,
            window=arguments.window,
            seed=arguments.seed,
            tokenizer_name=arguments.model,
        )
    if arguments.json:
        print(json.dumps({"out": arguments.out, **about}, ensure_ascii=False))
        return
    for name, task in about["tasks"].items():
        few = "" if task["items"] == arguments.items else f", of {arguments.items} asked for"
        print(
            f"{name:<16} {task['items']} items{few}, {task['tokens'][0]} to {task['tokens'][1]} tokens, the word last "
            f"seen {task['distance'][0]} to {task['distance'][1]} tokens before"
        )
    print(f"written          {arguments.out}")


def describe(result: dict[str, Any]) -> str:
    """What was measured, in lines."""
    config = result["config"]
    lines = [
        f"setting       K={config['num_groups']}, top-k {config['top_k']}, window {config['window']}, "
        f"{config['num_sinks']} sinks, {config['assignment']} assignment, {result['model']}, "
        f"centroids {', '.join(one['name'] for one in result['centroids'])}"
    ]
    if result["perplexity"] is not None:
        lines += _describe_perplexity(result["perplexity"], config["num_groups"])
    for centroids, tasks in zip(result["centroids"], result["tasks"] or [], strict=False):
        title = f" ({centroids['name']})" if len(result["centroids"]) > 1 else ""
        for name, task in tasks.items():
            lines += [f"task          {name}{title}", *_describe_task(task)]
    return "\n".join(lines)


def _span(row: dict[str, Any], form: str, joint: str = " to ") -> str:
    """A value with its interval."""
    ends = "no interval" if row["low"] is None else f"{format(row['low'], form)}{joint}{format(row['high'], form)}"
    return f"{format(row['value'], form)} ({ends})"


def _describe_perplexity(row: dict[str, Any], groups: int) -> list[str]:
    return [
        f"perplexity    full {_span(row['full_perplexity'], '.3f')}, Focus {_span(row['focus_perplexity'], '.3f')}",
        f"difference    {_span(row['relative_difference'], '+.2%')}, {_span(row['difference_nats'], '+.4f')} nats, "
        f"p = {row['p_value']:.2g}",
        f"measured on   {row['tokens']:,} tokens, {row['sequences']} sequences of {row['seq_len']:,}, "
        f"documents {row['documents']}, seeds {row['seeds']}; {row['level']:.0%} intervals over {row['units']}",
        f"pairs kept    {row['retained_pairs']:.1%} of all, {row['distant_kept']:.1%} of the distant ones",
        f"largest group {row['dominance']:.1%} of tokens, mean over layers, {row['highest_dominance']:.1%} in the "
        f"worst (even would be {1 / groups:.1%})",
        *(f"note          {note}" for note in row["notes"]),
    ]


def _describe_task(task: dict[str, Any]) -> list[str]:
    tokens = task["tokens"]
    lines = [
        f"  items       {task['items']}, {tokens['low']:,} to {tokens['high']:,} tokens, median "
        f"{tokens['median']:,.0f}",
        f"  long items  {task['longer_than_window']:.0%} are longer than the window; Focus can differ on "
        f"{task['may_differ']:.0%}, the others see full attention",
    ]
    if task["cut"]:
        lines.append(f"  note        {task['cut']} items were cut to the model's positions")
    for name, row in task["metrics"].items():
        full, focus = (
            f"{row[side]:.4g}" + (f" ± {error:.2g}" if (error := row[f"{side}_stderr"]) is not None else "")
            for side in ("full", "focus")
        )
        lines.append(f"  {name:<11} full {full}, Focus {focus}" + _paired(row))
        if "longer_items" in row:
            longer = row["longer_items"]
            lines.append(
                f"              the {longer['items']} longer items alone: full {longer['full']:.4g}, "
                f"Focus {longer['focus']:.4g}{_paired(longer)}"
            )
    return lines


def _paired(row: dict[str, Any]) -> str:
    if "difference" not in row:
        return ""
    lost = f", {row['lost']} lost and {row['gained']} gained" if "lost" in row else " in log-likelihood"
    return f"; difference {_span(row['difference'], '+.4f')}{lost}, p = {row['p_value']:.2g} ({row['test']})"
