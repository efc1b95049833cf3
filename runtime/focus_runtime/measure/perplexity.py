"""Perplexity: of a text of any length by sliding windows, and of many sequences under settings compared in pairs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_runtime.composition.attach import FocusModel
from focus_runtime.errors import InputError
from focus_runtime.mask.distances import mean_of_some
from focus_runtime.measure.intervals import LEVEL, bootstrap_test, mean_interval, sign_flip_test, wilcoxon_test
from focus_runtime.measure.loss import check_positions, dominance, final_hidden, layer_shares, token_nll
from focus_runtime.models.devices import input_device
from focus_runtime.text.special import DEFAULT, added_tokens, begins_with
from focus_runtime.text.tokens import tokenize

MANY_DOCUMENTS = 8  # from here on documents are resampled; an interval over fewer means little
MANY_SEEDS = 3


@dataclass(frozen=True, slots=True)
class Perplexity:
    """exp of the mean negative log-likelihood of the scored tokens.

    `stride`: tokens a window moves by; beyond the first window, at least length - stride tokens precede every score.
    """

    value: float
    scored: int
    nll: NDArray[np.float64]  # (scored,) float64 nats, in text order
    length: int  # most tokens a score is conditioned on, its own included
    stride: int

    def __float__(self) -> float:
        return self.value


def _text_ids(text: Any, tokenizer: Any, special_tokens: str) -> list[int]:
    if isinstance(text, str):
        if tokenizer is None:
            raise InputError(
                "a text was given without a tokenizer",
                expected="tokenizer=..., or token ids in place of the text",
                fix="load_model() gives the model and its tokenizer",
            )
        return tokenize(tokenizer, text, special_tokens=special_tokens).ids
    if not isinstance(text, Tensor | np.ndarray | Sequence):
        raise InputError(f"the text is {type(text).__name__}", expected="a string, or the token ids of one text")
    ids = text.tolist() if isinstance(text, Tensor | np.ndarray) else list(text)
    if ids and isinstance(ids[0], list):
        if len(ids) != 1:
            raise InputError(f"{len(ids)} texts were given", expected="one text: a string, or its token ids")
        ids = ids[0]
    if any(isinstance(token, bool) or not isinstance(token, int) for token in ids):
        raise InputError("the token ids hold something else", expected="whole numbers")
    return ids


def _sliding_nll(model: Any, prefix: list[int], ids: list[int], length: int, stride: int) -> NDArray[np.float64]:
    """Losses of the tokens after a prefix, which begins every window; without one the first token has none."""
    device, own = input_device(model), length - len(prefix)
    parts: list[Tensor] = []
    done, start = 0 if prefix else 1, 0
    while done < len(ids):
        window = torch.tensor([prefix + ids[start : start + own]], device=device)
        nll = token_nll(model, final_hidden(model, window), window)[0]
        parts.append(nll[len(prefix) + done - start - 1 :].double().cpu())
        done = min(start + own, len(ids))
        start = min(start + min(stride, own), max(0, len(ids) - 1))
    losses: NDArray[np.float64] = torch.cat(parts).numpy()
    return losses


@torch.no_grad()
def perplexity(
    model: Any,
    text: Any,
    *,
    tokenizer: Any = None,
    length: int = 1024,
    stride: int | None = None,
    max_tokens: int | None = None,
    special_tokens: str = DEFAULT,
) -> Perplexity:
    """Perplexity of a text of any length by sliding evaluation: overlapping windows, every token scored once.

    Every window begins with what the tokenizer puts before a text, such as BOS, which is not scored.

    Args:
        model: a Hugging Face causal language model, or what `compose` returned (then under Focus).
        text: a string, or the token ids of one text.
        tokenizer: needed for a string, and for windows that begin with BOS where token ids do.
        stride: tokens by which the window moves. None: half of `length`.
        max_tokens: score at most the first so many tokens.
        special_tokens: "auto" for what the tokenizer puts before a text, "none" for no token.
    """
    model = model.model if isinstance(model, FocusModel) else model
    for name, number in (("length", length), ("stride", stride), ("max_tokens", max_tokens)):
        optional = number is None and name != "length"
        if not optional and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise InputError(f"{name} is {number!r}", expected="a whole number of at least 1")
    stride = max(1, length // 2) if stride is None else stride
    if length < 2 or stride >= length:
        raise InputError(
            f"length is {length} and stride {stride}",
            expected="length of at least 2, and a stride from 1 to length - 1, so that every token has one before it",
        )
    ids = _text_ids(text, tokenizer, special_tokens)[:max_tokens]
    if len(ids) < 2:
        raise InputError(f"the text has {len(ids)} tokens", expected="at least 2: the first one has nothing before it")
    check_positions(model, min(length, len(ids)))
    known = model.get_input_embeddings().num_embeddings
    if min(ids) < 0 or max(ids) >= known:
        raise InputError(
            f"the token ids run from {min(ids)} to {max(ids)}",
            expected=f"ids of this model, 0 to {known - 1}",
            fix="use the model's own tokenizer",
        )
    prefix = () if tokenizer is None else added_tokens(tokenizer, special_tokens).ids
    prefix = prefix if begins_with(ids, prefix) else ()
    if length <= len(prefix):
        raise InputError(
            f"length is {length}", expected=f"more than the {len(prefix)} tokens that the tokenizer puts before a text"
        )
    losses = _sliding_nll(model, list(prefix), ids[len(prefix) :], length, stride)
    return Perplexity(math.exp(losses.mean()), int(losses.size), losses, length, stride)


@dataclass(frozen=True, slots=True)
class Scores:
    """What one setting gave on a fixed list of sequences; by focused layer, means over them, empty without Focus."""

    nll: NDArray[np.float64]  # (N,) float64, mean negative log-likelihood of every sequence, nats per token
    scored: NDArray[np.int64]  # (N,) int64, tokens scored in each
    dominance: NDArray[np.float64]  # (L,) share of a sequence's tokens whose most probable group is its largest
    retained_pairs: NDArray[np.float64]  # (L,) allowed pairs over causal pairs
    distant_kept: NDArray[np.float64]  # (L,) share of pairs beyond window and sinks, over heads with some; else NaN

    @property
    def loss(self) -> float:
        """Mean negative log-likelihood over all scored tokens, in nats."""
        return float(np.average(self.nll, weights=self.scored))

    @property
    def perplexity(self) -> float:
        """exp of the loss."""
        return math.exp(self.loss)

    @property
    def mean_distant_kept(self) -> float | None:
        """Mean of `distant_kept` over the layers that have such pairs; None where none has."""
        return mean_of_some(self.distant_kept.tolist())

    def summary(self) -> dict[str, Any]:
        """Perplexity under Focus with the balance and sparsity it was reached at, means over layers, JSON-ready."""
        return {
            "perplexity": self.perplexity,
            "scored": int(self.scored.sum()),
            "dominance": float(self.dominance.mean()),
            "retained_pairs": float(self.retained_pairs.mean()),
            "distant_kept": self.mean_distant_kept,
        }


@torch.no_grad()
def score(model: Any, sequences: Tensor) -> Scores:
    """Score (N, T) sequences one at a time, by a model as it is or by what `compose` returned (then under Focus)."""
    focus = model if isinstance(model, FocusModel) else None
    network = model.model if focus is not None else model
    device = input_device(network)
    check_positions(network, sequences.shape[1])
    losses, counts = [], []
    shares: dict[int, list[tuple[float, float, float | None]]] = defaultdict(list)
    for ids in sequences.to(device).split(1):
        nll = token_nll(network, final_hidden(network, ids), ids).double()
        losses.append(nll.mean().item())
        counts.append(nll.numel())
        if focus is not None:
            masks = focus.head_masks()
            for index, assignment in focus.assignments().items():
                shares[index].append((dominance(assignment.probabilities), *layer_shares(masks[index])))
    means = [[mean_of_some(column) for column in zip(*rows, strict=True)] for _, rows in sorted(shares.items())]
    columns = np.array(means, dtype=np.float64).reshape(-1, 3).T
    return Scores(np.array(losses), np.array(counts), columns[0], columns[1], columns[2])


def compare(
    full: Scores, focus: Scores | Sequence[Scores], *, documents: Sequence[Any] | None = None, seed: int = 0
) -> dict[str, Any]:
    """Focus against full attention on the same sequences: perplexities, their difference, and how sure it is.

    Intervals are bootstrapped over documents where there are at least `MANY_DOCUMENTS`, otherwise over sequences, and
    over training seeds where several are given; `units` says which. P-values compare the units in pairs, with the
    losses of several seeds averaged first.

    Args:
        focus: from `score` under Focus, or several of them, one for each training seed.
        documents: (N,) which document each sequence is from. None: all are of one.

    Returns:
        JSON-ready: perplexities and the difference in nats per token and relative, each with `value`, `low`, `high`
        (None when one unit allows no interval); `p_value` (sign flips, exact on few units) and the other tests; counts;
        dominance and pairs, means over layers and seeds; `notes`.
    """
    runs = [focus] if isinstance(focus, Scores) else list(focus)
    if not runs or any(run.dominance.size == 0 for run in runs):
        raise InputError("there are no scores under Focus to compare", expected="what score(compose(...), ...) gave")
    for run in runs:
        if not np.array_equal(run.scored, full.scored):
            raise InputError(
                f"the scores are of {run.nll.size} and {full.nll.size} sequences, or of different lengths",
                expected="the same sequences in the same order",
            )
    labels = [0] * full.nll.size if documents is None else list(documents)
    if len(labels) != full.nll.size:
        raise InputError(f"{len(labels)} documents are named for {full.nll.size} sequences", expected="one for each")
    many = len(set(labels)) >= MANY_DOCUMENTS
    place = np.unique(labels, return_inverse=True)[1] if many else np.arange(full.nll.size)
    tokens = np.bincount(place, weights=full.scored)
    plain, *under_focus = (np.bincount(place, weights=run.nll * run.scored) / tokens for run in (full, *runs))
    table = np.array(under_focus)
    differences = table - plain
    nats = mean_interval(differences, tokens, seed=seed)
    paired = differences.mean(axis=0) * tokens / tokens.mean()
    tests = {"sign_flip": sign_flip_test(paired, seed=seed), "bootstrap": bootstrap_test(paired, seed=seed)}
    tests["wilcoxon"] = wilcoxon_test(differences.mean(axis=0))
    return {
        "full_perplexity": mean_interval(plain, tokens, seed=seed).through(math.exp).to_dict(),
        "focus_perplexity": mean_interval(table, tokens, seed=seed).through(math.exp).to_dict(),
        "difference_nats": nats.to_dict(),
        "relative_difference": nats.through(math.expm1).to_dict(),
        "level": LEVEL,
        "p_value": tests["sign_flip"],
        "tests": tests,
        "units": "documents" if many else "sequences",
        "documents": len(set(labels)),
        "sequences": int(full.nll.size),
        "tokens": int(full.scored.sum()),
        "seeds": len(runs),
        "dominance": float(np.mean([run.dominance.mean() for run in runs])),
        "highest_dominance": float(max(run.dominance.max() for run in runs)),
        "retained_pairs": float(np.mean([run.retained_pairs.mean() for run in runs])),
        "distant_kept": mean_of_some([run.mean_distant_kept for run in runs]),
        "notes": _notes(len(runs), len(set(labels)), place.max() + 1),
    }


def _notes(seeds: int, documents: int, units: int) -> list[str]:
    """What the intervals and p-values do not cover."""
    notes = []
    if units == 1:
        notes.append("1 sequence: no interval and no test is possible; give more text")
    if documents < MANY_DOCUMENTS:
        count = "1 document" if documents == 1 else f"{documents} documents"
        notes.append(f"sequences of {count} were resampled: the intervals do not speak for other documents")
    if seeds < MANY_SEEDS:
        count = "1 training seed" if seeds == 1 else f"{seeds} training seeds"
        notes.append(f"{count}: give centroids of at least {MANY_SEEDS} to cover what training leaves to chance")
    return notes
