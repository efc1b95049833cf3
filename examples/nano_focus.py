"""Focus in one file: the whole method in torch and transformers, without the runtime.

A few centroids per layer put every token into groups. A token attends to the tokens near it, to the first tokens of the
text (sinks), and beyond those only to tokens of its own groups. The model stays frozen; only the centroids are learned.

    python examples/nano_focus.py FOLDER_OR_HUB_ID text.txt        # learn centroids, compare with full attention

The runtime does the same faster, with caches, padding, budgets by head and many families of models; its tests compare
it with this file. Here: texts without padding or cache, and models whose attention modules are called `self_attn`.
Shape suffixes: B batch, H heads, T tokens, E model width, R routing width, K groups, D head size.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM, AutoTokenizer

Attended = tuple[Tensor, Tensor]  # output (1, H, T, D) and logsumexp (1, H, T)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What decides which pairs of tokens attend to each other."""

    num_groups: int = 8  # K
    routing_dim: int = 16
    top_k: int = 1  # groups of a token
    window: int = 64  # pairs at most this far apart always attend
    num_sinks: int = 4  # first tokens that every token sees; the paper has none, at a high price
    temperature: float = 0.1
    iterations: int = 20  # of Sinkhorn's balancing


# 1. Routing: hidden states -> groups ----------------------------------------------------------------------------------


class Router(nn.Module):
    """The learned part of one layer: R * (E + K) numbers, and a potential that keeps the groups of equal size."""

    def __init__(self, width: int, settings: Settings, generator: torch.Generator) -> None:
        super().__init__()
        self.settings = settings
        centroids_KR = torch.randn(settings.num_groups, settings.routing_dim, generator=generator)
        projection_ER = torch.randn(width, settings.routing_dim, generator=generator) * width**-0.5
        self.projection = nn.Parameter(projection_ER)
        self.centroids = nn.Parameter(nn.functional.normalize(centroids_KR, dim=-1))
        self.register_buffer("potential", torch.zeros(settings.num_groups))

    def forward(self, hidden_BTE: Tensor) -> Tensor:
        """Probabilities of the groups, (B, T, K).

        In training Sinkhorn balances the groups over the whole text, which lets a token's groups depend on later ones.
        The running average of its potential replaces it at inference, so that groups are causal.
        """
        scores_BTK = hidden_BTE @ self.projection @ self.centroids.T / self.settings.temperature
        if not self.training:
            return torch.softmax(scores_BTK + self.potential, dim=-1)
        potential_BK = sinkhorn(scores_BTK, self.settings.iterations)
        self.potential.lerp_(potential_BK.detach().mean(dim=0), 0.05)
        return torch.softmax(scores_BTK + potential_BK[:, None], dim=-1)


def sinkhorn(scores_BTK: Tensor, iterations: int) -> Tensor:
    """The term b for which softmax(scores + b) fills all groups equally, (B, K): columns and rows in turn, in logs."""
    potential_BK = -torch.logsumexp(scores_BTK, dim=1)
    for _ in range(iterations - 1):
        rows_BT1 = torch.logsumexp(scores_BTK + potential_BK[:, None], dim=-1, keepdim=True)
        potential_BK = -torch.logsumexp(scores_BTK - rows_BT1, dim=1)
    return potential_BK - potential_BK.mean(dim=-1, keepdim=True)


def memberships(probabilities_BTK: Tensor, top_k: int) -> Tensor:
    """The k most probable groups of every token as 0 and 1, (B, T, K)."""
    chosen_BTk = torch.argsort(probabilities_BTK, dim=-1, descending=True, stable=True)[..., :top_k]
    return torch.zeros_like(probabilities_BTK).scatter_(-1, chosen_BTk, 1.0).bool()


# 2. The mask ----------------------------------------------------------------------------------------------------------


def near(num_tokens: int, settings: Settings) -> Tensor:
    """Causal pairs that attend whatever their groups, (T, T): the window and the sinks."""
    position = torch.arange(num_tokens)
    distance = position[:, None] - position[None, :]
    return (distance >= 0) & ((distance <= settings.window) | (position[None, :] < settings.num_sinks))


def mask(members_BTK: Tensor, settings: Settings) -> Tensor:
    """Every pair that attends, (B, T, T). This is the definition; what follows only computes it faster."""
    shared_BTT = (members_BTK.float() @ members_BTK.float().transpose(1, 2)) > 0
    return near(members_BTK.shape[1], settings) | shared_BTT.tril()


def masked_attention(query: Tensor, key: Tensor, value: Tensor, allowed_BTT: Tensor, scale: float) -> Tensor:
    """Softmax over the allowed pairs alone, (B, H, T, D): all T^2 scores are computed."""
    scores_BHTT = (query @ key.transpose(-1, -2) * scale).masked_fill(~allowed_BTT[:, None], -math.inf)
    return torch.softmax(scores_BHTT, dim=-1) @ value


# 3. The same without T^2 scores: two FlashAttention calls and a merge -------------------------------------------------


def flash(
    query: Tensor, key: Tensor, value: Tensor, scale: float, allowed: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """FlashAttention with the logsumexp of every query; causal, or under a mask. The CPU's, as CUDA's has no masks."""
    bias = None if allowed is None else torch.zeros(allowed.shape, dtype=query.dtype).masked_fill(~allowed, -math.inf)
    call = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, lse = call(query, key, value, 0.0, allowed is None, attn_mask=bias, scale=scale)
    return out, lse if allowed is None else lse.masked_fill(~allowed.any(dim=-1), -math.inf)


class Merged:
    """Attention to disjoint sets of keys, joined by their logsumexps: o = sum(e^l o) / sum(e^l)."""

    def __init__(self, query: Tensor) -> None:
        self.out = torch.zeros_like(query)
        self.lse = torch.full(query.shape[:-1], -math.inf, dtype=query.dtype)

    def add(self, tokens: Tensor, part: Attended, sign: float = 1.0) -> None:
        """Join a part of some queries; with sign -1 take one away that is contained in what was joined."""
        out, lse = part
        before_out, before_lse = self.out[:, :, tokens], self.lse[:, :, tokens]
        top = torch.maximum(before_lse, lse).clamp_min(torch.finfo(lse.dtype).min)
        before, added = torch.exp(before_lse - top)[..., None], sign * torch.exp(lse - top)[..., None]
        total = before + added
        self.out[:, :, tokens] = (before * before_out + added * out) / total.clamp_min(torch.finfo(lse.dtype).tiny)
        self.lse[:, :, tokens] = top + torch.log(total[..., 0])


def decomposed_attention(
    query: Tensor, key: Tensor, value: Tensor, members_TK: Tensor, settings: Settings, scale: float
) -> Tensor:
    """What `masked_attention` computes for one text, (1, H, T, D), exactly, for k of 1 or 2.

    Tokens of one group, in their order, are an ordinary causal text: one call each. With k = 2 tokens that share both
    groups were counted twice; two different pairs of groups share at most one. A call for each pair of groups takes
    that away. Near pairs without a common group are the rest, disjoint from all of these.
    """
    merged = Merged(query)

    def attend(rows: Tensor, keys: Tensor, sign: float = 1.0, allowed: Tensor | None = None) -> None:
        if len(rows):
            merged.add(rows, flash(query[:, :, rows], key[:, :, keys], value[:, :, keys], scale, allowed), sign)

    for group in range(members_TK.shape[1]):
        tokens = members_TK[:, group].nonzero()[:, 0]
        attend(tokens, tokens)
    if settings.top_k == 2:
        for pair in members_TK.unique(dim=0):
            tokens = (members_TK == pair).all(dim=-1).nonzero()[:, 0]
            attend(tokens, tokens, sign=-1.0)

    num_tokens, step = len(members_TK), max(settings.window, 64)
    position = torch.arange(num_tokens)
    for start in range(0, num_tokens, step):
        rows, first = position[start : start + step], max(0, start - settings.window)
        sinks = position[: min(settings.num_sinks, first)]  # those before the window's first key
        keys = torch.cat([sinks, position[first : start + step]])
        distance = rows[:, None] - keys[None, :]
        in_reach = (distance >= 0) & ((distance <= settings.window) | (keys < settings.num_sinks))
        shared = (members_TK[rows].float() @ members_TK[keys].float().T) > 0
        merged.add(
            rows, flash(query[:, :, rows], key[:, :, keys], value[:, :, keys], scale, (in_reach & ~shared)[None, None])
        )
    return merged.out


# 4. The gate of training: groups that learn need gradients ------------------------------------------------------------


def gated_attention(
    query: Tensor, key: Tensor, value: Tensor, probabilities_BTK: Tensor, settings: Settings, scale: float
) -> Tensor:
    """Attention that weakens far pairs by the probability that both tokens draw the same group, (B, H, T, D).

    The logarithm of that affinity is added to the logit: where it goes to zero the pair is dropped, as at inference.
    """
    affinity_BTT = (probabilities_BTK @ probabilities_BTK.transpose(1, 2)).clamp(1e-6, 1.0)
    always_TT = near(query.shape[2], settings)
    gate_BTT = torch.where(always_TT, 0.0, affinity_BTT.log())
    later_TT = torch.ones_like(always_TT).triu(1)
    scores_BHTT = (query @ key.transpose(-1, -2)) * scale + gate_BTT[:, None]
    return torch.softmax(scores_BHTT.masked_fill(later_TT, -math.inf), dim=-1) @ value


# 5. Composition: a frozen model whose layers ask their router ---------------------------------------------------------


def focus_attention(module: Any, query: Tensor, key: Tensor, value: Tensor, *_: Any, scaling: float, **__: Any) -> Any:
    """What a transformers model calls in place of its own attention, once `compose` was called."""
    settings = module.router.settings
    repeats = query.shape[1] // key.shape[1]  # several query heads may share a key-value head
    key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
    probabilities_BTK = module.router(module.router_input)
    if module.router.training:
        out_BHTD = gated_attention(query, key, value, probabilities_BTK, settings, scaling)
    else:
        members_BTK = memberships(probabilities_BTK, settings.top_k)
        texts = zip(query.split(1), key.split(1), value.split(1), members_BTK, strict=True)
        if settings.top_k <= 2:
            outs = [decomposed_attention(q, k, v, members_TK, settings, scaling) for q, k, v, members_TK in texts]
            out_BHTD = torch.cat(outs)
        else:
            out_BHTD = masked_attention(query, key, value, mask(members_BTK, settings), scaling)
    return out_BHTD.transpose(1, 2).contiguous(), None


AttentionInterface.register("nano_focus", focus_attention)
AttentionMaskInterface.register("nano_focus", lambda *_, **__: None)  # Focus has its own mask


def attention_modules(model: Any) -> list[Any]:
    """Attention modules in the order of their layers."""
    return [module for name, module in model.named_modules() if name.endswith(".self_attn")]


def compose(model: Any, settings: Settings, seed: int = 0) -> nn.ModuleList:
    """Put a router beside every attention layer of a model, freeze the rest, and return the routers."""
    model.requires_grad_(False)
    model.set_attn_implementation("nano_focus")
    generator = torch.Generator().manual_seed(seed)
    routers = nn.ModuleList()
    for module in attention_modules(model):
        module.router = Router(model.config.hidden_size, settings, generator)
        routers.append(module.router)

        def remember(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            module.router_input = args[0] if args else kwargs["hidden_states"]

        module.register_forward_pre_hook(remember, with_kwargs=True)
    return routers


# 6. Training and a comparison -----------------------------------------------------------------------------------------


def loss(model: Any, ids_BT: Tensor) -> Tensor:
    """Mean negative log-likelihood of a text in nats per token."""
    return model(ids_BT, labels=ids_BT, use_cache=False).loss


def train(model: Any, routers: nn.ModuleList, ids: Tensor, *, steps: int, length: int, rate: float = 3e-3) -> None:
    """Learn centroids with the language model's own loss, on random stretches of a text."""
    optimizer = torch.optim.AdamW(routers.parameters(), lr=rate, weight_decay=0.0)
    routers.train()
    for step in range(steps):
        start = int(torch.randint(0, max(1, len(ids) - length), ()))
        value = loss(model, ids[None, start : start + length])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        if step % 10 == 0 or step == steps - 1:
            print(f"step {step + 1:>4} of {steps}   loss {value.item():.4f}", flush=True)
    routers.eval()


@torch.no_grad()
def compare(model: Any, ids: Tensor, *, length: int) -> dict[str, float]:
    """Perplexity of the first tokens under Focus and under full attention, and the share of pairs that Focus keeps."""
    ids_1T = ids[None, :length]
    focus = loss(model, ids_1T).item()
    kept = []
    for module in attention_modules(model):
        members_BTK = memberships(module.router(module.router_input), module.router.settings.top_k)
        kept.append(mask(members_BTK, module.router.settings).sum().item())
    model.set_attn_implementation("sdpa")
    full = loss(model, ids_1T).item()
    model.set_attn_implementation("nano_focus")
    pairs = ids_1T.shape[1] * (ids_1T.shape[1] + 1) / 2
    return {"full": math.exp(full), "focus": math.exp(focus), "pairs kept": sum(kept) / len(kept) / pairs}


def main() -> None:
    """Learn centroids on the beginning of a text and compare on its end, which training has not seen."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("model", help="folder or hub id of a causal language model")
    parser.add_argument("text", type=Path, help="a text file, some 20,000 words or more")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--length", type=int, default=512, help="tokens of a sequence")
    arguments = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32).eval()
    ids = tokenizer(arguments.text.read_text(encoding="utf-8"), return_tensors="pt").input_ids[0]
    held_out = ids[-arguments.length :]
    routers = compose(model, Settings())
    train(model, routers, ids[: -arguments.length], steps=arguments.steps, length=arguments.length)
    for name, value in compare(model, held_out, length=arguments.length).items():
        print(f"{name:<12} {value:.4g}")


if __name__ == "__main__":
    main()
