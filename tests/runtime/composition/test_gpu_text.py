"""What whole texts on a GPU have in common is kept, and given up when it must be: as a model composed anew has it.

Without a GPU the kernels run in Triton's interpreter, on the CPU and in fp32.
"""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from transformers import DynamicCache, StaticCache

from focus_runtime.budget import HeadException
from focus_runtime.composition import layer as composed_layer
from focus_runtime.composition.attach import compose
from focus_runtime.composition.changes import read_changes
from focus_runtime.composition.observe import observe_routing, replace_assignment
from focus_runtime.models.structure import cache_argument
from focus_runtime.routing.router import Assignment
from tests.helpers import build_centroids, build_model, needs_triton, random_ids

needs_triton()
ON_GPU = torch.cuda.is_available()
pytestmark = pytest.mark.gpu if ON_GPU else pytest.mark.slow
DEVICE, DTYPE = ("cuda", torch.bfloat16) if ON_GPU else ("cpu", torch.float32)
TOLERANCE = 0.05 if ON_GPU else 1e-4  # relative, of all logits
T = 60
UNEQUAL = (
    HeadException(layer=0, head=1, top_k=2, window=9),
    HeadException(layer=1, query_head=0, full=True),
    *(HeadException(layer=1, query_head=head, top_k=2) for head in (1, 2, 3)),  # none of the usual k
)


@pytest.fixture
def enabled(request, kernels, monkeypatch):
    """The kernels take calls, for short texts or for others."""
    if not request.param:
        monkeypatch.setattr("focus_runtime.attention.cuda.pairwise.MOST_WORK", {1: 0, 2: 0})
    monkeypatch.setattr("focus_runtime.gpu._failed", set())
    if not ON_GPU:
        monkeypatch.setattr("focus_runtime.composition.gpu.grouped_fits", lambda *_: True)
    kernels[1]()
    return kernels[0]


@pytest.fixture
def quick(monkeypatch):
    """Whether each call took the short way through what is kept."""
    taken, text_on_gpu = [], composed_layer.text_on_gpu

    def noted(*arguments):
        out = text_on_gpu(*arguments)
        taken.append(out is not None)
        return out

    monkeypatch.setattr(composed_layer, "text_on_gpu", noted)
    return taken


def composed(budget, **settings):
    model = build_model(num_hidden_layers=2).to(DEVICE, DTYPE).requires_grad_(False)
    centroids = build_centroids(model, window=6, num_sinks=2, text_sinks=0.2, text_sinks_from=1, **settings)
    for index, router in centroids.routers.items():
        generator = torch.Generator().manual_seed(index)
        router.logit_factors = torch.nn.Parameter(torch.rand(4, generator=generator) + 0.5)
        router.requires_grad_(False)
    centroids.config = centroids.config.replace(logit_factors=True)
    return compose(model, centroids, budget=budget)


def read(focus, ids, **arguments):
    with torch.no_grad():
        return focus.model(input_ids=ids, **{"use_cache": False, **arguments}).logits.float()


def seen(focus):
    """What a pass leaves for whoever asks."""
    return {index: [own.membership, own.everywhere, own.exact] for index, own in focus.assignments().items()}


def same(actual, expected):
    assert (actual - expected).norm() <= TOLERANCE * expected.norm()


def same_seen(actual, expected):
    assert actual.keys() == expected.keys()
    for index, own in actual.items():
        for mine, other in zip(own, expected[index], strict=True):
            assert torch.equal(mine, other) if isinstance(mine, torch.Tensor) else mine == other


@contextmanager
def with_backend(focus, name):
    before, focus.backend = focus.backend, name
    yield
    focus.backend = before


def moved(_, router, hidden, __):
    """Every token in one of the first two groups."""
    own = router.own_assignment(hidden)
    return Assignment(own.probabilities, own.membership.clamp(max=2), own.potential)


def replaced(router):
    router.logit_factors = torch.nn.Parameter(router.logit_factors.detach() * 1.5)


def settings(**changes):
    return lambda focus: focus.with_config(focus.config.replace(**changes))


CHANGES = {  # and whether the short way is left
    "window": (settings(window=20), False),
    "other text sinks": (settings(text_sinks=0.02, text_sinks_from=0), False),
    "no factors": (settings(logit_factors=False), False),
    "full heads": (settings(budget=tuple(HeadException(layer=0, head=head, full=True) for head in range(2))), None),
    "all is seen": (settings(window=T, budget=()), True),
    "backend": (lambda focus: with_backend(focus, "masked"), True),
    "router's observer": (lambda focus: observe_routing(focus, on_logits=lambda *_: None), False),
    "replaced groups": (lambda focus: replace_assignment(focus, moved), True),
    "edits": (lambda focus: focus.with_changes(read_changes(["silence:0:A", "silence:1:B"]), T), True),
}


long = () if ON_GPU else pytest.mark.long  # the interpreter takes up to six seconds for a case
EVERY_TIME = ("window", "edits")
WAYS = [pytest.param(True, (), name, id=f"short, {name}", marks=() if name in EVERY_TIME else long) for name in CHANGES]
# Whether texts are short enough for every pair in one kernel, and the budget.
PLACES, CACHED = [(True, UNEQUAL)], [(True, (), False), pytest.param(True, UNEQUAL, True, marks=long)]
CACHED += [pytest.param(False, UNEQUAL, False, marks=long)]
if ON_GPU:
    WAYS += [pytest.param(False, UNEQUAL, name, id=f"by groups, {name}") for name in CHANGES]
    PLACES += [(True, ()), (False, ()), (False, UNEQUAL)]


@pytest.mark.parametrize(("enabled", "budget", "name"), WAYS, indirect=["enabled"])
def test_what_is_kept_is_given_up(enabled, budget, name, quick, fresh_seed):
    """Also when the change is over: both equal a model composed anew."""
    change, leaves = CHANGES[name]
    ids = random_ids(T, seed=fresh_seed % 1000).to(DEVICE)
    focus, anew = composed(budget), composed(budget)
    read(focus, ids)
    before = read(focus, ids)
    assert quick[-2:] == [True, True]
    with change(anew):
        expected, expected_seen = read(anew, ids), seen(anew)
    with change(focus):
        read(focus, ids)
        quick.clear()
        same(read(focus, ids), expected)
        if leaves is not None:
            assert (True not in quick) == leaves
        same_seen(seen(focus), expected_seen)
    same(read(focus, ids), before)
    if name in ("window", "replaced groups", "edits"):
        assert (expected - before).norm() > 0.01 * before.norm()  # the change is one


@pytest.mark.long
@pytest.mark.parametrize(("enabled", "budget"), PLACES, indirect=["enabled"])
def test_padding_and_gradients_go_another_way(budget, enabled, quick, fresh_seed):
    ids = random_ids(T, batch=2, seed=fresh_seed % 1000).to(DEVICE)
    mask = torch.ones_like(ids)
    mask[0, :9] = 0
    focus, anew = composed(budget), composed(budget)
    for each in (focus, anew):
        each.config = each.config.replace(text_sinks=0.02, text_sinks_from=0)  # the first real token tells which
    for _ in range(2):
        read(focus, ids)
    quick.clear()
    same(read(focus, ids, attention_mask=mask)[mask.bool()], read(anew, ids, attention_mask=mask)[mask.bool()])
    assert True not in quick
    for each in (focus, anew):
        for router in each.routers.values():
            router.logit_factors.requires_grad_(True)
        each.model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    assert True not in quick
    for index, router in focus.routers.items():
        assert router.logit_factors.grad.abs().sum() > 0
        same(router.logit_factors.grad, anew.routers[index].logit_factors.grad)


@pytest.mark.long
@pytest.mark.parametrize(("enabled", "budget", "static"), CACHED, indirect=["enabled"])
def test_a_cache_filled_the_short_way_is_continued(static, budget, enabled, quick, fresh_seed):
    """Chunks and tokens after a first pass through what is kept, also of a cache that was cropped and doubled."""
    focus = composed(budget)
    ids = random_ids(T, seed=fresh_seed % 1000).to(DEVICE)
    expected = read(focus, ids)
    read(focus, ids[:, :40])

    def kind():
        return StaticCache(config=focus.model.config, max_cache_len=T) if static else DynamicCache()

    def more(past, tokens):
        return read(focus, tokens, use_cache=True, **cache_argument(focus.model, past))

    quick.clear()
    past = kind()
    logits = [more(past, ids[:, :40])]
    assert quick == [True] * 2
    decided = focus.assignments()[0].by_top_k[1].clone()
    kept = focus.assignments()[0].by_top_k[1]
    logits += [more(past, ids[:, 40:52]), *(more(past, ids[:, place : place + 1]) for place in range(52, T))]
    same(torch.cat(logits, 1), expected)
    assert torch.equal(kept, decided)  # nobody wrote into it
    if static:
        return
    past = kind()
    more(past, ids[:, :40])
    past.crop(-10)
    past.batch_repeat_interleave(2)
    same(more(past, ids[:, 30:].repeat(2, 1)), expected[:, 30:].repeat(2, 1, 1))
    past = kind()
    more(past, ids[:, :40])
    kept = focus.assignments()[0].by_top_k[1]
    past.crop(-10)
    other = torch.cat([ids[:, :30], ids[:, :5]], dim=1)
    same(more(past, ids[:, :5]), read(focus, other)[:, 30:])
    assert torch.equal(kept, decided)


@pytest.mark.parametrize("enabled", [True], indirect=True)
def test_a_sliding_window_shorter_than_the_text_goes_another_way(enabled, quick, fresh_seed):
    """And one that is longer does not."""
    model = build_model("Mistral", num_hidden_layers=2, sliding_window=50).to(DEVICE, DTYPE)
    focus = compose(model, build_centroids(model, window=6), sliding_layers="focus")
    for length, short in ((40, True), (T, False)):
        ids = random_ids(length, seed=fresh_seed % 1000).to(DEVICE)
        quick.clear()
        actual = read(focus, ids)
        assert quick == [short] * 2
        with with_backend(focus, "reference"):
            same(actual, read(focus, ids))
