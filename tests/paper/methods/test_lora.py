"""LoRA through peft: where it goes, how many weights it has, and what is said when peft is missing."""

from __future__ import annotations

import sys

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from focus_runtime.errors import ConfigError, InputError, ModelError
from paper.methods import LoRA
from paper.methods.lora import lora_parameter_count, lora_targets
from tests.helpers import build_model


@pytest.mark.parametrize(
    ("family", "children"),
    [("Llama", ["q_proj", "v_proj"]), ("GPT2", ["c_attn"]), ("Qwen3", ["q_proj", "v_proj"]), ("Phi3", ["qkv_proj"])],
)
def test_queries_and_values_of_every_layer_are_adapted(family, children):
    model = build_model(family)
    targets = lora_targets(model)
    assert [name.rpartition(".")[2] for name in targets] == children * 2
    before = {name for name, _ in model.named_modules()}
    handle = LoRA(rank=3).attach(model)
    adapted = {n.rpartition(".lora_A")[0] for n, _ in model.named_modules() if n.endswith("lora_A")}
    assert adapted == set(targets)
    counted = sum(parameter.numel() for parameter in handle.parameters())
    handle.detach()
    assert counted == lora_parameter_count(model, 3)
    assert {name for name, _ in model.named_modules()} == before


@pytest.mark.parametrize(("rank", "count"), [(4, 147_456), (16, 589_824)])
def test_the_papers_parameter_counts(rank, count):
    """147K and 590K on GPT-2 124M."""
    with torch.device("meta"):
        model = GPT2LMHeadModel(GPT2Config())
    assert lora_parameter_count(model, rank) == count


def test_updates_are_alpha_over_rank_times_both_factors(tiny_model):
    layer = tiny_model.model.layers[1].self_attn
    weight = layer.q_proj.weight.detach().clone()
    x = torch.randn(2, 5, 64)
    with LoRA(rank=2, alpha=6.0).attach(tiny_model):
        factor = layer.q_proj.lora_B["default"].weight
        assert (factor == 0).all()
        torch.nn.init.normal_(factor)
        update = factor @ layer.q_proj.lora_A["default"].weight
        torch.testing.assert_close(layer.q_proj(x), x @ (weight + 3.0 * update).T, rtol=1e-5, atol=1e-5)
    assert torch.equal(layer.q_proj.weight, weight)


def test_the_seed_decides_the_first_factors_and_the_global_generator_is_left_alone(tiny_model):
    first = {}
    torch.manual_seed(1)
    expected = torch.rand(1)
    for seed in (0, 0, 1):
        torch.manual_seed(1)
        with LoRA(rank=2, seed=seed).attach(tiny_model) as handle:
            first.setdefault(seed, []).append(torch.cat([p.detach().flatten() for p in handle.parameters()]))
        assert torch.equal(torch.rand(1), expected)
    assert torch.equal(*first[0])
    assert not torch.equal(first[0][0], first[1][0])


def test_new_modules_follow_the_models_mode(tiny_model):
    with LoRA(dropout=0.5).attach(tiny_model):
        assert not any(module.training for module in tiny_model.modules())
    tiny_model.train()
    with LoRA(dropout=0.5).attach(tiny_model):
        assert all(module.training for module in tiny_model.modules())


def test_chosen_and_missing_projections(tiny_model):
    assert len(lora_targets(tiny_model, ("o_proj",))) == 2
    with pytest.raises(ModelError, match=r"layer 0 .*no c_attn.*q_proj"):
        LoRA(targets=("c_attn",)).attach(tiny_model)


def test_adapters_on_adapters_are_refused(tiny_model):
    with LoRA().attach(tiny_model), pytest.raises(ModelError, match="already has peft adapters"):
        LoRA().attach(tiny_model)


def test_without_peft_the_message_says_what_to_install(tiny_model, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(InputError, match=r"pip install 'focus-explorer\[lora\]'"):
        LoRA().attach(tiny_model)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"rank": 0}, "rank"),
        ({"alpha": 0}, "alpha"),
        ({"dropout": 1.0}, "dropout"),
        ({"targets": "q_proj"}, "targets"),
        ({"targets": ()}, "targets"),
    ],
)
def test_bad_settings_are_named(settings, name):
    with pytest.raises(ConfigError, match=name):
        LoRA(**settings)
