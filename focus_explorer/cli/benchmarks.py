"""`focus-explorer bench` and `evaluate`: speed, perplexity and benchmark tasks, compared with full attention."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from focus_explorer.cli.options import Action, command, print_result
from focus_explorer.errors import InputError
from focus_explorer.progress import stage_bar
from focus_explorer.usecases.bench import LONGEST, BenchRequest, bench
from focus_explorer.usecases.evaluate import EvaluateRequest, TaskRequest, evaluate, make_task
from focus_explorer.words import counted, ends
from focus_runtime.config import setting_words

MOVED_OPTIONS = (  # that `reproduce` once had
    *("scale", "text", "val", "recipe", "plan", "again", "model"),
    *("steps", "seeds", "domain", "out", "work", "device", "json"),
)


def run_bench(options: BenchRequest) -> None:
    if not 0 <= options.seed < 1 << 32:
        raise InputError(f"--seed is {options.seed}", expected=f"a whole number from 0 to {(1 << 32) - 1:,}")
    for flag, lengths in (("--lengths", options.lengths), ("--layer-lengths", options.layer_lengths)):
        if any(not 2 <= length <= LONGEST for length in lengths):
            given = ",".join(map(str, lengths))
            raise InputError(f"{flag} is {given!r}", expected=f"numbers of tokens from 2 to {LONGEST:,}")
    written = bench(options, _picture, bar=stage_bar)
    plot = None if written.plot is None else str(written.plot)
    where = f"written      {written.data}" + (f" and {plot}" if plot else f"\nnote         {written.problem}")
    result = {**written.result, "data": str(written.data), "plot": plot}
    print_result(options, result, lambda result: f"{describe_bench(result)}\n{where}")


def _picture(figure: Any, file_format: str) -> bytes:
    from focus_explorer.exports.figures.render import picture

    return picture(figure, file_format)


def describe_bench(result: dict[str, Any]) -> str:
    lines = []
    alike = ", heads alike" if result["config"].get("budget") else ""
    for row in result["layer"]:
        lines.append(
            f"one layer    {row['tokens']:>7,} tokens  full {row['full_ms']['median']:>9,.1f} ms  Focus "
            f"{row['focus_ms']['median'] + row['routing_ms']['median']:>9,.1f} ms  "
            f"{row['full_over_focus_with_routing']:.2f}x as fast with routing, "
            f"{row['retained_pairs']:.0%} of pairs kept{alike} ({row['backend']})"
        )
    for row in result["prefill"]:
        lines.append(
            f"prefill      {row['tokens']:>7,} tokens  full {row['full_ms']['median']:>9,.1f} ms  Focus "
            f"{row['focus_ms']['median']:>9,.1f} ms  {row['full_over_focus']:.2f}x as fast, attention with routing "
            f"{row['attention_full_over_focus']:.2f}x"
        )
    for row in result["decode"]:
        lines.append(
            f"decode after {row['past_tokens']:>7,} tokens  full {row['full_tokens_per_second']:>9,.1f} /s  Focus "
            f"{row['focus_tokens_per_second']:>9,.1f} /s  {row['full_over_focus']:.2f}x as fast, attention with "
            f"routing {row['attention_full_over_focus']:.2f}x"
        )
    if "perplexity" in result:
        quality = result["perplexity"]
        lines.append(
            f"perplexity   full {quality['full']:.3f}, Focus {quality['focus']:.3f} "
            f"({quality['focus'] / quality['full'] - 1:+.2%}), {counted(quality['scored_tokens'], 'scored token')}"
        )
    return "\n".join([*lines, *(f"note         {note}" for note in result["notes"])])


def run_evaluate(request: EvaluateRequest) -> None:
    print_result(request, evaluate(request, bar=stage_bar), describe_evaluation)


def run_make_task(request: TaskRequest) -> None:
    about = make_task(request, bar=stage_bar)
    print_result(request, {"out": request.out, **about}, lambda about: describe_tasks(about, request.items))


def describe_tasks(about: dict[str, Any], requested: int) -> str:
    lines = []
    for name, task in about["tasks"].items():
        few = "" if task["items"] == requested else f", of {requested} requested"
        lines.append(
            f"{name:<16} {counted(task['items'], 'item')}{few}, {task['tokens'][0]} to {task['tokens'][1]} tokens, "
            f"the word last seen {task['distance'][0]} to {task['distance'][1]} tokens before"
        )
    return "\n".join([*lines, f"written          {about['out']}"])


def describe_evaluation(result: dict[str, Any]) -> str:
    config = result["config"]
    lines = [
        f"setting       {setting_words(config)}, {result['model']}, "
        f"centroids {', '.join(one['name'] for one in result['centroids'])}"
    ]
    if result["perplexity"] is not None:
        lines += _describe_perplexity(result["perplexity"], config["num_groups"])
    for centroids, tasks in zip(result["centroids"], result["tasks"] or [], strict=False):
        title = f" ({centroids['name']})" if len(result["centroids"]) > 1 else ""
        for name, task in tasks.items():
            lines += [f"task          {name}{title}", *_describe_task(task)]
    return "\n".join([*lines, *(f"note          {note}" for note in result["notes"])])


def _span(row: dict[str, Any], form: str) -> str:
    return f"{format(row['value'], form)} ({ends(row['low'], row['high'], form)})"


def _distant(kept: float | None) -> str:
    return "none are distant" if kept is None else f"{kept:.1%} of the distant ones"


def _describe_perplexity(row: dict[str, Any], groups: int) -> list[str]:
    return [
        f"perplexity    full {_span(row['full_perplexity'], '.3f')}, Focus {_span(row['focus_perplexity'], '.3f')}",
        f"difference    {_span(row['relative_difference'], '+.2%')}, {_span(row['difference_nats'], '+.4f')} nats, "
        f"p = {row['p_value']:.2g}",
        f"measured on   {counted(row['tokens'], 'token')}, {counted(row['sequences'], 'sequence')} of "
        f"{row['seq_len']:,}, documents {row['documents']}, seeds {row['seeds']}; {row['level']:.0%} intervals over "
        f"{row['units']}",
        f"pairs kept    {row['retained_pairs']:.1%} of all, {_distant(row['distant_kept'])}",
        f"largest group {row['dominance']:.1%} of tokens, mean over layers, {row['highest_dominance']:.1%} in the "
        f"worst (even would be {1 / groups:.1%})",
        *(f"note          {note}" for note in row["notes"]),
    ]


def _describe_task(task: dict[str, Any]) -> list[str]:
    tokens = task["tokens"]
    lines = [
        f"  items       {task['items']}, {tokens['low']:,} to {tokens['high']:,} tokens, median "
        f"{tokens['median']:,.0f}",
        f"  long items  {task['longer_than_window']:.0%} are longer than the shortest window; Focus can differ on "
        f"{task['may_differ']:.0%}, the others see full attention",
    ]
    if task["cut"]:
        lines.append(f"  note        {counted(task['cut'], 'item')} cut to the model's positions")
    for name, row in task["metrics"].items():
        full, focus = (
            f"{row[side]:.4g}" + (f" ± {error:.2g}" if (error := row[f"{side}_stderr"]) is not None else "")
            for side in ("full", "focus")
        )
        lines.append(f"  {name:<11} full {full}, Focus {focus}" + _paired(row))
        if "longer_items" in row:
            longer = row["longer_items"]
            lines.append(
                f"              the {longer['items']} longer items alone: full {longer['full']:.4g}, "
                f"Focus {longer['focus']:.4g}{_paired(longer)}"
            )
    return lines


def _paired(row: dict[str, Any]) -> str:
    if "difference" not in row:
        return ""
    lost = f", {row['lost']} lost and {row['gained']} gained" if "lost" in row else " in log-likelihood"
    return f"; difference {_span(row['difference'], '+.4f')}{lost}, p = {row['p_value']:.2g} ({row['test']})"


def add_moved_options(parser: argparse.ArgumentParser) -> None:
    """Whatever `reproduce` once took is taken, and answered with the command that does this now."""
    parser.add_argument("names", nargs="*", help=argparse.SUPPRESS)
    for name in MOVED_OPTIONS:
        parser.add_argument(f"--{name}", nargs="*", help=argparse.SUPPRESS)
    parser.set_defaults(run=_moved)


def _moved(_: argparse.Namespace) -> NoReturn:
    raise InputError(
        "the paper's tables and figures are measured from a clone of the repository",
        fix="there run `python -m paper table7`, and `python -m paper --list` for the others",
    )


COMMANDS = {
    "reproduce": add_moved_options,
    "bench": command(BenchRequest, run_bench),
    "evaluate": command(
        EvaluateRequest,
        run_evaluate,
        [
            Action(
                "make-task",
                "write last-word tasks made from plain text, for use without a network",
                TaskRequest,
                run_make_task,
            )
        ],
    ),
}
