"""The train command: text files in, a validated centroid file out."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from focus_explorer import settings
from focus_explorer.errors import InputError, TextError
from focus_explorer.progress import stage_bar
from focus_explorer.service import read_text_file


def gather_texts(sources: list[str], exclude: list[str]) -> tuple[list[str], list[str]]:
    """Read text files and folders of .txt files.

    Returns:
        The texts and the names of the files, in sorted order within each folder.
    """
    held_out = {Path(os.path.expanduser(path)).resolve() for path in exclude}
    files: list[Path] = []
    for source in sources:
        path = Path(os.path.expanduser(source))
        files += sorted(path.glob("*.txt")) if path.is_dir() else [path]
    files = [path for path in files if path.resolve() not in held_out]
    if not files:
        raise TextError("there is no text to train on", expected="text files, or folders with .txt files")
    return [read_text_file(path) for path in files], [path.name for path in files]


def train(arguments: argparse.Namespace) -> None:
    """Train, save, and score held-out text under the hard mask if any was given."""
    from tqdm import tqdm

    from focus_runtime.checkpoint import save_centroids
    from focus_runtime.config import FocusConfig
    from focus_runtime.models import load_model
    from focus_runtime.optimise import TrainConfig, TrainStep
    from focus_runtime.train import train_centroids, validate

    if arguments.hard and arguments.gate != "log":
        raise InputError("--hard goes with the log gate only", fix="leave out --hard or --gate paper")
    if Path(arguments.out).suffix != ".safetensors":
        raise InputError(f"--out is {arguments.out!r}", expected="a file name ending in .safetensors")
    config = FocusConfig(
        num_groups=arguments.groups, routing_dim=arguments.routing_dim, top_k=arguments.top_k,
        window=arguments.train_window if arguments.train_window is not None else arguments.window,
        num_sinks=arguments.sinks, sinkhorn_iterations=arguments.iterations, gate=arguments.gate,
    )  # fmt: skip
    plan = TrainConfig(
        steps=arguments.steps, seq_len=arguments.seq_len, batch=arguments.batch, learning_rate=arguments.lr,
        hard=arguments.hard, seed=arguments.seed, warmup=min(20, arguments.steps // 5),
    )  # fmt: skip
    texts, names = gather_texts(arguments.text, arguments.val)
    held_out = gather_texts(arguments.val, [])[0] if arguments.val else []
    _check_writable(Path(arguments.out))
    model, tokenizer = load_model(arguments.model, dtype=arguments.dtype, cache_dir=settings.cache_dir())
    sequences = _held_out(tokenizer, held_out, arguments) if held_out else None  # too short a text is known now
    with tqdm(total=plan.steps, file=sys.stderr, unit="step", desc="Training centroids", disable=None) as bar:

        def report(step: TrainStep) -> None:
            bar.update()
            bar.set_postfix_str(
                f"loss {step.loss:.3f}, largest group {step.dominance:.1%}, {step.tokens_per_second:.0f} tokens/s"
            )

        centroids = train_centroids(model, tokenizer, texts, config, plan, model_id=arguments.model, on_step=report)
    centroids.config = config.replace(window=arguments.window)
    centroids.training |= {"texts": names, "dtype": arguments.dtype, "train_window": config.window}
    digest = save_centroids(centroids, arguments.out)
    if sequences is not None:
        tops = tuple(range(1, min(2, arguments.groups) + 1))
        with stage_bar() as progress:
            progress("Scoring held-out text", 0.0)
            centroids.training["validation"] = validate(model, centroids, sequences, top_ks=tops)
        digest = save_centroids(centroids, arguments.out)
    result = {"out": arguments.out, "sha256": digest, "training": centroids.training}
    print(json.dumps(result) if arguments.json else _describe(result))


def _held_out(tokenizer: Any, texts: list[str], arguments: argparse.Namespace) -> Any:
    from focus_runtime.sequences import encode_texts, even_sequences

    ids = encode_texts(tokenizer, texts, arguments.seq_len)
    return even_sequences(ids, arguments.val_sequences, arguments.seq_len)


def _check_writable(out: Path) -> None:
    """Know before the training, not after it, that the result can be kept."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}", fix="choose a writable folder for --out") from error


def _describe(result: dict[str, Any]) -> str:
    training = result["training"]
    lines = [
        f"wrote {result['out']}  sha256 {result['sha256']}",
        f"final loss {training['final_loss']:.4f} nats per token",
    ]
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
