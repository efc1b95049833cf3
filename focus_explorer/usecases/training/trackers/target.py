"""`--log-to`: where a training is logged besides the database, checked before the training starts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from focus_explorer.errors import InputError
from focus_runtime.files import cannot_write, check_writable_folder

NAMES = {"tensorboard": "TensorBoard", "trackio": "trackio", "wandb": "Weights & Biases"}  # the package is the key
PLACES = {"tensorboard": "runs", "trackio": "focus", "wandb": "focus"}  # where none is given
FORMS = "tensorboard[:FOLDER], trackio[:PROJECT] or wandb[:PROJECT]"


@dataclass(frozen=True, slots=True)
class LogTarget:
    """One `--log-to`.

    Attributes:
        kind: a key of `NAMES`.
        place: folder of TensorBoard, project of the others.
    """

    kind: str
    place: str

    @property
    def name(self) -> str:
        """What the program calls itself."""
        return NAMES[self.kind]


def parse_targets(words: Sequence[str]) -> list[LogTarget]:
    """The words after `--log-to`.

    Raises:
        InputError: a word names no program that can be logged to, or one of them twice.
    """
    targets = []
    for word in words:
        kind, _, place = word.partition(":")
        if kind not in NAMES:
            raise InputError(f"--log-to is {word!r}", expected=FORMS)
        targets.append(LogTarget(kind, place or PLACES[kind]))
    kinds = [target.kind for target in targets]
    for kind in dict.fromkeys(kinds):
        if kinds.count(kind) > 1:
            raise InputError(f"--log-to names {kind} {kinds.count(kind)} times", expected="each once")
    return targets


def check_targets(targets: Sequence[LogTarget]) -> None:
    """Refuse what is not installed or cannot be written.

    Raises:
        InputError: a package is missing, or TensorBoard's folder is not writable.
    """
    for target in targets:
        if find_spec(target.kind) is None:
            raise InputError(
                f"--log-to {target.kind} needs the package {target.kind}, which is not installed",
                fix=f"pip install 'focus-explorer[{target.kind}]'",
            )
        if target.kind == "tensorboard":
            folder = Path(os.path.expanduser(target.place))
            check_writable_folder(folder, explain=cannot_write("choose a writable folder: --log-to tensorboard:FOLDER"))
