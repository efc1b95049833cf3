"""The finetune command: all weights trained with Focus, or its twin with full attention, into a model folder."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from focus_explorer import settings
from focus_explorer.errors import InputError, TrainingError
from focus_explorer.services.training.train import describe_step, gather_texts, stop_on_signal

REGIMES = {"two-phase": "two_phase", "from-scratch": "from_scratch"}
CENTROIDS = "centroids.safetensors"


def _plan(arguments: argparse.Namespace) -> tuple[Any, Any]:
    from focus_runtime.config import FocusConfig
    from focus_runtime.training.loop import TrainConfig
    from focus_runtime.training.regimes import RegimePlan

    def phase(steps: int, rate: float) -> TrainConfig:
        return TrainConfig(
            steps=steps,
            seq_len=arguments.seq_len,
            batch=arguments.batch,
            accumulation=arguments.accumulate,
            learning_rate=rate,
            seed=arguments.seed,
            warmup=min(20, max(0, steps) // 5),
            mixed_precision=arguments.precision,
            gradient_checkpointing=arguments.gradient_checkpointing,
            checkpoint_every=arguments.checkpoint_every,
        )

    config = FocusConfig(
        num_groups=arguments.groups, top_k=arguments.top_k, window=arguments.window, num_sinks=arguments.sinks
    )
    two = arguments.regime == "two-phase"
    plan = RegimePlan(
        regime=REGIMES[arguments.regime],
        centroids=phase(arguments.centroid_steps, arguments.centroid_lr) if two else None,
        weights=phase(arguments.steps, arguments.lr),
        router_rate=arguments.router_lr,
    )
    return plan, config


def _check_out(arguments: argparse.Namespace) -> Path:
    """The folder to write to: new, empty, or that of the training to go on with."""
    out = Path(os.path.expanduser(arguments.out))
    kept = out / "checkpoint"
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / ".writable").touch()
        (out / ".writable").unlink()
        others = [path for path in out.iterdir() if path != kept]
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}", fix="choose a writable --out folder") from error
    if others and not (arguments.resume and kept.exists()):
        raise InputError(f"the folder {out} is not empty", expected="a new folder", fix="choose another --out")
    if kept.exists() and not arguments.resume:
        raise InputError(
            f"{kept} keeps a training that was stopped", fix="add --resume to go on, or delete it to start over"
        )
    if arguments.resume and not kept.exists():
        raise InputError(f"there is nothing in {out} to go on from", fix="start without --resume")
    return out


def finetune(arguments: argparse.Namespace) -> dict[str, Any]:
    """Train, save the model folder and its centroids, and score held-out text if any was given.

    Raises:
        InputError: anything a user can put right. TrainingStopped: stopped; the last step is kept under --out.
    """
    from accelerate import PartialState
    from safetensors import SafetensorError
    from tqdm import tqdm

    from focus_runtime.measure.scores import score
    from focus_runtime.models.loading import load_model
    from focus_runtime.routing.centroid_file import save_centroids
    from focus_runtime.text.sequences import encode_texts, even_sequences
    from focus_runtime.training.regimes import run_regime

    plan, config = _plan(arguments)
    texts, _ = gather_texts(arguments.text, arguments.val)
    held_out = gather_texts(arguments.val, [])[0] if arguments.val else []
    out = _check_out(arguments)
    device = str(PartialState().device)
    model, tokenizer = load_model(arguments.model, device=device, cache_dir=settings.cache_dir())
    sequences = None
    if held_out:
        sequences = even_sequences(encode_texts(tokenizer, held_out, arguments.seq_len), 16, arguments.seq_len)
    total = plan.weights.steps + (plan.centroids.steps if plan.centroids is not None and not arguments.twin else 0)
    done = {"centroids": 0, "weights": 0}
    with tqdm(total=total, file=sys.stderr, desc="Training", disable=None) as bar, stop_on_signal() as asked:

        def report(step: Any) -> None:
            done[step.phase or "weights"] = step.step
            bar.update(sum(done.values()) - bar.n)
            bar.set_postfix_str(f"{step.phase}: {describe_step(step)}")

        result = run_regime(
            plan,
            model,
            tokenizer,
            texts,
            config,
            twin=arguments.twin,
            model_id=arguments.model,
            on_step=report,
            checkpoint=out / "checkpoint",
            resume=arguments.resume,
            should_stop=asked.is_set,
        )
    summary: dict[str, Any] = {
        "regime": arguments.regime,
        "attention": "full" if arguments.twin else "focus",
        "plan": asdict(plan),
        "config": config.to_dict(),
        "seconds": round(result.seconds, 1),
        "weights_before": result.weights_before,
        "weights_after": result.weights_after,
        "final_loss": {name: steps[-1].loss for name, steps in result.phases.items() if steps},
    }
    try:
        result.model.save_pretrained(out)
        tokenizer.save_pretrained(out)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise TrainingError(
            f"the model cannot be written to {out}: {error}",
            fix="free some space and run the command again with --resume",
        ) from error
    if result.centroids is not None:
        result.centroids.base_model = out.name
        summary["centroids_sha256"] = save_centroids(result.centroids, out / CENTROIDS)
    if sequences is not None:
        full = score(result.model, sequences)
        summary["held_out"] = {"full attention": full.perplexity, "tokens": int(full.scored.sum())}
        if result.centroids is not None:
            found = result.score(sequences, top_k=arguments.top_k)
            summary["held_out"] |= {
                f"Focus, k = {arguments.top_k}": found.perplexity,
                "pairs kept": float(found.retained_pairs.mean()),
                "largest group": float(found.dominance.mean()),
            }
    (out / "training.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(out / "checkpoint", ignore_errors=True)
    return {"out": str(out), **summary}
