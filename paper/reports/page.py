"""Every written report on one page, offline: rows beside the paper's numbers, verdicts under each recipe, figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from markupsafe import Markup

from focus_runtime.files import cannot_write, replacing
from focus_runtime.measure.intervals import Interval
from paper.reports.names import OWN, PAPER, REPORTS
from paper.reports.render import HELD, RECIPE_WORDS, cell, claims_by_text, heading, plain
from paper.reports.report import Claim, Column, Report

PAGE = "index.html"
CHIPS = {True: "held", False: "failed", None: "open"}  # classes of the style sheet
OLDER = "before the recipes"
_INTERVAL = {"value", "low", "high", "units", "seeds"}


def read_report(file: Path) -> Report | None:
    """A report as it was written; None where the file is none."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"), object_hook=_interval)
        return Report(
            values["name"],
            values["title"],
            [Column(**column) for column in values["columns"]],
            values["rows"],
            values["setting"],
            values["notes"],
            [Claim(**claim) for claim in values["claims"]],
            raw={},
            key=values.get("key", ""),
            seconds=values.get("seconds", 0.0),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _interval(values: dict[str, Any]) -> Any:
    return Interval(**values) if set(values) == _INTERVAL else values


def written_reports(folder: Path) -> list[Report]:
    """The reports of a folder in the order of the paper, then our own."""
    found = (read_report(folder / f"{name}.json") for name in REPORTS)
    return [report for report in found if report is not None]


def write_page(folder: Path) -> Path:
    """Write the page of all reports in a folder; returns its file.

    Raises:
        InputError: the folder cannot be written.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("paper.reports"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    reports = written_reports(folder)
    sections = [_section(report, folder) for report in reports]
    text = environment.get_template("page.html").render(
        sections=sections,
        missing=[(name, what) for name, (_, what) in REPORTS.items() if name not in {r.name for r in reports}],
        counts={words: sum(s["verdicts"].count(words) for s in sections if not s["older"]) for words in HELD.values()},
        older=sum(len(section["verdicts"]) for section in sections if section["older"]),
        verdicts=[(HELD[held], CHIPS[held]) for held in HELD],
    )
    file = folder / PAGE
    with replacing(file, explain=cannot_write("choose another --out with space in it")) as part:
        part.write_text(text, encoding="utf-8")
    return file


def _section(report: Report, folder: Path) -> dict[str, Any]:
    picture = folder / f"{report.name}.svg"
    claims = [
        (
            text,
            [
                {
                    "recipe": RECIPE_WORDS.get(claim.recipe, ""),
                    "verdict": HELD[claim.held],
                    "chip": CHIPS[None if is_older(report) else claim.held],
                    "evidence": claim.evidence,
                    "rule": claim.rule,
                }
                for claim in found
            ],
        )
        for text, found in claims_by_text(report.claims).items()
    ]
    return {
        "name": report.name,
        "title": report.title,
        "own": report.name in OWN,
        "older": is_older(report),
        "what": (PAPER | OWN)[report.name][1],
        "heads": [(heading(column), column.paper) for column in report.columns],
        "rows": [[(cell(row.get(c.key), c), c.paper) for c in report.columns] for row in report.rows],
        "claims": claims,
        "verdicts": [HELD[claim.held] for claim in report.claims],
        "notes": report.notes,
        "setting": [(name, plain(value)) for name, value in report.setting.items()],
        "picture": Markup(_without_prolog(picture.read_text(encoding="utf-8"))) if picture.exists() else "",
        "files": [file.name for file in sorted(folder.glob(f"{report.name}.*"))],
    }


def is_older(report: Report) -> bool:
    """Whether a report was judged before claims had margins; later ones have a key of what they depend on as well."""
    return not report.key and bool(report.claims) and not any(claim.rule for claim in report.claims)


def _without_prolog(svg: str) -> str:
    return svg[svg.index("<svg") :]


def claims_table(folder: Path) -> str:
    """Every claim with its verdicts as a Markdown table, from the written rows alone; once where reports share rows."""
    lines = ["| report | claim | recipe | verdict | found | rule |", "|---|---|---|---|---|---|"]
    seen: set[tuple[str, str, str]] = set()
    for report in written_reports(folder):
        for claim in report.claims:
            once = (claim.text, claim.recipe, claim.evidence)
            if once in seen:
                continue
            seen.add(once)
            recipe, rule = (OLDER, "none written") if is_older(report) else (claim.recipe or "", claim.rule)
            cells = [report.name, claim.text, recipe, HELD[claim.held], claim.evidence, rule]
            lines.append("| " + " | ".join(one.replace("|", "\\|") for one in cells) + " |")
    return "\n".join(lines) + "\n"
