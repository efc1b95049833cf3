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
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._before = threading.Lock(), 0, False

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = torch.backends.cuda.cudnn_sdp_enabled()
                torch.backends.cuda.enable_cudnn_sdp(enabled=False)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                torch.backends.cuda.enable_cudnn_sdp(enabled=self._before)


WITHOUT_CUDNN = WithoutCudnn()
