"""All weights of a model trained with Focus, or its twin with full attention, into a model folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from focus_explorer import settings
from focus_explorer.errors import InputError, TrainingError
from focus_explorer.progress import Bar, no_bar
from focus_explorer.usecases.training import request as training_options
from focus_explorer.usecases.training.device import training_device
from focus_explorer.usecases.training.domains import DomainTexts
from focus_explorer.usecases.training.one_writer import lock_of, one_writer
from focus_explorer.usecases.training.record import training_info, training_trackers
from focus_explorer.usecases.training.stop import stop_on_signal
from focus_explorer.usecases.training.texts import gather_texts
from focus_explorer.usecases.training.trackers.target import LogTarget, check_targets, parse_targets
from focus_explorer.usecases.training.trackers.write import TrainingTrackers
from focus_explorer.usecases.training.train import Announce, describe_step
from focus_runtime.failures import SEQUENCES
from focus_runtime.files import PART, Explain, cannot_write, check_writable_folder, replacing
from focus_runtime.fit.recipes import RECIPES, in_words, recipe_named
from focus_runtime.text.special import DEFAULT

REGIMES = {"two-phase": "two_phase", "from-scratch": "from_scratch"}
CENTROIDS = "centroids.safetensors"
VAL_SEQUENCES = 16
NO_SPACE = cannot_write("free some space and run the command again with --resume", TrainingError)
OURS = RECIPES["ours"]
BY_RECIPE = ("groups", "window", "sinks", "steepness")  # options that recipes decide


def usual(option: str) -> str:
    """The default of an option that recipes decide, in words."""
    return in_words(training_options.OF_RECIPE[option])


def recipe_values(name: str) -> dict[str, Any]:
    """The options that a recipe decides, with its values."""
    values = training_options.recipe_values(name)
    return {option: values[option] for option in BY_RECIPE}


@dataclass(frozen=True, kw_only=True, slots=True)
class FinetuneRequest:
    """What is trained, on what and how; the names are those of the command's options.

    Attributes:
        text, val: text files, or folders of .txt files; `val` is held out and scored at the end.
        out: folder for the model and its centroids.
        regime: a key of `REGIMES`.
        recipe: decides gate, temperature, iterations and assignment.
        twin: full attention instead of Focus, on the same data with the same rates.
        centroid_steps, centroid_lr: of the phase that trains centroids alone; two-phase only.
        router_lr: peak rate of the centroids while weights train.
        device: see `training_device`.
        log_to: programs that log the training, as `--log-to` takes them.
        resume: continue the stopped training with the same `out`.
        special_tokens: "auto" where every sequence begins with what the tokenizer puts before a text, or "none".
    """

    text: tuple[str, ...]
    out: str
    val: tuple[str, ...] = ()
    log_to: tuple[str, ...] = ()
    model: str = settings.SETTINGS["model"].default
    regime: str = "two-phase"
    recipe: str = "ours"
    twin: bool = False
    centroid_steps: int = 300
    steps: int = 300
    seq_len: int = 512
    batch: int = 1
    accumulate: int = 1
    groups: int = OURS.num_groups
    top_k: int = 2
    window: int = OURS.window
    sinks: int = OURS.num_sinks
    steepness: float = OURS.steepness
    seed: int = 0
    checkpoint_every: int = 50
    lr: float = 2e-5
    centroid_lr: float = 3e-3
    router_lr: float = 3e-4
    device: str = "auto"
    precision: str = "no"
    gradient_checkpointing: bool = False
    resume: bool = False
    special_tokens: str = DEFAULT

    @property
    def folder(self) -> Path:
        """The folder to write to."""
        return Path(os.path.expanduser(self.out))

    @property
    def checkpoint(self) -> Path:
        """Where an unfinished training is kept."""
        return self.folder / "checkpoint"

    @property
    def can_resume(self) -> bool:
        """Whether a checkpoint is kept; one that a kill or a full disk left half-written is none."""
        return any(not path.name.startswith(PART) for path in self.checkpoint.glob("*.ckpt"))

    @property
    def trains_centroids_first(self) -> bool:
        """Whether a phase trains the centroids alone."""
        return self.regime == "two-phase" and not self.twin


def finetune(
    request: FinetuneRequest,
    *,
    bar: Bar = no_bar,
    command: str = "",
    announce: Announce = lambda message: None,
) -> dict[str, Any]:
    """Train, save the model folder and its centroids, and score held-out text if any was given.

    Args:
        request: what to train.
        bar: opens a progress display for a number of steps; it takes the steps done and a line of numbers.
        command: command line with which it can be started again.
        announce: takes remarks while it runs.

    Returns:
        What `training.json` in the folder holds, and `out`. `seconds` is how long all phases trained together, parts
        before a resume included and pauses left out; None where an older version began the training. Empty in a process
        that only helps the first one.

    Raises:
        InputError: anything a user can put right. TrainingStopped: stopped; the last step is kept under `out`.
    """
    from accelerate import PartialState

    from focus_runtime.measure.memory import within_memory
    from focus_runtime.models.loading import load_model
    from focus_runtime.text.sequences import encode_texts, even_sequences

    plan, config = _plan(request)
    log_to = parse_targets(request.log_to)
    domain = DomainTexts("", *gather_texts(request.text, request.val))
    held_out = gather_texts(request.val)[0] if request.val else []
    with _own_folder(request):
        first = PartialState().is_main_process
        check_targets(log_to)
        model, tokenizer = load_model(
            request.model, device=training_device(request.device), cache_dir=settings.cache_dir()
        )
        sequences = None
        if held_out:
            ids = encode_texts(tokenizer, held_out, request.seq_len, request.special_tokens)
            sequences = even_sequences(ids, VAL_SEQUENCES, request.seq_len)
        inputs = (model, tokenizer, domain.texts)
        with _logged(request, log_to, (plan, config, model, domain, command), announce) as trackers:
            with within_memory(model, SEQUENCES):  # the steps themselves know more
                result = _train(request, plan, config, inputs, bar if first else no_bar, trackers)
            if not first:
                return {}
            summary: dict[str, Any] = {
                "regime": request.regime,
                "attention": "full" if request.twin else "focus",
                "plan": asdict(plan),
                "config": config.to_dict(),
                "seconds": _rounded(result.seconds),
                "phase_seconds": {name: _rounded(seconds) for name, seconds in result.phase_seconds.items()},
                "weights_before": result.weights_before,
                "weights_after": result.weights_after,
                "final_loss": {name: steps[-1].loss for name, steps in result.phases.items() if steps},
            }
            summary |= _save(request, result, tokenizer)
            if sequences is not None:
                with within_memory(result.model, SEQUENCES):
                    summary["held_out"] = _scores(request, result, sequences)
            with replacing(request.folder / "training.json", explain=NO_SPACE) as part:
                part.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
            shutil.rmtree(request.checkpoint, ignore_errors=True)
            if trackers is not None:
                hashes = {name: summary.get(name, "") for name in ("centroids_sha256", "weights_after")}
                trackers.finish("done", validation=summary.get("held_out"), **hashes)
    return {"out": str(request.folder), **summary}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


@contextmanager
def _logged(
    request: FinetuneRequest, log_to: Sequence[LogTarget], start: tuple[Any, ...], announce: Announce
) -> Iterator[TrainingTrackers | None]:
    """The programs of `--log-to`; None for none, and in a process that only helps the first one.

    Args:
        request: what is trained.
        log_to: programs.
        start: plan, configuration, model, texts and command line.
        announce: takes what fails.
    """
    from accelerate import PartialState

    from focus_runtime.models.loading import fingerprint

    if not log_to or not PartialState().is_main_process:
        yield None
        return
    plan, config, model, domain, command = start
    phases = {"centroids": 0} if request.trains_centroids_first else {}
    phases["weights"] = request.centroid_steps if request.trains_centroids_first else 0
    info = training_info(
        model,
        [domain],
        name=request.folder.name,
        kind=request.regime + (" twin" if request.twin else ""),
        model_id=request.model,
        model_fingerprint=fingerprint(model),
        steps=phases["weights"] + request.steps,
        seed=request.seed,
        out=str(request.folder.resolve()),
        config={} if request.twin else config.to_dict(),
        settings=asdict(plan),
        command=command,
    )
    with training_trackers(
        log_to,
        info,
        request.recipe,
        out=request.folder.resolve(),
        resume=request.resume,
        warn=announce,
        phases=phases,
    ) as trackers:
        yield trackers


def _plan(request: FinetuneRequest) -> tuple[Any, Any]:
    """The RegimePlan and the FocusConfig."""
    from focus_runtime.fit.regimes import RegimePlan
    from focus_runtime.fit.settings import TrainConfig

    def phase(steps: int, rate: float) -> TrainConfig:
        return TrainConfig(
            steps=steps,
            seq_len=request.seq_len,
            batch=request.batch,
            accumulation=request.accumulate,
            learning_rate=rate,
            steepness=request.steepness,
            seed=request.seed,
            special_tokens=request.special_tokens,
            warmup=min(20, max(0, steps) // 5),
            mixed_precision=request.precision,
            gradient_checkpointing=request.gradient_checkpointing,
            checkpoint_every=request.checkpoint_every,
        )

    config = recipe_named(request.recipe).config(
        num_groups=request.groups, top_k=request.top_k, window=request.window, num_sinks=request.sinks
    )
    plan = RegimePlan(
        regime=REGIMES[request.regime],
        centroids=phase(request.centroid_steps, request.centroid_lr) if request.regime == "two-phase" else None,
        weights=phase(request.steps, request.lr),
        router_rate=request.router_lr,
    )
    return plan, config


@contextmanager
def _own_folder(request: FinetuneRequest) -> Iterator[None]:
    """Make the folder, check it, and keep it from a second training while the block runs."""
    explain = cannot_write("choose a writable --out folder", problem="cannot write to")
    check_writable_folder(request.folder, explain=explain)
    with one_writer(request.folder):
        _check_folder(request, explain)
        yield


def _check_folder(request: FinetuneRequest, explain: Explain) -> None:
    """Refuse a folder that is neither new, nor empty, nor that of the training to resume."""
    out, kept = request.folder, request.checkpoint
    try:
        others = [path for path in out.iterdir() if path not in (kept, lock_of(out))]
    except OSError as error:
        raise explain(out, error) from error
    if others and not (request.resume and request.can_resume):
        raise InputError(f"the folder {out} is not empty", expected="a new folder", fix="choose another --out")
    if request.can_resume and not request.resume:
        raise InputError(
            f"{kept} keeps a training that was stopped", fix="add --resume to continue, or delete it to start over"
        )
    if request.resume and not request.can_resume:
        raise InputError(f"there is nothing in {out} to continue from", fix="start without --resume")


def _train(
    request: FinetuneRequest,
    plan: Any,
    config: Any,
    inputs: tuple[Any, Any, list[str]],
    bar: Bar,
    trackers: TrainingTrackers | None,
) -> Any:
    """Run the regime until it is done or a signal stops it.

    Args:
        request, plan, config: what is trained and how.
        inputs: model, tokenizer and texts.
        bar: of the steps.
        trackers: log every step; None for none.
    """
    from focus_runtime.fit.regimes import run_regime

    first = plan.centroids.steps if request.trains_centroids_first else 0
    with bar(first + plan.weights.steps) as show, stop_on_signal() as stopped:

        def report(step: Any) -> None:
            before = first if step.phase == "weights" else 0
            if trackers is not None:
                trackers.step(step)
            show(before + step.step, f"{step.phase}: {describe_step(step)}")

        return run_regime(
            plan,
            *inputs,
            config,
            twin=request.twin,
            model_id=request.model,
            on_step=report,
            checkpoint=request.checkpoint,
            resume=request.resume,
            should_stop=stopped.is_set,
        )


def _save(request: FinetuneRequest, result: Any, tokenizer: Any) -> dict[str, Any]:
    """Write model, tokenizer and centroids; returns the centroids' hash, if there are any."""
    from safetensors import SafetensorError

    from focus_runtime.routing.centroid_file import save_centroids

    out = request.folder
    try:
        result.model.save_pretrained(out)
        tokenizer.save_pretrained(out)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise TrainingError(
            f"the model cannot be written to {out}: {error}",
            fix="free some space and run the command again with --resume",
        ) from error
    if result.centroids is None:
        return {}
    result.centroids.base_model = out.name
    return {"centroids_sha256": save_centroids(result.centroids, out / CENTROIDS)}


def _scores(request: FinetuneRequest, result: Any, sequences: Any) -> dict[str, Any]:
    """Held-out perplexity of the trained model with full attention and, unless it is a twin, with Focus."""
    from focus_runtime.measure.perplexity import score

    full = score(result.model, sequences)
    scores = {"full attention": full.perplexity, "tokens": int(full.scored.sum())}
    if result.centroids is not None:
        focus = result.score(sequences, top_k=request.top_k)
        scores |= {
            f"Focus, k = {request.top_k}": focus.perplexity,
            "pairs kept": float(focus.retained_pairs.mean()),
            "largest group": float(focus.dominance.mean()),
        }
    return scores
