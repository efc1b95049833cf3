"""The doctor on a model by name, and on a tiny model of every family."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from focus_explorer import settings
from focus_explorer.errors import InputError
from focus_explorer.progress import Progress, held_at

if TYPE_CHECKING:
    from focus_runtime.evaluate.doctor.doctor import Report
    from focus_runtime.evaluate.doctor.families import FamilyRow


def registered(attention: str) -> str:
    """The name of an implementation, after importing the module that registers it.

    Args:
        attention: NAME, or MODULE:NAME; modules are also looked for in the working directory.

    Raises:
        InputError: the module cannot be imported.
    """
    module, _, name = attention.rpartition(":")
    if not module:
        return attention
    sys.path.insert(0, str(Path.cwd()))
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"module {module!r} cannot be imported ({error})", expected="MODULE:NAME") from error
    finally:
        sys.path.remove(str(Path.cwd()))
    return name


def examine(name: str, *, attention: str, tokens: int, device: str, progress: Progress) -> Report:
    """The doctor's findings on a model.

    Args:
        name: as `load_model` takes it.
        attention: NAME, or MODULE:NAME.
        tokens: length of the texts.
        device: as `place` takes it.
        progress: takes each scenario and the fraction done.
    """
    from focus_runtime.evaluate.doctor.doctor import doctor
    from focus_runtime.models.devices import place
    from focus_runtime.models.loading import load_model

    implementation = registered(attention)
    placement = place(device, "float32")
    loading = held_at(progress, 0.0)
    model, tokenizer = load_model(
        name, dtype=placement.dtype, device=placement.device, cache_dir=settings.cache_dir(), progress=loading
    )
    with redirect_stdout(sys.stderr):  # models print warnings
        return doctor(model, tokenizer, attention=implementation, tokens=tokens, progress=progress)


def examine_families(names: Sequence[str], attention: str) -> Iterator[FamilyRow]:
    """The doctor's findings on a tiny model of each family.

    Args:
        names: families by transformers' names; all when empty.
        attention: NAME, or MODULE:NAME.
    """
    from focus_runtime.evaluate.doctor.families import examine_family, model_types

    implementation = registered(attention)
    for name in names or model_types():
        with redirect_stdout(sys.stderr):
            row = examine_family(name, implementation)
        yield row


def write_page(path: Path, rows: Sequence[FamilyRow], command: str) -> None:
    """Write the page of all families.

    Args:
        path: of the Markdown file.
        rows: what was found.
        command: that made it.
    """
    import torch
    import transformers

    from focus_runtime.evaluate.doctor.families import page
    from focus_runtime.files import replacing

    versions = f"transformers {transformers.__version__} and torch {torch.__version__.partition('+')[0]}"
    with replacing(path) as part:
        part.write_text(page(rows, command, versions), encoding="utf-8")
