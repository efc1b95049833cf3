"""README.txt and references.bib of a bundle."""

from __future__ import annotations

import textwrap
from typing import Any

from focus_explorer.usecases.budget import other_settings
from focus_explorer.words import counted
from focus_runtime.version import __version__

_HEAD = """\
{title}
{rule}

{runs}

What is here
------------
manifest.json    how every number came about: model, centroids, settings, hashes, seeds, versions, measured times,
                 coordinates of maps, and the hash of every file here
data/RUN/        tables as Parquet; where they come from stands in their metadata (key focus_explorer)
tables/RUN/      the same tables as CSV, JSON, LaTeX and Markdown; LaTeX and Markdown show the columns and first rows
                 that fit on paper
figures/RUN/     figures as PDF and SVG
references.bib   what to cite
{text_line}

How to make the tables again
----------------------------
    focus-explorer rebuild manifest.json{text_option}

{promise}

{text_part}
"""
_WITH = """\
The text
--------
This bundle includes the text, whole, in text/, and token by token in several tables. Publish it only where you may
publish the text.
"""
_WITHOUT = """\
The text
--------
The text is not here. Nothing here stands in the order of the text: no tokens, token ids, losses, groups or links by
place, because whoever has the model can find the tokens again from any of them. What is here of the text: its hashes
and lengths; the most frequent and most characteristic tokens of each group with their counts, which name words of the
text, not where they stand; tags and statistics over all tokens; and map coordinates in the order of their x. From a
text of a few dozen tokens the counted tokens are most of its words: leave such a bundle unpublished if the text is
confidential.
"""
_CHANGED = """
A run that was changed by hand cannot be made again without its changes. They are here, and those of single tokens name
them by their place (the 163 of move:12:163:B), not by what stands there.
"""
_TIMES = "Times are measured again and not compared. Figures are not made again."


def readme(manifest: dict[str, Any]) -> str:
    """README.txt of a bundle, from its manifest without the list of files."""
    runs, with_text = manifest["runs"], manifest["includes_text"]
    title = "Focus Explorer bundle of " + (f"run {runs[0]['run_id']}" if len(runs) == 1 else f"{len(runs)} runs")
    parts = [
        _HEAD.format(
            title=title,
            rule="=" * len(title),
            runs="\n".join(_run(entry) for entry in runs),
            text_line="text/            the texts, in UTF-8" if with_text else "",
            text_option="" if with_text else " --text FILE",
            promise=_promise(runs),
            text_part=_WITH if with_text else _WITHOUT + (_CHANGED if any(run.get("changes") for run in runs) else ""),
        ).replace("\n\n\n", "\n\n"),
        *_missing(manifest),
    ]
    return "\n".join(part.rstrip() + "\n" for part in parts)


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
    return textwrap.fill(" ".join([*sentences, _TIMES]), 118, break_long_words=False, break_on_hyphens=False)


def _run(entry: dict[str, Any]) -> str:
    config, text = entry["config"], entry["text"]
    return (
        f"Run {entry['run_id']}: {counted(text['tokens'], 'token')}, {entry['model']['id']}, centroids "
        f"{entry['centroids']['name']}, K={config['num_groups']}, top-k {config['top_k']}, window {config['window']}, "
        f"{counted(config['num_sinks'], 'sink')}, {config['assignment']} assignment{other_settings(config)}."
    )


def _missing(manifest: dict[str, Any]) -> list[str]:
    """What is not in the bundle, and why."""
    lines = []
    for entry in manifest["runs"]:
        lines += [f"table {what} of {entry['run_id']}: {why}" for what, why in entry["left_out"].items()]
    reasons: dict[str, list[str]] = {}
    for one in manifest["figures"]["missing"]:
        reasons.setdefault(one["why"], []).append(f"{one['name']} of {one['run_id']}")
    lines += [f"figures {', '.join(names)}: {why}" for why, names in reasons.items()]
    if not manifest["figures"]["asked_for"]:
        lines.append("figures: none were asked for")
    return ["What is not here\n----------------\n" + "\n".join(f"- {line}" for line in lines)] if lines else []


# Sources agree on the first three authors and differ in the order of the rest.
_TEXT = """% Check both entries against the newest version of the paper before you print them.

@misc{{focus2026,
  title         = {{{{Composing Sparse Attention via Learned Grouping}}}},
  author        = {{Yao, Hengshuai and Chen, Xing and Murtadha, Ahmed and others}},
  year          = {{2026}},
  eprint        = {{2604.03260}},
  archivePrefix = {{arXiv}},
  primaryClass  = {{cs.CL}},
  note          = {{Version 1: Why Attend to Everything? Focus is the Key. Table numbers here are those of version 1}},
  url           = {{https://arxiv.org/abs/2604.03260}}
}}

@software{{focus_explorer,
  title   = {{Focus Explorer}},
  author  = {{{{The Focus Explorer authors}}}},
  version = {{{version}}},
  license = {{Apache-2.0}},
  note    = {{See, measure and compare Focus sparse attention}}
}}
"""


def bibtex() -> str:
    """The BibTeX file of a bundle."""
    return _TEXT.format(version=__version__)
