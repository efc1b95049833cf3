"""`focus-explorer explain`, `heads`, `what-if` and `statistics`: what is measured of a stored run."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from typing import TYPE_CHECKING, Any

from focus_explorer.cli.options import command, command_line, print_note, print_result
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.progress import stage_bar
from focus_explorer.statistics.describe import STATISTICS
from focus_explorer.usecases.compare.costs import explain_token, measure_heads, most_hurt
from focus_explorer.usecases.compare.what_if import WhatIfs, save_changed
from focus_explorer.usecases.corpora.register import is_stored_corpus
from focus_explorer.usecases.request import Changed, OnRun, argument, option
from focus_explorer.usecases.runs import check_run, token_pieces
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.statistics import measure_run
from focus_explorer.words import counted, ends

if TYPE_CHECKING:
    import pyarrow as pa

WIDTH = 51
CATEGORIES = {"pos": ", part of speech", "dep": ", syntactic relation", "word": ", word lists"}


class ExplainOptions(OnRun):
    token: int | None = option(None, "position of the predicted token; default: the one hurt most", metavar="N")


def run_explain(options: ExplainOptions) -> None:
    service = Service(options.db)
    check_run(service.database, options.run_id)
    token = most_hurt(service, options.run_id) if options.token is None else options.token
    with stage_bar() as progress:
        found = explain_token(service, options.run_id, token, progress=progress)
    pieces = token_pieces(service.database, options.run_id)
    print_result(options, {"run_id": options.run_id, **found}, lambda found: describe_links(found, pieces))


def describe_links(found: Mapping[str, Any], pieces: list[str]) -> str:
    token, focus, full = found["token"], found["nll_focus"], found["nll_full"]
    lines = [f"token {token} {pieces[token]!r}: {full:.2f} nats with full attention, {focus:.2f} with Focus"]
    verified = [link for link in found["links"] if link["nll"] is not None]
    if not verified:
        return "\n".join([*lines, f"none of {counted(found['dropped_pairs'], 'dropped pair')} would have helped"])
    lines.append(
        f"of {counted(found['dropped_pairs'], 'dropped pair')}, those that promise most, each added by itself:"
    )
    lines.append(f"{'layer':>5} {'head':>4}  {'change':>7} {'predicted':>9}  {'share':>5}  random  from -> to")
    for link in verified:
        change = (link["nll"] or 0.0) - focus
        random = {True: "kept", False: "-", None: "?"}[link["random_keeps"]]
        ends = f"{link['query']} {pieces[link['query']]!r} -> {link['key']} {pieces[link['key']]!r}"
        lines.append(
            f"{link['layer']:>5} {link['head']:>4}  {change:>+7.3f} {link['predicted']:>+9.3f}  "
            f"{link['probability']:>5.2f}  {random:<6}  {ends}"
        )
    together = found["nll_together"]
    if together is not None:
        lines.append(f"all {len(verified)} at once: {together:.2f} nats, {_explained(full, focus, together)}")
    return "\n".join(lines)


def _explained(full: float, focus: float, together: float) -> str:
    """What the links gain beside what Focus loses, in nats."""
    lost, gained = focus - full, focus - together
    if lost <= 0:
        return f"{gained:.2f} less, although Focus does not predict this token worse"
    if gained > lost:
        return f"{gained:.2f} less: more than the {lost:.2f} that Focus loses"
    return f"which explains {gained:.2f} of the {lost:.2f} nats that Focus loses"


class HeadsOptions(OnRun):
    verify: int = option(10, "heads measured, those with the largest estimates", metavar="N")


def run_heads(options: HeadsOptions) -> None:
    if options.verify < 0:
        raise InputError(f"--verify is {options.verify}", expected="a number of heads, or 0 for estimates alone")
    service = Service(options.db)
    check_run(service.database, options.run_id)
    with stage_bar() as progress:
        found = measure_heads(service, options.run_id, verify=options.verify, progress=progress)
    print_result(options, {"run_id": options.run_id, **found}, describe_heads)


def describe_heads(found: Mapping[str, Any]) -> str:
    full, focus = found["nll_full"], found["nll_focus"]
    lines = [
        f"{counted(found['num_tokens'], 'token')}: {full:.4f} nats with full attention, {focus:.4f} with Focus",
        "with full attention in one key-value head alone:",
        f"{'layer':>5} {'head':>4}  {'measured':>8}  {'estimated':>9}  {'mass dropped':>12}",
    ]
    for head in found["heads"][:20]:
        measured = "" if head["nll"] is None else f"{head['nll'] - focus:+.4f}"
        dropped = "" if head["dropped"] is None else f"{head['dropped']:.1%}"
        lines.append(f"{head['layer']:>5} {head['head']:>4}  {measured:>8}  {head['estimated']:>+9.4f}  {dropped:>12}")
    return "\n".join(lines)


class WhatIfOptions(OnRun, Changed):
    save: bool = option(False, "also analyse the text with the changes and store that run")


def run_what_if(options: WhatIfOptions) -> None:
    if not options.changes:
        raise InputError("no change was given", expected="at least one --set, such as --set full:12")
    service, changes = Service(options.db), list(options.changes)
    with stage_bar() as progress:
        found: dict[str, Any] = dict(service.part(WhatIfs).measure(options.run_id, changes, progress=progress))
    if options.save:
        with stage_bar() as progress:
            found["saved"] = save_changed(service, options.run_id, changes, command=command_line(), progress=progress)
    print_result(options, {"run_id": options.run_id, "set": changes, **found}, describe_changes)


def describe_changes(found: Mapping[str, Any]) -> str:
    """What `WhatIfs.measure` found, and `saved` where the run was stored."""
    full, before, after = (exp(found[f"nll_{name}"]) for name in ("full", "before", "after"))
    difference, count = found["difference"], found["num_tokens"]
    lines = [
        f"perplexity             {before:.3f} without the changes, {after:.3f} with them ({after / before - 1:+.2%}); "
        f"full attention {full:.3f}; first {counted(count, 'token')}",
        f"loss                   {difference['mean']:+.5f} nats per token "
        f"({ends(difference['low'], difference['high'], '+.5f')})",
        f"most probable token    another one at {len(found['other_top']):,} of {counted(count - 1, 'place')}",
        f"{'layer':>5}  {'tokens in another group':>23}  {'pairs kept before':>17}  {'after':>6}",
    ]
    lines += [
        f"{layer['layer']:>5}  {layer['moved']:>23,}  {layer['kept_before']:>17.1%}  {layer['kept_after']:>6.1%}"
        for layer in found["layers"]
    ]
    if "saved" in found:
        lines.append(f"saved as               {found['saved']}")
    return "\n".join(lines)


class StatisticsOptions(OnRun):
    run_id: str = argument("a run or a corpus, as listed by `runs` and `corpora`", metavar="RUN")
    other: str | None = option(
        None,
        "also how far the groups agree with another run of the same text: another seed, centroid file or setting",
        flag="--with",
        metavar="RUN",
    )
    attention: bool = option(
        False, "also measure full attention under both masks: two slower passes over the first 4,096 tokens"
    )
    no_measure: bool = option(False, "use what is stored: tag no words, run no model")


def run_statistics(options: StatisticsOptions) -> None:
    """Measure what is missing, then print the statistics."""
    from focus_explorer.statistics.tables import agreement_between, run_statistics

    service = Service(options.db)
    if is_stored_corpus(service, options.run_id):
        if options.attention or options.other:
            given = "--attention" if options.attention else "--with"
            raise InputError(f"{given} is for a run, not for a corpus", fix="leave it out, or name a run")
    elif not options.no_measure:
        _measure(service, options)
    computed = run_statistics(service.database, options.run_id)
    with stage_bar() as progress:
        computed.measured(lambda done, total: progress(f"Layer {done} of {total}", done / total))
    rows = computed.table("statistics")
    between = agreement_between(service.database, options.run_id, options.other) if options.other else None
    result = {"run_id": options.run_id, "notes": list(computed.sample.notes), "statistics": rows.to_pylist()}
    if between is not None:
        result["agreement"] = between.to_pylist()
    print_result(options, result, lambda _: describe_statistics(options.run_id, computed.sample, rows, between))


def _measure(service: Any, options: StatisticsOptions) -> None:
    for run_id in filter(None, (options.run_id, options.other)):
        with stage_bar() as progress:
            try:
                problems = measure_run(service, run_id, attention=options.attention, progress=progress)
            except NotFoundError:
                raise
            except InputError as error:  # without the model, stored statistics are still printed
                problems = [str(error)]
        for problem in problems:
            print_note(problem)


def describe_statistics(run_id: str, sample: Any, rows: pa.Table, between: pa.Table | None) -> str:
    """The statistics of a run, a line each, and its `RunStatistics.sample`; `between`: agreement with another run."""
    table = [row for row in rows.to_pylist() if row["scope"] == "run"]
    cautions = [set(row["warning"].split("; ")) - {""} for row in table]
    common = set.intersection(*cautions)
    lines = [
        f"{run_id}: {counted(sample.num_tokens, 'token')}, {counted(rows['units'][0].as_py(), sample.unit)}, "
        f"{counted(len(sample.layers), 'layer')}, K = {sample.num_groups}; means over layers",
        f"{'':<{WIDTH}}{'value':>8}  {'95 % interval':<18}{'shuffled':>9}{'random':>9}{'no groups':>11}",
    ]
    for row in table:
        if row["statistic"].endswith("_minus_random"):
            name = "  more than random centroids"
            lines.append(f"{name:<{WIDTH}}{_number(row['value'], sign=True):>8}  {_interval(row, sign=True)}")
            continue
        name = STATISTICS[row["statistic"]].title + CATEGORIES.get(row["category"], "")
        own = set(row["warning"].split("; ")) - {""} - common
        lines.append(
            f"{name:<{WIDTH}}{_number(row['value']):>8}  {_interval(row):<18}{_number(row['shuffled']):>9}"
            f"{_number(row['random']):>9}{_number(row['window_only']):>11}"
            + (f"  ! {'; '.join(sorted(own))}" if own else "")
        )
    if between is not None:
        values = [row["adjusted_rand"] for row in between.to_pylist()]
        overlap = [row["overlap"] for row in between.to_pylist()]
        lines.append(
            f"agreement with the other run over {counted(len(values), 'layer')}: adjusted Rand {min(values):.2f} to "
            f"{max(values):.2f}, tokens in matched groups {min(overlap):.0%} to {max(overlap):.0%}"
        )
    lines += [f"note: {caution}" for caution in sorted(common)]
    lines += [f"note: {note}" for note in sample.notes]
    lines.append(f"every layer and group: `focus-explorer export {run_id} --what statistics --out statistics.csv`")
    return "\n".join(lines)


def _number(value: float | None, *, sign: bool = False) -> str:
    if value is None:
        return "–"
    return f"{value:+.3f}" if sign else f"{value:.3f}"


def _interval(row: dict[str, Any], *, sign: bool = False) -> str:
    if row["low"] is None:
        return ""
    return f"{_number(row['low'], sign=sign)} to {_number(row['high'], sign=sign)}"


COMMANDS = {
    "explain": command(ExplainOptions, run_explain),
    "heads": command(HeadsOptions, run_heads),
    "what-if": command(WhatIfOptions, run_what_if),
    "statistics": command(StatisticsOptions, run_statistics),
}
