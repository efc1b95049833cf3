"""What a pass does besides executing the settings is heard on every way through a layer, and leaves nothing behind."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.budget import HeadSetting
from focus_runtime.composition import layer as layer_module
from focus_runtime.composition.attach import compose
from focus_runtime.composition.changes import read_changes
from focus_runtime.composition.modes import AddedPairs, Alternatives, Comparison, Probe, SoftGate
from focus_runtime.composition.observe import observe_attention, observe_focus
from focus_runtime.composition.state import Mode
from focus_runtime.errors import InputError
from tests.helpers import build_centroids, build_model, random_ids

SETTING = HeadSetting(1, 4)
BLOCKS = {
    "training gate": lambda focus: focus.entered(SoftGate()),
    "full attention": lambda focus: focus.measured_full_attention(),
    "observed attention": lambda focus: observe_attention(focus, lambda *_: None),
    "observer": lambda focus: observe_focus(focus, lambda *_: None),
    "edits": lambda focus: focus.with_changes(read_changes(["silence:0:A"]), 60),
    "added pairs": lambda focus: focus.entered(AddedPairs({0: torch.tensor([[0, 20, 9]])}, focus.focused_layers)),
    "alternatives": lambda focus: focus.entered(Alternatives((SETTING,))),
    "probe": lambda focus: focus.entered(Probe((SETTING,))),
    "comparison": lambda focus: focus.entered(Comparison()),
}
WITH_DOCUMENTS = ("training gate", "full attention", "observed attention", "observer")


def composed():
    return compose(build_model(), build_centroids(build_model(), window=3, num_sinks=1))


def entered(focus):
    return [type(mode) for mode in focus.modes]


def test_every_mode_is_tested_here():
    focus, tested = composed(), set()
    for block in BLOCKS.values():
        with block(focus):
            tested |= set(entered(focus))
    assert {mode.__name__ for mode in Mode.__subclasses__()} == {mode.__name__ for mode in tested} | {"Check"}


@torch.no_grad()
@pytest.mark.parametrize("name", BLOCKS)
def test_no_short_way_is_taken_meanwhile(name, count_calls):
    """Neither of a decode step nor of a text on a GPU, which know nothing of modes."""
    focus, ids = composed(), random_ids(24)
    steps, texts = count_calls(layer_module.decode_step), count_calls(layer_module.text_on_gpu)
    past = focus.model(ids[:, :20], use_cache=True).past_key_values
    for place in (20, 21):
        past = focus.model(ids[:, place : place + 1], past_key_values=past, use_cache=True).past_key_values
    assert (len(steps), len(texts)) == (4, 2)
    with BLOCKS[name](focus):
        if name != "training gate":
            focus.model(ids[:, 22:23], past_key_values=past, use_cache=True)
        focus.model(ids, use_cache=False)
    assert (len(steps), len(texts)) == (4, 2)
    assert focus.modes == ()


@torch.no_grad()
@pytest.mark.parametrize("name", BLOCKS)
def test_packed_documents_are_read_where_no_single_token_is_changed_or_measured(name):
    focus, ids = composed(), random_ids(24)
    places = torch.cat([torch.arange(10), torch.arange(14)])[None]
    with BLOCKS[name](focus):
        if name in WITH_DOCUMENTS:
            focus.model(ids, position_ids=places, use_cache=False)
            return
        with pytest.raises(InputError, match="packed documents"):
            focus.model(ids, position_ids=places, use_cache=False)


@torch.no_grad()
def test_blocks_that_overlap_leave_their_own_mode_only():
    """As of two threads, of which the first to come leaves first."""
    focus = composed()
    first, second = focus.entered(Comparison()), focus.entered(Probe((SETTING,)))
    first.__enter__(), second.__enter__()
    first.__exit__(None, None, None)
    assert [name.__name__ for name in entered(focus)] == ["Probe"]
    second.__exit__(None, None, None)
    assert focus.modes == ()
