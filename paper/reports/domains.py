"""domains: all weights fine-tuned with full attention and with Focus, on several kinds of text."""

from __future__ import annotations

from typing import Any

from focus_explorer.errors import InputError, TextError
from focus_runtime.text.sequences import encode_texts, even_sequences
from paper.reports import paper
from paper.reports.hub_texts import CORPORA, hub_texts
from paper.reports.lab import Lab
from paper.reports.quality import QUALITY
from paper.reports.report import Claim, Column, Report, agreed, decided
from paper.reports.twins import GROUPS, twins, two_phase

GIVEN = "the texts given"
HELD_OUT_SHARE = 5  # a fifth of a domain's characters, its end
CHARACTERS = 40_000_000  # of a corpus from the hub that are trained on
MARGIN = 0.01


def domains(lab: Lab) -> Report:
    """A row for each kind of text and attention; a kind that cannot be had has a row that says why."""
    rows: list[dict[str, Any]] = []
    missing: list[str] = []
    for name in _names(lab):
        reported = paper.DOMAINS.get(name, {})
        try:
            train, held_out = _texts(lab, name)
            ids = encode_texts(lab.tokenizer, held_out, lab.scale.seq_len)
            if ids.numel() < lab.scale.seq_len * 2:
                raise TextError(f"the held-out part has {ids.numel():,} tokens", expected=f"{2 * lab.scale.seq_len:,}")
        except InputError as error:
            missing.append(f"{name}: {error}")
            rows.append({"domain": name, "attention": "not measured", **_cells("full", reported)})
            continue
        count = min(lab.scale.val_sequences, ids.numel() // lab.scale.seq_len)
        sequences = even_sequences(ids, count, lab.scale.seq_len).to(lab.device)
        plan = two_phase(lab, name, lab.model, lab.model_name, texts=train, sequences=sequences)
        for row in twins(lab, plan, lab.scale.seeds[0]).rows:
            kind = "full" if row["attention"] == "full attention" else "focus"
            rows.append({**row, "domain": name, "sequences": count, **_cells(kind, reported)})
    gaps = [row for row in rows if row["attention"] == "Focus, k = 2"]
    return Report(
        "domains",
        "All weights fine-tuned on several kinds of text, full attention and Focus",
        [
            Column("domain", "kind of text"),
            Column("attention", "attention"),
            *QUALITY,
            Column("sequences", "sequences", 0),
            Column("paper_ppl", "perplexity (GPT-2 124M)", 1, paper=True),
        ],
        rows,
        {
            **lab.base_setting(),
            "groups": GROUPS,
            "steps": {"centroids": lab.scale.steps, "weights": lab.scale.weight_steps},
            "seeds": lab.scale.seeds[:1],
        },
        [
            "p and the difference compare with the twin, fine-tuned with full attention on the same sequences.",
            "Kinds of text are given by --domain NAME=FOLDER; the last fifth of each is held out.",
            *missing,
        ],
        [
            Claim(
                "Focus is as good as full attention on every kind of text (WikiText-103 21.3 against 21.4, OpenWebText "
                "21.7 against 22.2)",
                agreed(decided(row["relative"], below=MARGIN) for row in gaps)
                if len(gaps) > 1 and not missing
                else None,
                "k = 2 against the twin: "
                + (", ".join(f"{row['domain']} {row['relative'].value:+.2%}" for row in gaps) or "none measured")
                + ("; not measured: " + ", ".join(one.split(":")[0] for one in missing) if missing else "")
                + ("; one kind of text decides nothing" if len(gaps) == 1 else ""),
                f"margin: below {MARGIN:+.0%} on every kind, by the intervals, at least two kinds",
            )
        ],
    )


def _names(lab: Lab) -> list[str]:
    if lab.domains:
        return list(lab.domains)
    return list(CORPORA) if lab.scale.name == "paper" else [GIVEN]


def _texts(lab: Lab, name: str) -> tuple[list[str], list[str]]:
    """Training and held-out texts of a kind."""
    if name in lab.domains:
        whole = "\n\n".join(lab.domains[name])
        cut = len(whole) - len(whole) // HELD_OUT_SHARE
        return [whole[:cut]], [whole[cut:]]
    if name == GIVEN:
        return lab.texts, lab.held_out
    needed = 8 * lab.scale.seq_len * lab.scale.val_sequences  # eight characters to a token are more than enough
    return hub_texts(name, train=CHARACTERS, held_out=needed)


def _cells(kind: str, reported: dict[str, float]) -> dict[str, Any]:
    return {"paper_ppl": reported.get(kind)}
