"""Full attention's decode steps on a GPU go without cuDNN's kernel, and leave torch's settings as they were."""

from __future__ import annotations

import threading

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from focus_runtime.gpu.cudnn import WithoutCudnn


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


def test_where_no_other_kernel_is_allowed_nothing_changes(allowed):
    allowed(True)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION), WithoutCudnn():
        assert torch.backends.cuda.cudnn_sdp_enabled()
    assert torch.backends.cuda.cudnn_sdp_enabled()


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
