"""The command line as scripts see it: exit status, one JSON object, one error line."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from focus_explorer.cli.main import main, parser
from focus_explorer.usecases.training.request import options as training_options
from tests.explorer.cli.conftest import one_error, options_in_help
from tests.test_imports import HEAVY, MAIN, imported


@pytest.mark.slow
def test_analyze_list_and_export(analyze, text_file, tmp_path, capsys):
    assert analyze(text_file, "--top-k", "1", "--window", "8", "--sinks", "2", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert {"run_id", "num_tokens", "perplexity", "retained_pairs", "dominance", "milliseconds", "db"} <= set(result)
    assert result["config"]["window"] == 8
    assert main(["runs", "--db", result["db"], "--json"]) == 0
    assert [row["run_id"] for row in json.loads(capsys.readouterr().out)] == [result["run_id"]]
    out = tmp_path / "groups.csv"
    arguments = ["export", result["run_id"], "--what", "groups", "--format", "csv", "--out", str(out)]
    assert main([*arguments, "--db", result["db"]]) == 0
    assert len(pd.read_csv(out)) == 2 * 8


def test_unknown_model_run_and_database(text_file, tmp_path, capsys):
    db = str(tmp_path / "x.duckdb")
    one_error(capsys, main(["analyze", text_file, "--model", "who-knows", "--db", db]), "who-knows")
    one_error(capsys, main(["export", "nope", "--what", "groups", "--format", "csv", "--out", "o", "--db", db]), "nope")
    one_error(capsys, main(["analyze", text_file, "--db", str(tmp_path)]), str(tmp_path))
    one_error(capsys, main(["frobnicate"]), "frobnicate")
    one_error(capsys, main(["analyze", str(tmp_path / "none.txt")]), "none.txt")


def test_a_lack_of_memory_is_one_line_and_a_defect_is_not(monkeypatch, capsys):
    def listed(error):
        def run(*_, **__):
            raise error

        monkeypatch.setattr("focus_explorer.cli.runs.list_runs", run)
        return main(["runs"])

    assert listed(MemoryError()) == 2
    assert capsys.readouterr().err == "error: the memory ran out; close other programs, or give a shorter text\n"
    with pytest.raises(RuntimeError, match="a defect"):
        listed(RuntimeError("a defect"))


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out.startswith("focus-explorer ")


def test_the_help_of_a_chosen_command_equals_that_of_the_whole_parser():
    whole = parser()
    assert parser([]).format_help() == whole.format_help()
    for name in ("runs", "train"):
        assert subparser(parser([name]), name).format_help() == subparser(whole, name).format_help()


def subparser(whole, name):
    return next(action for action in whole._actions if action.dest == "command").choices[name]


FOCUS = "--top-k --window --sinks --budget --window-growth --logit-factors --no-logit-factors"
COMPUTE = "--device --dtype --backend"
HELP = {
    "analyze": f"--model --centroids --db --json {FOCUS} --assignment {COMPUTE} --set --special-tokens --max-tokens "
    "--chat --repeats --attention --groups --routing-dim --seed --glob --text-column --name --out --engine --address "
    "--workers --gpus-per-worker --threads --no-tags --no-baseline",
    "bench": f"--model --centroids --text --lengths --layer-lengths {FOCUS} {COMPUTE} --special-tokens --repeats "
    "--seed --out --json",
    "bundle": "--out --text --no-figures --db",
    "compare": f"--repeats --max-tokens --model --centroids --db --json {FOCUS} --assignment {COMPUTE}",
    "corpora": "--db --json",
    "corpora show": "--db --json",
    "corpora delete": "--db --json",
    "centroids push": "--db --private --branch --message --base-model --licence --license --table --dry-run",
    "centroids balance": "--db --text --model --sequences --seq-len --special-tokens --device --dtype --out",
    "db check": "--db --json",
    "doctor": "--attention --tokens --families --out --device --json",
    "evaluate": f"--model --centroids --text --seq-len --sequences --tasks --task-folder --limit --batch {FOCUS} "
    f"--assignment --special-tokens {COMPUTE} --seed --out --json",
    "evaluate make-task": "--text --out --model --lengths --items --window --seed --json",
    "explain": "--token --db --json",
    "export": "--what --format --out --list --db --raw --rows --layer --head",
    "figure": "--what --format --out --list --db --preset --layer --head",
    "heads": "--verify --db --json",
    "rebuild": "--text --centroids --model --out --db",
    "report": "--out --no-pdf --db",
    "runs": "--db --json --deleted",
    "runs tag": "--db --remove",
    "runs purge": "--db --days",
    "setup": "--wheel --from-hub",
    "statistics": "--with --attention --no-measure --db --json",
    "texts": "--novels --held-out",
    "trainings": "--db --json",
    "tune": f"--text --held-out --out --loss --pairs --model --centroids --db --top-k --window --sinks --window-growth "
    f"{COMPUTE} --special-tokens --head-top-k --head-window --heads --sequences --held-out-sequences --seq-len "
    "--write-best --resume --json",
    "what-if": "--set --save --db --json",
}


@pytest.mark.parametrize(("words", "options"), HELP.items())
def test_help_names_the_options(capsys, words, options):
    assert options_in_help(capsys, *words.split()) == set(options.split())


@pytest.mark.parametrize("command", ["train", "finetune"])
def test_every_setting_of_a_training_is_an_option(capsys, command):
    named = options_in_help(capsys, command)
    assert named >= {"--text", "--out", "--val", "--model", "--log-to", "--json"}
    assert named >= {"--" + option.name.replace("_", "-") for option in training_options(command)}
    assert ("--no-db" in named) == (command == "train")


@pytest.mark.slow
def test_the_list_of_runs_imports_nothing_heavy(service, run_id):
    modules, text = imported(MAIN, "runs", "--db", str(service.database.path))
    assert not modules & HEAVY
    assert run_id in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--port", "70000"], "port 70000"),
        (["--host", "no.such.host.invalid"], "no.such.host.invalid"),
        (["--model", "who-knows"], "who-knows"),
    ],
)
def test_serve_refuses_before_it_serves(tmp_path, capsys, flags, part):
    assert main(["serve", "--db", str(tmp_path / "x.duckdb"), *flags]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert part in errors[0]
