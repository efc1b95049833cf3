"""The losses of a training against dense float64 definitions and single layers, and that a training lowers each."""

from __future__ import annotations

import math

import pytest
import torch

from focus_runtime.budget import HeadException
from focus_runtime.composition.modes import Comparison, SoftGate
from focus_runtime.errors import ConfigError
from focus_runtime.fit.centroids import centroid_loop, training_focus
from focus_runtime.fit.objective import distillation_loss, layer_errors, training_loss
from focus_runtime.fit.settings import TrainConfig
from focus_runtime.measure import loss as measure
from focus_runtime.measure.loss import final_hidden
from focus_runtime.models.structure import attention_modules
from focus_runtime.text.sequences import TokenStream
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.fit.tiny import PLAN, train


def dense(model, hidden, teacher, ids):
    """Means of negative log-likelihood and KL(teacher || hidden), all logits at once in float64."""
    head, settings = model.get_output_embeddings(), model.config
    weight = head.weight.double()
    bias = 0.0 if head.bias is None else head.bias.double()

    def log_probabilities(states):
        logits = states.double() @ weight.T + bias
        logits = logits / getattr(settings, "logits_scaling", 1.0)
        cap = getattr(settings, "final_logit_softcapping", None)
        return torch.log_softmax(logits if cap is None else cap * torch.tanh(logits / cap), dim=-1)

    q, p = (log_probabilities(states)[:, :-1] for states in (hidden, teacher))
    return -q.gather(-1, ids[:, 1:, None]).mean(), (p.exp() * (p - q)).sum(-1).mean()


@pytest.mark.parametrize("family", ["Llama", "Gemma2", "Granite", "Phi"])
@pytest.mark.parametrize(("nll_weight", "divergence_weight"), [(0.0, 1.0), (1.0, 0.5)])
@pytest.mark.parametrize("chunk", [7, 256])
def test_slabs_equal_the_dense_definition(family, nll_weight, divergence_weight, chunk, fresh_seed, monkeypatch):
    monkeypatch.setattr(measure, "CHUNK", chunk)
    model, ids = build_model(family).requires_grad_(False), random_ids(30, batch=2)
    hidden = torch.randn(2, 30, 64, requires_grad=True)
    teacher = torch.randn(2, 30, 64)
    made = distillation_loss(model, hidden, teacher, ids, nll_weight=nll_weight, divergence_weight=divergence_weight)
    (3.0 * made.objective).backward()
    exact = hidden.detach().double().requires_grad_()
    nll, divergence = dense(model, exact, teacher, ids)
    objective = nll_weight * nll + divergence_weight * divergence
    (3.0 * objective).backward()
    torch.testing.assert_close(made.nll.double(), nll, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(made.divergence.double(), divergence, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(made.objective.double(), objective, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(hidden.grad.double(), exact.grad, rtol=1e-4, atol=1e-6)
    assert not made.nll.requires_grad
    assert not made.divergence.requires_grad


def test_only_hidden_states_are_kept_for_the_backward_pass(tiny_model, monkeypatch):
    monkeypatch.setattr(measure, "CHUNK", 8)
    tiny_model.requires_grad_(False)
    hidden = torch.randn(1, 40, 64, requires_grad=True)
    made = distillation_loss(
        tiny_model, hidden, torch.randn(1, 40, 64), random_ids(40), nll_weight=0.0, divergence_weight=1.0
    )
    assert [saved.shape for saved in made.objective.grad_fn.saved_tensors] == [hidden.shape]


@pytest.mark.parametrize("loss", ["lm", "distil", "both"])
def test_the_teacher_is_full_attention(loss, tiny_model):
    """With k = K in a hard step Focus is full attention, so nothing diverges; else it does, and routers learn of it."""
    ids = random_ids(40)
    for top_k, diverges in ((4, False), (1, True)):
        centroids = build_centroids(tiny_model, top_k=top_k)
        with training_focus(tiny_model, centroids) as focus:
            for router in centroids.routers.values():
                router.requires_grad_(True)
            with focus.entered(SoftGate(hard=True)):
                made = training_loss(focus, ids, loss=loss, distil_weight=2.0)
                made.objective.backward()
            assert focus.assignments()
        assert all(router.projection.grad is not None for router in centroids.routers.values())
        assert all(parameter.grad is None for parameter in tiny_model.parameters())
        if loss != "lm":
            assert (made.divergence.item() > 1e-3) == diverges
            weight = {"distil": (0.0, 1.0), "both": (1.0, 2.0)}[loss]
            parts = weight[0] * made.nll.item() + weight[1] * made.divergence.item()
            assert made.objective.item() == pytest.approx(parts, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [pytest.param("lm", marks=pytest.mark.long), "both"])
def test_a_training_lowers_its_own_objective(loss):
    values: list = []

    def keep(step):
        values.append(step.loss + (0.0 if loss == "lm" else step.divergence))
        assert math.isnan(step.divergence) == (loss == "lm")

    train(build_model(), loss=loss, steps=30, seq_len=64, on_step=keep)
    assert sum(values[-8:]) < sum(values[:8])


def test_weights_are_not_trained_towards_themselves(tiny_model):
    centroids = build_centroids(tiny_model)
    with (
        training_focus(tiny_model, centroids, weights=True) as focus,
        pytest.raises(ConfigError, match="loss is 'distil'; expected 'lm' where the model's own weights are trained"),
    ):
        centroid_loop(
            focus,
            centroids,
            TokenStream(random_ids(64)[0]),
            TrainConfig(**PLAN, loss="distil"),
            weights=list(tiny_model.parameters()),
        )


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
    with training_focus(model, centroids) as focus, focus.entered(gate):
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
    with training_focus(tiny_model, centroids) as focus, focus.entered(SoftGate()), torch.no_grad():
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
    with training_focus(tiny_model, centroids) as focus, focus.entered(SoftGate()):
        with focus.entered(Comparison()) as comparison:
            hidden = final_hidden(tiny_model, ids)
        torch.testing.assert_close(hidden, full)
        assert not hidden.requires_grad
        assert sorted(comparison.errors) == focus.focused_layers
        assert comparison not in focus.modes


def test_objective_and_its_values(tiny_model, fresh_seed):
    centroids, ids = build_centroids(tiny_model), random_ids(40)
    with training_focus(tiny_model, centroids) as focus, focus.entered(SoftGate()), torch.no_grad():
        loss = training_loss(focus, ids, loss="layers", distil_weight=1.0)
        objective, nll, divergence, layer_error = loss.values()
        errors = torch.stack([*layer_errors(focus, ids).values()])
        assert loss.objective == errors.mean()
    assert layer_error == objective == loss.objective.item()
    assert math.isnan(nll)
    assert math.isnan(divergence)


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
