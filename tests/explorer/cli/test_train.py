"""`focus-explorer train` and `finetune`: what is written can be used, a twin, resume, and bad input."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import textwrap
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from focus_explorer.cli.main import main
from focus_explorer.usecases.training import train
from focus_runtime.models.loading import load_model
from focus_runtime.routing.centroid_file import load_centroids
from tests.explorer.cli.conftest import one_error
from tests.explorer.conftest import TEXT as SHORT
from tests.explorer.usecases.training import read_back
from tests.helpers import free_port
from tests.runtime.fit.tiny import environment

pytestmark = pytest.mark.slow
TEXT = "On the hill there stood a house, and in the house lived Anne; she wrote a letter. " * 30


@pytest.fixture
def words(tmp_path, model_folder):
    text = tmp_path / "a.txt"
    text.write_text(TEXT)
    sizes = ["--centroid-steps", "3", "--steps", "3", "--seq-len", "32", "--window", "4", "--lr", "1e-3"]
    return ["finetune", "--text", str(text), "--val", str(text), "--model", model_folder, *sizes]


@pytest.fixture
def train_text(words, tmp_path):
    """The held-out file is left out of the texts, so a second one is trained on."""
    other = tmp_path / "b.txt"
    other.write_text(TEXT[::-1] + TEXT)
    return [*words[:2], str(other), *words[3:]]


def test_a_model_folder_and_its_centroids_are_written(train_text, tmp_path, capsys):
    out = tmp_path / "out"
    assert main([*train_text, "--out", str(out), "--regime", "two-phase", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["weights_before"] != printed["weights_after"]
    assert printed["held_out"]["tokens"] > 0
    assert 0 < printed["held_out"]["pairs kept"] <= 1
    assert set(printed["phase_seconds"]) == {"centroids", "weights"}
    assert printed["seconds"] == pytest.approx(sum(printed["phase_seconds"].values()), abs=0.11)
    model, _ = load_model(str(out))
    load_centroids(out / "centroids.safetensors").check_fits(model)
    assert not (out / "checkpoint").exists()
    assert json.loads((out / "training.json").read_text())["regime"] == "two-phase"


def test_the_twin_has_no_centroids_and_the_same_start(train_text, tmp_path, capsys):
    results = []
    for name, more in (("a", []), ("b", ["--twin"])):
        assert main([*train_text, "--out", str(tmp_path / name), "--regime", "from-scratch", "--json", *more]) == 0
        results.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
        assert set(results[-1]["phase_seconds"]) == {"weights"}
    assert results[0]["weights_before"] == results[1]["weights_before"]
    assert results[0]["weights_after"] != results[1]["weights_after"]
    assert results[1]["attention"] == "full"
    assert json.loads((tmp_path / "a" / "training.json").read_text())["regime"] == "from-scratch"
    load_centroids(tmp_path / "a" / "centroids.safetensors").check_fits(load_model(str(tmp_path / "a"))[0])
    assert not (tmp_path / "b" / "centroids.safetensors").exists()


@pytest.mark.long
def test_a_stopped_training_continues_to_the_same_end(train_text, tmp_path, capsys, monkeypatch):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert main([*train_text, "--out", str(whole), "--json"]) == 0
    train_text += ["--log-to", f"tensorboard:{tmp_path / 'board'}"]
    end = json.loads(capsys.readouterr().out.splitlines()[-1])
    shown, checks = [], itertools.count(1)
    monkeypatch.setattr(train, "TERMINAL_BAR", lambda total: nullcontext(lambda done, numbers: shown.append(done)))
    signalled = SimpleNamespace(is_set=lambda: next(checks) >= 4)  # asked after all steps of a phase but the last
    with monkeypatch.context() as patch:
        patch.setattr(train, "stop_on_signal", lambda: nullcontext(signalled))
        assert main([*train_text, "--out", str(stopped), "--json"]) == 130
    assert "which is saved; continue with" in capsys.readouterr().err
    assert (tmp_path / "stopped.log-to.json").exists()
    assert main([*train_text, "--out", str(stopped), "--json"]) == 2
    assert "keeps a training that was stopped" in capsys.readouterr().err
    assert main([*train_text, "--out", str(stopped), "--json", "--resume"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["weights_after"] == end["weights_after"]
    assert shown == [1, 2, 3, 4, 5, 6]  # the bar counts the steps of all phases, also of those before the stop
    assert not (tmp_path / "stopped.log-to.json").exists()
    name, scalars, texts = read_back.tensorboard(tmp_path / "board")
    assert name.startswith("stopped-20")
    steps = {part: [step for step, _ in scalars[f"{part}/loss"]] for part in ("centroids", "weights")}
    assert steps == {"centroids": [1, 2, 3], "weights": [4, 5, 6]}
    assert json.loads(texts["settings"])["kind"] == "two-phase"
    assert json.loads(texts["result"])["result/weights_sha256"] == end["weights_after"]
    assert scalars["result/full attention"][0][1] == pytest.approx(end["held_out"]["full attention"], rel=1e-5)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--steps", "0"], "steps is 0"),
        (["--centroid-lr", "0"], "learning_rate is 0"),
        (["--loss", "distil"], "unrecognized arguments: --loss"),
        (["--resume"], "there is no checkpoint"),
        (["--seq-len", "200000"], "tokens"),
    ],
)
def test_bad_input_is_one_line(more, message, train_text, tmp_path, capsys):
    assert main([*train_text, "--out", str(tmp_path / "out"), *more]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: ")
    assert message in error


def test_a_folder_in_use_is_left_alone(train_text, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("keep")
    assert main([*train_text, "--out", str(tmp_path / "out")]) == 2
    assert "not empty" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


@pytest.mark.long
def test_of_two_processes_the_first_alone_writes_what_one_trains_with_twice_the_batch(train_text, tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import sys
        from accelerate import PartialState
        state = PartialState(cpu=True)
        from focus_explorer.cli.main import main
        from focus_explorer.usecases.training import train
        save = train._save_model
        train._save_model = lambda *args: print("SAVED by", state.process_index) or save(*args)
        status = main(sys.argv[1:])
        state.destroy_process_group()
        sys.exit(status)
        """)
    )
    variables = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": f"{free_port()}",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, str(program), *train_text, "--out", str(tmp_path / "out"), "--json"],
            stdout=subprocess.PIPE,
            text=True,
            env=environment() | variables | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    try:
        ended = [process.communicate(timeout=400)[0].splitlines() for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0]
    assert ended[0][0] == "SAVED by 0"
    assert json.loads(ended[0][1])["out"] == str(tmp_path / "out")
    assert ended[1] == []
    load_model(str(tmp_path / "out"))
    assert main([*train_text, "--batch", "2", "--out", str(tmp_path / "one"), "--json"]) == 0
    one, two = json.loads(capsys.readouterr().out.splitlines()[-1]), json.loads(ended[0][1])
    assert two["final_loss"] == pytest.approx(one["final_loss"], rel=1e-3)


@pytest.mark.parametrize(
    ("seconds", "phases", "said"),
    [
        (60.4, {"centroids": 20.0, "weights": 40.4}, "60 s in all, without pauses (centroids 20 s, weights 40 s)"),
        (1200.0, {"weights": 1200.0}, "1,200 s in all, without pauses"),
        (None, {"centroids": None, "weights": 3.0}, "a time that is not known: an older version began it"),
    ],
)
def test_the_time_is_said_to_be_that_of_all_parts(seconds, phases, said, monkeypatch, capsys, words):
    result = {"out": "o", "attention": "focus", "regime": "two-phase", "seconds": seconds, "phase_seconds": phases}
    monkeypatch.setattr(train, "train", lambda *_, **__: result)
    assert main([*words, "--out", "o"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"trained for {said}"


def test_train_writes_a_usable_file(tmp_path, model_folder, text_file, capsys):
    out = tmp_path / "c.safetensors"
    flags = ["--groups", "3", "--routing-dim", "4", "--steps", "2", "--seq-len", "32", "--window", "8", "--top-k", "1"]
    arguments = ["train", "--text", text_file, "--val", text_file, "--model", model_folder, "--out", str(out), *flags]
    arguments += ["--snapshots", "1"]
    one_error(capsys, main(arguments), "no text to train on")
    val = tmp_path / "val.txt"
    val.write_text(SHORT[::-1])
    arguments[4] = str(val)
    assert main([*arguments, "--json"]) == 0
    validation = json.loads(capsys.readouterr().out)["training"]["validation"]
    assert {"full", "k=1", "k=2"} <= set(validation)
    assert sorted(path.name for path in tmp_path.glob("c.*")) == ["c.safetensors", "c.step-000001.safetensors"]
    for path in tmp_path.glob("c.*"):
        assert main(["centroids", "check", str(path), "--model", model_folder]) == 0
        assert "K = 3" in capsys.readouterr().out
