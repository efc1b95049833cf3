"""Full attention's decode steps on a GPU: without cuDNN's kernel, and by ours where scores are capped."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from focus_runtime.attention import decode
from focus_runtime.attention.reference import Scoring
from focus_runtime.composition import attend
from focus_runtime.composition.state import Call, FocusLayer
from focus_runtime.gpu import Launches, WithoutCudnn
from tests.helpers import needs_triton


@pytest.fixture
def allowed():
    """Set whether torch may take cuDNN's kernel; put back afterwards."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    yield torch.backends.cuda.enable_cudnn_sdp
    torch.backends.cuda.enable_cudnn_sdp(before)


@pytest.mark.parametrize("before", [True, False])
def test_what_was_set_is_set_again(before, allowed):
    allowed(before)
    found = []

    def fails():
        with WithoutCudnn():
            found.append(torch.backends.cuda.cudnn_sdp_enabled())
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        fails()
    assert found == [False]
    assert torch.backends.cuda.cudnn_sdp_enabled() == before


def test_threads_that_overlap_leave_nothing_behind(allowed):
    """The one that came first leaves first: the second must not restore what it found."""
    allowed(True)
    context, both_inside, first_left = WithoutCudnn(), threading.Barrier(2, timeout=20), threading.Event()
    seen = []

    def second():
        with context:
            both_inside.wait()
            first_left.wait(20)
            seen.append(torch.backends.cuda.cudnn_sdp_enabled())

    with context:
        other = threading.Thread(target=second)
        other.start()
        both_inside.wait()
    first_left.set()
    other.join(20)
    assert seen == [False]
    assert torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("new", [1, 2])
def test_a_step_with_a_softcap_takes_the_kernel_of_decode_steps(new, monkeypatch, fresh_seed):
    """In Triton's interpreter: the same as torch, to rounding."""
    needs_triton()
    query, key, value = (torch.randn(2, heads, tokens, 32) for heads, tokens in ((4, new), (2, 150), (2, 150)))
    call = Call(query, key, value, None, 150, Scoring(0.2, 5.0), 0.0)
    layer = FocusLayer(0, None, None)
    expected = attend.own_attention(nn.Module(), layer, call)
    names, run = [], Launches.run
    for module in (attend, decode):
        monkeypatch.setattr(module, "attention_fits", lambda *_: True)
    monkeypatch.setattr(Launches, "run", lambda self, name, *given: names.append(name) or run(self, name, *given))
    torch.testing.assert_close(attend.own_attention(nn.Module(), layer, call), expected, rtol=1e-4, atol=1e-5)
    assert names == (["chunk", "join"] if new == 1 else [])
