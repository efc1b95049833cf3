"""One training from text files to a validated result, recorded for the page to watch: a centroid file, or the folder
of a model whose weights were trained too.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focus_explorer import settings
from focus_explorer.errors import InputError, TrainingError, TrainingStopped
from focus_explorer.progress import Bar, bars_hidden, no_bar, stage_bar, step_bar
from focus_explorer.usecases.centroids.files import load_named_centroids
from focus_explorer.usecases.training.request import TrainingPlan, TrainRequest, plan_training, snapshot_of
from focus_explorer.usecases.training.session import check_database, claimed, stop_on_signal, training_device
from focus_explorer.usecases.training.texts import (
    DomainTexts,
    describe_evaluation,
    describe_scores,
    gather_domains,
    held_out_sequences,
    score,
    trained_on,
)
from focus_explorer.usecases.training.trackers import TrainingTrackers, check_targets, trackers_state
from focus_explorer.usecases.users import new_owner
from focus_runtime.failures import SEQUENCES
from focus_runtime.files import cannot_write, replacing
from focus_runtime.text.special import training_note

if TYPE_CHECKING:
    from focus_runtime.fit.inputs import ModelHashes
    from focus_runtime.fit.settings import TrainStep
    from focus_runtime.fit.validation import Evaluation
    from focus_runtime.routing.centroids import Centroids
    from focus_runtime.store.training import TrainingInfo

Announce = Callable[[str], None]
MODEL_CENTROIDS = "centroids.safetensors"  # in the folder of a trained model
RESUME = "free some space and run the command again with --resume"
_LAYOUT = "{desc} {percentage:3.0f}% |{bar:20}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]{postfix}"
TERMINAL_BAR: Bar = partial(step_bar, layout=_LAYOUT)


@dataclass(frozen=True, slots=True)
class _Training:
    """A training once its model and texts are loaded; `held_out` are (N, T) token ids by domain."""

    plan: TrainingPlan
    model: Any
    tokenizer: Any
    domains: list[DomainTexts]
    held_out: dict[str, Any]
    initial: Centroids | None  # centroids to start from. None: random ones
    hashes: ModelHashes | None  # of the model before training. None: the weights are trained, which hashes them itself

    @property
    def request(self) -> TrainRequest:
        return self.plan.request


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
        database: a `Database` that records the curve of a training of centroids. None: nothing is recorded.
        command: command line with which it can be started again.
        bar: opens a progress display for a number of steps; it takes the steps done and a line of numbers.

    Returns:
        Of centroids: out, sha256, training, has_budget. Of weights: out, and what `training.json` in the folder holds.
        Empty in a process that only helps the first one.

    Raises:
        InputError: anything a user can put right; an older result is left as it was.
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
            run, keep = (_train_weights, _keep_model) if request.trains_weights else (_train_centroids, _keep_file)
            try:
                result = run(training, recorders, bar if first else no_bar, announce)
            except TrainingStopped as stopped:
                if not stopped.step and not request.trains_weights:
                    request.checkpoint.unlink(missing_ok=True)  # a checkpoint without a finished step saves nothing
                raise
            kept = keep(training, result, recorders, announce) if first else {}
        if first:  # its end is stored: killed before this, it can be continued, which saves the result again
            if request.trains_weights:
                shutil.rmtree(request.checkpoint, ignore_errors=True)
            else:
                request.checkpoint.unlink(missing_ok=True)
        return kept


def _load(request: TrainRequest, database: Any, held: ExitStack) -> _Training:
    """Check everything that can be checked before the first step, and load model and texts; `held` holds the lock."""
    from focus_runtime.fit.inputs import ModelHashes
    from focus_runtime.models.devices import native_dtype
    from focus_runtime.models.loading import load_model
    from focus_runtime.models.structure import attention_modules

    initial = None if request.init is None else _initial(request.init, database)
    plan = plan_training(request, initial)
    domains, held_out = gather_domains(plan.domains, plan.held_out), gather_domains(plan.held_out)
    held.enter_context(claimed(request))
    check_targets(plan.log_to)
    if database is not None:
        check_database(database)
    device = training_device(request.device)
    dtype = native_dtype(device) if request.dtype == "auto" else request.dtype
    model, tokenizer = load_model(request.model, dtype=dtype, device=device, cache_dir=settings.cache_dir())
    layers = attention_modules(model)
    missing = [layer for layer in plan.config.layers or () if layer not in layers]
    if missing:
        raise InputError(f"the model has no layer {missing[0]}", expected=f"--layers from 0 to {max(layers)}")
    sequences = held_out_sequences(  # too short a text is known now
        tokenizer, held_out, count=request.val_sequences, length=request.seq_len, special_tokens=request.special_tokens
    )
    hashes = None if request.trains_weights else ModelHashes.of(model)
    return _Training(plan, model, tokenizer, domains, sequences, initial, hashes)


def _initial(name: str, database: Any) -> Centroids:
    from focus_runtime.routing.centroid_file import load_centroids

    if database is None:
        return load_centroids(os.path.expanduser(name))
    centroids = load_named_centroids(database, name)
    if centroids is None:
        raise InputError("--init is random", expected="trained centroids", fix="leave it out: random is the default")
    return centroids


def _recorders(training: _Training, database: Any, command: str, announce: Announce) -> list[Any]:
    """What records the curve: the database, and the programs of `--log-to`."""
    from focus_runtime.store.training import TrainingRecorder

    plan, request = training.plan, training.request
    recorders: list[Any] = []
    to_database = database is not None and not request.trains_weights
    if not to_database and not plan.log_to:
        return recorders
    info = _info(training, command)
    shared: dict[str, Any] = {"resume": request.resume, "warn": announce}
    if to_database:
        recorders.append(TrainingRecorder(database, info, **shared))
    if plan.log_to:
        phases = None
        if request.trains_weights:
            phases = {"centroids": 0} if request.trains_centroids_first else {}
            phases["weights"] = plan.first_steps
        values = asdict(info) | {"recipe": request.recipe}
        del values["owner"]
        state = trackers_state(request.result.resolve())
        recorders.append(TrainingTrackers(plan.log_to, info.name, values, state=state, phases=phases, **shared))
    return recorders


def _info(training: _Training, command: str) -> TrainingInfo:
    from focus_runtime.fit.inputs import texts_sha256
    from focus_runtime.models.devices import dtype_name, input_device
    from focus_runtime.models.loading import fingerprint
    from focus_runtime.run.text import versions
    from focus_runtime.store.training import TrainingInfo

    plan, request, out = training.plan, training.request, training.request.result.resolve()
    values: dict[str, Any] = {
        "name": request.name or out.stem,
        "kind": "centroids",
        "config": plan.config.to_dict(),
        "settings": asdict(plan.settings)
        | {"train_window": plan.config.window, "result_window": plan.result_config.window},
    }
    if plan.regime is not None:
        values = {
            "name": out.name,
            "kind": request.regime + (" twin" if request.twin else ""),
            "config": {} if request.twin else plan.config.to_dict(),
            "settings": asdict(plan.regime),
        }
    files = {domain.name: [str(path.resolve()) for path in domain.files] for domain in training.domains}
    return TrainingInfo(
        model_id=request.model,
        model_fingerprint=training.hashes.fingerprint if training.hashes else fingerprint(training.model),
        steps=plan.first_steps + plan.settings.steps,
        seed=plan.settings.seed,
        out=str(out),
        device=str(input_device(training.model)),
        dtype=dtype_name(training.model),
        texts=[path for paths in files.values() for path in paths],
        domains={d.name: {"weight": d.weight, "texts": files[d.name]} for d in training.domains if d.name},
        text_sha256=texts_sha256([text for domain in training.domains for text in domain.texts]),
        versions=versions(),
        command=command,
        folder=os.getcwd(),
        owner=new_owner(),
        **values,
    )


def describe_step(step: TrainStep) -> str:
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


def _train_centroids(training: _Training, recorders: Sequence[Any], bar: Bar, announce: Announce) -> Centroids:
    """Train the centroids; every step goes to the recorders and the bar, every evaluation is announced."""
    from accelerate import PartialState

    from focus_runtime.fit.centroids import train_centroids
    from focus_runtime.fit.validation import ValidationPlan
    from focus_runtime.routing.centroid_file import save_centroids

    plan, request, first = training.plan, training.request, PartialState().is_main_process
    validation = None
    if plan.val_every:
        validation = ValidationPlan(sequences=training.held_out, every=plan.val_every, patience=request.patience)

    def save_snapshot(step: int, centroids: Centroids) -> None:
        save_centroids(replace(centroids, config=plan.result_config), snapshot_of(request.out, step))

    with bar(plan.settings.steps) as show, stop_on_signal() as stopped:

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

        return train_centroids(
            training.model,
            training.tokenizer,
            trained_on(training.domains),
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


def _train_weights(training: _Training, recorders: Sequence[Any], bar: Bar, announce: Announce) -> Any:
    from focus_runtime.fit.regimes import run_regime
    from focus_runtime.measure.memory import within_memory

    plan, request = training.plan, training.request
    assert plan.regime is not None
    with bar(plan.first_steps + request.steps) as show, stop_on_signal() as stopped:

        def report(step: TrainStep) -> None:
            for recorder in recorders:
                recorder.step(step)
            before = plan.first_steps if step.phase == "weights" else 0
            show(before + step.step, f"{step.phase}: {describe_step(step)}")

        with within_memory(training.model, SEQUENCES):  # the steps themselves know more
            return run_regime(
                plan.regime,
                training.model,
                training.tokenizer,
                [text for domain in training.domains for text in domain.texts],
                plan.config,
                twin=request.twin,
                model_id=request.model,
                on_step=report,
                checkpoint=request.checkpoint,
                resume=request.resume,
                should_stop=stopped.is_set,
            )


def _keep_file(
    training: _Training, centroids: Centroids, recorders: Sequence[Any], announce: Announce
) -> dict[str, Any]:
    """Save the result; score held-out text and save the scores with it; note how it ended."""
    from focus_runtime.measure.memory import within_memory
    from focus_runtime.models.devices import dtype_name
    from focus_runtime.routing.centroid_file import save_centroids

    plan, request = training.plan, training.request
    centroids.config = plan.result_config
    centroids.training |= {
        "texts": [path.name for domain in training.domains for path in domain.files],
        "dtype": dtype_name(training.model),
        "train_window": plan.config.window,
    }
    try:
        digest = save_centroids(centroids, request.result)
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
            digest = save_centroids(centroids, request.result)
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


def _keep_model(training: _Training, result: Any, recorders: Sequence[Any], announce: Announce) -> dict[str, Any]:
    from focus_runtime.measure.memory import within_memory

    plan, request = training.plan, training.request
    assert plan.regime is not None
    summary: dict[str, Any] = {
        "regime": request.regime,
        "attention": "full" if request.twin else "focus",
        "plan": asdict(plan.regime),
        "config": plan.config.to_dict(),
        "seconds": _rounded(result.seconds),
        "phase_seconds": {name: _rounded(seconds) for name, seconds in result.phase_seconds.items()},
        "weights_before": result.weights_before,
        "weights_after": result.weights_after,
        "final_loss": {name: steps[-1].loss for name, steps in result.phases.items() if steps},
    }
    summary |= _save_model(request.result, result, training.tokenizer)
    if training.held_out:
        with within_memory(result.model, SEQUENCES):
            summary["held_out"] = _model_scores(request, result, training.held_out)
    with replacing(request.result / "training.json", explain=cannot_write(RESUME, TrainingError)) as part:
        part.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    hashes = {name: summary.get(name, "") for name in ("centroids_sha256", "weights_after")}
    for recorder in recorders:
        recorder.finish("done", validation=summary.get("held_out"), **hashes)
    return {"out": str(request.result), **summary}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def _save_model(out: Path, result: Any, tokenizer: Any) -> dict[str, Any]:
    from safetensors import SafetensorError

    from focus_runtime.routing.centroid_file import save_centroids

    try:
        result.model.save_pretrained(out)
        tokenizer.save_pretrained(out)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise TrainingError(f"the model cannot be written to {out}: {error}", fix=RESUME) from error
    if result.centroids is None:
        return {}
    result.centroids.base_model = out.name
    return {"centroids_sha256": save_centroids(result.centroids, out / MODEL_CENTROIDS)}


def _model_scores(request: TrainRequest, result: Any, held_out: dict[str, Any]) -> dict[str, Any]:
    """Held-out perplexity of the trained model with full attention and, unless it is a twin, with Focus."""
    import torch

    from focus_runtime.measure.perplexity import score as score_model

    sequences = torch.cat([*held_out.values()])
    full = score_model(result.model, sequences)
    scores = {"full attention": full.perplexity, "tokens": int(full.scored.sum())}
    if result.centroids is not None:
        focus = result.score(sequences, top_k=request.top_k)
        scores |= {
            f"Focus, k = {request.top_k}": focus.perplexity,
            "pairs kept": float(focus.retained_pairs.mean()),
            "largest group": float(focus.dominance.mean()),
        }
    return scores


def describe(result: dict[str, Any]) -> str:
    if "regime" in result:
        lines = [f"wrote {result['out']} ({result['attention']} attention, {result['regime']})"]
        lines.append(f"trained for {_time(result['seconds'], result['phase_seconds'])}")
        for name, value in result.get("held_out", {}).items():
            lines.append(
                f"held-out {name}: {value:,.3f}" if isinstance(value, float) else f"held-out {name}: {value:,}"
            )
        return "\n".join(lines)
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


def _time(total: float | None, phases: dict[str, float]) -> str:
    """How long all phases trained together, and each of several."""
    if total is None:
        return "a time that is not known: an older version began it"
    each = ", ".join(f"{name} {seconds:,.0f} s" for name, seconds in phases.items()) if len(phases) > 1 else ""
    return f"{total:,.0f} s in all, without pauses" + (f" ({each})" if each else "")
