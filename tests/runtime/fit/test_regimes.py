"""The three regimes and their full-attention twins on tiny models."""

from __future__ import annotations

import functools
import shutil
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError, ModelError, TrainingError, TrainingStopped
from focus_runtime.fit import loop as optimise
from focus_runtime.fit.centroids import train_centroids
from focus_runtime.fit.objective import StepLoss
from focus_runtime.fit.regimes import RegimePlan, initialised, run_regime
from focus_runtime.fit.settings import TrainConfig
from focus_runtime.measure.loss import final_hidden, token_nll
from focus_runtime.measure.perplexity import score
from focus_runtime.models.loading import weights_sha256
from focus_runtime.text.sequences import TokenStream
from tests.helpers import build_centroids, build_model, build_tokenizer, random_ids
from tests.runtime.fit.tiny import TEXTS, state

pytestmark = pytest.mark.slow  # many short trainings or compositions; they run in make test

FOCUS = FocusConfig(num_groups=4, routing_dim=8, top_k=1, window=4, num_sinks=1)
PHASE: dict[str, Any] = {"seq_len": 32, "batch": 2, "warmup": 1, "calibration_sequences": 4, "checkpoint_every": 2}
ROUTERS = TrainConfig(**PHASE, steps=3, learning_rate=1e-2)
WEIGHTS = TrainConfig(**PHASE, steps=4, learning_rate=1e-3, seed=7)


def plan(regime, **changes):
    phases = {"weights": WEIGHTS} if regime == "from_scratch" else {"centroids": ROUTERS, "weights": WEIGHTS}
    return RegimePlan(regime=regime, **(phases | changes))


def run(what, model=None, **options):
    return run_regime(what, model or build_model(), build_tokenizer(), TEXTS, FOCUS, **options)


@functools.cache
def watched(regime, twin):
    """An uninterrupted training, which no test changes, with the model it was given and its batches."""
    model, batches = build_model(), []
    with pytest.MonkeyPatch.context() as patch:
        draw = optimise.step_sequences
        patch.setattr(optimise, "step_sequences", lambda *given: batches.append(draw(*given)) or batches[-1])
        return run(plan(regime), model, twin=twin), model, batches


def whole(regime, twin=False):
    return watched(regime, twin)[0]


def losses(result):
    return {phase: [step.loss for step in steps] for phase, steps in result.phases.items()}


@pytest.mark.parametrize("regime", ["two_phase", "from_scratch"])
def test_a_twin_sees_the_same_batches_and_starts_from_the_same_weights(regime):
    (ours, _, our_batches), (twin, _, batches) = watched(regime, False), watched(regime, True)
    assert len(batches) == WEIGHTS.steps == len(twin.phases["weights"])
    assert all(torch.equal(a, b) for a, b in zip(our_batches[-WEIGHTS.steps :], batches, strict=True))
    assert ours.weights_before == twin.weights_before
    assert ours.weights_after != twin.weights_after
    assert twin.centroids is None
    rates = [[step.learning_rate for step in result.phases["weights"]] for result in (ours, twin)]
    assert rates[0] == rates[1]


@pytest.mark.parametrize("regime", ["two_phase", "from_scratch"])
@pytest.mark.parametrize("twin", [False, True])
def test_the_given_model_stays_as_it_was(regime, twin, ids):
    result, model, _ = watched(regime, twin)
    assert weights_sha256(model) == weights_sha256(build_model())
    assert torch.equal(model(input_ids=ids).logits, build_model()(input_ids=ids).logits)
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert result.weights_after == weights_sha256(result.model) != weights_sha256(model)
    assert list(result.phases) == (["weights"] if twin or regime == "from_scratch" else ["centroids", "weights"])


def test_the_first_phase_is_a_training_of_centroids_and_the_second_moves_weights_and_routers():
    both, steps = whole("two_phase"), []
    first = train_centroids(build_model(), build_tokenizer(), TEXTS, FOCUS, ROUTERS, history=steps)
    assert losses(both)["centroids"] == [step.loss for step in steps]
    assert both.weights_before == weights_sha256(build_model())
    moved = [not torch.equal(a, b) for a, b in zip(both.model.parameters(), build_model().parameters(), strict=True)]
    assert all(moved)
    assert all(not torch.equal(a, b) for a, b in zip(state(first), state(both.centroids), strict=True))
    assert [step.phase for step in both.phases["weights"]] == ["weights"] * WEIGHTS.steps


def test_weights_take_the_step_adamw_takes_and_routers_their_own(batches):
    settings = TrainConfig(**{**PHASE, "warmup": 0, "batch": 1}, steps=1, learning_rate=1e-3, clip=1e9)
    twin = run(plan("two_phase", weights=settings), twin=True)
    model = build_model()
    token_nll(model, final_hidden(model, batches[0]), batches[0]).mean().backward()
    torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0).step()
    for a, b in zip(twin.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    ours = run(plan("from_scratch", weights=settings, router_rate=1e-2))
    start = build_centroids(model, num_groups=4, routing_dim=8, seed=settings.seed)
    for index, router in ours.centroids.routers.items():  # the first step of Adam is the rate, times the sign
        change = (router.projection - start.routers[index].projection).abs()
        assert change.median().item() == pytest.approx(1e-2, rel=1e-2)


def test_from_scratch_starts_from_the_configuration_and_the_seed_alone():
    trained = build_model(seed=3)
    with torch.no_grad():
        trained.lm_head.weight.add_(1.0)
    a, b, c = initialised(build_model(), 5), initialised(trained, 5), initialised(trained, 6)
    assert weights_sha256(a) == weights_sha256(b) != weights_sha256(c)
    assert a.config is not trained.config
    state = torch.random.get_rng_state()
    initialised(trained, 5)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert whole("from_scratch").weights_before == weights_sha256(initialised(trained, WEIGHTS.seed))


def test_mixed_precision_leaves_the_weights_in_fp32():
    model = build_model().to(torch.bfloat16)
    settings = TrainConfig(**PHASE, steps=2, learning_rate=1e-3, mixed_precision="bf16")
    result = run(plan("two_phase", weights=settings), model)
    assert {p.dtype for p in result.model.parameters()} == {torch.float32}
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def test_scores_are_those_under_the_hard_mask():
    sequences = random_ids(40, batch=3)
    result = whole("two_phase")
    focus = compose(result.model, result.centroids, top_k=2)
    expected = score(focus, sequences)
    focus.detach()
    scores = result.score(sequences, top_k=2)
    assert scores.nll.tolist() == expected.nll.tolist()
    assert scores.retained_pairs.max() < 1
    everything = result.score(sequences, top_k=4)
    assert everything.perplexity == pytest.approx(score(result.model, sequences).perplexity, rel=1e-5)
    twin = whole("two_phase", twin=True)
    assert twin.score(sequences).nll.tolist() == score(twin.model, sequences).nll.tolist()


@pytest.fixture
def clock(monkeypatch):
    """Every step takes ten seconds of a clock of its own; a list that holds its time."""
    now, step = [0.0], optimise.Loop._step

    def read():
        now[0] += 1e-6  # no two readings are the same
        return now[0]

    def slow(loop, number):
        now[0] += 10
        return step(loop, number)

    monkeypatch.setattr(optimise, "time", SimpleNamespace(perf_counter=read))
    monkeypatch.setattr(optimise.Loop, "_step", slow)
    return now


@pytest.mark.parametrize(("regime", "stop_after"), [("two_phase", 3), ("two_phase", None), ("from_scratch", 1)])
def test_a_training_resumed_over_its_phases_is_the_uninterrupted_one(regime, stop_after, tmp_path, clock, fresh_seed):
    """And its time is that of all its phases and parts, pauses left out."""
    uninterrupted: Any = whole(regime)
    stop_after = stop_after or [1, 2, 4, 5, 6][fresh_seed % 5]
    seen: list[Any] = []

    def stop():
        return len(seen) >= stop_after  # like a flag, it stays up between phases

    with pytest.raises(TrainingStopped):
        run(plan(regime), checkpoint=tmp_path, on_step=seen.append, should_stop=stop)
    first = [(step.phase, step.step) for step in seen]
    clock[0] += 10_000
    resumed = run(plan(regime), checkpoint=tmp_path, resume=True, on_step=seen.append)
    assert losses(resumed) == losses(uninterrupted)
    assert resumed.weights_after == uninterrupted.weights_after
    assert all(torch.equal(a, b) for a, b in zip(state(resumed.centroids), state(uninterrupted.centroids), strict=True))
    expected = [(phase, i + 1) for phase, steps in uninterrupted.phases.items() for i in range(len(steps))]
    assert [(step.phase, step.step) for step in seen] == expected
    assert first == expected[: len(first)]
    times = {phase: 10 * len(steps) for phase, steps in uninterrupted.phases.items()}
    assert resumed.phase_seconds == pytest.approx(times, abs=0.1)
    assert resumed.seconds == pytest.approx(sum(times.values()), abs=0.1)
    resumed.phase_seconds["weights"] = None  # of an older version's checkpoint
    assert resumed.seconds is None


@functools.cache
def kept_in(folder):
    return run(plan("two_phase"), checkpoint=folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("finished")


@pytest.fixture
def finished(folder):
    """A training of both phases, which no test changes, and the folder of its checkpoints."""
    return kept_in(folder), folder


def test_a_finished_training_is_not_run_again(finished, monkeypatch):
    once, folder = finished
    monkeypatch.setattr(optimise.Loop, "_step", lambda *_: pytest.fail("a step was run"))
    again = run(plan("two_phase"), checkpoint=folder, resume=True)
    assert losses(again) == losses(once)
    assert again.weights_after == once.weights_after
    assert again.centroids.training == once.centroids.training


def test_a_checkpoint_of_another_regime_is_refused(finished, tmp_path):
    shutil.copytree(finished[1], tmp_path, dirs_exist_ok=True)
    with pytest.raises(TrainingError, match=r"another training: regime was 'two_phase', now it is 'two_phase twin'"):
        run(plan("two_phase"), checkpoint=tmp_path, resume=True, twin=True)
    other = plan("two_phase", centroids=TrainConfig(**PHASE, steps=1), weights=replace(WEIGHTS, steps=2))
    run(other, checkpoint=tmp_path / "other")
    (tmp_path / "other" / "weights.ckpt").replace(tmp_path / "weights.ckpt")
    with pytest.raises(TrainingError, match="another training: earlier was"):
        run(plan("two_phase"), checkpoint=tmp_path, resume=True)
    with pytest.raises(TrainingError, match="there is no checkpoint"):
        run(plan("two_phase"), checkpoint=tmp_path / "nowhere", resume=True)


def test_starting_again_forgets_the_old_phases(finished, tmp_path):
    shutil.copytree(finished[1], tmp_path, dirs_exist_ok=True)
    with pytest.raises(TrainingStopped):
        run(plan("two_phase"), checkpoint=tmp_path, should_stop=lambda: True)
    assert [path.name for path in tmp_path.iterdir()] == ["centroids.ckpt"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"regime": "warm", "weights": WEIGHTS}, "regime is 'warm'"),
        ({"regime": "two_phase", "weights": WEIGHTS}, "needs 'centroids'"),
        ({"regime": "from_scratch", "centroids": ROUTERS, "weights": WEIGHTS}, "no phase for 'centroids'"),
        ({"regime": "from_scratch", "weights": WEIGHTS, "router_rate": 0.0}, "router_rate is 0.0"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        RegimePlan(**values)


def test_a_composed_model_and_a_resume_from_nowhere_are_refused():
    model = build_model()
    focus = compose(model, build_centroids(model))
    with pytest.raises(ModelError, match="not a model"):
        run(plan("two_phase"), focus)
    focus.detach()
    with pytest.raises(ConfigError, match="without a checkpoint folder"):
        run(plan("two_phase"), model, resume=True)


def test_groups_of_parameters_are_clipped_apart():
    a, b = torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(2))
    settings = TrainConfig(steps=1, seq_len=16, learning_rate=0.5, warmup=0, clip=1.0)
    loop = optimise.Loop(
        TokenStream(torch.arange(20)),
        settings,
        [a, b],
        lambda _: StepLoss(100 * a.sum() + 5 * b.sum()),
        rates=[0.5, 0.25],
    )
    loop.run()
    assert a.grad.norm().item() == pytest.approx(1)
    assert b.grad.norm().item() == pytest.approx(1)
    torch.testing.assert_close(a.data, torch.full((3,), -0.5))  # Adam's first step is the rate
    torch.testing.assert_close(b.data, torch.full((2,), -0.25))
