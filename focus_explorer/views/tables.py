"""Rows -> HTML tables of runs and centroid files; every value is escaped."""

from __future__ import annotations

import json
from html import escape
from typing import Any
from urllib.parse import quote

NEWEST = 200
Rows = list[dict[str, Any]]


def _table(headings: list[str], rows: list[list[str]], caption: str) -> str:
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<div class="fe-scroll"><table class="fe-table"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def runs_table(rows: Rows) -> str:
    """Stored runs, each with a link that opens it."""
    if not rows:
        return '<p class="fe-empty">No runs yet. Paste a text on the Explore page and press Explore.</p>'
    body = []
    for row in rows[:NEWEST]:
        config = row["config"]
        body.append(
            [
                f'<a href="?run={quote(row["run_id"])}">{escape(row["title"])}</a>'
                f"<small>{escape(row['run_id'])}</small>",
                f"{row['num_tokens']:,}",
                escape(row["model_id"]),
                escape(row["centroids_name"]),
                f"K={config['num_groups']}, k={config['top_k']}, w={config['window']}, s={config['num_sinks']}",
                f"{row['perplexity_full']:.2f} → {row['perplexity_focus']:.2f}",
                f"{row['retained_pairs']:.0%}",
            ]
        )
    headings = ["Text", "Tokens", "Model", "Centroids", "Setting", "Perplexity, full → Focus", "Pairs kept"]
    shown = f"the newest {NEWEST} of " if len(rows) > NEWEST else ""
    return _table(headings, body, f"{shown}{len(rows)} stored run{'s' if len(rows) != 1 else ''}, newest first")


def centroid_table(rows: Rows) -> str:
    """Shipped and uploaded centroid files."""
    body = []
    for row in rows:
        config = json.loads(row["config"])
        body.append(
            [
                f"{escape(row['name'])}<small>{escape(row['sha256'][:16])}</small>",
                escape(row["base_model"] or "not named"),
                f"K={row['num_groups']}, d<sub>g</sub>={row['routing_dim']}",
                f"{row['layers']}",
                f"k={config['top_k']}, w={config['window']}, s={config['num_sinks']}",
                escape(f"{row['uploaded_at']:%Y-%m-%d %H:%M}" if row.get("uploaded_at") else "ships with the project"),
            ]
        )
    headings = ["File", "Made for", "Groups", "Layers", "Trained with", "Added"]
    return _table(headings, body, "Centroid files you can choose on the Explore page")


def report_html(name: str, lines: list[str]) -> str:
    """What validation found in a good file."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return (
        f'<div class="fe-done" role="status"><strong>{escape(name)} is valid</strong> '
        f"and now chosen on the Explore page.<ul>{items}</ul></div>"
    )
