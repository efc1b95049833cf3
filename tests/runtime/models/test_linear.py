"""Linear layers by oneDNN: as exact as torch's, and torch's own wherever the operator does not compute the same."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from focus_runtime.models import linear
from focus_runtime.models.linear import OneDnnLinear, linear_layers, onednn_is_faster, use_fast_linear
from focus_runtime.models.loading import load_model
from tests.helpers import random_ids
from tests.runtime.families import family_model, logits

needs_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"),
    reason="this torch has no oneDNN",
)
pytestmark = needs_onednn


@pytest.fixture
def fast(monkeypatch):
    """As on a processor where oneDNN is faster, for inputs of any size."""
    monkeypatch.setattr(linear, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(linear, "LEAST_PRODUCTS", 1)


@pytest.fixture
def calls(monkeypatch):
    """Counts the calls of oneDNN's operator."""
    made = []
    by_onednn = linear._by_onednn
    monkeypatch.setattr(linear, "_by_onednn", lambda *given: made.append(1) or by_onednn(*given))
    return made


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 48), (37, 48), (2, 19, 48), (3, 1, 2, 48)])
def test_it_is_as_exact_as_torch(fast, calls, fresh_seed, shape, bias):
    torch.manual_seed(fresh_seed)
    layer, given = nn.Linear(48, 80, bias=bias), torch.randn(shape)
    exact = nn.functional.linear(given.double(), layer.weight.double(), layer.bias.double() if bias else None)
    with torch.no_grad():
        own = (layer(given) - exact).abs().max()
        assert use_fast_linear(layer)
        made = layer(given)
    assert made.shape == exact.shape
    assert calls
    assert (made - exact).abs().max() < 2 * own + 1e-6


@pytest.mark.parametrize("family", ["Llama", "Gemma2", "Mistral", "GPT2"])
def test_models_predict_the_same(family, fast, fresh_seed):
    model, ids = family_model(family), random_ids(40, seed=fresh_seed % 1000)
    exact = logits(copy.deepcopy(model).double(), ids)
    use_fast_linear(model)
    torch.testing.assert_close(logits(model, ids).double(), exact, rtol=1e-4, atol=1e-5)


def test_turned_and_cut_inputs_are_read_right(fast, calls):
    layer = nn.Linear(16, 8)
    given = torch.randn(16, 40).T[3:33:2]
    expected = layer(given)
    use_fast_linear(layer)
    with torch.no_grad():
        torch.testing.assert_close(layer(given), expected, rtol=1e-5, atol=1e-6)
    assert len(calls) == 1


def test_gradients_are_torch_s(fast, calls):
    layer, given = nn.Linear(16, 8), torch.randn(5, 16, requires_grad=True)
    layer(given).square().sum().backward()
    expected = given.grad.clone(), layer.weight.grad.clone()
    given.grad, layer.weight.grad = None, None
    use_fast_linear(layer)
    layer(given).square().sum().backward()
    assert torch.equal(given.grad, expected[0])
    assert torch.equal(layer.weight.grad, expected[1])
    assert not calls
    layer.requires_grad_(False)
    layer(torch.randn(5, 16))  # gradients are on, but none is wanted
    assert len(calls) == 1


def test_other_precisions_are_torch_s(fast, calls):
    layer, given = nn.Linear(16, 8).requires_grad_(False), torch.randn(5, 16)
    use_fast_linear(layer)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(given).dtype == torch.bfloat16
    assert layer.bfloat16()(given.bfloat16()).dtype == torch.bfloat16
    assert not calls
    half = nn.Linear(4, 4).bfloat16()
    assert not use_fast_linear(half)
    assert type(half) is nn.Linear


def test_names_weights_copies_and_subclasses_stay(fast):
    class Own(nn.Linear):
        pass

    model = nn.Sequential(nn.Linear(4, 4), Own(4, 4))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert use_fast_linear(model)
    assert [type(module) for module in model] == [OneDnnLinear, Own]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    given = torch.randn(3, 4)
    for copied in (copy.deepcopy(model[0]), pickle.loads(pickle.dumps(model[0]))):
        assert copied.least_numbers == model[0].least_numbers
        torch.testing.assert_close(copied(given), model[0](given))
    assert linear_layers(model) == {"linear layers": "oneDNN"}
    assert linear_layers(nn.Linear(2, 2)) == {}


def test_where_it_is_not_faster_nothing_changes(monkeypatch, tmp_path, tokenizer):
    model_folder = str(tmp_path)
    family_model("Llama").save_pretrained(model_folder)
    tokenizer.save_pretrained(model_folder)
    monkeypatch.setattr(linear, "onednn_is_faster", lambda: False)
    model, _ = load_model(model_folder)
    assert linear_layers(model) == {}
    monkeypatch.setattr(linear, "onednn_is_faster", lambda: True)
    assert linear_layers(load_model(model_folder)[0])
    assert linear_layers(load_model(model_folder, dtype="bfloat16")[0]) == {}


def test_which_is_faster_is_timed(monkeypatch):
    onednn_is_faster.cache_clear()
    seconds = iter([1.3, 1.0, 1.31, 1.0])
    monkeypatch.setattr(linear, "_least_seconds", lambda *given: next(seconds))
    assert not onednn_is_faster()
    assert not onednn_is_faster()  # once in a process
    onednn_is_faster.cache_clear()
    assert onednn_is_faster()
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    onednn_is_faster.cache_clear()
    assert not onednn_is_faster()
    onednn_is_faster.cache_clear()
