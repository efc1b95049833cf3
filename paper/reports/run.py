"""The reproduce command: one table or figure of the paper, on the user's model and text, at a scale they can afford."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focus_explorer import settings
from focus_explorer.errors import InputError, MemoryShortError, ModelError
from focus_explorer.progress import stage_bar
from focus_explorer.usecases.texts import SAMPLES, sample_text
from focus_explorer.usecases.training.texts import gather_texts, parse_domains
from focus_runtime.files import cannot_write, check_writable_folder
from focus_runtime.version import __version__
from paper.reports.merging import merged
from paper.reports.names import RECIPES, REPORTS, recipes_of
from paper.reports.render import kept_key, markdown, write
from paper.reports.scale import Scale, scale_named

if TYPE_CHECKING:
    from paper.reports.lab import Lab
    from paper.reports.report import Report


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
    """Measure one report, or all of them, and write every form of it, and the page that shows them together."""
    from paper.reports.lab import Lab
    from paper.reports.page import write_page
    from paper.reports.plan import plan_text

    scale = _scale(arguments)
    names = list(REPORTS) if "all" in arguments.names else list(dict.fromkeys(arguments.names))
    recipes = {name: _recipes(name, arguments.recipe, every="all" in arguments.names) for name in names}
    names = [name for name in names if recipes[name]]
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
            domains=_domains(arguments.domain),
        )
        _check_length(lab)
        settled = (dataclasses.asdict(scale), __version__)
        keys = {name: lab.key("report", name, recipes[name], _texts_of(name, lab), *settled) for name in names}
        if arguments.plan:
            print(plan_text(lab, out, keys, recipes))
            return
        written: dict[str, list[str]] = {}
        failed: dict[str, str] = {}
        for name in names:
            try:
                written[name] = _written(name, lab, out, keys[name], recipes[name], arguments)
            except InputError as error:
                if len(names) == 1:
                    raise
                failed[name] = str(error)  # the others run
            state["done"] += 1
        page = write_page(out)
    if arguments.json:
        print(json.dumps({"scale": scale.name, "written": written, "failed": failed, "page": str(page)}))
    else:
        print("written      " + ", ".join(path for paths in written.values() for path in paths))
        print(f"page         {page}")
    if failed:
        words = "\n".join(f"{name}: {message}" for name, message in failed.items())
        raise InputError(f"{len(failed)} of {len(names)} reports could not be measured:\n{words}")


def _scale(arguments: argparse.Namespace) -> Scale:
    """The scale, with the steps and seeds that were given."""
    scale = scale_named(arguments.scale)
    for option in ("steps", "seeds"):
        value = getattr(arguments, option)
        if value is not None and value < 1:
            raise InputError(f"--{option} is {value}", expected="at least 1")
    if arguments.steps is not None:
        scale = dataclasses.replace(scale, steps=arguments.steps)
    if arguments.seeds is not None:
        scale = dataclasses.replace(scale, seeds=tuple(range(arguments.seeds)))
    return scale


def _written(name: str, lab: Lab, out: Path, key: str, recipes: list[str], arguments: argparse.Namespace) -> list[str]:
    """The files of one report, measured now unless they were written under this key before."""
    if not arguments.again and kept_key(out, name) == key:
        if not arguments.json:
            print(f"{name}: kept from before")
        return [str(path) for path in sorted(out.glob(f"{name}.*"))]
    report = _report(name, lab, recipes, arguments)
    report.key = key
    files = [str(path) for path in write(report, out, log="\n".join(lab.lines) + "\n")]
    if not arguments.json:
        print(markdown(report))
    return files


def _domains(given: list[str]) -> dict[str, list[str]]:
    """`--domain NAME=SOURCE` -> the texts of every name."""
    found: dict[str, list[str]] = {}
    for one in parse_domains(given, "--domain", weighted=False):
        if not one.name:
            raise InputError(f"--domain is {' '.join(one.sources)!r}", expected="NAME=FOLDER or NAME=FILE")
        found[one.name] = gather_texts(one.sources)[0]
    return found


def _texts_of(name: str, lab: Lab) -> dict[str, str]:
    """Hashes of the further kinds of text that a report is about."""
    from focus_runtime.fit.inputs import texts_sha256

    return {kind: texts_sha256(texts) for kind, texts in lab.domains.items()} if name == "domains" else {}


def _recipes(name: str, asked: list[str], *, every: bool) -> list[str]:
    """The recipes a report is measured under: those of the user's that it can take.

    Raises:
        InputError: it can take none of them, and was asked for by name.
    """
    able = [recipe for recipe in recipes_of(name) if recipe in asked]
    if not able and not every:
        raise InputError(
            f"{name} cannot be measured under the recipe {' or '.join(asked)}",
            expected=f"--recipe {' '.join(recipes_of(name))}",
        )
    return able


def _check_length(lab: Lab) -> None:
    """Refuse held-out text that is too short for the sequences of the scale, before anything is trained."""
    scale, tokens = lab.scale, lab.val_ids.numel()
    if tokens < scale.val_sequences * scale.seq_len:
        raise InputError(
            f"the held-out text has {tokens:,} tokens",
            expected=f"at least {scale.val_sequences * scale.seq_len:,}: {scale.val_sequences} sequences of "
            f"{scale.seq_len:,}",
            fix="give a longer --val text or a smaller --scale",
        )


def _report(name: str, lab: Lab, recipes: list[str], arguments: argparse.Namespace) -> Report:
    """One report under every recipe that was asked for."""
    lab.lines.clear()
    start, reports = time.perf_counter(), {}
    for recipe in recipes:
        lab.log(f"{name}: {REPORTS[name][1]}; scale {lab.scale.name}, model {lab.model_name}, recipe {recipe}")
        reports[recipe] = _measured(name, lab.under(recipe))
    report = merged(reports)
    report.seconds = round(time.perf_counter() - start, 1)
    lab.log(f"{name}: done")
    report.setting["command"] = _command(arguments, name)
    return report


def _device(requested: str | None) -> str:
    import torch

    if requested is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if requested.startswith("cuda") and not torch.cuda.is_available():
        raise InputError(f"--device is {requested}, but torch finds no GPU here", fix="use --device cpu")
    return requested


def _measured(name: str, lab: Lab) -> Report:
    """The report of that name.

    Raises:
        InputError: it cannot be measured on this model, or the memory does not suffice at this scale.
    """
    from focus_runtime.measure.memory import within_memory

    try:
        with within_memory(lab.model):
            made: Report = find(name)(lab)
            return made
    except ModelError as error:  # what runs inside advises, as below, what this command lacks
        expected = error.expected or "a model that every part of this report can run"
        raise ModelError(f"{name}: {error.problem}", expected=expected, fix="choose another --model") from error
    except MemoryShortError as error:
        fix = "use a smaller --scale, a smaller --model or another --device; what was measured is kept"
        raise MemoryShortError(error.problem, expected=error.expected, fix=fix) from error


def find(name: str) -> Any:
    """The function that measures a report."""
    module = importlib.import_module(f"paper.reports.{REPORTS[name][0]}")
    return getattr(module, name.replace("-", "_"))


def _command(arguments: argparse.Namespace, name: str) -> str:
    """How to run it again; folders of the user's own are left out."""
    words = ["focus-explorer", "reproduce", name, "--scale", arguments.scale]
    words += ["--text", "FOLDER", "--val", Path(arguments.val[0]).name] if arguments.text else []
    words += ["--model", Path(arguments.model).name] if arguments.model else []
    words += ["--recipe", *arguments.recipe] if list(arguments.recipe) != list(RECIPES) else []
    words += [word for one in arguments.domain for word in ("--domain", f"{one.split('=')[0]}=FOLDER")]
    words += ["--seeds", str(arguments.seeds)] if arguments.seeds is not None else []
    words += ["--steps", str(arguments.steps)] if arguments.steps is not None else []
    return " ".join(words)
