"""Composed models in the loops of transformers, peft and TRL: text generation, and training through Focus."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import Trainer, TrainingArguments, pipeline

from focus_runtime.composition.attach import compose
from tests.helpers import build_centroids, build_model, random_ids

RATE = 0.05


@pytest.fixture
def composed(tiny_model, composing):
    """A tiny model with Focus; its window is small, so that the mask matters."""
    return composing(tiny_model, backend="masked")


def loop(model, ids, steps, choose):
    """The same as `generate` without a cache: the whole text goes through the model at every step."""
    for _ in range(steps):
        with torch.no_grad():
            logits = model(ids, use_cache=False).logits[:, -1].float()
        ids = torch.cat([ids, choose(logits)], dim=1)
    return ids


def test_generate_does_what_a_loop_of_passes_does(composed, ids, fresh_seed):
    model, focus = composed
    greedy = loop(model, ids, 8, lambda logits: logits.argmax(-1, keepdim=True))
    common = {"max_new_tokens": 8, "eos_token_id": None, "pad_token_id": 0}
    assert torch.equal(model.generate(ids, do_sample=False, **common), greedy)
    with focus.full_attention():
        assert not torch.equal(model.generate(ids, do_sample=False, **common), greedy), "the mask decides"
    torch.manual_seed(fresh_seed)
    sampled = loop(model, ids, 8, lambda logits: torch.multinomial((logits / 0.7).softmax(-1), 1))
    torch.manual_seed(fresh_seed)
    assert torch.equal(model.generate(ids, do_sample=True, temperature=0.7, top_k=0, **common), sampled)


def test_a_pipeline_writes_what_generate_writes(composed, tokenizer):
    model, focus = composed
    text = "A lighthouse keeper wrote in his diary"
    writer = pipeline("text-generation", model=model, tokenizer=tokenizer, device="cpu")
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False}
    (written,) = writer(text, **options)
    ids = tokenizer(text, return_tensors="pt").input_ids
    assert written["generated_text"] == tokenizer.decode(model.generate(ids, **options)[0], skip_special_tokens=True)
    together = writer([text, "Call me Ishmael"], batch_size=2, **options)  # padded on the left
    assert together[0] == [written]
    assert together[1] == writer("Call me Ishmael", **options)
    assert focus.backend_names == "masked"


def dataset(count=4):
    return [{"input_ids": row, "labels": row} for row in random_ids(24, batch=count)]


def arguments(folder, **more):
    values = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 2,
        "max_steps": 2,
        "learning_rate": RATE,
        "lr_scheduler_type": "constant",
        "optim": "sgd",
        "max_grad_norm": 0.0,
        "report_to": [],
        "use_cpu": True,
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "seed": 0,
    }
    return values | more


def trained(trainer):
    """Its losses, step by step."""
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def batches_of(trainer):
    """The batches it has, in its order, recorded as the loop draws them."""
    drawn, step = [], trainer.training_step

    def recorded(model, inputs, *more):
        drawn.append({name: value.clone() for name, value in inputs.items()})
        return step(model, inputs, *more)

    trainer.training_step = recorded
    return drawn


def manual(model, batches):
    """The same steps by hand; gives the losses."""
    optimizer = torch.optim.SGD([weight for weight in model.parameters() if weight.requires_grad], lr=RATE)
    losses = []
    model.train()
    for batch in batches:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def same_weights(one, other):
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.allclose(a, b, atol=1e-5) for a, b in pairs)


@pytest.mark.slow
def test_trainer_trains_the_weights_through_focus(composed, tmp_path):
    model, focus = composed
    before = copy.deepcopy(model.state_dict())
    trainer = Trainer(model=model, args=TrainingArguments(**arguments(tmp_path)), train_dataset=dataset())
    drawn = batches_of(trainer)
    losses = trained(trainer)
    other = build_model()
    by_hand = compose(other, build_centroids(other), backend="masked")
    assert losses == pytest.approx(manual(other, drawn), abs=1e-3)
    assert same_weights(model, other)
    full = build_model()
    assert manual(full, drawn) != pytest.approx(losses, abs=1e-3), "full attention has other losses"
    assert not torch.equal(
        before["model.layers.0.self_attn.q_proj.weight"], model.state_dict()["model.layers.0.self_attn.q_proj.weight"]
    )
    assert focus.backend_names == "masked"
    with torch.no_grad():
        again = sum(model(**batch).loss.item() for batch in drawn)
    assert again < sum(losses)
    assert all(router.centroids.grad is None for router in focus.routers.values())
    by_hand.detach()


def test_trainer_trains_lora_on_a_frozen_model_through_focus(composed, tmp_path):
    peft = pytest.importorskip("peft")
    model, focus = composed
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    torch.manual_seed(3)
    adapted = peft.get_peft_model(model, config)
    trainer = Trainer(model=adapted, args=TrainingArguments(**arguments(tmp_path)), train_dataset=dataset())
    drawn = batches_of(trainer)
    losses = trained(trainer)
    other = build_model()
    torch.manual_seed(3)
    by_hand = compose(other, build_centroids(other), backend="masked")
    twin = peft.get_peft_model(other, config)
    assert losses == pytest.approx(manual(twin, drawn), abs=1e-3)
    assert same_weights(adapted, twin)
    assert focus.backend_names == "masked"
    plain = adapted.unload()
    assert all(torch.equal(before[name], weight) for name, weight in plain.state_dict().items()), "frozen"
    by_hand.detach()


@pytest.mark.long
@pytest.mark.slow
def test_documents_that_trl_packs_do_not_see_each_other(tokenizer, tmp_path):
    """With every pair kept the losses are those of the model's own attention, which keeps documents apart."""
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"text": [f"Text {n}: " + "word " * n for n in (3, 5, 2, 7, 4, 6)]})
    losses = []
    for sparse in (False, True):
        model = build_model()
        if sparse:
            compose(model, build_centroids(model), top_k=4)
        packed = arguments(tmp_path, max_length=64, packing=True, padding_free=True, bf16=False)
        trainer = trl.SFTTrainer(
            model=model, args=trl.SFTConfig(**packed), train_dataset=data, processing_class=tokenizer
        )
        losses.append(trained(trainer))
    assert losses[1] == pytest.approx(losses[0], abs=1e-4)
