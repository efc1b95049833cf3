"""`focus-explorer centroids`: check, list, rename, remove, and copies with text sinks."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from focus_explorer.cli.main import main
from focus_explorer.usecases.centroids.files import add_centroids
from focus_explorer.usecases.service import Service
from focus_runtime.assets import SHIPPED_CENTROIDS
from focus_runtime.config import FocusConfig
from focus_runtime.routing.centroid_file import save_centroids
from focus_runtime.routing.centroids import random_centroids
from tests.explorer.cli.conftest import one_error
from tests.helpers import build_model
from tests.local_hub import TOKEN


def test_centroids_check(tmp_path, capsys):
    assert main(["centroids", "check", "default", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"]["num_groups"] == 8
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"\x10\0\0\0\0\0\0\0{broken")
    one_error(capsys, main(["centroids", "check", str(bad)]), "bad.safetensors")


def test_import_shows_the_mapping_asks_for_the_window_and_writes_a_usable_file(tmp_path, model_folder, capsys):
    model, content = build_model(vocab_size=512), {}
    for layer, router in random_centroids(model, FocusConfig(num_groups=3)).routers.items():
        content[f"module.model.layers.{layer}.self_attn.W_g.weight"] = router.projection.detach().T
        content[f"module.model.layers.{layer}.self_attn.centroids"] = router.centroids.detach()
    torch.save({"model_state_dict": content}, tmp_path / "author.pt")
    out = tmp_path / "ours.safetensors"
    command = ["centroids", "import", str(tmp_path / "author.pt"), "--out", str(out), "--model", model_folder]
    assert main(command) == 2
    said = capsys.readouterr()
    assert "self_attn.W_g.weight  (16, 64)  ->  layers.*.projection  2 layers, transposed to (64, 16)" in said.out
    assert "does not say the local window" in said.err
    assert not out.exists()
    assert main([*command, "--window", "8", "--top-k", "1"]) == 0
    assert "column potentials) estimated on 256 tokens" in capsys.readouterr().err
    assert main(["centroids", "check", str(out), "--model", model_folder]) == 0
    assert "column potentials present" in capsys.readouterr().out
    one_error(capsys, main([*command, "--window", "8"]), "exists")


@pytest.mark.parametrize(
    ("words", "changed", "said"),
    [
        (["text-sinks", "default", "--similarity", "0.9"], {"text_sinks": 0.9, "text_sinks_from": 2}, "text sinks"),
        (
            ["grow-windows", "novels", "--from", "64", "--to", "512"],
            {"window_growth": [64, 512]},
            "windows growing from token 64 to 512",
        ),
    ],
)
def test_a_copy_differs_in_what_was_asked_for_alone(words, changed, said, tmp_path, capsys):
    out = tmp_path / "copy.safetensors"

    def checked(file):
        assert main(["centroids", "check", str(file), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    command = ["centroids", *words, "--out", str(out)]
    assert main(command) == 0
    assert str(out) in capsys.readouterr().out
    before, after = checked(words[1]), checked(out)
    assert after["config"] == before["config"] | changed
    assert after["training"] == before["training"]
    assert any(said in line for line in after["report"])
    one_error(capsys, main(command), "exists")
    if "window_growth" in changed:
        constant = tmp_path / "constant.safetensors"
        back = ["centroids", "grow-windows", str(out), "--from", "1", "--to", "1", "--out", str(constant)]
        assert main(back) == 0
        assert "with windows of one length" in capsys.readouterr().out
        assert checked(constant)["config"] == before["config"]


def test_a_copy_that_cannot_be_made_is_one_line(tmp_path, capsys):
    out = tmp_path / "sinks.safetensors"
    command = ["centroids", "text-sinks", "default", "--out", str(out)]
    one_error(capsys, main([*command, "--similarity", "1.5"]), "text_sinks is 1.5", "at most 1")
    one_error(capsys, main(["centroids", "text-sinks", "random", "--out", str(out)]), "random")
    bad = ["centroids", "grow-windows", "novels", "--from", "9", "--to", "3", "--out", str(out)]
    one_error(capsys, main(bad), "window_growth is (9, 3)", "two positions")
    assert list(tmp_path.iterdir()) == []
    out.write_text("mine")
    one_error(capsys, main(command), "exists")
    assert out.read_text() == "mine"


def test_a_balanced_copy_differs_in_its_potentials_alone(tmp_path, model_folder, text_file, capsys):
    before, out = tmp_path / "before.safetensors", tmp_path / "balanced.safetensors"
    save_centroids(random_centroids(build_model(vocab_size=512), FocusConfig(num_groups=5, top_k=1)), before)
    command = ["centroids", "balance", str(before), "--text", f"mine={text_file}", "--model", model_folder]
    assert main([*command, "--sequences", "3", "--seq-len", "24", "--out", str(out)]) == 0
    assert f"wrote {out}, balanced on 3 sequences, sha256 " in capsys.readouterr().out
    old, new = load_file(before), load_file(out)
    differ = {name for name in new if name not in old or not torch.equal(new[name], old[name])}
    assert differ
    assert all(name.endswith("potential") for name in differ)
    assert main(["centroids", "check", str(out)]) == 0
    assert "groups balanced on mine" in capsys.readouterr().out
    out.unlink()
    command[4] = text_file  # without a name
    assert main([*command, "--sequences", "3", "--seq-len", "24", "--out", str(out)]) == 0
    capsys.readouterr()
    assert main(["centroids", "check", str(out)]) == 0
    assert "groups balanced on 3 sequences of 24 tokens" in capsys.readouterr().out


def test_a_balanced_copy_that_cannot_be_made_is_one_line(tmp_path, model_folder, text_file, capsys):
    file, out = tmp_path / "c.safetensors", tmp_path / "new" / "balanced.safetensors"
    save_centroids(random_centroids(build_model(vocab_size=512), FocusConfig(num_groups=5, top_k=1)), file)
    command = ["centroids", "balance", str(file), "--model", model_folder, "--seq-len", "24"]
    text = ["--text", text_file]
    one_error(capsys, main([*command, *text, "--out", str(file)]), "exists", "a new file")
    one_error(capsys, main([*command, *text, "--sequences", "0", "--out", str(out)]), "--sequences is 0")
    one_error(capsys, main([*command, *text, "--seq-len", "4", "--out", str(out)]), "--seq-len is 4", "at least 16")
    one_error(capsys, main([*command, *text, "--seq-len", "100000", "--out", str(out)]), "100000")
    one_error(capsys, main([*command, "--text", str(tmp_path / "no"), "--out", str(out)]), "no")
    one_error(capsys, main([*command, "--text", f"a={text_file}:0", "--out", str(out)]), "weight")
    other = ["centroids", "balance", "default", "--model", model_folder, *text, "--out", str(out)]
    one_error(capsys, main(other), "width 576", "64 wide")
    assert not out.exists()


@pytest.mark.slow
def test_files_are_listed_renamed_and_removed(tmp_path, capsys):
    database = tmp_path / "runs.duckdb"
    save_centroids(random_centroids(build_model(), FocusConfig(num_groups=5, top_k=1)), tmp_path / "c.safetensors")
    sha256 = add_centroids(Service(database), tmp_path / "c.safetensors", "mine", None).sha256
    db = ["--db", str(database)]

    def listed():
        assert main(["centroids", "list", "--json", *db]) == 0
        return [file["name"] for file in json.loads(capsys.readouterr().out)]

    assert main(["centroids", "rename", "mine", "better", *db]) == 0
    assert listed() == [*SHIPPED_CENTROIDS, "better"]
    assert main(["centroids", *db, "list"]) == 0
    assert f"{sha256[:16]}  K=5     0 runs  added" in capsys.readouterr().out
    one_error(capsys, main(["centroids", "remove", "default", *db]), "ships with the project")
    one_error(capsys, main(["centroids", "remove", "mine", *db]), "no centroid file 'mine'")
    assert main(["centroids", "remove", sha256, *db]) == 0
    assert listed() == list(SHIPPED_CENTROIDS)


@pytest.mark.slow
def test_push_and_pull(local_hub, tmp_path, capsys, monkeypatch):
    db = ["--db", str(tmp_path / "runs.duckdb")]
    file = tmp_path / "own.safetensors"
    sha256 = save_centroids(random_centroids(build_model(), FocusConfig(num_groups=5, top_k=1)), file)
    dry = tmp_path / "dry"
    assert main(["centroids", "push", str(file), "ada/mine", "--dry-run", str(dry), "--licence", "mit", *db]) == 0
    assert "nothing was sent" in capsys.readouterr().out
    assert "license: mit" in (dry / "README.md").read_text()
    assert local_hub.requests == []
    push = ["centroids", "push", str(dry), "ada/mine", "--base-model", "ada/base", *db]  # a folder can be pushed too
    one_error(capsys, main(push), "status 401", "HF_TOKEN")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert main([*push, "--branch", "next", "--message", "mine", "--private"]) == 0
    printed = capsys.readouterr()
    assert "note: no licence was given" in printed.err
    repository = local_hub.repositories["ada/mine"]
    name = f"ada/mine@{repository.refs['next']}"
    assert printed.out.startswith(f"pushed {name}, sha256 {sha256}\n")
    assert "base_model: ada/base" in repository.commits[repository.refs["next"]]["README.md"].decode()
    pull = ["centroids", "pull", "ada/mine", "--revision", "next"]
    assert main([*pull, "--sha256", sha256, "--out", str(tmp_path / "copy.safetensors")]) == 0
    assert capsys.readouterr().out.startswith(f"{name}, sha256 {sha256}, was copied to")
    assert (tmp_path / "copy.safetensors").read_bytes() == file.read_bytes()
    assert main([*pull, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == name
    one_error(capsys, main([*pull, "--sha256", "0" * 64]), "the hash that was given")
    one_error(capsys, main(["centroids", "pull", "ada/mine"]), "holds no centroid file")
    assert main(["centroids", "check", name]) == 0
    assert f"fetched from {name}" in capsys.readouterr().out
