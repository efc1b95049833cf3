"""Torch's attention without cuDNN's kernel, for decode steps: it plans anew for every length of the text.

On Hopper GPUs torch prefers that kernel. A plan took 45 ms on an H100, all the rest of a step 20 (docs/gpu.md).
"""

from __future__ import annotations

import threading

import torch


class WithoutCudnn:
    """Context in which torch's attention leaves cuDNN's kernel out.

    Which kernels torch may take is a setting of the whole process. Threads that are inside at once count as one, so
    that none leaves behind what another had set; others may take another kernel meanwhile, which changes no result.
    Torch's own `sdpa_kernel` in another thread is not counted, as it does not count itself.
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._before = threading.Lock(), 0, False

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = torch.backends.cuda.cudnn_sdp_enabled() and _others_allowed()
                if self._before:
                    torch.backends.cuda.enable_cudnn_sdp(enabled=False)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._before:
                torch.backends.cuda.enable_cudnn_sdp(enabled=True)


def _others_allowed() -> bool:
    """Whether torch may take another kernel: a process may have allowed cuDNN's alone."""
    own = torch.backends.cuda
    return own.flash_sdp_enabled() or own.mem_efficient_sdp_enabled() or own.math_sdp_enabled()


WITHOUT_CUDNN = WithoutCudnn()
