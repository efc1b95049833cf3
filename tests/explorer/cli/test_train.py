"""`focus-explorer train`: the file that is written can be used."""

from __future__ import annotations

import json

import pytest

from focus_explorer.cli.main import main
from tests.explorer.cli.conftest import one_error
from tests.explorer.conftest import TEXT

pytestmark = pytest.mark.slow


def test_train_writes_a_usable_file(tmp_path, model_folder, text_file, capsys):
    out = tmp_path / "c.safetensors"
    flags = [
        "--groups",
        "3",
        "--routing-dim",
        "4",
        "--steps",
        "2",
        "--seq-len",
        "32",
        "--window",
        "8",
        "--top-k",
        "1",
        "--snapshots",
        "1",
    ]
    arguments = ["train", "--text", text_file, "--val", text_file, "--model", model_folder, "--out", str(out), *flags]
    one_error(capsys, main(arguments), "no text to train on")
    val = tmp_path / "val.txt"
    val.write_text(TEXT[::-1])
    arguments[4] = str(val)
    assert main([*arguments, "--json"]) == 0
    validation = json.loads(capsys.readouterr().out)["training"]["validation"]
    assert {"full", "k=1", "k=2"} <= set(validation)
    assert sorted(path.name for path in tmp_path.glob("c.*")) == ["c.safetensors", "c.step-000001.safetensors"]
    for path in tmp_path.glob("c.*"):
        assert main(["centroids", "check", str(path), "--model", model_folder]) == 0
        assert "K = 3" in capsys.readouterr().out
