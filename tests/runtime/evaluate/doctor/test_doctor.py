"""The doctor finds what is wrong at its layer and token, and nothing where nothing is."""

from __future__ import annotations

import pytest
import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

from focus_runtime.errors import InputError, ModelError
from focus_runtime.evaluate.doctor import doctor as room
from focus_runtime.evaluate.doctor.doctor import MASKED, PLAIN, doctor
from focus_runtime.evaluate.doctor.families import examine_family, tiny_model

# Sliding windows beside full attention and alone, learned sinks, linear layers, experts, latent attention, learned
# positions, none at all, parallel blocks, and a cache under another name.
DOZEN = (
    "llama",
    "gemma3_text",
    "mistral",
    "gpt_oss",
    "qwen3_next",
    "jamba",
    "mixtral",
    "deepseek_v3",
    "gpt2",
    "smollm3",
    "cohere2",
    "gpt_neox",
)
FEW = ("gpt_oss", "jamba")  # sliding beside full attention, sinks and experts; linear layers with another cache


def attend(query, key, value, allowed, scaling):
    """Attention with a mask of pairs, for grouped heads."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = (query @ key.transpose(2, 3) * scaling).masked_fill(~allowed, -1e9)
    return (scores.softmax(-1) @ value).transpose(1, 2), None


def causal(query, key, ahead=0):
    shift = key.shape[2] - query.shape[2] + ahead
    return torch.ones(query.shape[2], key.shape[2], dtype=torch.bool).tril(shift)


def ignores_padding(module, query, key, value, attention_mask, scaling, **kwargs):
    return attend(query, key, value, causal(query, key), scaling)


def sees_one_ahead_at_layer_1(module, query, key, value, attention_mask, scaling, **kwargs):
    return attend(query, key, value, causal(query, key, int(module.layer_idx == 1)), scaling)


def raises(module, query, key, value, attention_mask, scaling, **kwargs):
    raise RuntimeError("no kernel for this\nand a second line")


@pytest.fixture(params=[ignores_padding, sees_one_ahead_at_layer_1, raises], ids=lambda f: f.__name__)
def broken(request):
    AttentionInterface.register(request.param.__name__, request.param)
    AttentionMaskInterface.register(request.param.__name__, eager_mask)
    return request.param.__name__


def outcomes(report, against=None):
    return {f.scenario: f.outcome for f in report.findings if against in (None, f.against)}


def test_a_broken_implementation_is_found_at_its_layer_and_token(broken):
    model = tiny_model("llama")
    report = doctor(model, attention=broken, scenarios=["plain", "left padding", "greedy"])
    by_name = {finding.scenario: finding for finding in report.findings}
    assert not report.healthy
    if broken == "ignores_padding":
        assert by_name["plain"].outcome == "ok"
        difference = by_name["left padding"].difference
        assert (difference.layer, difference.token) == (0, 6)  # a quarter of 24 tokens is padding
        assert difference.logits > 1
        assert by_name["greedy"].outcome == "differs"
    elif broken == "sees_one_ahead_at_layer_1":
        assert (by_name["plain"].difference.layer, by_name["plain"].difference.token) == (1, 0)
        assert "differs first at layer 1, token 0 by" in "\n".join(report.lines())
    else:
        assert by_name["plain"].words == "error: RuntimeError: no kernel for this"


def test_another_pair_that_focus_keeps_is_found_by_the_dense_mask_alone(monkeypatch):
    real = room.dense_focus
    monkeypatch.setattr(
        room, "dense_focus", lambda model, groups, window, sinks: real(model, groups, window - 1, sinks)
    )
    report = doctor(tiny_model("llama"), scenarios=["plain", "the model's cache"])
    assert set(outcomes(report, PLAIN).values()) == {"ok"}
    assert set(outcomes(report, MASKED).values()) == {"differs"}


def test_a_refused_model_is_refused_and_left_as_it_was():
    model = tiny_model("bloom")
    ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        before = model(ids).logits
    report = doctor(model, scenarios=["plain", "static cache", "greedy", "bfloat16"])
    assert set(outcomes(report).values()) == {"refused"}
    assert report.healthy
    with torch.no_grad():
        assert torch.equal(model(ids).logits, before)
    AttentionInterface.register("ignores_padding", ignores_padding)
    (finding,) = doctor(model, attention="ignores_padding", scenarios=["plain"]).findings
    assert finding.outcome == "refused"  # not ok: the model has no place for it
    assert model.config._attn_implementation == "eager"


def test_what_cannot_be_examined_is_said():
    model = tiny_model("llama")
    with pytest.raises(InputError, match="registered as 'nonsense'"):
        doctor(model, attention="nonsense")
    with pytest.raises(InputError, match="no scenario 'nonsense'"):
        doctor(model, scenarios=["nonsense"])
    with pytest.raises(InputError, match="at least 16"):
        doctor(model, tokens=8)
    with pytest.raises(ModelError, match="builds no tiny gemma3n"):
        tiny_model("gemma3n")  # its vision tower needs another package


@pytest.mark.slow
@pytest.mark.parametrize("family", [pytest.param(f, marks=() if f in FEW else pytest.mark.long) for f in DOZEN])
def test_nothing_differs_in_a_dozen_families(family):
    row = examine_family(family)
    assert row.outcome == "ok", row.reason
    assert row.cells["one text"] == row.cells["one group"] == "ok"
