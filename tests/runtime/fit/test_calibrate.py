"""Column potentials estimated from text on a tiny model."""

from __future__ import annotations

import copy

import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.errors import ConfigError, TextError, TrainingError
from focus_runtime.fit.calibrate import balance_groups, calibrate_potentials, hard_potential
from focus_runtime.fit.inputs import TextDomain, encode_domains
from focus_runtime.measure.loss import final_hidden
from focus_runtime.text.sequences import encode_texts, even_sequences
from tests.helpers import build_centroids, build_model, build_tokenizer, random_ids
from tests.runtime.fit.tiny import TEXTS, train


def shares(model, centroids, sequences):
    """Share of the tokens whose first group is the largest, by layer, under causal assignment."""
    focus = compose(model, centroids, top_k=1, assignment="causal")
    counts: dict[int, list[torch.Tensor]] = {}
    with torch.no_grad():
        for row in sequences.split(1):
            final_hidden(model, row)
            for index, assignment in focus.assignments().items():
                counts.setdefault(index, []).append(assignment.membership.flatten())
    focus.detach()
    return [torch.unique(torch.cat(m), return_counts=True)[1].max().item() / sequences.numel() for m in counts.values()]


def test_calibration_balances_a_skewed_router(tiny_model):
    centroids = build_centroids(tiny_model)
    for router in centroids.routers.values():
        router.potential.copy_(torch.tensor([30.0, 0.0, 0.0, 0.0]))
    sequences = random_ids(64, batch=8)
    before = shares(tiny_model, centroids, sequences)
    old = [r.projection.clone() for r in centroids.routers.values()]
    assert calibrate_potentials(tiny_model, centroids, sequences) is centroids
    after = shares(tiny_model, centroids, sequences)
    assert min(before) > 0.9
    assert max(after) < 0.4
    assert all(torch.equal(r.projection, p) for r, p in zip(centroids.routers.values(), old, strict=True))
    assert all("logits" not in vars(r) for r in centroids.routers.values())
    assert tiny_model.config._attn_implementation == "eager"


def test_hard_potential_is_centred_and_never_worse_than_its_start(fresh_seed):
    logits = torch.randn(200, 5) * 3 + torch.tensor([4.0, 0, 0, 0, -4])
    start = torch.randn(5)
    potential = hard_potential(logits, start)

    def largest(b):
        return torch.bincount((logits + b).argmax(-1), minlength=5).max().item() / 200

    assert largest(potential) <= largest(start)
    assert largest(potential) < 0.25
    assert potential.mean().item() == pytest.approx(0, abs=1e-5)


def test_groups_are_balanced_on_domains_and_the_file_says_on_which():
    model = build_model(vocab_size=512)
    centroids = build_centroids(model)
    centroids.training = {"steps": 3}
    for router in centroids.routers.values():
        router.potential.copy_(torch.tensor([30.0, 0.0, 0.0, 0.0]))
    before = {layer: copy.deepcopy(router.state_dict()) for layer, router in centroids.routers.items()}
    tokenizer, texts = build_tokenizer(), [TextDomain("a", TEXTS, 2.0), TextDomain("b", TEXTS[::-1])]
    balance_groups(model, tokenizer, centroids, texts, count=6, length=32)
    domains = [{"name": "a", "weight": 2.0}, {"name": "b", "weight": 1.0}]
    assert centroids.training == {"steps": 3, "balanced": {"sequences": 6, "seq_len": 32, "domains": domains}}
    streams = [encode_texts(tokenizer, domain.texts, 1) for domain in texts]
    read = torch.cat([even_sequences(stream, count, 32) for stream, count in zip(streams, (4, 2), strict=True)])
    assert max(shares(model, centroids, read)) < 0.4
    for layer, router in centroids.routers.items():
        changed = {name for name, value in router.state_dict().items() if not torch.equal(value, before[layer][name])}
        assert changed == {"potential"}


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
