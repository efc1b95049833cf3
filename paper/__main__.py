"""`python -m paper table7`: tables and figures of the paper on one's own model and text, at a scale one can afford."""

import argparse
import copy
import dataclasses
import importlib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch

from focus_explorer import settings
from focus_explorer.errors import InputError, MemoryShortError, ModelError, TrainingStopped, device_failure
from focus_explorer.progress import stage_bar
from focus_explorer.usecases.texts import SAMPLES, sample_text
from focus_explorer.usecases.training.texts import gather_texts, parse_domains
from focus_runtime.files import cannot_write, check_writable_folder
from focus_runtime.fit.inputs import texts_sha256
from focus_runtime.measure.memory import within_memory
from focus_runtime.version import __version__
from paper.lab.lab import Lab
from paper.lab.scale import Scale, scale_named
from paper.names import RECIPES, REPORTS, SAME_ROWS, recipes_of
from paper.output.files import markdown, write
from paper.output.page import read_report, write_page
from paper.output.report import Report, merged

HELD_OUT_SAMPLE = "Novel"


class Parser(argparse.ArgumentParser):
    """Argument parser whose errors have one line."""

    def error(self, message: str) -> NoReturn:
        raise InputError(message, fix=f"see `{self.prog} --help`")


def parser() -> Parser:
    """The options of the command."""
    made = Parser(prog="python -m paper", description=__doc__)
    made.add_argument("names", nargs="*", metavar="NAME", help="see --list; or all")
    made.add_argument("--list", action="store_true", help="list the tables and figures with what they show")
    made.add_argument("--scale", default="tiny", help="tiny (minutes), small (two cores, hours) or paper (GPUs)")
    made.add_argument(
        "--text", nargs="+", action="extend", default=[], help="training texts: files, or folders of .txt files"
    )
    made.add_argument("--val", nargs="+", action="extend", default=[], help="held-out text; left out of --text folders")
    made.add_argument(
        "--domain",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=TEXT",
        help="kinds of text for `domains`: a file, or a folder of .txt files; the last fifth is held out",
    )
    made.add_argument(
        "--recipe",
        nargs="+",
        choices=RECIPES,
        default=list(RECIPES),
        metavar="RECIPE",
        help="how centroids are trained and used: paper, as published, ours, or both side by side (default: both)",
    )
    made.add_argument("--again", action="store_true", help="measure reports again that are written already")
    made.add_argument("--model", help="model name, folder or file (default: the scale's)")
    made.add_argument("--steps", type=int, help="steps of each training of centroids (default: the scale's)")
    made.add_argument("--seeds", type=int, help="seeds of each training of centroids (default: the scale's)")
    made.add_argument("--out", help="folder to write to (default: reproduced/SCALE); it keeps trained centroids too")
    made.add_argument("--device", help="cpu or cuda (default: cuda where there is one)")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status: 2 with one line for anything a user can put right."""
    settings.prepare_libraries()
    try:
        arguments = parser().parse_args(argv)
        if arguments.list:
            print("\n".join(f"{name:16} {what}" for name, what in REPORTS.items()))
        elif arguments.names:
            reproduce(arguments)
        else:
            raise InputError("no table or figure was named", fix="see `python -m paper --list`")
        return 0
    except InputError as error:
        problem = error
    except (RuntimeError, MemoryError) as error:
        failure = device_failure(error)
        if failure is None:
            raise
        problem = failure
    except (KeyboardInterrupt, TrainingStopped):
        print(
            "stopped; reports written so far and trained centroids are kept, the same command resumes", file=sys.stderr
        )
        return 130
    print(f"error: {' '.join(str(problem).split())}", file=sys.stderr)
    return 2


def reproduce(arguments: argparse.Namespace) -> None:
    """Measure reports, write every form of each, and the page that shows them together.

    Raises:
        InputError: some could not be measured; the others are written.
    """
    unknown = [name for name in arguments.names if name not in (*REPORTS, "all")]
    if unknown:
        raise InputError(f"there is no table or figure {unknown[0]!r}", fix="see `python -m paper --list`")
    scale, every = _scale(arguments), "all" in arguments.names
    names = list(REPORTS) if every else list(dict.fromkeys(arguments.names))
    recipes = {name: _recipes(name, arguments.recipe, every=every) for name in names}
    names = [name for name in names if recipes[name]]
    texts, held_out, text_names = _texts(arguments, scale)
    out = Path(arguments.out or Path("reproduced") / scale.name).expanduser()
    check_writable_folder(out, explain=cannot_write("choose a writable --out folder", problem="cannot write to"))
    model, done = arguments.model or scale.model, 0
    failed: dict[str, InputError] = {}
    with stage_bar() as bar:
        bar(f"Loading {model}", 0.0)
        lab = Lab(
            scale,
            model,
            texts,
            held_out,
            text_names,
            out / "work",
            on_line=lambda line: bar(line[:90], done / len(names)),
            cache_dir=settings.cache_dir(),
            on=arguments.device or ("cuda" if torch.cuda.is_available() else "cpu"),
            domains=_domains(arguments.domain),
        )
        _check_length(lab)
        for name in names:
            try:
                _write(name, lab, out, recipes[name], arguments)
            except InputError as error:
                if len(names) == 1:
                    raise
                failed[name] = error  # the others run
            done += 1
        page = write_page(out)
    print(f"page         {page}")
    if failed:
        words = "\n".join(f"{name}: {error}" for name, error in failed.items())
        raise InputError(f"{len(failed)} of {len(names)} reports could not be measured:\n{words}")


def _write(name: str, lab: Lab, out: Path, recipes: list[str], arguments: argparse.Namespace) -> None:
    """Measure and write one report, unless it was written from the same things before."""
    kinds = {kind: texts_sha256(texts) for kind, texts in lab.domains.items()} if name == "domains" else {}
    key = lab.key("report", name, recipes, kinds, dataclasses.asdict(lab.scale), __version__)
    before = read_report(out / f"{name}.json")
    if before is not None and before.key == key and not arguments.again:
        print(f"{name}: kept from before")
        return
    lab.lines.clear()
    start, reports = time.perf_counter(), {}
    for recipe in recipes:
        lab.log(f"{name}: {REPORTS[name]}; scale {lab.scale.name}, model {lab.model_name}, recipe {recipe}")
        reports[recipe] = measure(name, lab.under(recipe))
    report = merged(reports)
    report.key, report.seconds = key, round(time.perf_counter() - start, 1)
    report.setting["command"] = _command(arguments, name)
    lab.log(f"{name}: done")
    files = write(report, out, log="\n".join(lab.lines) + "\n")
    print(markdown(report))
    print("written      " + ", ".join(map(str, files)))


def measure(name: str, lab: Lab) -> Report:
    """The report of that name; one that shows another's rows is measured once with it.

    Raises:
        InputError: it cannot be measured on this model, or the memory does not suffice at this scale.
    """
    source = SAME_ROWS.get(name, name)
    if (source, lab.recipe_name) not in lab.reports:
        try:
            with within_memory(lab.model):
                lab.reports[source, lab.recipe_name] = find(source)(lab)
        except ModelError as error:  # what runs inside advises, as below, what this command lacks
            expected = error.expected or "a model that every part of this report can run"
            raise ModelError(f"{name}: {error.problem}", expected=expected, fix="choose another --model") from error
        except MemoryShortError as error:
            fix = "use a smaller --scale, a smaller --model or another --device; what was measured is kept"
            raise MemoryShortError(error.problem, expected=error.expected, fix=fix) from error
    report = copy.copy(lab.reports[source, lab.recipe_name])
    report.name, report.title, report.setting = name, REPORTS[name], dict(report.setting)
    return report


def find(name: str) -> Callable[[Lab], Report]:
    """The function that measures a report."""
    word = name.replace("-", "_")
    function: Callable[[Lab], Report] = getattr(importlib.import_module(f"paper.reports.{word}"), word)
    return function


# --- what was asked for


def _scale(arguments: argparse.Namespace) -> Scale:
    """The scale, with the steps and seeds that were given."""
    changes: dict[str, Any] = {}
    for option in ("steps", "seeds"):
        value = getattr(arguments, option)
        if value is not None and value < 1:
            raise InputError(f"--{option} is {value}", expected="at least 1")
        if value is not None:
            changes[option] = value if option == "steps" else tuple(range(value))
    return dataclasses.replace(scale_named(arguments.scale), **changes)


def _recipes(name: str, asked: list[str], *, every: bool) -> list[str]:
    """The recipes a report is measured under: those of the user's that it can take."""
    able = [recipe for recipe in recipes_of(name) if recipe in asked]
    if not able and not every:
        raise InputError(
            f"{name} cannot be measured under the recipe {' or '.join(asked)}",
            expected=f"--recipe {' '.join(recipes_of(name))}",
        )
    return able


def _texts(arguments: argparse.Namespace, scale: Scale) -> tuple[list[str], list[str], dict[str, list[str]]]:
    """Training texts, held-out texts, and the names of both."""
    if arguments.text:
        if not arguments.val:
            raise InputError("no held-out text was given", expected="--val FILE; it is left out of --text folders")
        (texts, files), (held_out, held_files) = (
            gather_texts(arguments.text, arguments.val),
            gather_texts(arguments.val),
        )
        return texts, held_out, {"train": [file.name for file in files], "val": [file.name for file in held_files]}
    if scale.name != "tiny":
        raise InputError(
            f"the scale {scale.name!r} needs {scale.needs}", fix="or use --scale tiny, which needs nothing"
        )
    names = [name for name in SAMPLES if name != HELD_OUT_SAMPLE]
    origins = {"train": [f"sample: {name}" for name in names], "val": [f"sample: {HELD_OUT_SAMPLE}"]}
    return [sample_text(name) for name in names], [sample_text(HELD_OUT_SAMPLE)], origins


def _domains(given: list[str]) -> dict[str, list[str]]:
    """`--domain NAME=SOURCE` -> the texts of every name."""
    found: dict[str, list[str]] = {}
    for one in parse_domains(given, "--domain", weighted=False):
        if not one.name:
            raise InputError(f"--domain is {' '.join(one.sources)!r}", expected="NAME=FOLDER or NAME=FILE")
        found[one.name] = gather_texts(one.sources)[0]
    return found


def _check_length(lab: Lab) -> None:
    """Refuse held-out text that is too short for the sequences of the scale, before anything is trained."""
    scale, tokens = lab.scale, lab.val_ids.numel()
    least = scale.val_sequences * scale.seq_len
    if tokens < least:
        raise InputError(
            f"the held-out text has {tokens:,} tokens",
            expected=f"at least {least:,}: {scale.val_sequences} sequences of {scale.seq_len:,}",
            fix="give a longer --val text or a smaller --scale",
        )


def _command(arguments: argparse.Namespace, name: str) -> str:
    """How to run it again; folders of the user's own are left out."""
    words = ["python -m paper", name, "--scale", arguments.scale]
    words += ["--text", "FOLDER", "--val", Path(arguments.val[0]).name] if arguments.text else []
    words += ["--model", Path(arguments.model).name] if arguments.model else []
    words += ["--recipe", *arguments.recipe] if list(arguments.recipe) != list(RECIPES) else []
    words += [word for one in arguments.domain for word in ("--domain", f"{one.split('=')[0]}=FOLDER")]
    words += [
        f"--{option} {value}" for option in ("seeds", "steps") if (value := getattr(arguments, option)) is not None
    ]
    return " ".join(words)


if __name__ == "__main__":
    sys.exit(main())
