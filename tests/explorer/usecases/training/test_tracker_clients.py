"""A training killed and resumed, logged through the clients themselves; what is on the disk, read back."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.explorer.conftest import TEXT
from tests.explorer.usecases.training import read_back
from tests.helpers import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.long]
CLIENTS = ("tensorboard", "trackio", "wandb")
SCRIPT = """
import importlib, os, shutil, signal, sys, time
from focus_explorer.cli.main import main
from focus_explorer.usecases.training.trackers import TrainingTrackers
import focus_explorer.usecases.training.train, focus_runtime.fit.centroids, focus_runtime.models.loading

words = sys.argv[1:]
for client in {"tensorboard": "torch.utils.tensorboard", "trackio": "trackio", "wandb": "wandb"}.items():
    if any(word.startswith(client[0]) for word in words):
        importlib.import_module(client[1])  # once, for both processes
child = os.fork()
if not child:
    log = TrainingTrackers.step

    def then_die(self, step):
        log(self, step)
        if step.step == 5:
            time.sleep(2.5)  # trackio writes twice a second, wandb's process once
            os.kill(os.getpid(), signal.SIGKILL)

    TrainingTrackers.step = then_die
    main(words)
assert os.waitpid(child, 0)[1] == signal.SIGKILL
shutil.copytree("logs", "killed")
sys.exit(main([*words, "--resume"]))
"""


@pytest.fixture(scope="module")
def logged(tmp_path_factory, model_folder):
    """A folder with the logs after the kill and at the end, the printed result, and which clients there are."""
    folder = tmp_path_factory.mktemp("logged")
    (folder / "text.txt").write_text(TEXT)
    (folder / "val.txt").write_text(TEXT[::-1])
    (folder / "logs").mkdir()
    clients = [name for name in CLIENTS if _installed(name)]
    targets = {"tensorboard": "tensorboard:logs/board", "trackio": "trackio:trial", "wandb": "wandb:trial"}
    words = f"train --text text.txt --val reversed=val.txt --model {model_folder} --out a.safetensors".split()
    sizes = {"groups": 3, "routing-dim": 4, "top-k": 1, "window": 8, "steps": 8, "seq-len": 32, "val-sequences": 2}
    sizes |= {"checkpoint-every": 2, "val-every": 4}
    words += [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    words += [word for name in clients for word in ("--log-to", targets[name])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "runtime"), str(ROOT)]),
        "OMP_NUM_THREADS": "1",
        "TRACKIO_DIR": str(folder / "logs" / "trackio"),
        "WANDB_DIR": str(folder / "logs"),
        "WANDB_MODE": "offline",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words, "--no-db", "--json"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "takes no more" not in done.stderr
    return folder, json.loads(done.stdout), clients


def _installed(name):
    from importlib.util import find_spec

    return find_spec(name) is not None


@pytest.mark.parametrize("name", CLIENTS)
def test_a_killed_training_is_readable_and_its_resume_continues_the_same_log(name, logged):
    folder, result, clients = logged
    if name not in clients:
        pytest.skip(f"{name} is not installed")
    read = {
        "tensorboard": lambda logs: read_back.tensorboard(logs / "board"),
        "trackio": lambda logs: read_back.trackio(logs / "trackio", "trial"),
        "wandb": lambda logs: read_back.wandb(logs),
    }[name]
    before, after = read(folder / "killed"), read(folder / "logs")
    held_back = name == "wandb"  # the newest row, which more numbers of the same step may join
    assert [step for step, _ in before[1]["train/loss"]] == [1, 2, 3, 4, 5][: -1 if held_back else None]
    assert after[0] == before[0]
    assert after[0].startswith("a-20")
    values = after[1]
    for number in ("loss", "perplexity", "dominance", "retained_pairs", "learning_rate", "tokens_per_second"):
        assert [step for step, _ in values[f"train/{number}"]] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert values["train/loss"][-1][1] == pytest.approx(result["training"]["final_loss"])
    assert not any("divergence" in each for each in values)  # was not measured
    scores = [(one["step"], pytest.approx(one["losses"]["reversed"])) for one in result["training"]["evaluations"]]
    assert values["held_out/reversed/loss"] == scores == values["held_out/loss"]


def test_settings_units_and_the_result_are_in_every_log(logged):
    folder, result, clients = logged
    settings, ends = {}, {}
    perplexity = result["training"]["validation"]["k=1"]["perplexity"]
    if "tensorboard" in clients:
        _, values, texts = read_back.tensorboard(folder / "logs" / "board")
        settings["tensorboard"] = json.loads(texts["settings"])
        ends["tensorboard"] = json.loads(texts["result"]) | {"perplexity": values["result/k=1/perplexity"][0][1]}
    if "trackio" in clients:
        _, values, settings["trackio"] = read_back.trackio(folder / "logs" / "trackio", "trial")
        last = {name: of[-1][1] for name, of in values.items()}
        ends["trackio"] = last | {"perplexity": last["result/k=1/perplexity"]}
    if "wandb" in clients:
        *_, settings["wandb"], summary = read_back.wandb(folder / "logs")
        ends["wandb"] = summary | {"perplexity": summary["result/k=1/perplexity"]}
    for made in settings.values():
        assert (made["config"]["num_groups"], made["settings"]["checkpoint_every"], made["recipe"]) == (3, 2, "ours")
        assert made["texts"] == [str(folder / "text.txt")]
        assert (len(made["text_sha256"]), len(made["model_fingerprint"])) == (64, 32)
        assert made["units"]["loss"] == "nats per token"
    for end in ends.values():
        assert (end["result/status"], end["result/centroids_sha256"]) == ("done", result["sha256"])
        assert end["perplexity"] == pytest.approx(perplexity, rel=1e-5)
    assert not (folder / "a.log-to.json").exists()
