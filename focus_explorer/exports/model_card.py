"""The card of a published centroid file: README.md of its repository, with the metadata that a hub reads.

It tells what the file records and what a given table measured, and says so where something is not recorded. Its text is
in templates/model_card.md.jinja.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from focus_explorer.exports import templates
from focus_explorer.exports.tables.reading import escape_markdown, line
from focus_explorer.usecases.centroids.files import balanced_on
from focus_explorer.usecases.centroids.publish import Publication
from focus_explorer.words import counted
from focus_runtime.budget import budget_words
from focus_runtime.config import setting_rows

LIBRARY = "focus-explorer"
TAGS = ["focus-explorer", "focus-centroids", "sparse-attention"]
LONGEST = 200  # characters of one recorded value
MOST_ROWS = 100
# Of a training's record, what has a place of its own in the card.
_APART = ("budget", "domains", "texts", "validation")
_BASELINES = {"random as ": "random centroids", "window and sinks as ": "window and sinks alone"}
_TITLES = ("kind", "perplexity, full attention", "change with Focus", "pairs kept", "sequences")
Row = Mapping[str, Any]


def model_card(publication: Publication) -> str:
    from huggingface_hub import ModelCardData

    environment = templates("focus_explorer.exports")
    environment.filters |= {"markdown": escape_markdown, "cell": _cell}
    environment.globals |= {"pairs": _pairs, "rows": _rows}
    metadata = ModelCardData(
        base_model=publication.hub_base_model, library_name=LIBRARY, license=publication.licence, tags=TAGS
    )
    model = publication.settings.base_model or publication.hub_base_model
    return environment.get_template("model_card.md.jinja").render(
        metadata=metadata.to_yaml(),
        file=publication,
        called=f"`{model}`" if model else "a model that the file does not name by a name others could load",
        base_model=_base_model(publication),
        settings=_settings(publication),
        budget=budget_words(publication.centroids.config.budget),
        **_recipe(publication.centroids.training),
        **_held_out(publication.held_out),
        by_kind=_by_kind(publication),
    )


def _base_model(publication: Publication) -> list[tuple[str, Any]]:
    settings = publication.settings
    return [
        ("name", settings.base_model or "not recorded by a name that others could load"),
        ("id on the hub", publication.hub_base_model or "not known"),
        ("fingerprint of its weights", settings.base_fingerprint or "not recorded"),
        ("layers", publication.centroids.num_model_layers or "not recorded"),
        ("width of hidden states", publication.centroids.hidden_size),
    ]


def _settings(publication: Publication) -> list[tuple[str, Any]]:
    config = publication.centroids.config
    own = [entry.window for entry in config.budget if entry.window is not None]
    return [
        ("layers with groups", len(publication.centroids.routers)),
        *((what, value) for what, [value] in setting_rows([config.replace(budget=())])),
        ("heads with settings of their own (budget)", len(config.budget) or "none"),
        *([("windows of single heads", f"{min(own)} to {max(own)}")] if own else []),
        ("width of the routing space", config.routing_dim),
        ("temperature", f"{config.temperature:g}"),
    ]


def _facts(training: Any) -> list[tuple[str, Any]]:
    """The plain values of a training's record that have no place of their own."""
    if not isinstance(training, dict):
        return []
    named = [name for name in sorted(training) if name not in _APART]
    return [(name, training[name]) for name in named if isinstance(training[name], str | int | float | bool)]


def _recipe(training: Row) -> dict[str, Any]:
    domains = [each for each in _list(training.get("domains")) if isinstance(each, dict)]
    return {
        "facts": _facts(training),
        "groups_facts": _facts(training.get("groups_training")),
        "domains": [[_cell(each.get(key, "not recorded")) for key in ("name", "weight", "tokens")] for each in domains],
        "texts": [str(each) for each in _list(training.get("texts"))],
        "balanced": balanced_on(training),
    }


def _held_out(found: Row | None) -> dict[str, Any]:
    if found is None:
        return {"scored": "", "held_out": []}
    rows = [["full attention", f"{found['full']:.2f}", "100 %"]]
    for name, values in found["focus"].items():
        pairs = values.get("retained_pairs")
        kept = "not recorded" if pairs is None else f"{100 * pairs:.1f} %"
        rows.append([_cell(name), f"{values['perplexity']:.2f}", kept])
    scored = "" if found["scored"] is None else f" on {counted(found['scored'], 'held-out token')}"
    return {"scored": scored, "held_out": rows}


def _by_kind(publication: Publication) -> dict[str, Any] | None:
    """What was measured by kind of text: on what, titles and rows of its table, notes; None where nothing was."""
    if publication.table is not None:
        return _given_table(*publication.table)
    record = publication.budget_record
    if record is None or not record.held_out:
        return None
    since = {
        "with another budget than this file's": record.held_out_budget != publication.centroids.config.budget,
        "before its factors of logits were learned": record.before_factors,
        "before its groups were balanced on other text": record.before_balance,
        "with windows that did not grow as they do now": record.before_growth,
        "with other text sinks": record.before_text_sinks,
    }
    notes = "".join(f" **They were measured {words}.**" for words, holds in since.items() if holds)
    rows = [
        _kind(row["domain"], row["full"]["value"], row["change"], row["retained_pairs"], row["sequences"])
        for row in record.held_out
    ]
    on = "held-out text when the budget was searched"
    return {"on": on, "titles": _TITLES, "rows": rows, "notes": notes}


def _given_table(name: str, content: Row) -> dict[str, Any]:
    """`content`: of a file of benchmarks/domains.py; `name`: of its rows, those of the file."""
    domains = content["domains"]
    shown = {prefix + name: title for prefix, title in _BASELINES.items()}
    present = [key for key in shown if any(key in domain["rows"] for domain in domains.values())]
    rows, unseen = [], False
    for key, domain in domains.items():
        split, _, kind = key.partition("/")
        unseen |= split == "unseen"
        own = domain["rows"][name]
        change, kept = own["relative_difference"], own["retained_pairs"]
        cells = _kind(kind or key, domain["full_perplexity"], change, kept, domain["sequences"])
        cells[0] += "\\*" if split == "unseen" else ""
        for other in present:
            row = domain["rows"].get(other)
            cells.append("not measured" if row is None else _percent(row["relative_difference"]))
        rows.append(cells)
    return {
        "on": f"sequences of {int(content['length']):,} tokens",
        "titles": (*_TITLES, *(shown[key] for key in present)),
        "rows": rows,
        "notes": " Kinds with a star were kept out of the training." if unseen else "",
    }


def _kind(name: str, full: float, change: Row, kept: float, sequences: int) -> list[str]:
    return [_cell(name), f"{full:.2f}", _percent(change), f"{100 * kept:.1f} %", f"{sequences:,}"]


def _percent(interval: Row) -> str:
    low, high = interval.get("low"), interval.get("high")
    between = "" if low is None or high is None else f" ({100 * low:+.1f} to {100 * high:+.1f})"
    return f"{100 * interval['value']:+.1f} %{between}"


def _list(value: Any) -> list[Any]:
    return value[:MOST_ROWS] if isinstance(value, list) else []


def _cell(value: Any) -> str:
    """A recorded value, which may be anybody's, as one cell."""
    shown = f"{value:g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)
    return escape_markdown(" ".join(shown.split())[:LONGEST])


def _pairs(rows: Iterable[tuple[str, Any]]) -> str:
    return _rows(("", ""), [[_cell(name.replace("_", " ")), _cell(value)] for name, value in rows])


def _rows(titles: Iterable[str], rows: Iterable[list[str]]) -> str:
    """A table of cells that are Markdown already."""
    titles = list(titles)
    lines = [line(titles), line("---" for _ in titles), *(line(cells) for cells in list(rows)[:MOST_ROWS])]
    return "\n".join(lines)
