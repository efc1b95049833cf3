"""The model lm-eval sees: a Hugging Face model as it is or under Focus. Imported only where lm-eval is installed."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from torch import Tensor

from focus_runtime.errors import InputError
from focus_runtime.text.special import DEFAULT, text_ids

Request = tuple[Any, list[int], list[int]]  # the request, ids of the context, ids of the continuation


class HarnessModel(HFLM):
    """lm-eval's Hugging Face model with padding masked, which Sinkhorn assignment needs, and item lengths counted.

    `lengths`: tokens of context and continuation together, by task and document number; of a document with several
    continuations the longest. For generation: of the prompt and the answer that was kept.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        batch_size: int = 1,
        special_tokens: str = DEFAULT,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        super().__init__(
            model,
            backend="causal",
            tokenizer=copy.deepcopy(tokenizer),  # lm-eval gives a tokenizer without padding a token for it
            batch_size=batch_size,
            add_bos_token=None if special_tokens == "auto" else False,
        )
        self._special_tokens = special_tokens
        self.lengths: dict[tuple[str, int], int] = {}
        self.cut: set[tuple[str, int]] = set()  # documents whose context was cut on the left to the model's positions
        self._progress = progress or (lambda fraction: None)
        self._lengths: list[int] = []
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.forward).parameters

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, left_truncate_len: int | None = None, **_: Any
    ) -> list[int]:
        """Token ids of a text, with what the tokenizer puts before it and nothing after it."""
        ids = text_ids(self.tokenizer, string, "none" if add_special_tokens is False else self._special_tokens)
        return ids[-left_truncate_len:] if left_truncate_len else ids

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        """(log-likelihood, whether greedy decoding gives it) of every continuation."""
        answers = super().loglikelihood(requests, disable_tqdm=disable_tqdm)
        self._count(requests, self._lengths)
        return answers

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = True) -> list[float]:
        """Log-likelihood of whole texts, in windows as long as the model allows."""
        chosen, self._special_tokens = self._special_tokens, "none"  # lm-eval adds BOS; twice, and it would be scored
        try:
            answers = super().loglikelihood_rolling(requests, disable_tqdm=True)
            self._count(requests, [min(1 + len(self.tok_encode(r.args[0])), self.max_length + 1) for r in requests])
        finally:
            self._special_tokens = chosen
        return answers

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = True) -> list[str]:
        """Greedy or sampled answers, with left padding and a key-value cache."""
        answers = super().generate_until(requests, disable_tqdm=True)
        for request, answer in zip(requests, answers, strict=True):
            most = self.max_length - request.args[1].get("max_gen_toks", self.max_gen_toks)
            prompt = len(self.tok_encode(request.args[0]))
            self._count_one(request, min(prompt, most) + len(self.tok_encode(answer)), prompt > most)
        self._progress(1.0)
        return answers

    def _count(self, requests: Sequence[Instance], lengths: Sequence[int]) -> None:
        longest = self.max_length + 1  # the last token is scored, not fed
        for request, length in zip(requests, lengths, strict=True):
            self._count_one(request, min(length, longest), length > longest)

    def _count_one(self, request: Instance, length: int, cut: bool) -> None:
        key = (str(request.task_name), int(request.doc_id or 0))
        self.lengths[key] = max(self.lengths.get(key, 0), length)
        if cut:
            self.cut.add(key)

    def _loglikelihood_tokens(
        self, requests: Sequence[Request], disable_tqdm: bool = True, override_bs: int | None = None
    ) -> list[tuple[float, bool]]:
        """Score continuations in batches padded on the left, so that all of them end in the last column.

        Requests that feed the model the same tokens, as answers of one token to one question do, share a row.
        """
        self._lengths = [len(context) + len(continuation) for _, context, continuation in requests]
        rows: dict[tuple[int, ...], list[int]] = {}
        for number, (_, context, continuation) in enumerate(requests):
            if not 0 < len(continuation) <= self.max_length:
                raise InputError(
                    f"a task asks for a continuation of {len(continuation)} tokens",
                    expected=f"1 to {self.max_length}, the model's positions",
                )
            tokens = (*context, *continuation)[-(self.max_length + 1) : -1]
            rows.setdefault(tokens, []).append(number)
        answers: dict[int, tuple[float, bool]] = {}
        # the longest first: what does not fit is known at once
        order = sorted(rows, key=lambda tokens: (-len(tokens), tokens))
        size = override_bs or self.batch_size
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            keep = max(len(requests[number][2]) for tokens in batch for number in rows[tokens])
            for tokens, logits in zip(batch, self._last_logits(batch, keep), strict=True):
                likely = torch.log_softmax(logits, dim=-1)
                for number in rows[tokens]:
                    answers[number] = _score(likely, requests[number][2])
            self._progress((start + len(batch)) / len(order))
        return [answers[number] for number in range(len(requests))]

    @torch.no_grad()
    def _last_logits(self, batch: Sequence[tuple[int, ...]], keep: int) -> Tensor:
        """(B, keep, V) float32 logits of the last `keep` tokens of each row."""
        width = max(map(len, batch))
        ids = torch.zeros(len(batch), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, tokens in enumerate(batch):
            ids[row, width - len(tokens) :] = torch.tensor(tokens)
            mask[row, width - len(tokens) :] = 1
        inputs: dict[str, Any] = {"input_ids": ids.to(self.device)}
        if not mask.all():
            positions = (mask.cumsum(dim=-1) - 1).clamp_min(0)
            inputs |= {"attention_mask": mask.to(self.device), "position_ids": positions.to(self.device)}
        if self._keeps_logits:
            inputs["logits_to_keep"] = keep
        return self.model(**inputs, use_cache=False).logits[:, -keep:].float()


def _score(likely: Tensor, continuation: list[int]) -> tuple[float, bool]:
    """Log-likelihood of the last tokens, and whether each is the most likely: likely (T, V), T at least their count."""
    target = torch.tensor(continuation, device=likely.device)
    rows = likely[-len(continuation) :]
    greedy = bool((rows.argmax(dim=-1) == target).all())
    return float(rows.gather(-1, target[:, None]).double().sum()), greedy
