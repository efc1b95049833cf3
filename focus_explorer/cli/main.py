"""The focus-explorer command: every result of the page without the page.

Exit status 0, or 2 with one line `error: ...` on standard error for anything a user can put right.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from focus_explorer import settings
from focus_explorer.cli import bundle, compare, corpora, export, reproduce, runs, statistics
from focus_explorer.errors import InputError, TrainingStopped
from focus_explorer.progress import stage_bar
from focus_explorer.services import finetune
from focus_explorer.services.training.request import TrainRequest, flag, options
from focus_runtime.version import __version__


class _Parser(argparse.ArgumentParser):
    """argparse with errors in the one-line form scripts rely on."""

    def error(self, message: str) -> NoReturn:
        raise InputError(message, fix=f"see `{self.prog} --help`")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="focus-explorer", description="See, measure and compare Focus sparse attention.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    _add_analyze(commands)
    _add_runs(commands)
    _add_centroids(commands)
    _add_train(commands)
    _add_bench(commands)
    _add_evaluate(commands)
    _add_serve(commands)
    reproduce.add_parser(commands)
    finetune.add_parser(commands)
    compare.add_parser(commands)
    bundle.add_parser(commands)
    corpora.add_parser(commands)
    statistics.add_parser(commands)
    return parser


def _common(parser: argparse.ArgumentParser, *names: str) -> None:
    for name in names:
        option = settings.SETTINGS[name]
        kind: Callable[[str], Any] = int if name == "port" else str
        parser.add_argument(
            f"--{name}",
            default=kind(option.default) if option.default else None,
            type=kind,
            help=f"{option.help} (default: {option.default or 'the user data folder'})",
        )


def _add_analyze(commands: Any) -> None:
    parser = commands.add_parser("analyze", help="run full attention and Focus on a text or a corpus and store it")
    parser.add_argument(
        "file", help="a UTF-8 text file, - for standard input, or a corpus: a folder, a .jsonl or a .parquet file"
    )
    _common(parser, "model", "centroids", "db")
    parser.add_argument("--top-k", type=int, help="groups a token belongs to (default: the centroid file's)")
    parser.add_argument("--window", type=int, help="pairs at most this far apart always attend")
    parser.add_argument("--sinks", type=int, help="first tokens every token may attend to")
    parser.add_argument("--assignment", choices=("causal", "sinkhorn"), help="how groups are decided")
    parser.add_argument("--max-tokens", type=int, help="cut the text to this many tokens")
    parser.add_argument("--repeats", type=int, help="timed repeats (default: 5, or 3 when they take long)")
    parser.add_argument(
        "--attention",
        action="store_true",
        help="also measure where full attention goes under the mask, and its strongest links: one more, slower pass",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    corpora.add_options(parser)
    parser.set_defaults(run=_analyze)


def _add_runs(commands: Any) -> None:
    runs.add_parser(commands)
    export.add_parser(commands)


def _add_centroids(commands: Any) -> None:
    parser = commands.add_parser("centroids", help="centroid files")
    actions = parser.add_subparsers(dest="action", required=True, parser_class=_Parser)
    check = actions.add_parser("check", help="validate a centroid file")
    check.add_argument("file", help=".safetensors, .pt or .pth, or the word default")
    check.add_argument("--model", help="also check that it fits this model")
    check.add_argument("--json", action="store_true", help="print one JSON object")
    check.set_defaults(run=_check)


def _add_train(commands: Any) -> None:
    parser = commands.add_parser("train", help="train centroids on your own text")
    parser.add_argument("--text", nargs="+", required=True, help="text files, or folders of .txt files")
    parser.add_argument("--out", required=True, help="centroid file to write (.safetensors)")
    parser.add_argument(
        "--val", nargs="*", default=[], help="held-out text, scored at the end; left out of --text folders"
    )
    _common(parser, "model", "db")
    for option in options():
        text = option.metadata["help"]
        if option.metadata["kind"] is bool:
            parser.add_argument(flag(option.name), action="store_true", help=text)
            continue
        text += "" if "(default" in text else f" (default: {option.default})"
        parser.add_argument(
            flag(option.name),
            type=option.metadata["kind"],
            default=option.default,
            help=text,
            choices=option.metadata["choices"],
        )
    parser.add_argument("--no-db", action="store_true", help="do not record the curve for the page")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.set_defaults(run=_train)
    parser = commands.add_parser("trainings", help="list recorded trainings, newest first")
    _common(parser, "db")
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    parser.set_defaults(run=_trainings)


def _add_bench(commands: Any) -> None:
    parser = commands.add_parser("bench", help="measure speed and perplexity beside full attention on this machine")
    _common(parser, "model", "centroids")
    parser.add_argument("--text", help="a UTF-8 text file (default: the sample texts)")
    parser.add_argument(
        "--lengths", default="512,1024,2048", help="tokens for the whole model (default: 512,1024,2048)"
    )
    parser.add_argument(
        "--layer-lengths",
        default="1024,2048,4096,8192,16384",
        help="tokens for one attention layer (default: 1024,2048,4096,8192,16384)",
    )
    parser.add_argument("--top-k", type=int, help="groups a token belongs to (default: the centroid file's)")
    parser.add_argument("--window", type=int, help="pairs at most this far apart always attend")
    parser.add_argument("--sinks", type=int, help="first tokens every token may attend to")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="(default: float32)")
    parser.add_argument("--repeats", type=int, default=5, help="timed repeats after one to warm up (default: 5)")
    parser.add_argument("--seed", type=int, default=0, help="of the one layer's random inputs (default: 0)")
    parser.add_argument(
        "--out", default="benchmarks/results", help="folder for bench.json and bench.svg (default: benchmarks/results)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=_bench)


def _add_evaluate(commands: Any) -> None:
    parser = commands.add_parser(
        "evaluate", help="perplexity and benchmark tasks beside full attention, with intervals"
    )
    _common(parser, "model")
    parser.add_argument(
        "--centroids",
        nargs="+",
        default=["default"],
        help="default, or centroid files; several that "
        "differ in their training seed give intervals over seeds (default: default)",
    )
    parser.add_argument("--text", nargs="+", help="held-out text files, or folders of .txt files")
    parser.add_argument("--seq-len", type=int, default=1024, help="tokens of a sequence (default: 1024)")
    parser.add_argument("--sequences", type=int, default=24, help="sequences over all texts (default: 24)")
    parser.add_argument(
        "--tasks", help="lm-eval tasks such as lambada_openai,hellaswag (default: all of --task-folder)"
    )
    parser.add_argument("--task-folder", help="folder with lm-eval task files of your own")
    parser.add_argument("--limit", type=int, help="only the first so many items of each task")
    parser.add_argument("--batch", type=int, default=1, help="task requests at once (default: 1)")
    parser.add_argument("--top-k", type=int, help="groups a token belongs to (default: the centroid file's)")
    parser.add_argument("--window", type=int, help="pairs at most this far apart always attend")
    parser.add_argument("--sinks", type=int, help="first tokens every token may attend to")
    parser.add_argument("--assignment", choices=("causal", "sinkhorn"), help="how groups are decided")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="(default: float32)")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda where there is a GPU (default: cpu)")
    parser.add_argument("--seed", type=int, default=0, help="of resampling (default: 0)")
    parser.add_argument("--out", help="JSON file to write")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=_evaluate)
    actions = parser.add_subparsers(dest="action", parser_class=_Parser)
    make = actions.add_parser("make-task", help="write last-word tasks made from plain text, for use without a network")
    make.add_argument("--text", nargs="+", required=True, help="text files, or folders of .txt files")
    make.add_argument("--out", required=True, help="folder to make")
    _common(make, "model")
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


def _add_serve(commands: Any) -> None:
    parser = commands.add_parser("serve", help="open the page")
    _common(parser, "host", "port", "db", "model", "centroids")
    parser.add_argument("--mcp", action="store_true", help="offer its functions to language models too (needs mcp)")
    parser.set_defaults(run=_serve)


def _service(arguments: argparse.Namespace) -> Any:
    from focus_explorer.services.service import Service

    return Service(getattr(arguments, "db", None))


def _read(source: str) -> str:
    from focus_explorer.services.texts import read_text_file, read_text_stream

    if source == "-":
        return read_text_stream(sys.stdin.buffer, "standard input")
    return read_text_file(Path(os.path.expanduser(source)))


def _analyze(arguments: argparse.Namespace) -> int:
    from focus_explorer.services.analyze import AnalyzeRequest, analyze
    from focus_explorer.services.runs import run_summary

    if corpora.wanted(arguments):
        return corpora.analyze(arguments, _command_line())
    text = _read(arguments.file)
    request = AnalyzeRequest(
        model=arguments.model,
        centroids=arguments.centroids,
        top_k=arguments.top_k,
        window=arguments.window,
        num_sinks=arguments.sinks,
        assignment=arguments.assignment,
        max_tokens=arguments.max_tokens,
        repeats=arguments.repeats,
    )
    service = _service(arguments)
    with stage_bar() as progress:
        run_id = analyze(service, text, request, command=_command_line(), progress=progress, announce=_announce)
    if arguments.attention:
        from focus_explorer.services.pairs import measure_attention

        with stage_bar() as progress:
            measure_attention(service, run_id, progress=progress)
    summary = run_summary(service.database, run_id)
    print(json.dumps(summary, ensure_ascii=False) if arguments.json else _describe(summary))
    return 0


def _announce(message: str) -> None:
    print(f"note: {message}", file=sys.stderr)


def _command_line() -> str:
    words = shlex.join(["focus-explorer", *sys.argv[1:]])
    return words.encode("utf-8", "backslashreplace").decode()  # file names need not be UTF-8


def _describe(summary: dict[str, Any]) -> str:
    config, times = summary["config"], summary["milliseconds"]
    full, focus = summary["perplexity"]["full"], summary["perplexity"]["focus"]
    even = 1 / config["num_groups"]
    kept = summary["distant_pairs_kept"]

    def row(stage: str, label: str) -> str:
        a, b = times[stage]["full"], times[stage]["focus"]
        ratio = a["median"] / b["median"]
        return (
            f"{label:<22} full {a['median']:,.0f} ms ({a['low']:,.0f} to {a['high']:,.0f}), "
            f"Focus {b['median']:,.0f} ms ({b['low']:,.0f} to {b['high']:,.0f}), "
            f"{a['repeats']} repeats: {ratio:.2f}x as fast"
        )

    lines = [
        f"run                    {summary['run_id']}   {summary['num_tokens']:,} tokens, {summary['model']}, "
        f"{summary['device']}, {summary['dtype']}",
        f"setting                K={config['num_groups']}, top-k {config['top_k']}, window {config['window']}, "
        f"{config['num_sinks']} sinks, {config['assignment']} assignment, centroids {summary['centroids']}, "
        f"backend {summary['backend']}",
        f"perplexity             full {full:.3f}, Focus {focus:.3f} ({focus / full - 1:+.2%}), "
        f"{summary['scored_tokens']:,} scored tokens",
        f"pairs kept             {summary['retained_pairs']:.1%} of all"
        + (f", {kept:.1%} of the distant ones" if kept is not None else ""),
        f"largest group          {summary['dominance']:.1%} of tokens, mean over layers (even would be {even:.1%})",
        row("end_to_end", "forward pass"),
        row("attention", "attention alone"),
        *(f"note                   {note}" for note in summary["notes"]),
        f"stored in              {summary['db']}",
    ]
    return "\n".join(lines)


def _check(arguments: argparse.Namespace) -> None:
    from focus_explorer.services.centroids.files import check_centroids
    from focus_explorer.services.service import Service

    centroids, report = check_centroids(Service(), arguments.file, arguments.model)
    if arguments.json:
        found = {
            "sha256": centroids.sha256,
            "config": centroids.config.to_dict(),
            "base_model": centroids.base_model,
            "layers": sorted(centroids.routers),
            "training": centroids.training,
            "report": report,
        }
        print(json.dumps(found, ensure_ascii=False))
    else:
        print("\n".join([f"{arguments.file} is a valid centroid file", *report, f"sha256 {centroids.sha256}"]))


def _train(arguments: argparse.Namespace) -> int:
    from focus_explorer.services.training.train import describe, train
    from focus_runtime.store.database import Database

    values = {option.name: getattr(arguments, option.name) for option in fields(TrainRequest)}
    request = TrainRequest(**values | {"text": tuple(arguments.text), "val": tuple(arguments.val)})
    database = None if arguments.no_db else Database(arguments.db or settings.default_database())
    command = _command_line()
    try:
        result = train(request, database, command=command, announce=_announce)
    except TrainingStopped as stopped:
        if stopped.step:
            again = command if request.resume else f"{command} --resume"
            print(
                f"stopped after step {stopped.step:,} of {request.steps:,}, which is saved; go on with\n  {again}",
                file=sys.stderr,
            )
        else:
            print("stopped before the first step; nothing was kept", file=sys.stderr)
        return 130
    if result:
        print(json.dumps(result) if arguments.json else describe(result))
    return 0


def _trainings(arguments: argparse.Namespace) -> None:
    from focus_explorer.services.training.processes import Trainings

    rows = Trainings(_service(arguments)).rows()
    if arguments.json:
        print(json.dumps(rows, ensure_ascii=False, default=str))
        return
    if not rows:
        print("no trainings yet; `focus-explorer train --text FILE --out NAME.safetensors` makes one")
    for row in rows:
        numbers = ""
        if row["loss"] is not None:
            numbers = f"  loss {row['loss']:.3f}  perplexity {row['perplexity']:.2f}"
        if row["dominance"] is not None:
            numbers += f"  largest group {row['dominance']:.0%}  pairs kept {row['retained_pairs']:.0%}"
        print(
            f"{row['training_id']}  {row['status']:<11}  {row['name']}  {row['model_id']}  "
            f"step {row['step']:,} of {row['steps']:,}{numbers}"
        )


def _bench(arguments: argparse.Namespace) -> None:
    from focus_explorer.services.bench import bench

    if arguments.repeats < 1:
        raise InputError(f"--repeats is {arguments.repeats}", expected="at least 1")
    if not 0 <= arguments.seed < 1 << 32:
        raise InputError(f"--seed is {arguments.seed}", expected=f"a whole number from 0 to {(1 << 32) - 1:,}")
    bench(arguments)


def _evaluate(arguments: argparse.Namespace) -> None:
    from focus_explorer.services.evaluate import evaluate

    evaluate(arguments)


def _make_task(arguments: argparse.Namespace) -> None:
    from focus_explorer.services.evaluate import make_task

    make_task(arguments)


def _serve(arguments: argparse.Namespace) -> None:
    from focus_explorer.ui.shell import build_app

    app = build_app(database=arguments.db, model=arguments.model, centroids=arguments.centroids)
    app.launch(host=arguments.host, port=arguments.port, mcp=arguments.mcp)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script; returns the exit status."""
    settings.quiet_libraries()
    try:
        arguments = _parser().parse_args(argv)
        return arguments.run(arguments) or 0
    except InputError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, TrainingStopped):
        print("error: stopped; nothing of this run was kept", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0


if __name__ == "__main__":
    sys.exit(main())
