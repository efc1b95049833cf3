"""What a training's records say of it before its first step: the database's row, and the settings in other logs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focus_explorer.usecases.training.domains import DomainTexts
from focus_explorer.usecases.training.trackers.target import LogTarget
from focus_explorer.usecases.training.trackers.write import TrainingTrackers
from focus_explorer.usecases.users import new_owner

if TYPE_CHECKING:
    from focus_runtime.store.training import TrainingInfo


def training_info(model: Any, domains: Sequence[DomainTexts], **values: Any) -> TrainingInfo:
    """The record of a training that is about to start in this process.

    Args:
        model: before the training.
        domains: the texts that are trained on; one domain without a name where the user named none.
        values: the fields of `TrainingInfo` that neither the process nor these say.
    """
    from focus_runtime.fit.domains import texts_sha256
    from focus_runtime.models.device_map import input_device
    from focus_runtime.models.precision import dtype_name
    from focus_runtime.run.engine import versions
    from focus_runtime.store.training import TrainingInfo

    files = {domain.name: [str(path.resolve()) for path in domain.files] for domain in domains}
    return TrainingInfo(
        device=str(input_device(model)),
        dtype=dtype_name(model),
        texts=[path for paths in files.values() for path in paths],
        domains={d.name: {"weight": d.weight, "texts": files[d.name]} for d in domains if d.name},
        text_sha256=texts_sha256([text for domain in domains for text in domain.texts]),
        versions=versions(),
        folder=os.getcwd(),
        owner=new_owner(),
        **values,
    )


def training_trackers(
    targets: Sequence[LogTarget], info: TrainingInfo, recipe: str, *, out: Path, **options: Any
) -> TrainingTrackers:
    """The programs of `--log-to`, with all that the database's row says.

    Args:
        targets: programs.
        info: the record of the training.
        recipe: decided what the user did not give.
        out: file or folder of the result; the state of the logs lies beside it.
        options: see `TrainingTrackers`.
    """
    settings = {**asdict(info), "recipe": recipe}
    del settings["owner"]
    return TrainingTrackers(targets, info.name, settings, state=trackers_state(out), **options)


def trackers_state(out: Path) -> Path:
    """Where the logs of an unfinished training are remembered: beside its result, NAME.log-to.json."""
    return out.with_name(f"{out.stem if out.suffix == '.safetensors' else out.name}.log-to.json")
