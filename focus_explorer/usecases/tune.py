"""A centroid file fitted further on a user's text: a budget of its heads searched, or its groups balanced."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import field_validator

from focus_explorer.errors import InputError, TextError
from focus_explorer.progress import StageBar, no_stages
from focus_explorer.usecases.centroids.files import check_new, find_centroids, load_named_centroids
from focus_explorer.usecases.centroids.ready import check_model
from focus_explorer.usecases.request import (
    ONE_OF,
    SHIPPED,
    AsJson,
    Computed,
    File,
    FocusOptions,
    NewFile,
    Numbers,
    OfModel,
    OnDatabase,
    Placed,
    Settings,
    TextBegins,
    argument,
    focus_settings,
    numbers,
    option,
    setting,
)
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.training.session import one_writer, stop_on_signal
from focus_explorer.usecases.training.texts import gather_domains, parse_domains, trained_on
from focus_explorer.words import counted
from focus_runtime.files import cannot_write, check_writable

if TYPE_CHECKING:
    from focus_runtime.fit.budget_search import Target
    from focus_runtime.routing.centroids import Centroids

FEWEST = 2  # sequences of a domain that an interval needs


OR_NONE = "whole numbers such as 2,32, or none"


class TuneRequest(OfModel, OnDatabase, FocusOptions, TextBegins, Computed, AsJson):
    """A search for all targets by the same estimates; `text` and `held_out` are as `parse_domains` reads them."""

    settings: Settings = focus_settings("assignment", "budget", "logit_factors")
    text: tuple[File, ...] = option(
        ...,
        "calibration text by domain: text files, or folders of .txt files",
        action="extend",
        metavar="NAME=FOLDER",
    )
    held_out: tuple[File, ...] = option(
        (),
        "text for the check at the end, left out of --text folders (default: other sequences of the calibration text)",
        nargs="*",
        metavar="NAME=FOLDER",
    )
    out: tuple[File, ...] = option(
        ..., "centroid file to write (.safetensors), one for each target", action="extend", metavar="FILE"
    )
    loss: tuple[str, ...] = option(
        (),
        "largest rise in perplexity in every domain, such as 1%% or 0.01; several are searched together",
        group=ONE_OF,
        metavar="SHARE",
    )
    pairs: tuple[str, ...] = option(
        (),
        "largest share of causal pairs kept, such as 30%% or 0.3; several are searched together",
        group=ONE_OF,
        metavar="SHARE",
    )
    head_top_k: Numbers = numbers(
        (0, 2),
        "top-k that single heads may get besides that of all and full attention, such as 2,3; 0 is the window and the "
        "first tokens alone, 'none' no other",
        OR_NONE,
    )
    head_window: Numbers = numbers(
        (16, 32, 64, 128, 256, 512),
        "windows that single heads may get besides the one of all, such as 16,64; 'none' no other",
        OR_NONE,
    )
    heads: Literal["query", "key-value"] = option(
        "query",
        "which heads get settings of their own: each query head, or key-value heads with all that share them",
    )
    sequences: int = option(6, "calibration sequences a domain, of the shortest length; of longer ones as many tokens")
    held_out_sequences: int = option(8, "of the check, a domain, likewise")
    seq_len: tuple[int, ...] = option(
        (1024,),
        "tokens of a sequence, or several lengths such as 1024 4096, which need --held-out; pairs are counted at the "
        "shortest",
        metavar="TOKENS",
    )
    write_best: bool = option(False, "write the closest budget where none meets a target")
    resume: bool = option(False, "continue a search with the same --out that was stopped")
    as_json: bool = option(False, "print one JSON object for each target, a line each", flag="--json")

    @field_validator("head_top_k", "head_window", mode="before")
    @classmethod
    def _none(cls, value: Any) -> Any:
        return () if value == "none" else value


@dataclass(frozen=True, slots=True)
class Tuned:
    """What a search found for one target; `written` is None where it was not met."""

    record: dict[str, Any]
    budget: list[dict[str, Any]]
    written: Path | None


def tune(service: Service, request: TuneRequest, *, bar: StageBar = no_stages) -> list[Tuned]:
    """Search, check on held-out text, write the files; in the order of the targets.

    A signal stops it once the measurement under way is done; what was measured is kept for `resume`.
    """
    from focus_runtime.fit.tune import HeadChoices, forget_progress, resume_path, tune_budgets

    targets = _targets(request)
    first = next(iter(targets))
    words = parse_domains(request.text, "--text", weighted=False)
    check = parse_domains(request.held_out, "--held-out", weighted=False)
    texts, held_out = (
        {one.name or "text": one.texts for one in read}
        for read in (gather_domains(words, check), gather_domains(check))
    )
    with one_writer(first), bar() as progress:
        progress("Loading the model", 0.0)
        with (
            service.models.lease(request.model, device=request.device, dtype=request.dtype) as loaded,
            stop_on_signal() as stopped,
        ):
            calibration, checked = _sequences(request, loaded.tokenizer, texts, held_out)
            centroids = load_named_centroids(service.database, request.centroids)
            if centroids is None:
                raise InputError("random centroids cannot be tuned", expected="a centroid file")
            found = tune_budgets(
                loaded.model,
                centroids,
                calibration,
                checked,
                list(targets.values()),
                choices=HeadChoices(
                    top_ks=request.head_top_k, windows=request.head_window, by_query=request.heads == "query"
                ),
                settings=request.settings.chosen() | {"backend": request.backend},
                kept=resume_path(first),
                resume=request.resume,
                on_progress=progress,
                cancelled=stopped.is_set,
            )
        tuned = [_written(one, out, request) for out, one in zip(targets, found, strict=True)]
        if all(one.written is not None for one in tuned):
            forget_progress(resume_path(first))
    return tuned


def _written(found: Centroids, out: Path, request: TuneRequest) -> Tuned:
    """The budget found for one target, written if it meets the target."""
    from focus_runtime.routing.centroid_file import save_centroids

    record = found.training["budget"]
    write = record["met"] or request.write_best
    if write:
        save_centroids(found, out)
    return Tuned(record, [entry.to_dict() for entry in found.config.budget], out if write else None)


def _targets(request: TuneRequest) -> dict[Path, Target]:
    from focus_runtime.fit.budget_search import Target
    from focus_runtime.fit.tune import resume_path

    targets = [Target(loss=_share(text, "--loss")) for text in request.loss]
    targets += [Target(pairs=_share(text, "--pairs")) for text in request.pairs]
    paths = [Path(out).expanduser() for out in request.out]
    if len(targets) != len(paths) or len({*paths}) < len(paths):
        raise InputError(
            f"{len(targets)} targets and {len({*paths})} different --out files", expected="one file for each target"
        )
    for out, path in zip(request.out, paths, strict=True):
        if path.suffix != ".safetensors":
            raise InputError(f"--out is {out!r}", expected="a name ending in .safetensors")
        check_writable(path, explain=cannot_write("choose another --out"))
    measured = resume_path(paths[0])
    if measured.exists() and not request.resume:
        raise InputError(
            f"{measured} keeps what another search for that --out has measured",
            fix="add --resume to use it, or delete that file to measure again",
        )
    return dict(zip(paths, targets, strict=True))


def _share(text: str, flag: str) -> float:
    try:
        return float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)
    except ValueError as error:
        raise InputError(f"{flag} is {text!r}", expected="a share such as 1% or 0.01") from error


def _sequences(
    request: TuneRequest, tokenizer: Any, texts: dict[str, list[str]], held_out: dict[str, list[str]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Calibration and held-out sequences by domain, or by domain and length if there are several."""
    if min(request.seq_len, default=0) < 16:
        raise InputError(f"--seq-len is {min(request.seq_len, default=0)}", expected="at least 16")
    if request.sequences < 1 or request.held_out_sequences < FEWEST:
        raise InputError(
            f"{request.sequences} calibration and {request.held_out_sequences} held-out sequences",
            expected=f"at least 1 and {FEWEST} of each domain",
        )
    cut = _Cutter(request, tokenizer)
    if held_out:
        check = cut.at_lengths(held_out, request.held_out_sequences, FEWEST)
        return cut.at_lengths(texts, request.sequences, 1), check
    length, *longer = sorted(set(request.seq_len))
    if longer:
        raise InputError(
            f"--seq-len names {1 + len(longer)} lengths, and no text is given for the check",
            expected="text of its own for it: sequences of different lengths overlap",
            fix="give --held-out, or one length",
        )
    calibration, check = {}, {}
    for name, own in texts.items():
        every = cut.even(name, own, request.sequences + request.held_out_sequences, FEWEST + 1, length)
        used = min(request.sequences, every.shape[0] - FEWEST)
        places = [round(i * (every.shape[0] - 1) / max(1, used - 1)) for i in range(used)]
        others = [place for place in range(every.shape[0]) if place not in places]
        calibration[name], check[name] = every[places], every[others]
    return calibration, check


@dataclass(frozen=True, slots=True)
class _Cutter:
    request: TuneRequest
    tokenizer: Any

    def at_lengths(self, texts: dict[str, list[str]], count: int, fewest: int) -> dict[str, Any]:
        """Sequences of every length, shortest first: `count` a domain of that one, of the others as many tokens."""
        first, *longer = sorted(set(self.request.seq_len))
        if not longer:
            return {name: self.even(name, own, count, fewest, first) for name, own in texts.items()}
        found = {}
        for length in (first, *longer):
            fewer = max(fewest, round(count * first / length))
            for name, own in texts.items():
                found[f"{name}, {length:,} tokens"] = self.even(name, own, fewer, fewest, length)
        return found

    def even(self, name: str, texts: list[str], count: int, fewest: int, length: int) -> Any:
        """At most `count` sequences of a domain, spread evenly; a TextError if it has not `fewest`."""
        from focus_runtime.text.sequences import encode_texts, even_sequences

        ids = encode_texts(self.tokenizer, texts, 1, self.request.special_tokens)
        if ids.numel() < fewest * length:
            raise TextError(
                f"the domain {name!r} has {ids.numel():,} tokens",
                expected=f"at least {fewest * length:,}: {fewest} sequences of {length:,}",
                fix="give more text or a shorter --seq-len",
            )
        return even_sequences(ids, count, length)


def describe(tuned: Tuned) -> str:
    record = tuned.record
    lines = [f"{'pairs kept':>10}  {'worst domain':>12}  budget"]
    for point in [record["without_budget"], *record["points"]]:
        worst = max(point["excess"].values())
        lines.append(f"{point['retained_pairs']:>10.1%}  {worst:>+12.2%}  {_in_words(point['budget'])}")
    lines.append("on held-out text, perplexity over full attention's:")
    width = max(16, *(len(name) for name in record["held_out"]))
    for name, row in record["held_out"].items():
        change = row["relative_difference"]
        low, high = change["low"], change["high"]
        interval = "" if low is None else f" ({low:+.2%} to {high:+.2%})"
        lines.append(f"  {name:<{width}} {change['value']:+.2%}{interval}, {row['retained_pairs']:.1%} of pairs kept")
    return "\n".join(lines)


def _in_words(budget: list[dict[str, Any]]) -> str:
    full = sum(bool(entry.get("full")) for entry in budget)
    alone = sum(entry.get("top_k") == 0 for entry in budget)
    counts = {"in full": full, "without groups": alone, "with another top-k or window": len(budget) - full - alone}
    parts = [f"{count} {words}" for words, count in counts.items() if count]
    heads = sum("query_head" in entry for entry in budget)
    by_kind = {"query head": heads, "head": len(budget) - heads}
    kinds = [counted(count, kind) for kind, count in by_kind.items() if count]
    return f"{' and '.join(kinds)}: {', '.join(parts)}" if budget else "none"


def to_json(tuned: Tuned) -> dict[str, Any]:
    return asdict(tuned) | {"written": None if tuned.written is None else str(tuned.written)}


class BalanceRequest(NewFile, OnDatabase, TextBegins, Placed):
    file: File = argument(SHIPPED)
    text: tuple[File, ...] = option(
        ...,
        "text by kind: text files, or folders of .txt files; a kind of weight 2 gives twice the sequences",
        metavar="NAME=FOLDER[:WEIGHT]",
    )
    model: File = setting("model")
    sequences: int = option(32, "of all kinds of text together")
    seq_len: int = option(1024, "of a sequence", metavar="TOKENS")


@dataclass(frozen=True, slots=True)
class Balanced:
    """A copy that was written: its sha256, the number of sequences, and notes about the file and the model."""

    sha256: str
    sequences: int
    notes: list[str]


def balance(service: Service, request: BalanceRequest, *, bar: StageBar = no_stages) -> Balanced:
    """Write a copy of a centroid file whose groups are as large as each other on the given text."""
    from focus_runtime.fit.calibrate import balance_groups
    from focus_runtime.routing.centroid_file import save_centroids

    out = Path(request.out).expanduser()
    check_new(out)
    check_writable(out, explain=cannot_write("choose another --out"))
    for name, value, least in (("--sequences", request.sequences, 1), ("--seq-len", request.seq_len, 16)):
        if value < least:
            raise InputError(f"{name} is {value}", expected=f"at least {least}")
    centroids = find_centroids(service.database, request.file)[1]
    domains = gather_domains(parse_domains(request.text, "--text", weighted=True))
    with bar() as progress:
        progress("Loading the model", 0.0)
        with service.models.lease(request.model, device=request.device, dtype=request.dtype) as loaded:
            check_model(centroids, loaded)
            progress("Balancing the groups", 0.2)
            balance_groups(
                loaded.model,
                loaded.tokenizer,
                centroids,
                trained_on(domains),
                count=request.sequences,
                length=request.seq_len,
                special_tokens=request.special_tokens,
            )
        progress("Writing the file", 0.95)
        sha256 = save_centroids(centroids, out)
    return Balanced(sha256, centroids.training["balanced"]["sequences"], centroids.warnings)
