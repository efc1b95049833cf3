"""Training checkpoints: written atomically, read with every check, refused when made for another training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from focus_runtime.errors import TrainingError
from focus_runtime.files import replacing

FORMAT = "focus-training-1"


def save_state(path: Path, identity: Mapping[str, Any], step: int, content: Mapping[str, Any]) -> None:
    """Replace a checkpoint; when that fails the old one stays as it was.

    Args:
        path: the checkpoint file.
        identity: what the training is; `load_state` refuses any other.
        step: steps finished.
        content: tensors and plain values.

    Raises:
        TrainingError: it cannot be written, for instance because the disk is full.
    """

    def explain(target: Path, error: Exception) -> TrainingError:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        return TrainingError(
            f"the checkpoint {target} cannot be written after step {step}: {reason}",
            fix="free some space; an older checkpoint is still there, continue with --resume"
            if target.exists()
            else "free some space or choose another folder, and start again; no checkpoint was written yet",
        )

    try:
        with replacing(path, explain=explain, mode=0o600, sync=True) as part, part.open("wb") as stream:
            torch.save({"format": FORMAT, "identity": dict(identity), "step": step, "content": dict(content)}, stream)
    except RuntimeError as error:  # how torch reports a full disk
        raise explain(path, error) from error


def load_state(path: Path, identity: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Read a checkpoint of this very training.

    Returns:
        Steps finished, and the content.

    Raises:
        TrainingError: missing, damaged, or of another model, text or setting; the first difference is named.
    """
    if not path.exists():
        raise TrainingError(f"there is no checkpoint {path}", fix="start without --resume, or give the same --out")
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises its own and pickle's types for damaged or unsafe files
        raise TrainingError(
            f"the checkpoint {path} is damaged or no training checkpoint", fix="start again without --resume"
        ) from error
    if not isinstance(saved, dict) or saved.get("format") != FORMAT:
        raise TrainingError(f"{path} is no training checkpoint", fix="start again without --resume")
    before = saved["identity"]
    for name in {**before, **identity}:
        if before.get(name) != identity.get(name):
            raise TrainingError(
                f"the checkpoint {path} is of another training: {name} was {_short(before.get(name))}, "
                f"now it is {_short(identity.get(name))}",
                expected="the same model, texts and settings",
                fix="give the settings it was started with, or start again without --resume",
            )
    return saved["step"], saved["content"]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
