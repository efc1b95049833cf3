"""Settings, schedule, accumulation, precision, checkpoints and resuming of the training loop."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.composition.modes import SoftGate
from focus_runtime.errors import ConfigError, TrainingError, TrainingStopped
from focus_runtime.fit.centroids import training_focus
from focus_runtime.fit.loop import checkpointing, training_shortage
from focus_runtime.fit.objective import training_loss
from focus_runtime.fit.settings import TrainConfig
from tests.helpers import build_centroids, build_model
from tests.runtime.fit.tiny import TEXTS, same, state, train, whole


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps is 0; expected at least 1"),
        ({"seq_len": 15}, "seq_len is 15"),
        ({"warmup": -1}, "warmup is -1; expected at least 0"),
        ({"calibration_sequences": 0}, "calibration_sequences is 0"),
        ({"seed": 1 << 63}, "seed is 9223372036854775808; expected at least 0 and below"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"learning_rate": 10.0}, "learning_rate is 10.0; expected between 0 and 10"),
        ({"mixed_precision": "fp8"}, "mixed_precision is 'fp8'; expected no or bf16 or fp16"),
        ({"loss": "kl"}, "loss is 'kl'; expected lm or distil or both"),
        ({"loss": "both", "distil_weight": 0}, "distil_weight is 0; expected a number above 0"),
        ({"loss": "layers", "gradient_checkpointing": True}, "gradient_checkpointing"),
        ({"steps": 6, "hard_steps": 6}, "hard_steps is 6 of 6 steps; expected fewer than all"),
        ({"hard_steps": 2, "hard": True}, "hard and hard_steps are both set"),
    ],
)
def test_bad_training_settings_are_named(changes, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig(**changes)


def test_learning_rate_warms_up_and_falls_to_a_tenth():
    settings_ = TrainConfig(steps=100, warmup=10, learning_rate=1.0)
    rates = [settings_.rate_at(s) for s in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] == pytest.approx(1.0)
    assert rates[9:] == sorted(rates[9:], reverse=True)
    assert rates[-1] == pytest.approx(0.1, abs=0.01)
    assert TrainConfig(warmup=0).rate_at(0) == pytest.approx(3e-3)


@pytest.mark.slow
def test_a_gradient_that_is_no_number_is_noticed_before_it_reaches_the_weights(tmp_path, monkeypatch):
    """A finite loss may have a gradient that is not: 0 * inf in the backward pass."""
    import focus_runtime.fit.objective as module

    file, calls = tmp_path / "run.ckpt", []
    original = module.token_nll

    class Breaking(torch.autograd.Function):
        @staticmethod
        def forward(context, value):
            return value.clone()

        @staticmethod
        def backward(context, grad):
            return grad * float("inf")

    def breaking(*args):
        calls.append(1)
        return Breaking.apply(original(*args)) if len(calls) == 4 else original(*args)

    monkeypatch.setattr(module, "token_nll", breaking)
    with pytest.raises(
        TrainingError, match=r"the gradient's norm became (nan|inf) at step 4; the last good checkpoint"
    ):
        train(checkpoint=file)
    monkeypatch.undo()
    assert train(checkpoint=file, resume=True)[1] == whole()[1][2:]


@pytest.mark.slow
def test_two_passes_of_one_sequence_are_one_pass_of_two(fresh_seed):
    seed = fresh_seed % 1000
    a, first = train(batch=2, seed=seed)
    b, second = train(batch=1, accumulation=2, seed=seed)
    assert first == pytest.approx(second, rel=1e-4)
    for x, y in zip(state(a), state(b), strict=True):
        torch.testing.assert_close(x, y, rtol=2e-2, atol=2e-2)


@pytest.mark.slow
def test_gradient_checkpointing_changes_no_loss():
    model = build_model()
    plain, losses = whole()
    again, checkpointed_losses = train(model, gradient_checkpointing=True)
    assert checkpointed_losses == pytest.approx(losses, rel=1e-5)
    assert not any(getattr(m, "gradient_checkpointing", False) for m in model.modules())
    assert not any(m.training for m in model.modules())
    torch.testing.assert_close(state(plain)[0], state(again)[0], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_layers_computed_again_have_the_text_sinks_they_had(ids):
    model = build_model(num_hidden_layers=4)
    centroids = build_centroids(model, layers=(0, 1, 2, 3), text_sinks=0.3, text_sinks_from=0)
    gradients = []
    for again in (False, True):
        with training_focus(model, centroids) as focus, checkpointing(model, again), focus.entered(SoftGate()):
            parameters = [router.centroids.requires_grad_(True) for router in centroids.routers.values()]
            loss = training_loss(focus, ids, loss="lm", distil_weight=1.0)
            gradients.append(torch.autograd.grad(loss.objective, parameters))
            assert any(found.any() for found in focus.found_sinks.by_layer.values())
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.slow
def test_gradient_checkpointing_computes_layers_again():
    model, calls = build_model(), []
    compose(model, build_centroids(model)).detach()  # reads a few tokens, once
    model.model.layers[1].self_attn.q_proj.register_forward_hook(lambda *_: calls.append(1))
    train(model, steps=1, calibration_sequences=1)
    plain = len(calls)
    train(model, steps=1, calibration_sequences=1, gradient_checkpointing=True)
    assert len(calls) - plain == plain + 1


ALONE = {"batch": 1, "seq_len": 512, "accumulation": 1, "gradient_checkpointing": False}


def message(room, checkpoint=None, **settings):
    return str(training_shortage(TrainConfig(**{**ALONE, **settings}), "cuda:0", room, checkpoint))


@pytest.mark.parametrize(
    ("room", "settings", "fix"),
    [
        (1100, {"batch": 4}, "set the sequences per pass to 2 (--batch 2; --accumulate 2 keeps the step's size)"),
        (9999, {"batch": 4}, "set the sequences per pass to 3 (--batch 3; --accumulate 2 keeps the step's size)"),
        (600, {"batch": 4, "accumulation": 3}, "set the sequences per pass to 1 (--batch 1; --accumulate 12 keeps "),
        (400, {"batch": 4}, "set the tokens per sequence to 400 (--seq-len 400, --batch 1)"),
        (400, {}, "set the tokens per sequence to 400 (--seq-len 400)"),
        (9, {}, "set fewer tokens per sequence (--seq-len), fewer sequences per pass (--batch)"),
        (None, {}, "set fewer tokens per sequence (--seq-len), fewer sequences per pass (--batch)"),
    ],
)
def test_less_at_a_time_is_advised(room, settings, fix):
    said = message(room, **settings)
    assert fix in said
    assert said.startswith("a training pass over ")
    assert "512 tokens needs more memory than there is on cuda:0; " in said
    assert said.endswith(", or add --gradient-checkpointing")
    assert "checkpointing" not in message(room, **settings, gradient_checkpointing=True)


def test_what_is_kept_is_named(tmp_path):
    file = tmp_path / "t.ckpt"
    assert "--resume" not in message(400, file)
    file.touch()
    assert message(400, file).endswith(f"; {file} keeps the training as it was, for --resume with the same settings")


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"hard": True, "accumulation": 2, "mixed_precision": "bf16"}])
def test_a_resumed_training_is_the_uninterrupted_one(changes, fresh_seed, tmp_path):
    (uninterrupted, losses), stop_after = whole(**changes), 1 + fresh_seed % 5
    file = tmp_path / "run.ckpt"
    seen: list[int] = []

    def stop():
        seen.append(1)
        return len(seen) == stop_after

    with pytest.raises(TrainingStopped) as stopped:
        train(checkpoint=file, should_stop=stop, **changes)
    assert (stopped.value.step, stopped.value.path) == (stop_after, file)
    resumed, rest = train(checkpoint=file, resume=True, **changes)
    assert rest == losses[stop_after:]
    assert same(resumed, uninterrupted)
    assert [path.name for path in tmp_path.iterdir()] == ["run.ckpt"]


@pytest.mark.slow
def test_ctrl_c_in_a_step_keeps_the_one_before(tmp_path, monkeypatch):
    file, calls = tmp_path / "run.ckpt", []
    original = torch.Tensor.backward

    def interrupted(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "backward", interrupted)
    with pytest.raises(TrainingStopped) as stopped:
        train(checkpoint=file)
    assert stopped.value.step == 3
    monkeypatch.undo()
    uninterrupted, losses = whole()
    resumed, rest = train(checkpoint=file, resume=True)
    assert rest == losses[3:]
    assert same(resumed, uninterrupted)


@pytest.mark.slow
def test_a_checkpoint_without_its_time_leaves_it_out_of_the_record(tmp_path):
    file = tmp_path / "run.ckpt"
    with pytest.raises(TrainingStopped):
        train(checkpoint=file, should_stop=lambda: True)
    saved = torch.load(file, weights_only=True)
    del saved["content"]["seconds"]  # as older versions wrote it
    torch.save(saved, file)
    resumed, _ = train(checkpoint=file, resume=True)
    assert "seconds" not in resumed.training
    assert resumed.training["steps"] == 6


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("kept") / "run.ckpt"


@pytest.fixture
def checkpoint(kept):
    """Of a finished training, made in the first test that asks for it."""
    if not kept.exists():
        train(checkpoint=kept)
    return kept


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"learning_rate": 2e-2}, "settings was"),
        ({"focus": {"window": 5}}, "config was"),
        ({"model_seed": 1}, "model was"),
        ({"texts": TEXTS[:1]}, "texts was"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(changes, named, checkpoint):
    before, model = checkpoint.read_bytes(), build_model(seed=changes.get("model_seed", 0))
    with pytest.raises(TrainingError, match=f"another training: {named}.*now it is"):
        train(model, checkpoint=checkpoint, resume=True, **{k: v for k, v in changes.items() if k != "model_seed"})
    assert checkpoint.read_bytes() == before


@pytest.mark.slow
def test_a_full_disk_keeps_the_older_checkpoint(tmp_path, monkeypatch):
    file = tmp_path / "run.ckpt"
    train(checkpoint=file, steps=2, warmup=1)
    before, saves = file.read_bytes(), []
    original = torch.save

    def full(content, stream, *args):
        saves.append(1)
        stream.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(TrainingError, match=r"after step 2: No space left.*continue with --resume"):
        train(checkpoint=file)
    monkeypatch.setattr(torch, "save", original)
    assert saves
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["run.ckpt"]
    file.unlink()
    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(TrainingError, match=r"No space left.*start again; no checkpoint was written yet"):
        train(checkpoint=file)
