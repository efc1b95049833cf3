"""README.txt and references.bib of a bundle; their texts are in templates/."""

from __future__ import annotations

import textwrap
from importlib.resources import files
from typing import Any

from focus_explorer.exports import templates
from focus_explorer.usecases.budget import setting_words
from focus_explorer.words import counted
from focus_runtime.version import __version__

PACKAGE = "focus_explorer.exports.bundle"
TIMES = "Times are measured again and not compared. Figures are not made again."


def readme(manifest: dict[str, Any]) -> str:
    """README.txt of a bundle, from its manifest without the list of files."""
    runs = manifest["runs"]
    return (
        templates(PACKAGE)
        .get_template("README.txt.jinja")
        .render(
            title="Focus Explorer bundle of " + (f"run {runs[0]['run_id']}" if len(runs) == 1 else f"{len(runs)} runs"),
            runs=[_run(entry) for entry in runs],
            with_text=manifest["includes_text"],
            changed=any(run.get("changes") for run in runs),
            promise=_promise(runs),
            missing=_missing(manifest),
        )
    )


def _promise(runs: list[dict[str, Any]]) -> str:
    """When the tables come back with the same bytes: docs/bundles.md promises it of runs in fp32 on a CPU alone."""
    loose = [run for run in runs if (run["execution"]["device"], run["execution"]["dtype"]) != ("cpu", "float32")]
    sentences = []
    if len(loose) < len(runs):
        sentences.append(
            "On the same machine, with the same versions and as many threads, this gives the same bytes; elsewhere it "
            "says what differs and by how much."
        )
    if loose:
        made = sorted({f"{run['execution']['dtype']} on {run['execution']['device']}" for run in loose})
        which = "" if len(loose) == len(runs) else f" ({', '.join(run['run_id'] for run in loose)})"
        sentences.append(
            f"Of what was computed in {' or '.join(made)}{which} it does not promise the same bytes, not even on the "
            f"same machine: it says what differs and by how much."
        )
    return textwrap.fill(" ".join([*sentences, TIMES]), 118, break_long_words=False, break_on_hyphens=False)


def _run(entry: dict[str, Any]) -> str:
    return (
        f"Run {entry['run_id']}: {counted(entry['text']['tokens'], 'token')}, {entry['model']['id']}, centroids "
        f"{entry['centroids']['name']}, {setting_words(entry['config'])}."
    )


def _missing(manifest: dict[str, Any]) -> list[str]:
    lines = []
    for entry in manifest["runs"]:
        lines += [f"table {what} of {entry['run_id']}: {why}" for what, why in entry["left_out"].items()]
    reasons: dict[str, list[str]] = {}
    for one in manifest["figures"]["missing"]:
        reasons.setdefault(one["why"], []).append(f"{one['name']} of {one['run_id']}")
    lines += [f"figures {', '.join(names)}: {why}" for why, names in reasons.items()]
    if not manifest["figures"]["asked_for"]:
        lines.append("figures: none were asked for")
    return lines


def bibtex() -> str:
    """The BibTeX file: the paper, whose sources agree on the first three authors only, and this tool."""
    text = files(PACKAGE).joinpath("templates/references.bib").read_text(encoding="utf-8")
    return text.replace("VERSION", __version__)
