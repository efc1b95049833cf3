"""`focus-explorer evaluate`: held-out perplexity and benchmark tasks with Focus and with full attention."""

from __future__ import annotations

import argparse
import json
from typing import Any

from focus_explorer.cli.options import add_compute, add_focus_settings, add_settings, add_token_choice, window_growth_of
from focus_explorer.errors import InputError
from focus_explorer.progress import stage_bar
from focus_explorer.usecases.budget import budget_of, other_settings
from focus_explorer.usecases.evaluate import EvaluateRequest, TaskRequest, evaluate, make_task
from focus_explorer.words import counted, ends


def add_options(parser: argparse.ArgumentParser) -> None:
    """Texts, tasks and settings, and the action that writes tasks."""
    add_settings(parser, "model")
    parser.add_argument(
        "--centroids",
        nargs="+",
        default=["default"],
        help="default, or centroid files; several that "
        "differ in their training seed give intervals over seeds (default: default)",
    )
    parser.add_argument("--text", nargs="+", action="extend", help="held-out text files, or folders of .txt files")
    parser.add_argument("--seq-len", type=int, default=1024, help="tokens of a sequence (default: 1024)")
    parser.add_argument("--sequences", type=int, default=24, help="sequences over all texts (default: 24)")
    parser.add_argument(
        "--tasks", help="lm-eval tasks such as lambada_openai,hellaswag (default: all of --task-folder)"
    )
    parser.add_argument("--task-folder", help="folder with lm-eval task files of your own")
    parser.add_argument("--limit", type=int, help="only the first so many items of each task")
    parser.add_argument("--batch", type=int, default=1, help="task requests at once (default: 1)")
    add_focus_settings(parser)
    add_token_choice(parser)
    add_compute(parser)
    parser.add_argument("--seed", type=int, default=0, help="of resampling (default: 0)")
    parser.add_argument("--out", help="JSON file to write")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(dest="action", parser_class=type(parser))
    make = actions.add_parser("make-task", help="write last-word tasks made from plain text, for use without a network")
    make.add_argument("--text", nargs="+", action="extend", required=True, help="text files, or folders of .txt files")
    make.add_argument("--out", required=True, help="folder to make")
    add_settings(make, "model")
    make.add_argument("--lengths", default="96,512,1024", help="most tokens of a passage (default: 96,512,1024)")
    make.add_argument("--items", type=int, default=100, help="passages of each length (default: 100)")
    make.add_argument(
        "--window",
        type=int,
        default=128,
        help="in passages longer than this, the word occurred before but not within so many tokens (default: 128)",
    )
    make.add_argument("--seed", type=int, default=0, help="which passages are taken (default: 0)")
    make.add_argument("--json", action="store_true", help="print one JSON object")
    make.set_defaults(run=_make_task)


def run(arguments: argparse.Namespace) -> None:
    """Measure, write `--out` and print."""
    request = EvaluateRequest(
        model=arguments.model,
        centroids=tuple(arguments.centroids),
        text=tuple(arguments.text or ()),
        seq_len=arguments.seq_len,
        sequences=arguments.sequences,
        tasks=_task_names(arguments.tasks),
        task_folder=arguments.task_folder,
        limit=arguments.limit,
        batch=arguments.batch,
        top_k=arguments.top_k,
        window=arguments.window,
        num_sinks=arguments.sinks,
        window_growth=window_growth_of(arguments),
        assignment=arguments.assignment,
        budget=budget_of(arguments.budget),
        dtype=arguments.dtype,
        device=arguments.device,
        backend=arguments.backend,
        seed=arguments.seed,
        special_tokens=arguments.special_tokens,
        out=arguments.out,
    )
    result = evaluate(request, bar=stage_bar)
    print(json.dumps(result, ensure_ascii=False) if arguments.json else describe(result))


def _task_names(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise InputError(f"--tasks is {text!r}", expected="names such as lambada_openai,hellaswag")
    return names


def _make_task(arguments: argparse.Namespace) -> None:
    try:
        lengths = tuple(sorted({int(part) for part in arguments.lengths.split(",")}))
    except ValueError as error:
        raise InputError(f"--lengths is {arguments.lengths!r}", expected="tokens such as 96,512,1024") from error
    request = TaskRequest(
        text=tuple(arguments.text),
        out=arguments.out,
        model=arguments.model,
        lengths=lengths,
        items=arguments.items,
        window=arguments.window,
        seed=arguments.seed,
    )
    about = make_task(request, bar=stage_bar)
    if arguments.json:
        print(json.dumps({"out": arguments.out, **about}, ensure_ascii=False))
        return
    for name, task in about["tasks"].items():
        few = "" if task["items"] == arguments.items else f", of {arguments.items} requested"
        print(
            f"{name:<16} {counted(task['items'], 'item')}{few}, {task['tokens'][0]} to {task['tokens'][1]} tokens, "
            f"the word last seen {task['distance'][0]} to {task['distance'][1]} tokens before"
        )
    print(f"written          {arguments.out}")


def describe(result: dict[str, Any]) -> str:
    """The measured values as lines of text."""
    config = result["config"]
    lines = [
        f"setting       K={config['num_groups']}, top-k {config['top_k']}, window {config['window']}, "
        f"{counted(config['num_sinks'], 'sink')}, {config['assignment']} assignment{other_settings(config)}, "
        f"{result['model']}, "
        f"centroids {', '.join(one['name'] for one in result['centroids'])}"
    ]
    if result["perplexity"] is not None:
        lines += _describe_perplexity(result["perplexity"], config["num_groups"])
    for centroids, tasks in zip(result["centroids"], result["tasks"] or [], strict=False):
        title = f" ({centroids['name']})" if len(result["centroids"]) > 1 else ""
        for name, task in tasks.items():
            lines += [f"task          {name}{title}", *_describe_task(task)]
    return "\n".join([*lines, *(f"note          {note}" for note in result["notes"])])


def _span(row: dict[str, Any], form: str, joint: str = " to ") -> str:
    """A value with its interval."""
    return f"{format(row['value'], form)} ({ends(row['low'], row['high'], form, joint)})"


def _distant(kept: float | None) -> str:
    return "none are distant" if kept is None else f"{kept:.1%} of the distant ones"


def _describe_perplexity(row: dict[str, Any], groups: int) -> list[str]:
    return [
        f"perplexity    full {_span(row['full_perplexity'], '.3f')}, Focus {_span(row['focus_perplexity'], '.3f')}",
        f"difference    {_span(row['relative_difference'], '+.2%')}, {_span(row['difference_nats'], '+.4f')} nats, "
        f"p = {row['p_value']:.2g}",
        f"measured on   {counted(row['tokens'], 'token')}, {counted(row['sequences'], 'sequence')} of "
        f"{row['seq_len']:,}, "
        f"documents {row['documents']}, seeds {row['seeds']}; {row['level']:.0%} intervals over {row['units']}",
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
