"""domains: all weights fine-tuned with full attention and with Focus, on several kinds of text."""

from focus_runtime.errors import InputError, TextError
from focus_runtime.text.sequences import encode_texts, even_sequences
from paper.lab import shared
from paper.lab.lab import Lab
from paper.lab.twins import FOCUS, FULL, GROUPS, twins, two_phase
from paper.output.report import Claim, Column, Report, Row
from paper.reported import REPORTED
from paper.verdicts import judge

GIVEN = "the texts given"
HELD_OUT_SHARE = 5  # a fifth of a domain's characters, its end


def domains(lab: Lab) -> Report:
    if lab.scale.name == "paper" and not lab.domains:
        names = " ".join(f"{name}=FOLDER" for name in REPORTED["domains"])
        raise InputError("the paper's kinds of text were not given", expected=f"--domain {names}")
    rows: list[Row] = []
    missing: list[str] = []
    for name in lab.domains or [GIVEN]:
        try:
            rows += _rows(lab, name)
        except TextError as error:
            missing.append(f"{name}: {error}")
            rows.append({"domain": name, "attention": "not measured"})
    return Report(
        [
            Column("domain", "kind of text"),
            Column("attention", "attention"),
            *shared.QUALITY,
            Column("sequences", "sequences", 0),
            Column("paper_ppl", "perplexity (GPT-2 124M)", 1, paper=True),
        ],
        rows,
        lab.setting(groups=GROUPS, steps={"centroids": lab.scale.steps, "weights": lab.scale.weight_steps}),
        [
            "p and the difference compare with the twin, fine-tuned with full attention on the same sequences.",
            "Kinds of text are given by --domain NAME=FOLDER; the last fifth of each is held out.",
            *missing,
        ],
        [_claim([row for row in rows if row["attention"] == FOCUS], missing)],
    )


def _rows(lab: Lab, name: str) -> list[Row]:
    """Both attentions on one kind of text."""
    length, train, held_out = lab.scale.seq_len, lab.texts, lab.held_out
    if name in lab.domains:
        whole = "\n\n".join(lab.domains[name])
        cut = len(whole) - len(whole) // HELD_OUT_SHARE
        train, held_out = [whole[:cut]], [whole[cut:]]
    ids = encode_texts(lab.tokenizer, held_out, length)
    if ids.numel() < 2 * length:
        raise TextError(f"the held-out part has {ids.numel():,} tokens", expected=f"{2 * length:,}")
    count = min(lab.scale.val_sequences, ids.numel() // length)
    plan = two_phase(lab, name, texts=train, sequences=even_sequences(ids, count, length).to(lab.device))
    rows = []
    for row in twins(lab, plan, lab.seed)[0]:
        of_paper = REPORTED["domains"].get(name, {}).get("full" if row["attention"] == FULL else "focus")
        rows.append({**row, "domain": name, "sequences": count, "paper_ppl": of_paper})
    return rows


def _claim(gaps: list[Row], missing: list[str]) -> Claim:
    listed = ", ".join(f"{row['domain']} {row['relative'].value:+.2%}" for row in gaps) or "none measured"
    evidence = f"k = 2 against the twin: {listed}"
    evidence += "; not measured: " + ", ".join(one.split(":")[0] for one in missing) if missing else ""
    evidence += "; one kind of text decides nothing" if len(gaps) == 1 else ""
    decides = len(gaps) > 1 and not missing
    return judge("domains", [row["relative"] for row in gaps] if decides else None, evidence)
