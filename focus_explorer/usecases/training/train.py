"""One training from text files to a validated centroid file, recorded for the page to watch."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from focus_explorer import settings
from focus_explorer.errors import InputError, TrainingError, TrainingStopped
from focus_explorer.progress import Bar, bars_hidden, no_bar, stage_bar, step_bar
from focus_explorer.usecases.centroids.files import load_named_centroids
from focus_explorer.usecases.training.device import training_device
from focus_explorer.usecases.training.domains import DomainTexts, gather_domains
from focus_explorer.usecases.training.held_out import describe_evaluation, describe_scores, held_out_sequences, score
from focus_explorer.usecases.training.one_writer import one_writer
from focus_explorer.usecases.training.plan import TrainingPlan, plan_training
from focus_explorer.usecases.training.record import training_info, training_trackers
from focus_explorer.usecases.training.request import TrainRequest, snapshot_of
from focus_explorer.usecases.training.stop import stop_on_signal
from focus_explorer.usecases.training.trackers.target import check_targets
from focus_runtime.failures import SEQUENCES
from focus_runtime.files import cannot_write, check_writable
from focus_runtime.text.special import training_note

Announce = Callable[[str], None]
_LAYOUT = "{desc} {percentage:3.0f}% |{bar:20}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]{postfix}"
TERMINAL_BAR: Bar = partial(step_bar, layout=_LAYOUT)


@dataclass(frozen=True, slots=True)
class _Training:
    """A training once its model and texts are loaded.

    Attributes:
        domains: the texts that are trained on; one domain without a name where the user named none.
        held_out: (N, T) token ids that are scored, by domain; empty for none.
        hashes: of the model before training.
        initial: `Centroids` to start from; None for random ones.
    """

    plan: TrainingPlan
    model: Any
    tokenizer: Any
    domains: list[DomainTexts]
    held_out: dict[str, Any]
    hashes: Any
    initial: Any = None

    @property
    def request(self) -> TrainRequest:
        """The user's request."""
        return self.plan.request

    @property
    def texts(self) -> list[str]:
        """The texts of all domains, in order."""
        return [text for domain in self.domains for text in domain.texts]

    @property
    def files(self) -> list[Path]:
        """Where the texts are from."""
        return [path for domain in self.domains for path in domain.files]

    @property
    def named(self) -> list[DomainTexts]:
        """The domains, where they have names."""
        return [domain for domain in self.domains if domain.name]

    @property
    def out(self) -> Path:
        """The centroid file to write."""
        return Path(os.path.expanduser(self.request.out))


def train(
    request: TrainRequest,
    database: Any = None,
    *,
    command: str = "",
    announce: Announce = lambda message: None,
    bar: Bar = TERMINAL_BAR,
) -> dict[str, Any]:
    """Train, save, and score held-out text under the hard mask if any was given.

    Args:
        request: what to train.
        database: a `Database` that records the curve; None records nothing.
        command: command line with which it can be started again.
        announce: takes remarks while it runs.
        bar: opens a progress display for a number of steps; it takes the steps done and a line of numbers.

    Returns:
        out, sha256, training summary, and has_budget, whether heads have settings of their own; empty in a process
        that only helps the first one.

    Raises:
        InputError: anything a user can put right; an older file at `request.out` is left as it was.
        TrainingStopped: stopped by a signal; the last finished step is in `request.checkpoint`.
    """
    from accelerate import PartialState

    with ExitStack() as held:
        training = _load(request, database, held)
        first = PartialState().is_main_process
        if first and training.initial is not None:
            note = training_note(training.tokenizer, training.initial.training)
            if note is not None:
                announce(f"{training.initial.name}: {note}")
        with ExitStack() as stack:
            made = _recorders(training, database, command, announce) if first else []
            recorders = [stack.enter_context(recorder) for recorder in made]
            try:
                centroids = _train(training, recorders, bar if first else no_bar, announce, first=first)
            except TrainingStopped as stopped:
                _after_stop(request, stopped, recorders)
                raise
            kept = _keep(training, centroids, recorders, announce) if first else {}
        if first:  # its end is stored: killed before this, it can be continued, which saves the result again
            request.checkpoint.unlink(missing_ok=True)
        return kept


def _load(request: TrainRequest, database: Any, held: ExitStack) -> _Training:
    """Check everything that can be checked before the first step, and load model and texts.

    Args:
        request: what to train.
        database: see `train`.
        held: keeps the result from a second training.
    """
    from focus_runtime.fit.hashes import ModelHashes
    from focus_runtime.models.devices import native_dtype
    from focus_runtime.models.loading import load_model

    initial = None if request.init is None else _initial(request.init, database)
    plan = plan_training(request, initial)
    domains, held_out = gather_domains(plan.domains, plan.held_out), gather_domains(plan.held_out)
    out = Path(os.path.expanduser(request.out))
    _check_result(out)
    held.enter_context(one_writer(out))
    _check_checkpoint(request)
    check_targets(plan.log_to)
    if database is not None:
        _check_database(database)
    device = training_device(request.device)
    dtype = native_dtype(device) if request.dtype == "auto" else request.dtype
    model, tokenizer = load_model(request.model, dtype=dtype, device=device, cache_dir=settings.cache_dir())
    _check_layers(plan, model)
    sequences = held_out_sequences(tokenizer, held_out, request)  # too short a text is known now
    return _Training(plan, model, tokenizer, domains, sequences, ModelHashes.of(model), initial)


def _initial(name: str, database: Any) -> Any:
    """The centroids to start from."""
    from focus_runtime.routing.centroid_file import load_centroids

    if database is None:
        return load_centroids(os.path.expanduser(name))
    centroids = load_named_centroids(database, name)
    if centroids is None:
        raise InputError("--init is random", expected="trained centroids", fix="leave it out: random is the default")
    return centroids


def _train(training: _Training, recorders: Sequence[Any], bar: Bar, announce: Announce, *, first: bool) -> Any:
    """Train the centroids; every step goes to the recorders and the bar, every evaluation is announced.

    Args:
        training: what to train.
        recorders: of the curve.
        bar: of the steps.
        announce: takes a line for every evaluation.
        first: whether this is the first process, which keeps snapshots and announces.
    """
    from focus_runtime.fit.centroids import train_centroids
    from focus_runtime.fit.domains import TextDomain
    from focus_runtime.fit.settings import TrainStep
    from focus_runtime.fit.validation import Evaluation, ValidationPlan
    from focus_runtime.routing.centroid_file import save_centroids
    from focus_runtime.routing.centroids import Centroids

    plan, request = training.plan, training.request
    validation = None
    if plan.val_every:
        validation = ValidationPlan(sequences=training.held_out, every=plan.val_every, patience=request.patience)

    def save_snapshot(step: int, centroids: Centroids) -> None:
        save_centroids(replace(centroids, config=plan.result_config), snapshot_of(request.out, step))

    with bar(plan.settings.steps) as show:

        def report(step: TrainStep) -> None:
            for recorder in recorders:
                recorder.step(step)
            show(step.step, describe_step(step))

        def report_evaluation(evaluation: Evaluation) -> None:
            for recorder in recorders:
                recorder.evaluation(evaluation)
            if first:
                with bars_hidden():
                    announce(describe_evaluation(evaluation))

        with stop_on_signal() as stopped:
            return train_centroids(
                training.model,
                training.tokenizer,
                [TextDomain(d.name, d.texts, d.weight) for d in training.named] or training.texts,
                plan.config,
                plan.settings,
                inference=plan.result_config,
                initial=training.initial,
                validation=validation,
                model_id=request.model,
                on_step=report,
                on_evaluation=report_evaluation,
                checkpoint=request.checkpoint,
                resume=request.resume,
                should_stop=stopped.is_set,
                on_snapshot=save_snapshot if first else None,
                snapshot_every=request.snapshots,
                hashes=training.hashes,
            )


def describe_step(step: Any) -> str:
    """The numbers of a step, for a progress bar."""
    parts = {
        f"loss {step.loss:.3f}, perplexity {step.perplexity:.2f}, ": step.loss,
        f"divergence {step.divergence:.4f}, ": step.divergence,
        f"layer error {step.layer_error:.4f}, ": step.layer_error,
    }
    measured = "".join(words for words, value in parts.items() if not math.isnan(value))
    return (
        f"{measured}largest group {step.dominance:.1%}, "
        f"pairs kept {step.retained_pairs:.1%}, {step.tokens_per_second:,.0f} tokens/s"
    )


def _recorders(training: _Training, database: Any, command: str, announce: Announce) -> list[Any]:
    """What records the curve: the database, and the programs of `--log-to`."""
    from focus_runtime.store.training import TrainingRecorder

    plan, request, out = training.plan, training.request, training.out.resolve()
    info = training_info(
        training.model,
        training.domains,
        name=request.name or out.stem,
        kind="centroids",
        model_id=request.model,
        model_fingerprint=training.hashes.fingerprint,
        steps=plan.settings.steps,
        seed=plan.settings.seed,
        out=str(out),
        config=plan.config.to_dict(),
        settings=asdict(plan.settings)
        | {"train_window": plan.config.window, "result_window": plan.result_config.window},
        command=command,
    )
    shared: dict[str, Any] = {"resume": request.resume, "warn": announce}
    recorders: list[Any] = []
    if database is not None:
        recorders.append(TrainingRecorder(database, info, **shared))
    if plan.log_to:
        recorders.append(training_trackers(plan.log_to, info, request.recipe, out=out, **shared))
    return recorders


def _after_stop(request: TrainRequest, stopped: TrainingStopped, recorders: Sequence[Any]) -> None:
    if not stopped.step:
        request.checkpoint.unlink(missing_ok=True)  # a checkpoint without a finished step saves nothing
    for recorder in recorders:
        recorder.finish("stopped", f"stopped after step {stopped.step}")


def _keep(training: _Training, centroids: Any, recorders: Sequence[Any], announce: Announce) -> dict[str, Any]:
    """Save the result; score held-out text and save the scores with it; note how it ended."""
    from focus_runtime.measure.memory import within_memory
    from focus_runtime.models.devices import dtype_name
    from focus_runtime.routing.centroid_file import save_centroids

    plan, request = training.plan, training.request
    centroids.config = plan.result_config
    centroids.training |= {
        "texts": [path.name for path in training.files],
        "dtype": dtype_name(training.model),
        "train_window": plan.config.window,
    }
    try:
        digest = save_centroids(centroids, training.out)
    except InputError as error:
        if not request.checkpoint.exists():
            raise
        raise TrainingError(error.problem, fix="free some space, then continue with --resume") from error
    message = ""
    if training.held_out:
        try:
            with stage_bar() as progress:
                progress("Scoring held-out text", 0.0)
                with within_memory(training.model, SEQUENCES):
                    scores = score(training.model, centroids, training.held_out)
                centroids.training["validation"] = scores
            digest = save_centroids(centroids, training.out)
        except KeyboardInterrupt:
            message = "stopped before the held-out text was scored; the trained file is whole"
            announce(message)
    for recorder in recorders:
        recorder.finish(
            "done",
            message,
            centroids_sha256=digest,
            validation=centroids.training.get("validation"),
            stop_reason=centroids.training["stopped"],
        )
    return {
        "out": request.out,
        "sha256": digest,
        "training": centroids.training,
        "has_budget": bool(plan.result_config.budget),
    }


def _check_result(out: Path) -> None:
    """Check before the training that the result can be written."""
    if out.is_dir():
        raise InputError(f"cannot write {out}: it is a folder", fix="choose a file name for --out")
    check_writable(out, explain=cannot_write("choose a writable folder for --out"))


def _check_checkpoint(request: TrainRequest) -> None:
    exists = request.checkpoint.exists()
    if request.resume and not exists:
        raise TrainingError(
            f"there is no checkpoint {request.checkpoint} to continue from",
            expected="the --out of a training that was stopped",
            fix="start without --resume",
        )
    if exists and not request.resume:
        raise TrainingError(
            f"{request.checkpoint} keeps a training that was stopped",
            fix="add --resume to continue it, or delete that file to start over",
        )


def _check_database(database: Any) -> None:
    """Refuse a foreign or unwritable file before the model is loaded; one that is only busy may be free later."""
    from focus_runtime.errors import StoreBusyError
    from focus_runtime.store.database import Database

    try:
        with Database(database.path, wait=1.0).write():
            pass
    except StoreBusyError:
        pass


def _check_layers(plan: TrainingPlan, model: Any) -> None:
    from focus_runtime.models.structure import attention_modules

    layers = attention_modules(model)
    missing = [layer for layer in plan.config.layers or () if layer not in layers]
    if missing:
        raise InputError(f"the model has no layer {missing[0]}", expected=f"--layers from 0 to {max(layers)}")


def describe(result: dict[str, Any]) -> str:
    """The end of a training in a few lines."""
    training = result["training"]
    lines = [f"wrote {result['out']}  sha256 {result['sha256']}"]
    if training.get("final_loss") is not None:
        lines.append(f"final loss {training['final_loss']:.4f} nats per token")
    if training.get("final_layer_error") is not None:
        lines.append(f"final layer error {training['final_layer_error']:.4f}")
    if training["steps"] != training["planned_steps"]:
        lines.append(f"the centroids of step {training['steps']:,} were kept: {training['stopped']}")
    lines += describe_scores(training.get("validation", {}), has_budget=result["has_budget"])
    return "\n".join(lines)
