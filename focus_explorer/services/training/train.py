"""One training from text files to a validated centroid file, recorded for the page to watch."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from focus_explorer import settings
from focus_explorer.errors import InputError, TextError, TrainingError, TrainingStopped
from focus_explorer.progress import stage_bar
from focus_explorer.services.texts import read_text_file
from focus_explorer.services.training.request import TrainRequest, parse_layers

Announce = Callable[[str], None]


def gather_texts(sources: list[str], exclude: list[str]) -> tuple[list[str], list[Path]]:
    """Read text files and folders of .txt files, leaving out every text that is also in `exclude`, wherever it lies.

    Returns:
        The texts and their files, in sorted order within each folder.

    Raises:
        TextError: a file is no text, a folder has none, or nothing is left.
    """
    held_out = {read_text_file(path) for path in _text_files(exclude)}
    texts = [(read_text_file(path), path) for path in _text_files(sources)]
    kept = [(text, path) for text, path in texts if text not in held_out]
    if not kept:
        raise TextError(
            "there is no text to train on" + (" beside the held-out one" if texts else ""),
            expected="text files, or folders with .txt files",
        )
    return [text for text, _ in kept], [path for _, path in kept]


def _text_files(sources: list[str]) -> list[Path]:
    files: list[Path] = []
    for source in sources:
        path = Path(os.path.expanduser(source))
        found = sorted(path.glob("*.txt")) if path.is_dir() else [path]
        if not found:
            raise TextError(f"the folder {path} has no .txt files", expected="text files, or folders with .txt files")
        files += found
    return files


def plan(request: TrainRequest) -> tuple[Any, Any]:
    """The FocusConfig trained with and the TrainConfig.

    Raises:
        InputError: an option is out of range.
    """
    from focus_runtime.config import FocusConfig
    from focus_runtime.training.loop import TrainConfig

    if request.hard and request.gate != "log":
        raise InputError("--hard goes with the log gate only", fix="leave out --hard or --gate paper")
    if Path(request.out).suffix != ".safetensors":
        raise InputError(f"--out is {request.out!r}", expected="a file name ending in .safetensors")
    if request.snapshots < 0:
        raise InputError(f"--snapshots is {request.snapshots}", expected="a number of steps, or 0 for none")
    if request.val_sequences < 1:
        raise InputError(f"--val-sequences is {request.val_sequences}", expected="at least 1")
    config = FocusConfig(
        num_groups=request.groups,
        routing_dim=request.routing_dim,
        top_k=request.top_k,
        window=request.train_window if request.train_window is not None else request.window,
        num_sinks=request.sinks,
        temperature=request.temperature,
        sinkhorn_iterations=request.iterations,
        normalisation=request.normalisation,
        assignment=request.assignment,
        gate=request.gate,
        layers=parse_layers(request.layers),
    )
    chosen = TrainConfig(
        steps=request.steps,
        seq_len=request.seq_len,
        batch=request.batch,
        accumulation=request.accumulate,
        learning_rate=request.lr,
        hard=request.hard,
        seed=request.seed,
        warmup=min(20, max(0, request.steps) // 5),
        mixed_precision=request.precision,
        gradient_checkpointing=request.gradient_checkpointing,
        checkpoint_every=request.checkpoint_every,
    )
    config.replace(window=request.window)
    return config, chosen


def train(
    request: TrainRequest, database: Any = None, *, command: str = "", announce: Announce = lambda message: None
) -> dict[str, Any]:
    """Train, save, and score held-out text under the hard mask if any was given.

    Args:
        request: what to train.
        database: a `Database` that records the curve; None records nothing.
        command: command line with which it can be started again.
        announce: takes remarks while it runs.

    Returns:
        out, sha256 and training summary; empty in a process that only helps the first one.

    Raises:
        InputError: anything a user can put right; an older file at `request.out` is left as it was.
        TrainingStopped: stopped by a signal; the last finished step is in `request.checkpoint`.
    """
    from accelerate import PartialState

    from focus_runtime.models.loading import load_model

    config, chosen = plan(request)
    texts, files = gather_texts(list(request.text), list(request.val))
    held_out = gather_texts(list(request.val), [])[0] if request.val else []
    _check_writable(Path(os.path.expanduser(request.out)))
    _check_checkpoint(request)
    if database is not None:
        _check_database(database)
    processes = PartialState()
    model, tokenizer = load_model(
        request.model, dtype=request.dtype, device=str(processes.device), cache_dir=settings.cache_dir()
    )
    _check_layers(config, model)
    sequences = _held_out(tokenizer, held_out, request) if held_out else None  # too short a text is known now
    first = processes.is_main_process
    with ExitStack() as stack:
        recorder = None
        if database is not None and first:
            recorder = stack.enter_context(_recorder(request, model, texts, files, database, command, announce))
        try:
            centroids = _run(request, config, chosen, model, tokenizer, texts, recorder, quiet=not first)
        except TrainingStopped as stopped:
            _after_stop(request, stopped, recorder)
            raise
        if not first:
            return {}
        return _keep(request, config, chosen, model, centroids, files, sequences, recorder, announce)


def _run(
    request: TrainRequest,
    config: Any,
    chosen: Any,
    model: Any,
    tokenizer: Any,
    texts: list[str],
    recorder: Any,
    *,
    quiet: bool,
) -> Any:
    from tqdm import tqdm

    from focus_runtime.routing.centroid_file import save_centroids
    from focus_runtime.routing.centroids import Centroids
    from focus_runtime.training.centroids import train_centroids
    from focus_runtime.training.loop import TrainStep

    layout = "{desc} {percentage:3.0f}% |{bar:20}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]{postfix}"
    with tqdm(
        total=chosen.steps, file=sys.stderr, bar_format=layout, desc="Training", disable=True if quiet else None
    ) as bar:

        def report(step: TrainStep) -> None:
            if recorder is not None:
                recorder.step(step)
            bar.update(step.step - bar.n)
            bar.set_postfix_str(describe_step(step))

        def keep(step: int, centroids: Centroids) -> None:
            kept = replace(centroids, config=config.replace(window=request.window))
            save_centroids(kept, snapshot_of(request.out, step))

        with stop_on_signal() as asked:
            return train_centroids(
                model,
                tokenizer,
                texts,
                config,
                chosen,
                model_id=request.model,
                on_step=report,
                checkpoint=request.checkpoint,
                resume=request.resume,
                should_stop=asked.is_set,
                on_snapshot=None if quiet else keep,
                snapshot_every=request.snapshots,
            )


def snapshot_of(out: str, step: int) -> Path:
    """Where the centroids after `step` steps are kept."""
    result = Path(os.path.expanduser(out))
    return result.with_name(f"{result.stem}.step-{step:06d}.safetensors")


def describe_step(step: Any) -> str:
    """The numbers beside the progress bar."""
    return (
        f"loss {step.loss:.3f}, perplexity {step.perplexity:.2f}, largest group {step.dominance:.1%}, "
        f"pairs kept {step.retained_pairs:.1%}, {step.tokens_per_second:,.0f} tokens/s"
    )


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """SIGINT and SIGTERM set the event, so that the step under way is finished; a second one stops at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def handle(number: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        print("\nstopping after this step; once more stops at once", file=sys.stderr)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _recorder(
    request: TrainRequest,
    model: Any,
    texts: list[str],
    files: list[Path],
    database: Any,
    command: str,
    announce: Announce,
) -> Any:
    from focus_runtime.models.loading import fingerprint
    from focus_runtime.run.engine import versions
    from focus_runtime.store.training import TrainingInfo, TrainingRecorder
    from focus_runtime.training.centroids import texts_sha256

    config, chosen = plan(request)
    out = Path(os.path.expanduser(request.out)).resolve()
    info = TrainingInfo(
        name=request.name or out.stem,
        kind="centroids",
        model_id=request.model,
        model_fingerprint=fingerprint(model),
        steps=chosen.steps,
        seed=chosen.seed,
        device=str(next(model.parameters()).device),
        dtype=request.dtype,
        out=str(out),
        config=config.to_dict(),
        settings=asdict(chosen),
        texts=[str(path.resolve()) for path in files],
        text_sha256=texts_sha256(texts),
        versions=versions(),
        command=command,
        folder=os.getcwd(),
    )
    return TrainingRecorder(database, info, resume=request.resume, warn=announce)


def _after_stop(request: TrainRequest, stopped: TrainingStopped, recorder: Any) -> None:
    if not stopped.step:
        request.checkpoint.unlink(missing_ok=True)  # nothing is in it that a fresh start would not make again
    if recorder is not None:
        recorder.finish("stopped", f"stopped after step {stopped.step}")


def _keep(
    request: TrainRequest,
    config: Any,
    chosen: Any,
    model: Any,
    centroids: Any,
    files: list[Path],
    sequences: Any,
    recorder: Any,
    announce: Announce,
) -> dict[str, Any]:
    """Save the result; score held-out text and save the scores with it; then drop the checkpoint."""
    from focus_runtime.routing.centroid_file import save_centroids
    from focus_runtime.training.centroids import validate

    centroids.config = config.replace(window=request.window)
    centroids.training |= {
        "texts": [path.name for path in files],
        "dtype": request.dtype,
        "train_window": config.window,
    }
    out = Path(os.path.expanduser(request.out))
    try:
        digest = save_centroids(centroids, out)
    except InputError as error:
        if not request.checkpoint.exists():
            raise
        raise TrainingError(error.problem, fix="free some space, then go on with --resume") from error
    message = ""
    if sequences is not None:
        tops = tuple(range(1, min(2, request.groups) + 1))
        try:
            with stage_bar() as progress:
                progress("Scoring held-out text", 0.0)
                centroids.training["validation"] = validate(model, centroids, sequences, top_ks=tops)
            digest = save_centroids(centroids, out)
        except KeyboardInterrupt:
            message = "stopped before the held-out text was scored; the trained file is whole"
            announce(message)
    request.checkpoint.unlink(missing_ok=True)
    if recorder is not None:
        recorder.finish(
            "done",
            message,
            centroids_sha256=digest,
            validation=centroids.training.get("validation"),
        )
    return {"out": request.out, "sha256": digest, "training": centroids.training}


def _held_out(tokenizer: Any, texts: list[str], request: TrainRequest) -> Any:
    from focus_runtime.text.sequences import encode_texts, even_sequences

    ids = encode_texts(tokenizer, texts, request.seq_len)
    return even_sequences(ids, request.val_sequences, request.seq_len)


def _check_writable(out: Path) -> None:
    """Know before the training, not after it, that the result can be kept."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}", fix="choose a writable folder for --out") from error
    if out.is_dir():
        raise InputError(f"cannot write {out}: it is a folder", fix="choose a file name for --out")


def _check_checkpoint(request: TrainRequest) -> None:
    exists = request.checkpoint.exists()
    if request.resume and not exists:
        raise TrainingError(
            f"there is no checkpoint {request.checkpoint} to go on from",
            expected="the --out of a training that was stopped",
            fix="start without --resume",
        )
    if exists and not request.resume:
        raise TrainingError(
            f"{request.checkpoint} keeps a training that was stopped",
            fix="add --resume to go on with it, or delete that file to start over",
        )


def _check_database(database: Any) -> None:
    """Learn about a foreign or unwritable file before the model is loaded; one that is only busy may be free later."""
    from focus_runtime.errors import StoreBusyError
    from focus_runtime.store.database import Database

    try:
        with Database(database.path, wait=1.0).write():
            pass
    except StoreBusyError:
        pass


def _check_layers(config: Any, model: Any) -> None:
    from focus_runtime.models.structure import attention_modules

    known = attention_modules(model)
    beyond = [layer for layer in config.layers or () if layer not in known]
    if beyond:
        raise InputError(f"the model has no layer {beyond[0]}", expected=f"--layers from 0 to {max(known)}")


def describe(result: dict[str, Any]) -> str:
    """The end of a training in a few lines."""
    training = result["training"]
    lines = [f"wrote {result['out']}  sha256 {result['sha256']}"]
    if training["final_loss"] is not None:
        lines.append(f"final loss {training['final_loss']:.4f} nats per token")
    validation = training.get("validation", {})
    if validation:
        lines.append(
            f"held-out perplexity, full attention: {validation['full']:.3f} ({validation['scored_tokens']:,} tokens)"
        )
    for name, row in validation.items():
        if name.startswith("k="):
            lines.append(
                f"held-out perplexity, Focus {name}: {row['perplexity']:.3f}, largest group {row['dominance']:.1%}, "
                f"pairs kept {row['retained_pairs']:.1%}, distant pairs kept {row['distant_kept']:.1%}"
            )
    return "\n".join(lines)
