"""A report to read: setting, groups, sparsity, quality, speed and caveats of one run or several, as HTML and PDF."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from focus_explorer.errors import InputError
from focus_explorer.exports import templates
from focus_explorer.exports.bundle.manifest import SteadyDatabase
from focus_explorer.exports.figures.render import print_pdf
from focus_explorer.exports.report import charts, numbers
from focus_explorer.exports.report.numbers import OVERALL, RunReport, cause_shares, read_run
from focus_explorer.progress import Progress
from focus_explorer.statistics.describe import STATISTICS
from focus_explorer.statistics.rows import ENOUGH_UNITS, FEW_UNITS
from focus_explorer.usecases.budget import kept_budget
from focus_explorer.usecases.service import Service
from focus_explorer.words import counted
from focus_runtime.config import FocusConfig, setting_rows
from focus_runtime.files import replacing
from focus_runtime.version import __version__

MOST_RUNS = 4
PACKAGE = "focus_explorer.exports.report"
STAGES = (("end_to_end", "Whole forward pass"), ("attention", "Attention layers alone"))
CAUSE_NAMES = {
    "local_only": "in the window only",
    "local_and_group": "in the window and the same group",
    "group_only": "same group only, beyond the window",
    "sink_only": "first tokens only",
    "dropped": "dropped",
}
SCHEMES = {"pos": "part of speech", "word": "class of word"}
FURTHER = {  # measurement -> what it tells
    "attention": "how much of full attention the kept pairs hold",
    "comparisons": "other settings, and the same setting with random centroids or without groups",
    "lengths": "from which length on Focus is faster",
}


@dataclass(frozen=True, slots=True)
class Written:
    """The files of a report; `note` says why there is no PDF although one was requested."""

    html: Path
    pdf: Path | None
    note: str = ""


def write_report(
    service: Service,
    run_ids: Sequence[str],
    folder: str | Path,
    *,
    pdf: bool = True,
    progress: Progress = lambda stage, fraction: None,
) -> Written:
    """Write report.html, and report.pdf with `pdf`, of 1 to `MOST_RUNS` runs side by side into a folder.

    Without Chrome or Chromium only the HTML is written.
    """
    ids = list(dict.fromkeys(run_ids))
    if not 1 <= len(ids) <= MOST_RUNS:
        raise InputError(f"a report of {len(ids)} runs was requested", expected=f"1 to {MOST_RUNS} runs")
    database = SteadyDatabase(service.database.path, wait=service.database.wait)
    reports = []
    for number, run_id in enumerate(ids):
        progress(f"Statistics of run {number + 1}", 0.8 * number / len(ids))
        reports.append(read_run(database, run_id))
    progress("Writing", 0.85)
    target = Path(folder).expanduser()
    page = target / "report.html"
    with replacing(page) as part:
        part.write_text(render(reports), encoding="utf-8", newline="\n")
    if not pdf:
        return Written(page, None)
    progress("Printing", 0.9)
    try:
        return Written(page, print_pdf(page, target / "report.pdf"))
    except InputError as error:
        return Written(page, None, f"no PDF: {error}")


def render(reports: list[RunReport]) -> str:
    environment = templates(PACKAGE, autoescape=True)
    environment.filters |= {each.__name__: each for each in numbers.FILTERS} | {"counted": counted}
    environment.globals |= {"speed": numbers.speed, "loss": numbers.loss, "learned": numbers.learned}
    style = files(PACKAGE).joinpath("templates/report.css").read_text(encoding="utf-8")
    return environment.get_template("report.html.jinja").render(
        runs=[_context(report, number) for number, report in enumerate(reports)],
        style=style,
        version=__version__,
        statistics={name: STATISTICS[name].title for name in OVERALL},
        causes=CAUSE_NAMES,
        stages=STAGES,
        same_text=len({report.run["text_sha256"] for report in reports}) == 1,
        settings=_settings(reports),
        warm_up=numbers.warm_up({report.run["device"] for report in reports}),
    )


def _context(report: RunReport, number: int) -> dict[str, Any]:
    """The template's variables for one run: its report, charts, and sentences that depend on several numbers."""
    timed = [
        (title, {mode: row["values"] for mode, row in report.timings[stage].items()})
        for stage, title in STAGES
        if stage in report.timings
    ]
    return {
        "letter": "ABCD"[number],
        "report": report,
        "run": report.run,
        "config": report.run["config"],
        "budget": kept_budget(report.run["config"]),
        "scheme": SCHEMES[report.scheme],
        "shares": cause_shares(report),
        "bands": _bands(report.distances),
        "pairs": report.causes[0]["causal_pairs"],
        "cautions": cautions(report),
        "nmi_chart": charts.by_layer(report.layers, "Mutual information of groups and categories by layer"),
        "cause_chart": charts.causes(report.causes, tuple(CAUSE_NAMES), "Pairs by cause and layer"),
        "distance_chart": charts.distances(report.distances, "Share of pairs kept by distance"),
        "time_chart": charts.repeats(timed, "Every timed repeat") if timed else "",
    }


def _bands(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most eight ranges of distances for a table, the first and the last among them."""
    most = 8
    if len(rows) <= most:
        return rows
    return [rows[round(place * (len(rows) - 1) / (most - 1))] for place in range(most)]


def _added(pieces: str | None) -> str:
    """The tokens that the tokenizer put before a text, from the column of the run."""
    return f" with {' '.join(json.loads(pieces))}" if pieces and pieces != "[]" else ""


def _settings(reports: list[RunReport]) -> list[tuple[str, list[str], bool]]:
    """(what, each run's value, whether they differ) of the table of settings."""
    rows: list[tuple[str, list[str]]] = []

    def add(what: str, values: list[Any]) -> None:
        rows.append((what, [str(value) for value in values]))

    runs = [report.run for report in reports]
    configs = [run["config"] for run in runs]
    add("Text", [report.name for report in reports])
    add("Tokens", [numbers.count(run["num_tokens"]) + _added(run["added_tokens"]) for run in runs])
    add("Model", [run["model_id"] for run in runs])
    add("Centroids", [run["centroids_name"] for run in runs])
    add("Layers with groups", [len(report.causes) for report in reports])
    for what, values in setting_rows([FocusConfig.from_dict(config) for config in configs]):
        add(what, values)
    add("Precision, device", [f"{run['dtype']}, {run['device']}" for run in runs])
    add(
        "Attention code, threads",
        [f"{run['backend']}, {run['versions'].get('threads', 'not recorded')}" for run in runs],
    )
    add("PyTorch", [run["versions"].get("torch", "not recorded") for run in runs])
    add("Run", [run["run_id"] for run in runs])
    add("Made", [f"{run['created_at']:%Y-%m-%d %H:%M} UTC" for run in runs])
    return [(what, values, len(set(values)) > 1) for what, values in rows]


def cautions(report: RunReport) -> list[str]:
    """Limits of the numbers, most important first."""
    run, config, measured = report.run, report.run["config"], report.measured
    notes = [str(note) for note in run["notes"]]
    if report.units < ENOUGH_UNITS:
        sentences = "1 sentence" if report.units == 1 else f"{report.units} sentences"
        notes.append(
            f"The text has {sentences}. Intervals come from drawing whole sentences again, so with fewer than "
            f"{ENOUGH_UNITS} they are rough, and with fewer than {FEW_UNITS} they tell next to nothing."
        )
    weak = [
        STATISTICS[name].title.lower()
        for name in OVERALL
        if name in report.overall and "shuffled" in report.overall[name]["warning"]
    ]
    if weak:
        notes.append(f"No more than under shuffled groups: {numbers.joined(weak)}.")
    notes += report.sample_notes
    if run["num_tokens"] <= FocusConfig.from_dict(config).full_up_to:
        notes.append("Windows and first tokens cover the whole text, so Focus drops nothing here.")
    repeats = [row["repeats"] for modes in report.timings.values() for row in modes.values()]
    if repeats and min(repeats) < 3:
        notes.append(f"Times rest on {counted(min(repeats), 'repeat')} only.")
    missing = [name for key, name in FURTHER.items() if not measured[key]]
    if missing:
        notes.append(f"Not measured for this run: {'; '.join(missing)}.")
    return notes
