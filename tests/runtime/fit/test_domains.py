"""Texts by domain: encoded, drawn by weight, and recorded."""

from __future__ import annotations

import pytest

from focus_runtime.errors import ConfigError, TextError, TrainingError
from focus_runtime.fit.inputs import TextDomain, encode_domains
from tests.runtime.fit.tiny import TEXTS, train

MIXED = [TextDomain("novels", TEXTS[:1], 3.0), TextDomain("code", TEXTS[1:], 1.0)]


def test_a_mixture_is_drawn_by_weight_and_recorded(tokenizer, batches):
    made, losses = train(texts=MIXED, steps=8)
    novels = tokenizer.decode(encode_domains(tokenizer, MIXED, 1, "auto").streams[0].ids)
    sequences = [tokenizer.decode(row) for batch in batches for row in batch]
    assert len(losses) == 8
    assert abs(sum(text in novels for text in sequences) - 12) <= 2
    assert made.training["domains"] == [
        {"name": "novels", "weight": 3.0, "tokens": len(TEXTS[0])},
        {"name": "code", "weight": 1.0, "tokens": len(TEXTS[1])},
    ]
    assert made.training["stopped"] == "all 8 steps are done"


def test_a_domain_with_too_little_text_is_named(tokenizer):
    with pytest.raises(TextError, match="the domain 'code' has 5 tokens; expected at least 33; give it more text"):
        encode_domains(tokenizer, [MIXED[0], TextDomain("code", ["short"])], 33, "auto")


def test_domains_with_one_name_are_refused(tokenizer):
    with pytest.raises(ConfigError, match="the domains are novels, novels; expected every name once"):
        encode_domains(tokenizer, [MIXED[0], MIXED[0]], 1, "auto")


def test_a_checkpoint_of_other_weights_is_refused(tmp_path):
    file = tmp_path / "run.ckpt"
    train(texts=MIXED, checkpoint=file, steps=2)
    other = [TextDomain("novels", TEXTS[:1], 2.0), MIXED[1]]
    with pytest.raises(TrainingError, match="another training: domains was"):
        train(texts=other, checkpoint=file, steps=2, resume=True)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_weights_are_above_zero(weight):
    with pytest.raises(ConfigError, match=r"the weight of the domain 'code' is .*expected a number above 0"):
        TextDomain("code", TEXTS, weight)
