"""Training from the command line on a tiny model: curves, stops, resumes, bad input."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from contextlib import suppress
from dataclasses import replace

import pytest
import torch

from focus_explorer.cli.main import main
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.training.processes import Trainings
from focus_explorer.usecases.training.request import checkpoint_of, plan_training
from focus_explorer.usecases.training.session import stop_on_signal
from focus_explorer.usecases.training.train import describe_step
from focus_runtime.errors import CentroidFileError
from focus_runtime.fit.settings import TrainConfig, TrainStep
from focus_runtime.models.loading import fingerprint, weights_sha256
from focus_runtime.routing.centroid_file import load_centroids
from tests.explorer.cli.test_main import one_error
from tests.explorer.conftest import TEXT
from tests.explorer.usecases.training.curves import curve
from tests.helpers import build_model, build_tokenizer

pytestmark = pytest.mark.slow  # many short trainings or compositions; they run in make test


@pytest.fixture
def train(tmp_path, model_folder, text_file, monkeypatch):
    """Trains 6 steps of a tiny model through the command line; options given replace the usual ones."""

    def run(*flags, out="a.safetensors", **changes):
        options = {
            "text": text_file,
            "model": model_folder,
            "out": tmp_path / out,
            "db": tmp_path / "runs.duckdb",
            "groups": 3,
            "routing-dim": 4,
            "top-k": 1,
            "window": 8,
            "steps": 6,
            "seq-len": 32,
            **changes,
        }
        words = [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
        monkeypatch.setattr(sys, "argv", ["focus-explorer", "train", *words, *flags])
        return main(["train", *words, *flags])

    return run


def rows(tmp_path):
    return Trainings(Service(tmp_path / "runs.duckdb")).rows()


def weights(path):
    return [p for _, r in sorted(load_centroids(path).routers.items()) for p in r.state_dict().values()]


def stop_after(step, monkeypatch):
    """Sends this process Ctrl-C as soon as a step is reported."""
    from focus_runtime.store.training import TrainingRecorder

    record = TrainingRecorder.step

    def report(self, made, **rest):
        record(self, made, **rest)
        if made.step == step:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(TrainingRecorder, "step", report)


def test_the_curve_and_the_setting_are_recorded(train, tmp_path, model_folder, capsys):
    assert train("--layers", "1", "--gate", "paper", "--temperature", "0.2", "--json", accumulate=2) == 0
    result = json.loads(capsys.readouterr().out)
    [row] = rows(tmp_path)
    assert (row["status"], row["name"], row["model_id"]) == ("done", "a", model_folder)
    assert (row["steps"], row["step"], row["centroids_sha256"]) == (6, 6, result["sha256"])
    assert row["config"]["layers"] == [1]
    assert (row["config"]["gate"], row["config"]["temperature"]) == ("paper", 0.2)
    assert row["settings"]["accumulation"] == 2
    assert row["texts"] == [str(tmp_path / "text.txt")]
    assert shlex.split(row["command"])[:2] == ["focus-explorer", "train"]
    points = curve(tmp_path, row["training_id"])
    assert [step for step, _ in points] == [1, 2, 3, 4, 5, 6]
    assert points[-1][1] == result["training"]["final_loss"]
    assert sorted(load_centroids(tmp_path / "a.safetensors").routers) == [1]
    assert main(["trainings", "--db", str(tmp_path / "runs.duckdb")]) == 0
    assert "step 6 of 6" in capsys.readouterr().out
    assert not checkpoint_of(tmp_path / "a.safetensors").exists()


def test_training_goes_on_from_a_file_and_keeps_its_budget(train, tmp_path, capsys):
    budget = tmp_path / "budget.json"
    budget.write_text('[{"layer": 1, "head": 0, "full": true}]')
    (tmp_path / "held-out.txt").write_text("pack my box with five dozen liquor jugs. " * 20)
    assert train(out="first.safetensors", budget=budget, val=tmp_path / "held-out.txt") == 0
    assert "k is that of heads without a setting of their own" in capsys.readouterr().out
    [run] = Trainings(Service(tmp_path / "runs.duckdb")).payload({})["trainings"]
    assert run["config"]["exceptions"] == 1
    first = load_centroids(tmp_path / "first.safetensors")
    assert [entry.to_dict() for entry in first.config.budget] == json.loads(budget.read_text())
    start = {"init": tmp_path / "first.safetensors", "groups": None, "routing-dim": None}
    capsys.readouterr()
    assert train("--json", out="more.safetensors", **start) == 0
    assert json.loads(capsys.readouterr().out)["training"]["initial"]["sha256"] == first.sha256
    more = load_centroids(tmp_path / "more.safetensors")
    assert (more.config.num_groups, more.config.routing_dim) == (3, 4)
    assert more.config.budget == first.config.budget
    assert train(out="none.safetensors", budget="none", **start) == 0
    assert load_centroids(tmp_path / "none.safetensors").config.budget == ()
    capsys.readouterr()
    for flags, problem in (
        ({"groups": 5}, "has 3 groups"),
        ({"init": tmp_path / "nothing.safetensors"}, "nothing.safetensors"),
        ({"init": "random"}, "--init is random"),
    ):
        one_error(capsys, train(out="bad.safetensors", **start | flags), problem)
    assert not (tmp_path / "bad.safetensors").exists()


def test_the_bar_shows_quality_and_balance():
    words = describe_step(TrainStep(3, 2.0, 0.25, 0.3, 0.5, 1e-3, 1234.0))
    assert words == "loss 2.000, perplexity 7.39, largest group 25.0%, pairs kept 50.0%, 1,234 tokens/s"
    words = describe_step(TrainStep(3, 2.0, 0.25, 0.3, 0.5, 1e-3, 1234.0, divergence=0.125))
    assert "perplexity 7.39, divergence 0.1250, largest group" in words


def test_assignment_of_the_file_is_the_one_requested(train, tmp_path, text_file):
    val = tmp_path / "val.txt"
    val.write_text(TEXT[::-1])
    assert train("--assignment", "sinkhorn", "--no-db", val=val) == 0
    made = load_centroids(tmp_path / "a.safetensors")
    assert made.config.assignment == "sinkhorn"
    assert made.training["validation"]["scored_tokens"] > 0
    assert not (tmp_path / "runs.duckdb").exists()


@pytest.mark.long
def test_domains_evaluations_and_an_early_end_are_recorded_and_said(train, tmp_path, text_file, monkeypatch, capsys):
    """The mean of the evaluations is made to rise after step 4."""
    from focus_runtime.fit import centroids as runtime

    for name, text in (("reversed", TEXT[::-1]), ("upper", TEXT.upper())):
        (tmp_path / f"{name}.txt").write_text(text)
    original = runtime.evaluate_training

    def evaluate(*arguments):
        made = original(*arguments)
        return replace(made, losses=dict.fromkeys(made.losses, 5.0 + (made.step - 4) ** 2))

    monkeypatch.setattr(runtime, "evaluate_training", evaluate)
    domains = ["--text", f"upper={tmp_path / 'upper.txt'}"]
    held_out = ["--val", f"plain={text_file}", "--val", f"reversed={tmp_path / 'reversed.txt'}"]
    options = {"val-every": 2, "patience": 2, "loss": "both", "hard-steps": 3, "val-sequences": 2}
    assert train(*domains, *held_out, text=f"reversed={tmp_path / 'reversed.txt'}:3", steps=20, **options) == 2
    assert "the domain 'reversed'" in capsys.readouterr().err  # all of it is held out
    held_out[3] = "other=" + str(tmp_path / "other.txt")
    (tmp_path / "other.txt").write_text(TEXT.swapcase())
    assert train(*domains, *held_out, text=f"reversed={tmp_path / 'reversed.txt'}:3", steps=20, **options) == 0
    captured = capsys.readouterr()
    assert "step 4: held-out loss plain 5.0000, other 5.0000, mean 5.0000 nats per token" in captured.err
    assert "the centroids of step 4 were kept: no lower held-out loss in 2 evaluations, at step 8" in captured.out
    assert "mean of 2 domains" in captured.out
    notes = load_centroids(tmp_path / "a.safetensors").training
    assert [(domain["name"], domain["weight"]) for domain in notes["domains"]] == [("reversed", 3.0), ("upper", 1.0)]
    assert [one["step"] for one in notes["evaluations"]] == [2, 4, 6, 8]
    assert (notes["loss"], notes["hard_steps"], notes["steps"], notes["planned_steps"]) == ("both", 3, 4, 20)
    assert set(notes["validation"]["domains"]) == {"plain", "other"}
    [row] = rows(tmp_path)
    assert row["domains"]["reversed"] == {"weight": 3.0, "texts": [str(tmp_path / "reversed.txt")]}
    assert row["stop_reason"] == notes["stopped"]
    assert row["settings"]["loss"] == "both"
    with Service(tmp_path / "runs.duckdb").database.read() as connection:
        stored = connection.execute("SELECT step, domain, loss FROM training_evaluations ORDER BY ALL").fetchall()
        divergence = connection.execute("SELECT min(divergence) FROM training_steps").fetchone()[0]
    assert stored[:3] == [(2, "other", 9.0), (2, "plain", 9.0), (4, "other", 5.0)]
    assert len(stored) == 8
    assert divergence > 0


def test_ctrl_c_keeps_the_last_step_and_resume_ends_where_an_uninterrupted_one_does(
    train, tmp_path, monkeypatch, capsys
):
    assert train(out="whole.safetensors") == 0
    with monkeypatch.context() as patch:
        stop_after(4, patch)
        assert train() == 130
    error = capsys.readouterr().err
    assert "stopped after step 4 of 6" in error
    again = shlex.split(error.strip().splitlines()[-1])
    assert again[-1] == "--resume"
    assert not (tmp_path / "a.safetensors").exists()
    stopped, whole = rows(tmp_path)
    assert (stopped["status"], stopped["step"], stopped["resumable"]) == ("stopped", 4, True)

    assert main(again[1:]) == 0
    resumed = rows(tmp_path)[0]
    assert (resumed["training_id"], resumed["status"]) == (stopped["training_id"], "done")
    assert curve(tmp_path, resumed["training_id"]) == curve(tmp_path, whole["training_id"])
    same = zip(weights(tmp_path / "a.safetensors"), weights(tmp_path / "whole.safetensors"), strict=True)
    assert all(torch.equal(a, b) for a, b in same)
    assert sorted(path.suffix for path in tmp_path.glob("a.*")) == [".safetensors"]


@pytest.mark.long
def test_a_second_start_does_not_disturb_the_one_that_runs(train, tmp_path, monkeypatch, capsys):
    from focus_runtime.store.training import TrainingRecorder

    record, refused = TrainingRecorder.step, []

    def second(self, made, **rest):
        record(self, made, **rest)
        if made.step == 3:
            refused.append((train(steps=4), train("--resume"), train(out="b.safetensors", steps=2)))

    monkeypatch.setattr(TrainingRecorder, "step", second)
    assert train() == 0
    assert refused == [(2, 2, 0)]
    assert capsys.readouterr().err.count("another training that runs now writes to") == 2
    assert {row["name"]: (row["status"], row["step"]) for row in rows(tmp_path)} == {"a": ("done", 6), "b": ("done", 2)}
    assert not list(tmp_path.glob(".*.lock"))


def test_a_stop_is_taken_where_nobody_reads_the_messages_any_more(monkeypatch):
    """As with `train ... 2>&1 | tee log`, where Ctrl-C ends both."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as closed, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", closed)
        with stop_on_signal() as stopped:
            os.kill(os.getpid(), signal.SIGINT)
            assert stopped.wait(10)
        with suppress(BrokenPipeError):
            closed.close()


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")
def test_a_lost_terminal_stops_a_training_unless_nohup_says_otherwise(capsys):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signal() as stopped:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stopped.wait(0.1)
        signal.signal(signal.SIGHUP, signal.default_int_handler)
        with stop_on_signal() as stopped:
            for _ in range(2):  # of the shell and of the terminal
                os.kill(os.getpid(), signal.SIGHUP)
                assert stopped.wait(10)
        assert signal.getsignal(signal.SIGHUP) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_after_the_last_step_says_what_is_kept(train, tmp_path, monkeypatch, capsys):
    import focus_runtime.fit.centroids as module

    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "calibrate_potentials", interrupted)
        assert train() == 130
    error = capsys.readouterr().err.strip().splitlines()
    assert "the last checkpoint is kept" in error[-2]
    assert main(shlex.split(error[-1])[1:]) == 0
    assert (tmp_path / "a.safetensors").exists()
    with monkeypatch.context() as patch:
        patch.setattr("focus_explorer.usecases.training.train._load", interrupted)
        assert train(out="b.safetensors") == 130
    assert "nothing unfinished was kept" in capsys.readouterr().err


def test_what_cannot_be_resumed_is_said(train, tmp_path, text_file, monkeypatch, capsys):
    one_error(capsys, train("--resume"), "there is no checkpoint", "a.checkpoint")
    with monkeypatch.context() as patch:
        stop_after(2, patch)
        assert train() == 130
    capsys.readouterr()
    before = rows(tmp_path)
    one_error(capsys, train(), "keeps a training that was stopped", "--resume")
    one_error(capsys, train("--resume", groups=2), "of another training", "config")
    one_error(capsys, train("--resume", seed=5), "of another training", "settings")
    other = tmp_path / "other-model"
    build_model(vocab_size=512, seed=9).save_pretrained(other)
    build_tokenizer().save_pretrained(other)
    one_error(capsys, train("--resume", model=other), "of another training", "model")
    assert rows(tmp_path) == before
    checkpoint_of(tmp_path / "a.safetensors").write_bytes(b"broken")
    one_error(capsys, train("--resume"), "damaged")


@pytest.mark.parametrize(
    ("changes", "flags", "part"),
    [
        ({"seq-len": 5000}, [], "tokens"),
        ({"layers": "0,7"}, [], "no layer 7"),
        ({"layers": "first"}, [], "--layers is 'first'"),
        ({"precision": "fp8"}, [], "invalid choice"),
        ({"out": "result.txt"}, [], ".safetensors"),
        ({"out": "/dev/null/b.safetensors"}, [], "cannot write"),
        ({"gate": "paper"}, ["--hard"], "--hard goes with the log gate only"),
        ({"model": "who-knows"}, [], "who-knows"),
        ({"log-to": "mlflow"}, [], "--log-to is 'mlflow'"),
        ({"log-to": "tensorboard:/dev/null"}, [], "cannot write /dev/null"),
    ],
)
def test_bad_settings_give_one_line_and_leave_nothing(train, tmp_path, capsys, changes, flags, part):
    one_error(capsys, train(*flags, **changes), part)
    assert not list(tmp_path.glob("a.*"))
    assert rows(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "part"), [(None, "has no .txt files"), (b"\x7fELF\0\0\0", "binary"), (b"", "0 tokens")]
)
def test_bad_texts_give_one_line(train, tmp_path, capsys, content, part):
    folder = tmp_path / "texts"
    folder.mkdir()
    if content is not None:
        (folder / "bad.txt").write_bytes(content)
    one_error(capsys, train(text=folder), part)
    assert rows(tmp_path) == []


def test_a_loss_that_is_no_number_ends_it_with_advice(train, tmp_path, monkeypatch, capsys):
    import focus_runtime.fit.objective as runtime

    made, count = runtime.token_nll, []

    def broken(*arguments):
        count.append(1)
        return made(*arguments) * (float("nan") if len(count) > 4 else 1.0)

    monkeypatch.setattr(runtime, "token_nll", broken)
    one_error(capsys, train(**{"checkpoint-every": 2}), "nan at step 5", "learning rate")
    [row] = rows(tmp_path)
    assert (row["status"], row["step"], row["resumable"]) == ("failed", 4, True)
    assert "step 5" in row["message"]


def test_a_file_that_cannot_be_saved_leaves_the_old_one_and_the_checkpoint(train, tmp_path, monkeypatch, capsys):
    import focus_runtime.routing.centroid_file as runtime

    (tmp_path / "a.safetensors").write_bytes(b"the old file")

    def full(*_):
        raise CentroidFileError("cannot write a.safetensors: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(runtime, "save_centroids", full)
        one_error(capsys, train(**{"checkpoint-every": 2}), "No space left", "--resume")
    assert (tmp_path / "a.safetensors").read_bytes() == b"the old file"
    assert rows(tmp_path)[0]["status"] == "failed"
    assert train("--resume") == 0
    assert weights(tmp_path / "a.safetensors")


def test_a_training_killed_while_it_records_its_end_can_be_continued(train, tmp_path, monkeypatch):
    """Until its end is stored its row says that it runs, so the checkpoint stays until then."""
    from focus_runtime.store.training import TrainingRecorder

    class Killed(BaseException):
        """No code handles it, as no code runs after a kill."""

    def killed(self, *given):
        self._stop.set()
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(TrainingRecorder, "__exit__", killed)
        with pytest.raises(Killed):
            train()
    assert weights(tmp_path / "a.safetensors")
    assert checkpoint_of(tmp_path / "a.safetensors").exists()
    assert train("--resume") == 0
    [row] = rows(tmp_path)
    assert (row["status"], row["usable"]) == ("done", True)  # the steps that waited in memory were lost
    assert sorted(path.suffix for path in tmp_path.glob("a.*")) == [".safetensors"]


def test_it_plans_once_and_hashes_the_weights_once_before_and_once_after(train, tmp_path, text_file, count_calls):
    val = tmp_path / "val.txt"
    val.write_text(TEXT[::-1])
    plans, made = count_calls(plan_training), count_calls(TrainConfig.__post_init__, TrainConfig)
    fingerprints, hashes = count_calls(fingerprint), count_calls(weights_sha256)
    assert train(val=val) == 0
    assert (len(plans), len(made), len(fingerprints), len(hashes)) == (1, 1, 1, 2)
    [row] = rows(tmp_path)
    assert row["model_fingerprint"] == load_centroids(tmp_path / "a.safetensors").base_fingerprint
