"""`focus-explorer doctor`: status, JSON, the page of families, an implementation of the user's own."""

from __future__ import annotations

import json

import pytest

from focus_explorer.cli.main import main

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
