"""Training from the command line and from the page's service, on a tiny model: curves, stops, resumes, bad input."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
import time
from itertools import pairwise

import pytest
import torch

from focus_explorer.cli.main import main
from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.services.analyze import AnalyzeRequest, analyze
from focus_explorer.services.runs import run_summary
from focus_explorer.services.service import Service
from focus_explorer.services.training.processes import Trainings
from focus_explorer.services.training.request import TrainRequest, checkpoint_of
from focus_explorer.services.training.train import describe_step, gather_texts
from focus_runtime.errors import CentroidFileError, TextError
from focus_runtime.routing.centroid_file import load_centroids
from focus_runtime.training.loop import TrainStep
from tests.explorer.cli.test_main import one_error
from tests.explorer.conftest import TEXT
from tests.helpers import build_model, build_tokenizer

pytestmark = pytest.mark.slow  # many short trainings or compositions; they run in make test


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


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


def curve(tmp_path, training_id):
    """Step and loss as stored."""
    asked = {"training_ids": [training_id], "seen_ids": [""], "seen_modes": [""], "seen_steps": [0]}
    found = fetch(Service(tmp_path / "runs.duckdb").database, "training_steps", **asked).to_pylist()
    return [(row["step"], row["loss"]) for row in found]


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


def test_a_held_out_text_is_left_out_wherever_it_lies(tmp_path):
    """A copy of it under another name would otherwise be trained on."""
    folder, held = tmp_path / "texts", tmp_path / "held-out.txt"
    folder.mkdir()
    for name, text in (("a.txt", "one text"), ("b.txt", "another"), ("copy.txt", "the held-out one")):
        (folder / name).write_text(text)
    held.write_text("the held-out one")
    texts, files = gather_texts([str(folder)], [str(held)])
    assert texts == ["one text", "another"]
    assert [path.name for path in files] == ["a.txt", "b.txt"]
    assert gather_texts([str(folder / "a.txt")], [str(tmp_path / "texts" / "b.txt")])[0] == ["one text"]
    with pytest.raises(TextError, match="no text to train on beside the held-out one"):
        gather_texts([str(folder)], [str(folder)])


def test_the_bar_shows_quality_beside_balance():
    words = describe_step(TrainStep(3, 2.0, 0.25, 0.3, 0.5, 1e-3, 1234.0))
    assert words == "loss 2.000, perplexity 7.39, largest group 25.0%, pairs kept 50.0%, 1,234 tokens/s"


def test_assignment_of_the_file_is_the_one_asked_for(train, tmp_path, text_file):
    val = tmp_path / "val.txt"
    val.write_text(TEXT[::-1])
    assert train("--assignment", "sinkhorn", "--no-db", val=val) == 0
    made = load_centroids(tmp_path / "a.safetensors")
    assert made.config.assignment == "sinkhorn"
    assert made.training["validation"]["scored_tokens"] > 0
    assert not (tmp_path / "runs.duckdb").exists()


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
        ({"steps": 0}, [], "steps is 0"),
        ({"layers": "0,7"}, [], "no layer 7"),
        ({"layers": "first"}, [], "--layers is 'first'"),
        ({"temperature": 0}, [], "temperature is 0"),
        ({"accumulate": 0}, [], "accumulation is 0"),
        ({"checkpoint-every": 0}, [], "checkpoint_every is 0"),
        ({"precision": "fp8"}, [], "invalid choice"),
        ({"out": "result.txt"}, [], ".safetensors"),
        ({"model": "who-knows"}, [], "who-knows"),
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
    import focus_runtime.training.centroids as runtime

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


def test_options_survive_the_way_to_another_process(monkeypatch):
    import focus_explorer.services.training.train as training

    request = TrainRequest(
        text=("a b.txt",),
        out="x y.safetensors",
        val=("v.txt",),
        name="It's mine",
        groups=8,
        train_window=32,
        hard=True,
        lr=1e-4,
        layers="0,3",
        precision="bf16",
        gradient_checkpointing=True,
        resume=True,
    )
    seen = []
    monkeypatch.setattr(training, "train", lambda asked, *_, **__: seen.append(asked) or {})
    assert main(["train", *request.to_arguments(), "--no-db"]) == 0
    assert seen == [request]


# --- trainings started from the page


@pytest.fixture
def trainings(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    made = Trainings(Service(tmp_path / "runs.duckdb"))
    yield made
    job = made._job
    if job is not None and job.process.poll() is None:
        job.process.kill()
        job.process.wait()


def request(model_folder, steps):
    return TrainRequest(
        text=(),
        out="",
        name="mine",
        model=model_folder,
        groups=3,
        top_k=1,
        window=8,
        steps=steps,
        seq_len=64,
        checkpoint_every=10,
    )


def until(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.2)
    pytest.fail("it did not happen in time")


@pytest.mark.slow
def test_start_watch_stop_continue_and_use(trainings, model_folder, text_file):
    out = trainings.start(request(model_folder, 4000), [str(text_file)])
    assert trainings.payload({})["job"]["state"] == "starting"
    with pytest.raises(InputError, match="mine is still running"):
        trainings.start(request(model_folder, 10), [str(text_file)])
    until(lambda: any(row["step"] > 3 for row in trainings.rows()))
    [row] = trainings.rows()
    key = row["training_id"]
    assert (row["status"], row["out"], row["name"]) == ("running", out, "mine")
    first = trainings.payload({key: {}})
    assert first["job"] is None
    last = first["curves"][key]["focus"]["last"]
    until(lambda: trainings.rows()[0]["step"] > last)
    more = trainings.payload({key: {"focus": last}})["curves"][key]["focus"]
    assert more["step"][0] == last + 1
    json.dumps(more, allow_nan=False)

    trainings.stop(key, wait=60)
    [row] = trainings.rows()
    assert (row["status"], row["resumable"], row["usable"]) == ("stopped", True, False)
    with pytest.raises(InputError, match="not running"):
        Trainings(trainings.service).stop(key)
    with pytest.raises(InputError, match="no finished file"):
        trainings.use(key)
    text_file.unlink()  # the page's training has its own copy

    assert trainings.resume(key) == out
    until(lambda: trainings.rows()[0]["status"] == "done")
    [row] = trainings.rows()
    assert (row["step"], row["training_id"], row["usable"]) == (4000, key, True)
    assert [step for step, _ in curve(text_file.parent, key)] == list(range(1, 4001))
    used = trainings.use(key)
    run = analyze(trainings.service, TEXT, AnalyzeRequest(model=used["model"], centroids=used["sha256"], repeats=1))
    assert run_summary(trainings.service.database, run)["config"]["num_groups"] == 3


@pytest.mark.slow
def test_a_killed_training_is_shown_as_interrupted_and_goes_on(trainings, model_folder, text_file):
    trainings.start(request(model_folder, 100_000), [str(text_file)])
    until(lambda: any(row["step"] > 10 for row in trainings.rows()))
    trainings._job.process.kill()
    until(lambda: trainings.rows()[0]["status"] == "interrupted")
    key = trainings.rows()[0]["training_id"]
    trainings.resume(key)
    until(lambda: trainings.rows()[0]["status"] == "running")
    trainings.stop(key, wait=60)
    steps = [step for step, _ in curve(text_file.parent, key)]
    assert steps[0] == 1
    assert all(before < after for before, after in pairwise(steps))  # nothing twice; what was not yet stored is lost


@pytest.mark.slow
def test_a_childs_error_is_one_message(trainings, text_file):
    trainings.start(request("who-knows", 5), [str(text_file)])
    until(lambda: (trainings.payload({})["job"] or {}).get("state") == "failed")
    job = trainings.payload({})["job"]
    assert "who-knows" in job["message"]
    assert "Traceback" not in job["message"]
    assert "error:" not in job["message"]


def test_bad_requests_start_nothing(trainings, model_folder, text_file, tmp_path):
    with pytest.raises(InputError, match="steps is 0"):
        trainings.start(request(model_folder, 0), [str(text_file)])
    binary = tmp_path / "b.txt"
    binary.write_bytes(b"\x7fELF\0\0")
    with pytest.raises(InputError, match="binary"):
        trainings.start(request(model_folder, 5), [str(binary)])
    with pytest.raises(NotFoundError, match="no training 'x'"):
        trainings.resume("x")
    with pytest.raises(NotFoundError, match="no training is running"):
        trainings.stop()
    assert trainings._job is None
    assert not (tmp_path / "trainings").exists()


def test_the_list_may_be_asked_for_by_several_threads(trainings):
    problems = []

    def ask():
        try:
            trainings.payload({})
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
