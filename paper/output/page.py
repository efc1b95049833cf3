"""Every written report on one page, offline, and its claims as a table."""

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from focus_runtime.files import replacing
from paper.names import OWN, REPORTS
from paper.output.files import HELD, NO_SPACE, RECIPE_WORDS, cell, claims_by_text, heading, plain
from paper.output.report import Claim, Column, Report, read_json

PAGE = "index.html"
CHIPS = {True: "held", False: "failed", None: "open"}  # classes of the style sheet


def read_report(file: Path) -> Report | None:
    """A report as it was written, without its figure and raw values; None where there is none."""
    values = read_json(file)
    try:
        values["columns"] = [Column(**column) for column in values["columns"]]
        values["claims"] = [Claim(**claim) for claim in values["claims"]]
        return Report(**values | {"figure": None, "raw": {}})
    except (KeyError, TypeError):
        return None


def written_reports(folder: Path) -> list[Report]:
    """The reports of a folder in the order of the paper, then our own."""
    found = (read_report(folder / f"{name}.json") for name in REPORTS)
    return [report for report in found if report is not None]


def write_page(folder: Path) -> Path:
    """Write the page of all reports in a folder; returns its file."""
    loader = PackageLoader("paper.output")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.globals |= {"HELD": HELD, "CHIPS": CHIPS, "RECIPE_WORDS": RECIPE_WORDS, "REPORTS": REPORTS, "OWN": OWN}
    environment.filters |= {"cell": cell, "heading": heading, "plain": plain, "claims_by_text": claims_by_text}
    reports = written_reports(folder)
    older = [report for report in reports if is_older(report)]
    verdicts = [claim.held for report in reports if report not in older for claim in report.claims]
    text = environment.get_template("page.html").render(
        reports=reports,
        names=[report.name for report in reports],
        older=older,
        counts={held: verdicts.count(held) for held in HELD},
        pictures={report.name: _svg(folder / f"{report.name}.svg") for report in reports},
        files={report.name: sorted(file.name for file in folder.glob(f"{report.name}.*")) for report in reports},
    )
    file = folder / PAGE
    with replacing(file, explain=NO_SPACE) as part:
        part.write_text(text, encoding="utf-8")
    return file


def _svg(file: Path) -> Markup:
    """A figure without what precedes it in a file of its own."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return Markup(text[text.find("<svg") :])


def is_older(report: Report) -> bool:
    """Whether a report was judged before claims had margins; later ones have a key of what they depend on as well."""
    return not report.key and bool(report.claims) and not any(claim.rule for claim in report.claims)


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
            recipe, rule = ("before the recipes", "none written") if is_older(report) else (claim.recipe, claim.rule)
            cells = [report.name, claim.text, recipe, HELD[claim.held], claim.evidence, rule]
            lines.append("| " + " | ".join(one.replace("|", "\\|") for one in cells) + " |")
    return "\n".join(lines) + "\n"
