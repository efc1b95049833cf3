"""What the doctor found, as data, as a table and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from focus_runtime.evaluate.doctor.trace import Difference

OUTCOMES = ("ok", "refused", "differs", "error", "not applicable")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one scenario.

    Attributes:
        scenario: its name.
        against: what the examined attention was compared with.
        outcome: one of `OUTCOMES`.
        difference: the first place that differs; None where nothing does.
        reason: why the library refused, what was raised, or why the scenario does not apply; empty otherwise.
    """

    scenario: str
    against: str
    outcome: str
    difference: Difference | None = None
    reason: str = ""

    @property
    def words(self) -> str:
        """The result in words."""
        if self.difference is not None:
            return differs(self.difference)
        return f"{self.outcome}: {self.reason}" if self.reason else self.outcome


@dataclass(frozen=True, slots=True)
class Report:
    """All findings of one model.

    Attributes:
        model: class of the model.
        attention: what was examined: "focus" or the name of a registered implementation.
        notes: what else a user should know, one sentence each.
        findings: in the order of the scenarios.
    """

    model: str
    attention: str
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing differs and nothing failed; refusals are sound."""
        return not any(finding.outcome in ("differs", "error") for finding in self.findings)

    def lines(self) -> list[str]:
        """The table."""
        width = max(len(finding.scenario) for finding in self.findings)
        lines = [f"{self.model}, attention {self.attention}", *self.notes]
        for against in dict.fromkeys(finding.against for finding in self.findings):
            found = [finding for finding in self.findings if finding.against == against]
            alike = len({finding.words for finding in found}) == 1 and found[0].outcome != "ok"
            rows = [("all scenarios", found[0].words)] if alike else [(f.scenario, f.words) for f in found]
            lines += ["", f"{against}:", *(f"  {scenario:<{width}}  {words}" for scenario, words in rows)]
        return [*lines, "", self.summary]

    @property
    def summary(self) -> str:
        """How many scenarios had which outcome."""
        counted = {outcome: sum(f.outcome == outcome for f in self.findings) for outcome in OUTCOMES}
        return ", ".join(f"{number} {outcome}" for outcome, number in counted.items() if number)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; a difference that has no size is null."""
        findings = [_plain(asdict(finding)) for finding in self.findings]
        return {**asdict(self), "findings": findings, "healthy": self.healthy}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    difference = values["difference"]
    if difference is not None:
        values["difference"] = {k: None if isinstance(v, float) and math.isinf(v) else v for k, v in difference.items()}
    return values


def differs(difference: Difference) -> str:
    """Where two runs differ, in words.

    Args:
        difference: the first one.
    """
    place = "in the result" if difference.layer is None and difference.token is None else ""
    if not place:
        place = "in the logits" if difference.layer is None else f"at layer {difference.layer}"
        place += "" if difference.token is None else f", token {difference.token}"
    size = "" if math.isinf(difference.size) else f" by {difference.size:.2g}"
    logits = f"; logits by up to {difference.logits:.2g}" if difference.logits and difference.layer is not None else ""
    return f"differs first {place}{size}{logits}"


def worst(findings: Iterable[Finding]) -> Finding | None:
    """The finding that matters most: an error or a difference before a refusal, that before agreement.

    Args:
        findings: of one group of scenarios.
    """
    order = ("error", "differs", "refused", "ok", "not applicable")
    return min(findings, key=lambda finding: order.index(finding.outcome), default=None)
