"""What compose() finds out about a model before it is used."""

import sys

import pytest
import torch

from focus_runtime.composition import check
from focus_runtime.composition.attach import compose
from focus_runtime.errors import InputError, ModelError
from focus_runtime.evaluate.doctor.families import model_types, tiny_model
from focus_runtime.models.structure import attention_modules
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.families import logits


def test_an_attention_that_differs_is_named_and_taken_off(monkeypatch):
    model = build_model()
    home = sys.modules[type(model).__module__]
    own = home.eager_attention_forward

    def warmer(module, query, key, value, mask, scaling, **kwargs):
        return own(module, query, key, value, mask, scaling * (1 + module.layer_idx), **kwargs)

    monkeypatch.setattr(home, "eager_attention_forward", warmer)
    before = logits(model, random_ids(12))
    with pytest.raises(ModelError, match=r"layer 1 of LlamaForCausalLM does not compute .* from token 1 on"):
        compose(model, build_centroids(model))
    assert torch.equal(logits(model, random_ids(12)), before)
    compose(model, build_centroids(model), check=False).detach()


def test_a_model_is_checked_once_for_each_configuration(monkeypatch):
    model, passes = build_model(), []
    run = check.run_text
    monkeypatch.setattr("focus_runtime.composition.attach.run_text", lambda model: passes.append(run(model)))
    for layers in (None, None, (1,)):
        focus = compose(model, build_centroids(model, layers=layers))
        assert focus.assignments() == {}, "the tokens of the check are nobody's"
        focus.detach()
    assert len(passes) == 2


def test_an_encoder_is_refused():
    with pytest.raises(ModelError, match="is an encoder"):
        attention_modules(build_model("Bert", is_decoder=False))


@pytest.mark.parametrize("more", [{"use_cache": False}, {}])
def test_an_empty_text_is_one_clear_error(more):
    model = build_model()
    compose(model, build_centroids(model))
    with pytest.raises(InputError, match="the text is empty"):
        model(input_ids=torch.zeros(1, 0, dtype=torch.long), **more)


def test_training_mode_and_random_numbers_are_left_alone():
    model = build_model(attention_dropout=0.5).train()
    state = torch.get_rng_state()
    compose(model, build_centroids(model))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("t5gemma", "has an encoder"),
        ("mamba", "state-space or recurrent"),
        ("deepseek_v32", "its own sparse attention"),
        ("dory", "runs layer 1 2 times in a pass"),
        ("moshi", "does not compute under Focus what it computes without it"),
    ],
)
def test_what_stays_refused_is_refused_at_compose_with_the_reason(family, reason):
    if family == "t5gemma":
        from transformers import T5GemmaConfig, T5GemmaForConditionalGeneration, T5GemmaModuleConfig

        part = T5GemmaModuleConfig(
            hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
            head_dim=8, vocab_size=32,
        )  # fmt: skip
        model = T5GemmaForConditionalGeneration(T5GemmaConfig(encoder=part, decoder=part)).eval()
    elif family in model_types():
        model = tiny_model(family)
    else:
        pytest.skip(f"this transformers has no {family}")
    with pytest.raises(ModelError, match=reason):
        compose(model, build_centroids(model))


@torch.no_grad()
@pytest.mark.parametrize("family", ["gpt_oss", "deepseek_v3", "gemma3n_text", "gpt_neox", "diffllama", "minimax"])
def test_families_that_were_refused_or_could_not_generate(family):
    """Learned sinks, value heads of another size, shared keys, `layer_past`, two calls a layer, linear layers."""
    model, ids = tiny_model(family), random_ids(20)
    plain = model(input_ids=ids).logits
    said = model.generate(ids, max_new_tokens=10, do_sample=False, eos_token_id=None)
    compose(model, build_centroids(model), top_k=4)
    torch.testing.assert_close(model(input_ids=ids).logits, plain, rtol=1e-4, atol=1e-3)
    assert torch.equal(model.generate(ids, max_new_tokens=10, do_sample=False, eos_token_id=None), said)


def test_gradients_beside_learned_sinks():
    """The logsumexp of kernels has no gradient; attention beside sinks must have one all the same."""
    model, ids = tiny_model("gpt_oss"), random_ids(20)
    found = []
    for composed in (False, True):
        model.zero_grad()
        if composed:
            compose(model, build_centroids(model), top_k=4)
        model(input_ids=ids, use_cache=False).logits.square().mean().backward()
        found.append({name: weights.grad.clone() for name, weights in model.named_parameters() if "self_attn" in name})
    for name, gradient in found[0].items():
        torch.testing.assert_close(
            found[1][name], gradient, rtol=1e-3, atol=1e-4, msg=lambda m, name=name: f"{name} {m}"
        )
