"""The card of a published centroid file: README.md of its repository, with the metadata that a hub reads.

It tells what the file records and what a given table measured, and says so where something is not recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from focus_explorer.exports.tables.reading import escape_markdown, line
from focus_explorer.usecases.budget import budget_words, text_sinks_words
from focus_explorer.usecases.centroids.publish import Publication
from focus_explorer.usecases.centroids.training_record import balanced_on
from focus_explorer.words import counted
from focus_runtime.config import FocusConfig, growth_words

LIBRARY = "focus-explorer"
TAGS = ["focus-explorer", "focus-centroids", "sparse-attention"]
PAPER = "arXiv 2604.03260"
LONGEST = 200  # characters of one recorded value
MOST_ROWS = 100
# Of a training's record, what has a place of its own in the card.
_APART = ("budget", "domains", "texts", "validation")
_INTERVALS = "intervals are 95 % intervals over sequences"
_BASELINES = ("random as ", "window and sinks as ")


def model_card(publication: Publication) -> str:
    """The card's text; `publication`: the file, and what is known of it."""
    from huggingface_hub import ModelCardData

    metadata = ModelCardData(
        base_model=publication.hub_base_model, library_name=LIBRARY, license=publication.licence, tags=TAGS
    )
    sections = (_head, _base_model, _settings, _recipe, _held_out, _domains, _file, _licence)
    body = "\n\n".join("\n".join(section(publication)) for section in sections)
    return f"---\n{metadata.to_yaml()}\n---\n\n{body}\n"


def _head(publication: Publication) -> list[str]:
    model = publication.settings.base_model or publication.hub_base_model
    called = f"`{model}`" if model else "a model that the file does not name by a name others could load"
    given = "" if publication.settings.base_model else ", model"
    return [
        f"# {escape_markdown(publication.repo.split('/')[1])}",
        "",
        f"Centroids of Focus, a sparse attention by learned groups of tokens ({PAPER}), for {called}. The model itself "
        "is neither changed nor in this repository.",
        "",
        "```python",
        "from focus_runtime import FocusModel",
        "",
        f'focus = FocusModel.from_pretrained("{publication.repo}"{given}, sha256="{publication.settings.sha256}")',
        "text = focus.model.generate(ids, max_new_tokens=20)  # a transformers model; focus.detach() gives it back",
        "```",
        "",
        f"On the command line: `focus-explorer analyze FILE --centroids {publication.repo}`.",
    ]


def _base_model(publication: Publication) -> list[str]:
    named = publication.settings.base_model or "not recorded by a name that others could load"
    rows = [
        ("name", named),
        ("id on the hub", publication.hub_base_model or "not known"),
        ("fingerprint of its weights", publication.settings.base_fingerprint or "not recorded"),
        ("layers", publication.num_model_layers or "not recorded"),
        ("width of hidden states", publication.hidden_size),
    ]
    return ["## Base model", "", *_pairs(rows)]


def _settings(publication: Publication) -> list[str]:
    config = publication.config
    rows = [
        ("layers with groups", publication.layers),
        ("K, groups per layer", config.num_groups),
        ("k, groups per token", config.top_k),
        ("w, pairs up to this distance are always kept", _windows(config)),
        *([("windows", growth_words(config.window_growth))] if config.window_growth is not None else []),
        ("first tokens that all see", config.num_sinks),
        ("sinks in the middle of a text", text_sinks_words(config.text_sinks)),
        ("factors of the logits", "one for each query head" if config.logit_factors else "none"),
        ("assignment", config.assignment),
        ("width of the routing space", config.routing_dim),
        ("temperature", f"{config.temperature:g}"),
        ("heads with settings of their own (budget)", len(config.budget) or "none"),
    ]
    lines = ["## Settings of use", "", *_pairs(rows)]
    if config.budget:
        lines += ["", f"Budget: {escape_markdown(budget_words(config.budget))}."]
    return lines


def _windows(config: FocusConfig) -> str:
    own = [entry.window for entry in config.budget if entry.window is not None]
    return f"{config.window}" + (f", in heads with a window of their own {min(own)} to {max(own)}" if own else "")


def _facts(training: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, training[name]) for name in sorted(training) if name not in _APART and _is_plain(training[name])]


def _recipe(publication: Publication) -> list[str]:
    training = publication.training
    if not training:
        return ["## Training", "", "The file records no training."]
    facts = _facts(training)
    lines = ["## Training", "", *_pairs(facts)] if facts else ["## Training", "", "The file records no settings of it."]
    groups = training.get("groups_training")
    if isinstance(groups, dict) and _facts(groups):
        learned = "That was of factors of logits alone. The groups were trained before:"
        lines += ["", learned, "", *_pairs(_facts(groups))]
    domains = [each for each in _list(training.get("domains")) if isinstance(each, dict)]
    texts = [str(each) for each in _list(training.get("texts"))]
    if domains:
        rows = [[_cell(each.get(key, "not recorded")) for key in ("name", "weight", "tokens")] for each in domains]
        lines += ["", "Kinds of text, with their share of the sequences:", ""]
        lines += _rows(("kind", "weight", "tokens"), rows)
    if texts:
        more = f" and {len(texts) - 20} more" if len(texts) > 20 else ""
        lines += ["", f"Texts: {', '.join(_cell(each) for each in texts[:20])}{more}."]
    if balanced := balanced_on(training):
        lines += ["", f"Groups were balanced afterwards on {', '.join(_cell(each) for each in balanced[:40])}."]
    if not domains and not texts:
        lines += ["", "The file does not record which texts it was trained on."]
    return lines


def _held_out(publication: Publication) -> list[str]:
    lines = ["## Measured when it was trained", ""]
    found = publication.held_out
    if found is None:
        return [*lines, "The file records no held-out perplexity of its training."]
    rows = [["full attention", f"{found['full']:.2f}", "100 %"]]
    for name, values in found["focus"].items():
        pairs = values.get("retained_pairs")
        kept = "not recorded" if pairs is None else f"{100 * pairs:.1f} %"
        rows.append([_cell(name), f"{values['perplexity']:.2f}", kept])
    scored = "" if found["scored"] is None else f" on {counted(found['scored'], 'held-out token')}"
    return [*lines, f"Perplexity{scored}, with the budget of that time, if there was one:", "", *_rows(_HELD_OUT, rows)]


_HELD_OUT = ("setting", "perplexity", "pairs kept")


def _domains(publication: Publication) -> list[str]:
    lines = ["## By kind of text", ""]
    if publication.table is not None:
        return lines + _given_table(*publication.table)
    record = publication.budget_record
    if record is None or not record.held_out:
        return [*lines, "The file records no perplexities and no pairs kept by kind of text, and no table was given."]
    rows = [
        [
            _cell(row["domain"]),
            f"{row['full']['value']:.2f}",
            _percent(row["change"]),
            f"{100 * row['retained_pairs']:.1f} %",
            f"{row['sequences']:,}",
        ]
        for row in record.held_out
    ]
    own = record.held_out_budget == publication.config.budget
    other = "" if own else " **They were measured with another budget than this file's.**"
    if record.before_factors:
        other += " **They were measured before its factors of logits were learned.**"
    if record.before_balance:
        other += " **They were measured before its groups were balanced on other text.**"
    if record.before_growth:
        other += " **They were measured with windows that did not grow as they do now.**"
    if record.before_text_sinks:
        other += " **They were measured with other text sinks.**"
    return [
        *lines,
        f"Measured on held-out text when the budget was searched; {_INTERVALS}.{other}",
        "",
        *_rows(("kind", "perplexity, full attention", "change with Focus", "pairs kept", "sequences"), rows),
    ]


def _given_table(name: str, content: Mapping[str, Any]) -> list[str]:
    shown = [*(prefix + name for prefix in _BASELINES)]
    present = [key for key in shown if any(key in domain["rows"] for domain in content["domains"].values())]
    rows, unseen = [], False
    for key, domain in content["domains"].items():
        split, _, kind = key.partition("/")
        unseen |= split == "unseen"
        own = domain["rows"][name]
        cells = [
            _cell(kind or key) + ("\\*" if split == "unseen" else ""),
            f"{domain['full_perplexity']:.2f}",
            _percent(own["relative_difference"]),
            f"{100 * own['retained_pairs']:.1f} %",
            f"{domain['sequences']:,}",
        ]
        for other in present:
            row = domain["rows"].get(other)
            cells.append("not measured" if row is None else _percent(row["relative_difference"]))
        rows.append(cells)
    titles = ["kind", "perplexity, full attention", "change with Focus", "pairs kept", "sequences"]
    titles += ["random centroids" if key.startswith("random") else "window and sinks alone" for key in present]
    kept_out = " Kinds with a star were kept out of the training." if unseen else ""
    return [
        f"Measured on sequences of {int(content['length']):,} tokens; {_INTERVALS}.{kept_out}",
        "",
        *_rows(titles, rows),
    ]


def _file(publication: Publication) -> list[str]:
    rows = [("sha256", publication.settings.sha256), ("bytes", f"{publication.size:,}")]
    return ["## File", "", *_pairs(rows)]


def _licence(publication: Publication) -> list[str]:
    said = (
        "No licence was given with this file."
        if publication.licence is None
        else escape_markdown(publication.licence) + "."
    )
    return ["## Licence", "", said]


def _percent(interval: Any) -> str:
    """A relative change with its interval, in %."""
    low, high = interval.get("low"), interval.get("high")
    between = "" if low is None or high is None else f" ({100 * low:+.1f} to {100 * high:+.1f})"
    return f"{100 * interval['value']:+.1f} %{between}"


def _list(value: Any) -> list[Any]:
    return value[:MOST_ROWS] if isinstance(value, list) else []


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)


def _cell(value: Any) -> str:
    """A recorded value, which may be anybody's, as one cell."""
    shown = f"{value:g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)
    return escape_markdown(" ".join(shown.split())[:LONGEST])


def _pairs(rows: Iterable[tuple[str, Any]]) -> list[str]:
    return _rows(("", ""), [[_cell(name.replace("_", " ")), _cell(value)] for name, value in rows])


def _rows(titles: Iterable[str], rows: Iterable[list[str]]) -> list[str]:
    titles = list(titles)
    return [line(titles), line("---" for _ in titles), *(line(cells) for cells in list(rows)[:MOST_ROWS])]
