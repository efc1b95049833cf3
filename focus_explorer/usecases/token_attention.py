"""What one token of a run attends to, computed on request and kept for a while: it takes two passes of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import InputError
from focus_explorer.usecases.jobs import Job, JobRunner
from focus_explorer.usecases.run_model import composed_run, lease_run_model, run_changes
from focus_explorer.usecases.runs import token_ids
from focus_explorer.usecases.service import Service
from focus_explorer.views.payloads.runs import AttentionOfTokenPayload, LayerAttentionOfTokenPayload
from focus_explorer.views.run import encode

if TYPE_CHECKING:
    from focus_runtime.explain.token_attention import LayerAttention

MOST_TOKENS = 32_768
BUSY = ("the attention of other tokens is being computed", "wait for it")


class TokenAttentions:
    """Passes of one service; a result is kept while few others are asked for."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._jobs = JobRunner(most_live=4, busy=BUSY)

    def start(self, run_id: str, token: int) -> None:
        """Compute the attention of a token, unless that is done or under way.

        Args:
            run_id: of the run.
            token: position.

        Raises:
            InputError: the token or the run cannot be used, or too many others are computed.
        """
        run = fetch_run(self.service.database, run_id)
        last = min(run["num_tokens"], MOST_TOKENS) - 1
        if not 0 <= token <= last:
            limit = ": the model reads all tokens before it" if run["num_tokens"] > MOST_TOKENS else ""
            raise InputError(
                f"the attention of token {token:,} of this run cannot be computed", expected=f"0 to {last:,}{limit}"
            )
        if run_changes(run):
            raise InputError(
                "this run was changed by hand, and its attention cannot be computed here",
                fix="look at the run that it came from",
            )

        def work(job: Job) -> list[LayerAttentionOfTokenPayload]:
            return self._measure(run_id, token, job)

        key = (run_id, token)
        self._jobs.start(key, work, kind="token_attention", run_id=run_id, reuse_done=True, join=True)

    def state(self, run_id: str, token: int) -> AttentionOfTokenPayload:
        """What is known of a token's attention: the job that computes it, and its result.

        Args:
            run_id: of the run.
            token: position.
        """
        job = self._jobs.get((run_id, token))
        return {
            "token": token,
            "job": None if job is None else job.status(),
            "layers": job.result if job is not None and job.state == "done" else None,
        }

    def stop(self, run_id: str, token: int) -> None:
        """Request that the work on a token stops."""
        self._jobs.stop((run_id, token))

    def _measure(self, run_id: str, token: int, job: Job) -> list[LayerAttentionOfTokenPayload]:
        from focus_runtime.explain.token_attention import token_attention

        run = fetch_run(self.service.database, run_id)
        ids = token_ids(self.service.database, run_id)
        job.step("Loading the model", 0.0)
        leased = lease_run_model(self.service, run, progress=job.step)
        with leased as loaded, composed_run(self.service, run, loaded) as focus:
            layers = token_attention(
                focus, ids, token, progress=lambda done, total: job.step("Reading the text twice", done / total)
            )
        return [_payload(layer) for layer in layers]


def _payload(layer: LayerAttention) -> LayerAttentionOfTokenPayload:
    return {
        "layer": layer.layer,
        "rows": layer.keys.shape[0],
        "keys": encode(layer.keys.astype(np.int32)),
        "full": encode(layer.full),
        "focus": encode(layer.focus),
        "kept": encode(layer.kept),
        "full_kept": encode(layer.full_kept),
    }
