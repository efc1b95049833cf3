"""Loss and prediction of every token in one pass, and the balance and sparsity of the mask it was made under."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from focus_runtime.composition.heads import HeadMask
from focus_runtime.errors import TextError
from focus_runtime.mask.counts import pair_totals
from focus_runtime.mask.distances import distant_kept, mean_of_some
from focus_runtime.mask.rule import CAUSES

CHUNK = 256  # rows of logits computed at once; 256 x 49,152 fp32 are 50 MB
MOST_PROBABLE = 5


def final_hidden(model: Any, ids: Tensor) -> Tensor:
    """Hidden states (B, T, d) before the output embedding, of (B, T) token ids without padding."""
    return model.base_model(input_ids=ids, use_cache=False).last_hidden_state


def check_positions(model: Any, length: int) -> None:
    """Refuse more tokens than a model with learned positions has, with a TextError."""
    table = getattr(model.config.get_text_config(), "n_positions", None)  # GPT-2 style learned positions end hard
    if table is not None and length > table:
        raise TextError(
            f"the text has {length:,} tokens but the model has only {table:,} positions",
            expected=f"at most {table:,} tokens",
            fix=f"cut it with --max-tokens {table}",
        )


def token_nll(model: Any, hidden: Tensor, ids: Tensor) -> Tensor:
    """Negative log-likelihood of every token but the first, in nats, without materialising all logits.

    Where the output embedding is frozen and the hidden states need a gradient, that is computed along with the loss, so
    that no logits are kept for the backward pass. Differentiable once.

    (B, T, d) from `final_hidden` gives (B, T-1) fp32: entry t is for token t+1 given tokens 0..t.
    """
    frozen = not any(p.requires_grad for p in model.get_output_embeddings().parameters())
    if frozen and hidden.requires_grad and torch.is_grad_enabled():
        return _FrozenHead.apply(hidden, ids, model)
    parts = [
        torch.logsumexp(logits, dim=-1) - logits.gather(-1, target[..., None])[..., 0]
        for logits, target in logits_by_slab(model, hidden, ids)
    ]
    return torch.cat(parts, dim=1) if parts else hidden.new_empty(ids.shape[0], 0, dtype=torch.float32)


class _FrozenHead(torch.autograd.Function):
    """Losses of tokens, and the gradient of each with respect to its own hidden state."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, ids: Tensor, model: Any) -> Tensor:
        grads = torch.zeros_like(hidden)
        nll = torch.empty(ids.shape[0], ids.shape[1] - 1, dtype=torch.float32, device=hidden.device)
        for slab in slabs(nll.shape[1]):
            with torch.enable_grad():
                part = hidden[:, slab].detach().requires_grad_()
                logits = vocabulary_logits(model, part)
            logs = torch.log_softmax(logits.detach(), dim=-1)
            target = ids[:, slab.start + 1 : slab.stop + 1, None].to(logs.device)
            nll[:, slab] = -logs.gather(-1, target)[..., 0]
            probabilities = logs.exp_()  # the gradient of a loss is these, less one at the token itself
            probabilities.scatter_add_(-1, target, probabilities.new_full((), -1.0).expand(target.shape))
            grads[:, slab] = torch.autograd.grad(logits, part, probabilities)[0]
        ctx.save_for_backward(grads)
        return nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (grads,) = ctx.saved_tensors
        factors = torch.nn.functional.pad(upstream, (0, 1))[..., None]  # the last token's hidden state predicts nothing
        return (grads * factors).to(grads.dtype), None, None


def logits_by_slab(model: Any, hidden: Tensor, ids: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits (B, n, V) fp32 of a stretch of tokens after another, and the tokens (B, n) that follow them."""
    for slab in slabs(ids.shape[1] - 1):
        logits = vocabulary_logits(model, hidden[:, slab])
        yield logits, ids[:, slab.start + 1 : slab.stop + 1].to(logits.device)


def slabs(length: int) -> list[slice]:
    """Stretches of tokens whose logits are computed at once."""
    return [slice(start, min(start + CHUNK, length)) for start in range(0, length, CHUNK)]


def vocabulary_logits(model: Any, hidden: Tensor) -> Tensor:
    """Logits over the vocabulary as the model scales and caps them: (B, n, d) -> (B, n, V) fp32."""
    settings = model.config.get_text_config()
    cap = getattr(settings, "final_logit_softcapping", None)
    scale = getattr(settings, "logit_scale", None)
    divisor = getattr(settings, "logits_scaling", None)  # Granite's name for the inverse
    logits = model.get_output_embeddings()(hidden).float()
    if scale is not None:
        logits = logits * scale
    if divisor is not None:
        logits = logits / divisor
    if cap is not None:
        logits = cap * torch.tanh(logits / cap)
    return logits


def layer_shares(masks: Sequence[HeadMask]) -> tuple[float, float | None]:
    """Retained pairs and distant pairs kept of one layer, mean over its heads and the texts of a batch.

    Allowed pairs over causal pairs; and kept over all distant pairs (see mask/distances.py), over the heads that have
    some, None where none has.
    """
    retained, distant = [], []
    for mask in masks:
        texts = mask.membership.cpu().numpy()
        length = texts.shape[1]
        dropped = pair_totals(texts, [mask.rule] * len(texts))[:, CAUSES.index("dropped")]
        retained.append(np.mean(1.0 - dropped / (length * (length + 1) // 2)))
        distant.append(mean_of_some([distant_kept(int(pairs), mask.rule, length) for pairs in dropped]))
    weights = [len(mask.group.heads) for mask in masks]
    return float(np.average(retained, weights=weights)), mean_of_some(distant, weights)


def dominance(probabilities: Tensor) -> float:
    """Share of tokens whose most probable group is the largest: (..., T, K) -> float in [1/K, 1]."""
    top = probabilities.argmax(dim=-1).flatten()
    return torch.bincount(top).max().item() / top.numel()


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions of one pass over T tokens; entry t is for token t+1 given tokens 0 to t."""

    nll: NDArray[np.float64]  # (T-1,) float64 loss in nats
    token_ids: NDArray[np.int64]  # (T-1, N) int64 the most probable tokens, most probable first
    probabilities: NDArray[np.float32]  # (T-1, N) float32 of these
    ranks: NDArray[np.int64]  # (T-1,) int64 rank of the real token in the whole vocabulary, from 1


@torch.no_grad()
def token_predictions(model: Any, hidden: Tensor, ids: Tensor, *, most_probable: int = MOST_PROBABLE) -> Predictions:
    """Predictions of one text, (1, T) ids and (1, T, d) of `final_hidden`, without all logits at once."""
    parts: list[tuple[Tensor, ...]] = []
    for logits_of_batch, following in logits_by_slab(model, hidden, ids):
        logits = logits_of_batch[0]
        total, own = torch.logsumexp(logits, dim=-1), logits.gather(-1, following[0][:, None])
        best = logits.topk(min(most_probable, logits.shape[-1]), dim=-1)
        ranks = 1 + (logits > own).sum(dim=-1)
        values = (total - own[:, 0], best.indices, (best.values - total[:, None]).exp(), ranks)
        parts.append(tuple(value.cpu() for value in values))
    nll, token_ids, probabilities, ranks = (torch.cat(column) for column in zip(*parts, strict=True))
    return Predictions(nll.double().numpy(), token_ids.numpy(), probabilities.float().numpy(), ranks.numpy())
