"""The ways in which the doctor runs a model, once with its own attention and once with the one that is examined.

All layers and logits are compared, and what a scenario returns.
"""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, StaticCache

from focus_runtime.models.structure import cache_argument, hooked

NEW_TOKENS = 6


class NotApplicable(Exception):  # noqa: N818 - it is no error
    """A scenario that this model has no place for; the message says why."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The doctor's text, (2, T) token ids, and the model that reads it."""

    model: Any
    ids: Tensor

    @property
    def takes(self) -> set[str]:
        """Names of the arguments of the model's forward pass."""
        return set(inspect.signature(self.model.forward).parameters)

    def needs(self, *names: str) -> None:
        """Raise NotApplicable where the forward pass has no such argument."""
        for name in names:
            if name not in self.takes:
                raise NotApplicable(f"{type(self.model).__name__} takes no {name}")

    def step(self, ids: Tensor, cache: Any, **kwargs: Any) -> Any:
        """Continue from a cache with some tokens; returns the cache."""
        given = {} if cache is None else cache_argument(self.model, cache)
        output = self.model(input_ids=ids, use_cache=True, **given, **kwargs)
        cache = getattr(output, "cache", None) or getattr(output, "past_key_values", None)
        if cache is None:
            raise NotApplicable(f"{type(self.model).__name__} returns no cache")
        return cache

    def padding(self, *, left: bool) -> tuple[Tensor, dict[str, Tensor]]:
        """Ids of which the second row has padding for a quarter, with mask and positions."""
        ids, mask = self.ids.clone(), torch.ones_like(self.ids)
        pad = ids.shape[1] // 4
        padded = slice(None, pad) if left else slice(-pad, None)
        ids[1, padded], mask[1, padded] = pad_id(self.model), 0
        given = {"attention_mask": mask}
        if "position_ids" in self.takes:
            given["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
        return ids, given


Scenario = Callable[[Inputs], list[Tensor] | None]


def pad_id(model: nn.Module) -> int:
    """Token id for padding; 0 where the model has none."""
    config: Any = model.config
    return getattr(config.get_text_config(decoder=True), "pad_token_id", None) or 0


def plain(inputs: Inputs) -> None:
    """Two whole texts in one pass."""
    inputs.model(input_ids=inputs.ids, use_cache=False)


def padding(inputs: Inputs, *, left: bool) -> None:
    """A batch whose second text has padding before it, or after it."""
    ids, given = inputs.padding(left=left)
    inputs.model(input_ids=ids, use_cache=False, **given)


def packed_documents(inputs: Inputs) -> tuple[Tensor, Tensor, list[int]]:
    """One row of three documents: ids, positions that restart, and where documents begin and end."""
    length = inputs.ids.shape[1]
    cuts = [0, length // 4, length // 4 + length // 3, length]
    positions = torch.cat([torch.arange(end - start) for start, end in itertools.pairwise(cuts)])
    return inputs.ids[:1], positions[None].to(inputs.ids.device), cuts


def packing(inputs: Inputs) -> None:
    """Three documents in one row, told apart by positions that restart."""
    inputs.needs("position_ids")
    ids, positions, _ = packed_documents(inputs)
    inputs.model(input_ids=ids, position_ids=positions, use_cache=False)


def packing_lengths(inputs: Inputs) -> None:
    """The same with the lengths that a padding-free collator gives as well."""
    inputs.needs("position_ids", "kwargs")
    ids, positions, cuts = packed_documents(inputs)
    lengths = torch.tensor(cuts, dtype=torch.int32, device=ids.device)
    longest = max(end - start for start, end in itertools.pairwise(cuts))
    more = {"cu_seq_lens_q": lengths, "cu_seq_lens_k": lengths, "max_length_q": longest, "max_length_k": longest}
    inputs.model(input_ids=ids, position_ids=positions, use_cache=False, **more)


def _decode(inputs: Inputs, cache: Any, widths: list[int]) -> None:
    start = 0
    for width in widths:
        cache = inputs.step(inputs.ids[:, start : start + width], cache)
        start += width


def _prefill_and_steps(inputs: Inputs) -> list[int]:
    length = inputs.ids.shape[1]
    return [length - 4, 1, 1, 1, 1]


def model_cache(inputs: Inputs) -> None:
    """Prefill and decode steps with the cache that the model makes: of all its kinds of layers."""
    _decode(inputs, None, _prefill_and_steps(inputs))


def padded_cache(inputs: Inputs) -> None:
    """The same in a batch with padding on the left."""
    ids, given = inputs.padding(left=True)
    cache, start = None, 0
    for width in _prefill_and_steps(inputs):
        end = start + width
        now = {"attention_mask": given["attention_mask"][:, :end]}
        if "position_ids" in given:
            now["position_ids"] = given["position_ids"][:, start:end]
        cache, start = inputs.step(ids[:, start:end], cache, **now), end


def dynamic_cache(inputs: Inputs) -> None:
    """Prefill and decode steps with a dynamic cache that knows no kinds of layers."""
    _decode(inputs, DynamicCache(), _prefill_and_steps(inputs))


def static_cache(inputs: Inputs) -> None:
    """Prefill and decode steps with a static cache that is longer than the text."""
    cache = StaticCache(config=inputs.model.config, max_cache_len=inputs.ids.shape[1] + 8)
    _decode(inputs, cache, _prefill_and_steps(inputs))


def chunked_prefill(inputs: Inputs) -> None:
    """The text in three parts, each continuing from the cache of those before."""
    part = inputs.ids.shape[1] * 2 // 5
    _decode(inputs, None, [part, part, inputs.ids.shape[1] - 2 * part])


def cropped_cache(inputs: Inputs) -> None:
    """A cache cut back to two thirds and continued with other tokens."""
    length = inputs.ids.shape[1]
    kept = length * 2 // 3
    cache = inputs.step(inputs.ids[:, :2], None)
    if hasattr(cache, "activate_past_recording"):  # so that sliding layers can go back
        cache.activate_past_recording()
    inputs.step(inputs.ids[:, 2:], cache)
    cache.crop(kept - length)
    inputs.step(inputs.ids.flip(0)[:, kept:], cache)


def _generate(inputs: Inputs, ids: Tensor, **kwargs: Any) -> list[Tensor]:
    if not hasattr(inputs.model, "generate"):
        raise NotApplicable(f"{type(inputs.model).__name__} does not generate")
    kwargs = {"attention_mask": torch.ones_like(ids), "pad_token_id": pad_id(inputs.model), **kwargs}
    return [inputs.model.generate(ids, do_sample=False, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, **kwargs)]


def greedy(inputs: Inputs) -> list[Tensor]:
    """`generate` of a batch with padding on the left."""
    ids, given = inputs.padding(left=True)
    return _generate(inputs, ids, attention_mask=given["attention_mask"])


def beams(inputs: Inputs) -> list[Tensor]:
    """`generate` with three beams."""
    return _generate(inputs, inputs.ids[:1], num_beams=3)


def assisted(inputs: Inputs) -> list[Tensor]:
    """`generate` with the model as its own assistant."""
    return _generate(inputs, inputs.ids[:1], assistant_model=inputs.model)


def prompt_lookup(inputs: Inputs) -> list[Tensor]:
    """`generate` that guesses tokens from the prompt, whose second half repeats the first."""
    half = inputs.ids[:1, : inputs.ids.shape[1] // 2]
    return _generate(inputs, torch.cat([half, half], 1), prompt_lookup_num_tokens=3)


def compiled(inputs: Inputs) -> list[Tensor]:
    """One pass of the model as `torch.compile` traces it, without generated code."""
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)  # it warns of every break of the graph
    torch._dynamo.reset()
    try:
        network = torch.compile(inputs.model, backend="aot_eager")
        return [network(input_ids=inputs.ids, use_cache=False).logits.detach().float()]
    finally:
        torch._dynamo.reset()


def gradients(inputs: Inputs) -> list[Tensor]:
    """Gradients of a loss with respect to the embeddings of the tokens."""
    leaves: list[Tensor] = []

    def as_leaf(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1] * 1.0

    handle = inputs.model.get_input_embeddings().register_forward_hook(as_leaf)
    with hooked([handle]), torch.enable_grad():
        logits = inputs.model(input_ids=inputs.ids, use_cache=False).logits.float()
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), inputs.ids[:, 1:].flatten())
        return list(torch.autograd.grad(loss, leaves[:1]))


SCENARIOS: dict[str, Scenario] = {
    "plain": plain,
    "left padding": partial(padding, left=True),
    "right padding": partial(padding, left=False),
    "packing": packing,
    "packing with lengths": packing_lengths,
    "the model's cache": model_cache,
    "cache and left padding": padded_cache,
    "dynamic cache": dynamic_cache,
    "static cache": static_cache,
    "chunked prefill": chunked_prefill,
    "cropped cache": cropped_cache,
    "greedy": greedy,
    "beams": beams,
    "assisted": assisted,
    "prompt lookup": prompt_lookup,
    "compile": compiled,
    "gradients": gradients,
}
LOGITS_ALONE = {"compile"}  # hooks of layers would change what is traced
ONE_GROUP = ("plain", "left padding", "packing", "the model's cache", "cache and left padding", "static cache")
