"""The page of all families: the doctor's findings on a tiny model of each, one row a family."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from focus_runtime.errors import InputError, ModelError, first_line
from focus_runtime.evaluate.doctor.doctor import ALONE, FOCUS, MASKED, doctor
from focus_runtime.evaluate.doctor.families import model_types, tiny_model
from focus_runtime.evaluate.doctor.report import Finding, worst

# Columns of the page, and the scenarios of each. Compiling takes longer than all of them together, so it is left out.
COLUMNS = {
    "one text": ("plain",),
    "padding": ("left padding", "right padding"),
    "packing": ("packing", "packing with lengths"),
    "caches": (
        "the model's cache",
        "cache and left padding",
        "dynamic cache",
        "static cache",
        "chunked prefill",
        "cropped cache",
    ),
    "generate": ("greedy", "beams", "assisted", "prompt lookup"),
    "bfloat16, gradients": ("bfloat16", "gradients"),
}
ONE_GROUP = "one group"
MARKS = {"ok": "ok", "refused": "refused", "differs": "**differs**", "error": "**error**", "not applicable": "–"}


@dataclass(frozen=True, slots=True)
class FamilyRow:
    """What the doctor found on one family.

    Attributes:
        family: its name in transformers.
        model: class of the model; empty where there is none.
        layers: kinds of its layers, in order.
        cells: outcome by column.
        reason: the worst finding in words, or why there is no model; empty where all is well.
    """

    family: str
    model: str
    layers: tuple[str, ...]
    cells: dict[str, str]
    reason: str

    @property
    def outcome(self) -> str:
        """The worst of its cells; "not built" where there is no model."""
        return next((o for o in ("error", "differs", "refused", "ok") if o in self.cells.values()), "not built")


def examine_family(family: str, attention: str = FOCUS) -> FamilyRow:
    """The doctor's findings on a tiny model of one family.

    Args:
        family: one of `model_types()`.
        attention: as for `doctor`.

    Raises:
        InputError: transformers knows no such family.
    """
    if family not in model_types():
        raise InputError(f"there is no family {family!r}", expected="one of " + ", ".join(model_types()))
    try:
        model: Any = tiny_model(family)
    except ModelError as error:
        return FamilyRow(family, "", (), {}, str(error))
    names = [name for scenarios in COLUMNS.values() for name in scenarios]
    try:
        report = doctor(model, attention=attention, scenarios=names)
    except InputError:
        raise
    except Exception as error:  # one family must not stop the others
        reason = f"the doctor cannot examine it: {type(error).__name__}: {first_line(error)}"
        return FamilyRow(family, type(model).__name__, _layers(model), {}, reason)
    groups: dict[str, list[Finding]] = {
        column: [f for f in report.findings if f.scenario in scenarios and f.against not in (MASKED, ALONE)]
        for column, scenarios in COLUMNS.items()
    }
    if attention == FOCUS:
        groups[ONE_GROUP] = [finding for finding in report.findings if finding.against in (MASKED, ALONE)]
    found = {column: worst(findings) for column, findings in groups.items()}
    worst_of_all = worst(report.findings)
    assert worst_of_all is not None
    reason = worst_of_all.words if worst_of_all.outcome not in ("ok", "not applicable") else ""
    cells = {column: finding.outcome for column, finding in found.items() if finding is not None}
    if set(cells.values()) == {"not applicable"}:  # the model itself runs in no scenario
        return FamilyRow(family, report.model, _layers(model), {}, report.findings[0].reason)
    if reason and len({finding.outcome for finding in report.findings} - {"not applicable"}) > 1:
        reason = f"{worst_of_all.scenario}: {reason}"
    return FamilyRow(family, report.model, _layers(model), cells, reason)


def _layers(model: Any) -> tuple[str, ...]:
    config = model.config.get_text_config(decoder=True)
    alike = "sliding_attention" if getattr(config, "sliding_window", None) else "full_attention"
    kinds = getattr(config, "layer_types", None) or [alike]
    return tuple(dict.fromkeys(kind.removesuffix("_attention") for kind in kinds))


def page(rows: Sequence[FamilyRow], command: str, versions: str) -> str:
    """The page in Markdown.

    Args:
        rows: of all families.
        command: that made it.
        versions: of the libraries, in words.
    """
    counts = {outcome: sum(row.outcome == outcome for row in rows) for outcome in ("ok", "refused", "differs", "error")}
    built = sum(bool(row.cells) for row in rows)
    columns = [*COLUMNS, ONE_GROUP]
    lines = [
        "# Model families",
        "",
        f"`{command}` wrote this page with {versions}.",
        f"The [doctor](doctor.md) built a tiny random model of each of the {len(rows)} names that transformers maps",
        "to a causal language model, and ran it in every scenario but compiling. The first columns compare Focus with",
        "every pair kept with the model's own eager attention. *One group* compares Focus with one group a token with",
        "an independent dense mask, and a padded row with the row alone.",
        "",
        f"{built} families run at this size. Everything that applies agrees: {counts['ok']}.",
        f"Refused in one scenario at least, and right in the others: {counts['refused']}.",
        f"Different somewhere: {counts['differs']}. Failing somewhere: {counts['error']}.",
        "",
        "*ok*: equal to rounding in all scenarios of the column. *refused*: the library says why it does not run.",
        "*–*: the model itself has no such scenario, most often because it takes no such argument.",
        "",
        *_table(["family", "layers", *columns, "what was found"], [_cells(row, columns) for row in rows if row.cells]),
        "",
        "## Families without a tiny model",
        "",
        *_table(["family", "reason"], [[f"`{row.family}`", _cell(row.reason)] for row in rows if not row.cells]),
    ]
    return "\n".join(lines) + "\n"


def _cells(row: FamilyRow, columns: Iterable[str]) -> list[str]:
    marks = [MARKS[row.cells.get(column, "not applicable")] for column in columns]
    reason = row.reason.replace("refused: ", "").split("; ")[0] if row.outcome == "refused" else row.reason
    return [f"`{row.family}`", ", ".join(row.layers), *marks, _cell(reason)]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _cell(text: str) -> str:
    """Text of another package, as one cell."""
    line = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return line if len(line) <= 200 else line[:199] + "…"
