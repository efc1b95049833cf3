"""The model that lm-eval sees: every request begins with BOS once, which is not scored."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance

from focus_runtime.evaluate.lm_eval.model import HarnessModel
from focus_runtime.measure.loss import final_hidden, token_nll
from focus_runtime.text.special import text_ids
from tests.helpers import build_bos_tokenizer, build_model

SENTENCE = "The harbour was quiet."
GEMMA_TOKENIZER = build_bos_tokenizer("<bos> $A </s>")
GEMMA = build_model("Gemma", vocab_size=512)


def request(kind, *words):
    return Instance(request_type=kind, doc={}, arguments=words, idx=0, metadata=("task", 0, 1))


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_a_continuation_and_a_whole_text_are_scored_after_bos(choice):
    harness = HarnessModel(GEMMA, GEMMA_TOKENIZER, special_tokens=choice)
    ids = torch.tensor([text_ids(GEMMA_TOKENIZER, SENTENCE, choice)])
    nll = token_nll(GEMMA, final_hidden(GEMMA, ids), ids)[0]
    [(answer, _)] = harness.loglikelihood([request("loglikelihood", SENTENCE[:11], SENTENCE[11:])])
    assert answer == pytest.approx(-nll[-len(SENTENCE[11:]) :].sum().item(), rel=1e-4)
    assert harness.lengths == {("task", 0): ids.shape[1]}
    [whole] = harness.loglikelihood_rolling([request("loglikelihood_rolling", SENTENCE)])
    ids = torch.tensor([text_ids(GEMMA_TOKENIZER, SENTENCE)])  # lm-eval puts BOS before a whole text itself
    assert whole == pytest.approx(-token_nll(GEMMA, final_hidden(GEMMA, ids), ids).sum().item(), rel=1e-4)
