"""`focus-explorer statistics`: statistics of the groups of a run or a corpus, with intervals and baselines."""

from __future__ import annotations

import argparse
import json
from typing import Any

import pyarrow as pa

from focus_explorer.cli.options import add_settings, print_note
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.progress import stage_bar
from focus_explorer.words import counted

WIDTH = 51
NAMES = {
    "dominance": "largest group",
    "balance": "balance of group sizes",
    "confidence": "confidence",
    "entropy": "assignment entropy, nats",
    "purity": "purity",
    "nmi": "normalised mutual information",
    "homogeneity": "homogeneity",
    "completeness": "completeness",
    "v_measure": "V-measure",
    "stability": "stability of a token's group",
    "pairs_kept": "pairs kept",
    "distant_pairs_kept": "distant pairs kept",
    "mass_kept": "attention kept",
    "distant_mass_kept": "distant attention kept",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The run, and what is measured and compared."""
    parser.add_argument("run_id", metavar="RUN", help="a run or a corpus, as listed by `runs` and `corpora`")
    parser.add_argument(
        "--with",
        dest="other",
        metavar="RUN",
        help="also how far the groups agree with another run of the same text: another seed, centroid file or setting",
    )
    parser.add_argument(
        "--attention",
        action="store_true",
        help="also measure full attention under both masks: two slower passes over the first 4,096 tokens",
    )
    parser.add_argument("--no-measure", action="store_true", help="use what is stored: tag no words, run no model")
    add_settings(parser, "db")
    parser.add_argument(
        "--json", action="store_true", help="print every row of all layers and groups as one JSON object"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure what is missing, then print the statistics."""
    from focus_explorer.usecases.corpora.register import is_stored_corpus
    from focus_explorer.usecases.service import Service
    from focus_explorer.usecases.statistics.measure import agreement_table, computed_statistics

    service = Service(arguments.db)
    if is_stored_corpus(service, arguments.run_id):
        _refuse_for_corpus(arguments)
    elif not arguments.no_measure:
        _measure(service, arguments)
    computed = computed_statistics(service, arguments.run_id)
    with stage_bar() as progress:
        computed.measured(lambda done, total: progress(f"Layer {done} of {total}", done / total))
    rows = computed.table("statistics")
    between = agreement_table(service, arguments.run_id, arguments.other) if arguments.other else None
    if arguments.json:
        result = {"run_id": arguments.run_id, "notes": list(computed.sample.notes), "statistics": rows.to_pylist()}
        if between is not None:
            result["agreement"] = between.to_pylist()
        print(json.dumps(result, ensure_ascii=False, allow_nan=False))
    else:
        print(describe(arguments.run_id, computed.sample, rows, between))


def _refuse_for_corpus(arguments: argparse.Namespace) -> None:
    if arguments.attention or arguments.other:
        given = "--attention" if arguments.attention else "--with"
        raise InputError(f"{given} is for a run, not for a corpus", fix="leave it out, or name a run")


def _measure(service: Any, arguments: argparse.Namespace) -> None:
    from focus_explorer.usecases.statistics.measure import measure_run

    for run_id in filter(None, (arguments.run_id, arguments.other)):
        with stage_bar() as progress:
            try:
                problems = measure_run(service, run_id, attention=arguments.attention, progress=progress)
            except NotFoundError:
                raise
            except InputError as error:  # without the model, stored statistics are still printed
                problems = [str(error)]
        for problem in problems:
            print_note(problem)


def describe(run_id: str, sample: Any, rows: pa.Table, between: pa.Table | None) -> str:
    """The run's statistics, a line each, and what they rest on.

    Args:
        run_id: of the run.
        sample: the run's sample: tokens, units, layers and notes (`RunStatistics.sample`).
        rows: its table `statistics`.
        between: agreement with another run, a row for each layer; None without one.
    """
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
        about = {"pos": ", part of speech", "dep": ", syntactic relation", "word": ", word lists"}
        name = NAMES[row["statistic"]] + about.get(row["category"], "")
        lines.append(
            f"{name:<{WIDTH}}{_number(row['value']):>8}  {_interval(row):<18}{_number(row['shuffled']):>9}"
            f"{_number(row['random']):>9}{_number(row['window_only']):>11}"
            + (f"  ! {'; '.join(sorted(own))}" if (own := set(row["warning"].split("; ")) - {""} - common) else "")
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
