"""The reproduce command: one table or figure of the paper, on the user's model and text, at a scale they can afford."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
from pathlib import Path
from typing import Any

from focus_explorer import settings
from focus_explorer.errors import InputError, MemoryShortError, ModelError
from focus_explorer.progress import stage_bar
from focus_explorer.reproduce.names import REPORTS
from focus_explorer.reproduce.scale import scale_named
from focus_explorer.services.texts import SAMPLES, sample_text
from focus_explorer.services.training.texts import gather_texts
from focus_runtime.files import cannot_write, check_writable_folder


def _texts(arguments: argparse.Namespace) -> tuple[list[str], list[str], dict[str, list[str]]]:
    if arguments.text:
        if not arguments.val:
            raise InputError(
                "no held-out text was given", expected="--val FILE", fix="name a file; it is left out of --text folders"
            )
        texts, names = gather_texts(arguments.text, arguments.val)
        held_out, held_names = gather_texts(arguments.val, [])
        return texts, held_out, {"train": [p.name for p in names], "val": [p.name for p in held_names]}
    if arguments.scale != "tiny":
        raise InputError(
            f"the scale {arguments.scale!r} needs text of your own",
            expected="--text FOLDER --val FILE",
            fix="or use --scale tiny, which takes the sample texts",
        )
    kept = [name for name in SAMPLES if name != "Novel"]
    origins = {"train": [f"sample: {name}" for name in kept], "val": ["sample: Novel"]}
    return [sample_text(name) for name in kept], [sample_text("Novel")], origins


def reproduce(arguments: argparse.Namespace) -> None:
    """Measure one report, or all of them, and write every form of it."""
    from focus_explorer.reproduce.lab import Lab
    from focus_explorer.reproduce.render import markdown, write

    scale = scale_named(arguments.scale)
    if arguments.steps is not None:
        if arguments.steps < 1:
            raise InputError(f"--steps is {arguments.steps}", expected="at least 1")
        scale = dataclasses.replace(scale, steps=arguments.steps)
    names = list(REPORTS) if "all" in arguments.names else list(dict.fromkeys(arguments.names))
    texts, held_out, text_names = _texts(arguments)
    out = Path(os.path.expanduser(arguments.out or Path("reproduced") / scale.name))
    check_writable_folder(out, explain=cannot_write("choose a writable --out folder", problem="cannot write to"))
    model = arguments.model or scale.model
    with stage_bar() as bar:
        bar(f"Loading {model}", 0.0)
        state = {"done": 0}
        lab = Lab(
            scale,
            model,
            texts,
            held_out,
            text_names,
            Path(os.path.expanduser(arguments.work or out / "work")),
            on_line=lambda line: bar(line[:90], state["done"] / len(names)),
            cache_dir=settings.cache_dir(),
            on=_device(arguments.device),
        )
        written: dict[str, list[str]] = {}
        for name in names:
            lab.lines.clear()
            lab.log(f"{name}: {REPORTS[name][1]}; scale {scale.name}, model {model}")
            report = _measured(name, lab)
            lab.log(f"{name}: done")
            report.setting["command"] = _command(arguments, name)
            written[name] = [str(path) for path in write(report, out, log="\n".join(lab.lines) + "\n")]
            state["done"] += 1
            if not arguments.json:
                print(markdown(report))
    if arguments.json:
        print(json.dumps({"scale": scale.name, "written": written}))
    else:
        print("written      " + ", ".join(path for paths in written.values() for path in paths))


def _device(requested: str | None) -> str:
    import torch

    if requested is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if requested.startswith("cuda") and not torch.cuda.is_available():
        raise InputError(f"--device is {requested}, but torch finds no GPU here", fix="use --device cpu")
    return requested


def _measured(name: str, lab: Any) -> Any:
    """The report of that name.

    Raises:
        InputError: it cannot be measured on this model, or the memory does not suffice at this scale.
    """
    from focus_runtime.measure.memory import within_memory

    try:
        with within_memory(lab.model):
            return find(name)(lab)
    except ModelError as error:  # what runs inside advises, as below, what this command lacks
        expected = error.expected or "a model that every part of this report can run"
        raise ModelError(f"{name}: {error.problem}", expected=expected, fix="choose another --model") from error
    except MemoryShortError as error:
        fix = "use a smaller --scale, a smaller --model or another --device; what was measured is kept"
        raise MemoryShortError(error.problem, expected=error.expected, fix=fix) from error


def find(name: str) -> Any:
    """The function that measures a report."""
    module = importlib.import_module(f"focus_explorer.reproduce.{REPORTS[name][0]}")
    return getattr(module, name.replace("-", "_"))


def _command(arguments: argparse.Namespace, name: str) -> str:
    """How to run it again; folders of the user's own are left out."""
    words = ["focus-explorer", "reproduce", name, "--scale", arguments.scale]
    words += ["--text", "FOLDER", "--val", Path(arguments.val[0]).name] if arguments.text else []
    words += ["--model", Path(arguments.model).name] if arguments.model else []
    words += ["--steps", str(arguments.steps)] if arguments.steps is not None else []
    return " ".join(words)
