"""Held-out text of a training: its sequences by domain, and the scores at the end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from focus_explorer.errors import TextError
from focus_explorer.usecases.training.domains import HELD_OUT, DomainTexts
from focus_explorer.usecases.training.request import TrainRequest
from focus_explorer.words import counted


def held_out_sequences(tokenizer: Any, domains: list[DomainTexts], request: TrainRequest) -> dict[str, Any]:
    """(N, T) token ids of every domain; empty without held-out text.

    Raises:
        TextError: a domain is shorter than one sequence.
    """
    from focus_runtime.text.sequences import encode_texts, even_sequences

    sequences = {}
    for domain in domains:
        try:
            ids = encode_texts(tokenizer, domain.texts, request.seq_len, request.special_tokens)
        except TextError as error:
            if not domain.name:
                raise
            raise TextError(
                error.problem.replace("the text", f"the held-out domain {domain.name!r}", 1),
                expected=f"at least {request.seq_len}",
                fix="give it more text or a shorter --seq-len",
            ) from error
        sequences[domain.name or HELD_OUT] = even_sequences(ids, request.val_sequences, request.seq_len)
    return sequences


def score(model: Any, centroids: Any, sequences: Mapping[str, Any]) -> dict[str, Any]:
    """Held-out perplexities of finished centroids under the hard mask, for top-k 1 and 2, and of full attention.

    Args:
        model: the base model, Focus not composed.
        centroids: trained and calibrated.
        sequences: (N, T) token ids by domain.

    Returns:
        What `validate` reports. For several domains, or one with a name, that of each under `domains`, and means of
        them in which each counts once (of perplexities the geometric mean).
    """
    from focus_runtime.fit.centroids import validate

    tops = tuple(range(1, min(2, centroids.config.num_groups) + 1))
    reports = {name: validate(model, centroids, ids, top_ks=tops) for name, ids in sequences.items()}
    if list(reports) == [HELD_OUT]:
        return reports[HELD_OUT]
    return _mean(list(reports.values())) | {"domains": reports}


def _mean(reports: list[dict[str, Any]]) -> dict[str, Any]:
    from focus_runtime.mask.distances import mean_of_some

    made: dict[str, Any] = {}
    for name, value in reports[0].items():
        values = [report[name] for report in reports]
        if isinstance(value, dict):
            made[name] = _mean(values)
        elif name == "distant_kept":
            made[name] = mean_of_some(values)
        elif name in ("full", "perplexity"):
            made[name] = math.exp(sum(map(math.log, values)) / len(values))
        elif name in ("scored_tokens", "scored"):
            made[name] = sum(values)
        else:
            made[name] = sum(values) / len(values) if isinstance(value, float) else value
    return made


def describe_evaluation(evaluation: Any) -> str:
    """One line on an evaluation during a training."""
    losses = evaluation.losses
    words = ", ".join(f"{name} {loss:.4f}" for name, loss in losses.items())
    words = words if len(losses) > 1 else f"{evaluation.mean:.4f}"
    mean = f", mean {evaluation.mean:.4f}" if len(losses) > 1 else ""
    return (
        f"step {evaluation.step:,}: held-out loss {words}{mean} nats per token, "
        f"largest group {evaluation.dominance:.1%}, pairs kept {evaluation.retained_pairs:.1%}"
    )


def describe_scores(report: dict[str, Any], *, has_budget: bool = False) -> list[str]:
    """The scores at the end, in lines: of all held-out text, then of every domain.

    Args:
        report: what `score` returned; empty without held-out text.
        has_budget: whether some heads have a setting of their own, which they keep at every k.
    """
    if not report:
        return []
    domains = report.get("domains", {})
    mean = f", mean of {counted(len(domains), 'domain')}" if domains else ""
    lines = [
        f"held-out perplexity, full attention: {report['full']:.3f} ({counted(report['scored_tokens'], 'token')}{mean})"
    ]
    for name, row in report.items():
        if name.startswith("k="):
            distant = "none" if row["distant_kept"] is None else f"{row['distant_kept']:.1%}"
            lines.append(
                f"held-out perplexity, Focus {name}: {row['perplexity']:.3f}, largest group {row['dominance']:.1%}, "
                f"pairs kept {row['retained_pairs']:.1%}, distant pairs kept {distant}"
            )
    if has_budget:
        lines.append("  k is that of heads without a setting of their own; the others keep theirs")
    for domain, own in domains.items():
        focus = (f"{name} {row['perplexity']:.3f}" for name, row in own.items() if name.startswith("k="))
        lines.append(f"  {domain}: full attention {own['full']:.3f}, {', '.join(focus)}")
    return lines
