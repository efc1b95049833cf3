"""The error of every layer against the layers' own modules called in float64, and trainings that lower it."""

from __future__ import annotations

import math

import pytest
import torch

from focus_runtime.budget import HeadException
from focus_runtime.composition.attach import SoftGate
from focus_runtime.composition.modes import Comparison
from focus_runtime.fit.centroids import training_focus
from focus_runtime.fit.objective import layer_errors, training_loss, with_values
from focus_runtime.measure.loss import final_hidden
from focus_runtime.models.structure import attention_modules
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.fit.tiny import train

FAMILIES = ["Llama", "Gemma2", "GPT2"]


def inputs_and_outputs(model, ids):
    """What every attention module got and returned in a pass with full attention."""
    seen = {}

    def note(index):
        return lambda module, args, kwargs, output: seen.update({index: (args, kwargs, output[0])})

    modules = attention_modules(model)
    hooks = [m.register_forward_hook(note(index), with_kwargs=True) for index, m in modules.items()]
    try:
        with torch.no_grad():
            final_hidden(model, ids)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def one_by_one(focus, ids):
    """The same errors, every module called again on what it got with full attention."""
    with focus.full_attention():
        seen = inputs_and_outputs(focus.model, ids)
    errors = {}
    for index in focus.focused_layers:
        args, kwargs, full = seen[index]
        module = attention_modules(focus.model)[index]
        made = module(*args, **(kwargs | {"attention_mask": None}))[0]
        linear = next(getattr(module, name) for name in ("o_proj", "dense", "c_proj") if hasattr(module, name))
        added = full if linear.bias is None else full - linear.bias  # W times heads alone
        errors[index] = (made - full).square().sum() / added.square().sum()
    return errors


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("gate", [SoftGate(), SoftGate("paper"), SoftGate(hard=True)])
def test_equals_the_layers_called_one_by_one(family, gate, fresh_seed):
    model, ids = build_model(family).double(), random_ids(30, batch=2)
    centroids = build_centroids(model)
    with training_focus(model, centroids) as focus, focus.training_gate(gate):
        for router in centroids.routers.values():
            router.double().requires_grad_(True)
        routers = [centroids.routers[index] for index in focus.focused_layers]
        values = [value for router in routers for value in (router.projection, router.centroids)]
        made, expected = layer_errors(focus, ids), one_by_one(focus, ids)
        grads = torch.autograd.grad(sum(made.values()), values)
        exact = torch.autograd.grad(sum(expected.values()), values)
    assert list(made) == list(expected)
    for index, error in expected.items():
        torch.testing.assert_close(made[index].double(), error, rtol=2e-6, atol=1e-9)
    for grad, other in zip(grads, exact, strict=True):
        torch.testing.assert_close(grad, other, rtol=1e-4, atol=1e-8)
    assert max(grad.abs().max() for grad in grads) > 0


def test_heads_with_everything_cost_nothing(tiny_model, fresh_seed):
    centroids, ids = build_centroids(tiny_model), random_ids(40)
    with training_focus(tiny_model, centroids) as focus, focus.training_gate(SoftGate()), torch.no_grad():
        before = layer_errors(focus, ids)
        everything = tuple(HeadException(layer=layer, full=True) for layer in focus.focused_layers[:1])
        with focus.with_config(focus.config.replace(budget=everything)):
            after = layer_errors(focus, ids)
    first, *others = before
    assert after[first] < 1e-9 < before[first]
    assert all(torch.equal(after[index], before[index]) for index in others)


def test_the_model_runs_with_full_attention(tiny_model, fresh_seed):
    """And keeps neither the comparison nor a graph through the model."""
    centroids, ids = build_centroids(tiny_model), random_ids(40)
    full = final_hidden(tiny_model, ids)
    with training_focus(tiny_model, centroids) as focus, focus.training_gate(SoftGate()):
        with focus.entered(Comparison()) as comparison:
            hidden = final_hidden(tiny_model, ids)
        torch.testing.assert_close(hidden, full)
        assert not hidden.requires_grad
        assert sorted(comparison.errors) == focus.focused_layers
        assert comparison not in focus.modes


def test_objective_and_its_values(tiny_model, fresh_seed):
    centroids, ids = build_centroids(tiny_model), random_ids(40)
    with training_focus(tiny_model, centroids) as focus, focus.training_gate(SoftGate()), torch.no_grad():
        objective, values = with_values(training_loss(focus, ids, loss="layers", distil_weight=1.0))
        errors = torch.stack([*layer_errors(focus, ids).values()])
        assert objective == errors.mean()
    assert values.layer_error == values.objective == objective.item()
    assert math.isnan(values.nll)
    assert math.isnan(values.divergence)


@pytest.mark.slow
def test_a_training_lowers_the_error_and_records_it(fresh_seed):
    steps = []
    centroids, _ = train(loss="layers", steps=30, learning_rate=3e-2, on_step=steps.append)
    errors = [step.layer_error for step in steps]
    assert sum(errors[-5:]) < sum(errors[:5])
    assert math.isnan(steps[-1].loss)
    assert math.isnan(steps[-1].perplexity)
    assert centroids.training["final_layer_error"] == errors[-1]
    assert centroids.training["loss"] == "layers"
    assert "final_loss" not in centroids.training
    assert "final_divergence" not in centroids.training
