"""`focus-explorer bench`: speed and perplexity of Focus and of full attention on this machine."""

from __future__ import annotations

import argparse
import json
from typing import Any

from focus_explorer.cli.options import add_compute, add_focus_settings, add_settings, add_token_choice, window_growth_of
from focus_explorer.errors import InputError
from focus_explorer.progress import stage_bar
from focus_explorer.usecases.bench import LONGEST, BenchRequest, bench
from focus_explorer.usecases.budget import budget_of
from focus_explorer.words import counted


def add_options(parser: argparse.ArgumentParser) -> None:
    """Lengths, settings and the output folder."""
    add_settings(parser, "model", "centroids")
    parser.add_argument("--text", help="a UTF-8 text file (default: the sample texts)")
    parser.add_argument(
        "--lengths", default="512,1024,2048", help="tokens for the whole model (default: 512,1024,2048)"
    )
    parser.add_argument(
        "--layer-lengths",
        default="1024,2048,4096,8192,16384",
        help="tokens for one attention layer (default: 1024,2048,4096,8192,16384)",
    )
    add_focus_settings(parser, assignment=False)
    add_compute(parser)
    add_token_choice(parser)
    parser.add_argument("--repeats", type=int, default=5, help="timed repeats after one to warm up (default: 5)")
    parser.add_argument("--seed", type=int, default=0, help="of the one layer's random inputs (default: 0)")
    parser.add_argument(
        "--out", default="benchmarks/results", help="folder for bench.json and bench.svg (default: benchmarks/results)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure, write the result and print it."""
    if arguments.repeats < 1:
        raise InputError(f"--repeats is {arguments.repeats}", expected="at least 1")
    if not 0 <= arguments.seed < 1 << 32:
        raise InputError(f"--seed is {arguments.seed}", expected=f"a whole number from 0 to {(1 << 32) - 1:,}")
    request = BenchRequest(
        model=arguments.model,
        centroids=arguments.centroids,
        text=arguments.text,
        lengths=_lengths(arguments.lengths, "--lengths"),
        layer_lengths=_lengths(arguments.layer_lengths, "--layer-lengths"),
        top_k=arguments.top_k,
        window=arguments.window,
        num_sinks=arguments.sinks,
        window_growth=window_growth_of(arguments),
        budget=budget_of(arguments.budget),
        device=arguments.device,
        dtype=arguments.dtype,
        backend=arguments.backend,
        repeats=arguments.repeats,
        seed=arguments.seed,
        special_tokens=arguments.special_tokens,
        out=arguments.out,
    )
    written = bench(request, _picture, bar=stage_bar)
    plot = None if written.plot is None else str(written.plot)
    if arguments.json:
        print(json.dumps({**written.result, "data": str(written.data), "plot": plot}))
        return
    print(describe(written.result))
    print(f"written      {written.data}" + (f" and {plot}" if plot else f"\nnote         {written.problem}"))


def _picture(figure: Any, file_format: str) -> bytes:
    from focus_explorer.exports.figures.render import picture

    return picture(figure, file_format)


def _lengths(text: str, option: str) -> tuple[int, ...]:
    try:
        lengths = sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError as error:
        raise InputError(f"{option} is {text!r}", expected="numbers of tokens such as 512,1024,2048") from error
    if any(not 2 <= length <= LONGEST for length in lengths):
        raise InputError(f"{option} is {text!r}", expected=f"numbers of tokens from 2 to {LONGEST:,}")
    return tuple(lengths)


def describe(result: dict[str, Any]) -> str:
    """The measured values as text, one line each."""
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
