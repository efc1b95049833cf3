"""Find a budget for a centroid file: which heads to leave at full attention for a target loss or share of pairs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from focus_explorer import settings
from focus_explorer.errors import InputError, TextError
from focus_explorer.progress import Progress, StageBar, no_stages
from focus_explorer.usecases.centroids.files import load_named_centroids
from focus_explorer.usecases.models import LoadedModel
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.training.domains import gather_domains, parse_domains
from focus_explorer.words import counted
from focus_runtime.text.special import DEFAULT

SAVE_EVERY = 5  # measurements between writings of an unfinished search
FEWEST = 2  # sequences of a domain that an interval needs


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneRequest:
    """A search.

    Attributes:
        text: calibration text by domain, NAME=PATH each, or paths alone; see `parse_domains`.
        held_out: text for the check, likewise, and left out of `text`; when empty, other sequences of the calibration
            text.
        out: centroid files to write, one for each target.
        window_growth: positions from which to which windows grow, see `FocusConfig`; the file's when None.
        loss, pairs: the targets, one or more of one kind; see `Target`. All are looked for by the same estimates.
        top_ks, windows: top-k and windows that single heads may get, besides full attention; top-k 0 is no groups.
        by_query: whether query heads that share a key-value head may get different ones.
        sequences: calibration sequences of each domain, of the shortest length; of longer ones as many tokens.
        held_out_sequences: those of the check, likewise.
        seq_lens: tokens of a sequence; of several lengths each is read, and pairs are counted at the shortest.
        device, dtype: as `place` takes them.
        backend: of Focus attention, see `focus_attention`.
        write_best: write the closest budget where none meets a target.
        resume: continue an unfinished search for the same files.
        special_tokens: "auto" where every sequence begins with what the tokenizer puts before a text, or "none".
    """

    text: tuple[str, ...]
    out: tuple[str, ...]
    held_out: tuple[str, ...] = ()
    model: str = settings.SETTINGS["model"].default
    centroids: str = settings.SETTINGS["centroids"].default
    loss: tuple[float, ...] = ()
    pairs: tuple[float, ...] = ()
    top_k: int | None = None
    window: int | None = None
    window_growth: tuple[int, int] | None = None
    num_sinks: int | None = None
    top_ks: tuple[int, ...] = (0, 2)
    windows: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    by_query: bool = True
    sequences: int = 6
    held_out_sequences: int = 8
    seq_lens: tuple[int, ...] = (1024,)
    device: str = "auto"
    dtype: str = "auto"
    backend: str = "auto"
    write_best: bool = False
    resume: bool = False
    special_tokens: str = DEFAULT


@dataclass(frozen=True, slots=True)
class Tuned:
    """What a search found for one target.

    Attributes:
        record: as it is kept in the file.
        budget: chosen, JSON-ready.
        written: the file, or None where the target was not met.
    """

    record: dict[str, Any]
    budget: list[dict[str, Any]]
    written: Path | None


def tune(
    service: Service,
    request: TuneRequest,
    *,
    bar: StageBar = no_stages,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[Tuned]:
    """Search, check on held-out text, write the files; in the order of the targets.

    Args:
        service: whose model and centroid files are used.
        request: what is searched.
        bar: opens a progress display.
        cancelled: asked after every measurement; True raises `Cancelled`, and `resume` continues.

    Raises:
        InputError: text, target, model or centroids cannot be used, or a file not written.
    """
    targets = _targets(request)
    texts, held_out = _texts(request)
    with bar() as progress:
        progress("Loading the model", 0.0)
        with service.models.lease(request.model, device=request.device, dtype=request.dtype) as loaded:
            return _Search(service, request, loaded, progress, cancelled).run(texts, held_out, targets)


def _targets(request: TuneRequest) -> dict[Path, Any]:
    """What is looked for, by the file it is written to."""
    from focus_runtime.files import cannot_write, check_writable
    from focus_runtime.fit.budget.record import resume_path
    from focus_runtime.fit.budget.search import Target

    targets = [*(Target(loss=loss) for loss in request.loss), *(Target(pairs=pairs) for pairs in request.pairs)]
    paths = [Path(os.path.expanduser(out)) for out in request.out]
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


def _texts(request: TuneRequest) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Texts of the search, without those of the check, and of the check.

    By domain; the domain of texts without a name is "text".
    """
    words = parse_domains(request.text, "--text", weighted=False)
    check = parse_domains(request.held_out, "--held-out", weighted=False)
    read = gather_domains(words, check), gather_domains(check)
    searched, checked = ({domain.name or "text": domain.texts for domain in domains} for domains in read)
    return searched, checked


class _Search:
    """One search with what it needs."""

    def __init__(
        self,
        service: Service,
        request: TuneRequest,
        loaded: LoadedModel,
        progress: Progress,
        cancelled: Callable[[], bool],
    ) -> None:
        self.service, self.request, self.loaded = service, request, loaded
        self.progress, self.cancelled = progress, cancelled

    def run(self, texts: dict[str, list[str]], held_out: dict[str, list[str]], targets: dict[Path, Any]) -> list[Tuned]:
        """The whole search on one loaded model."""
        from focus_runtime.composition.attach import compose
        from focus_runtime.fit.budget.record import forget_progress, resume_path, summary, verify

        request = self.request
        calibration, check = self._sequences(texts, held_out)
        centroids = load_named_centroids(self.service.database, request.centroids)
        if centroids is None:
            raise InputError("random centroids cannot be tuned", expected="a centroid file")
        focus = compose(
            self.loaded.model,
            centroids,
            top_k=request.top_k,
            window=request.window,
            window_growth=request.window_growth,
            num_sinks=request.num_sinks,
            budget=(),
            backend=request.backend,
        )
        try:
            meter, results = self._searched(focus, calibration, targets, centroids)
            self.progress("Held-out text", 0.9)
            checked = verify(focus, [result.offered.budget for result in results], check)
            config = focus.config
        finally:
            focus.detach()
        found = [
            self._kept(result, summary(meter, result, target, rows), replace(centroids, config=config), out)
            for (out, target), result, rows in zip(targets.items(), results, checked, strict=True)
        ]
        if all(tuned.written is not None for tuned in found):
            forget_progress(resume_path(next(iter(targets))))
        return found

    def _kept(self, result: Any, record: dict[str, Any], centroids: Any, out: Path) -> Tuned:
        """The budget found for one target, written where it meets the target.

        Args:
            result: of one search.
            record: of it, as it is kept.
            centroids: without a budget.
            out: file to write.
        """
        from focus_runtime.fit.budget.record import to_json
        from focus_runtime.routing.centroid_file import save_centroids

        budget = result.offered.budget
        written = result.chosen is not None or self.request.write_best
        if "balanced" in centroids.training:  # so that a file balanced anew says that this is older
            record = record | {"balanced": centroids.training["balanced"]}
        if centroids.config.window_growth is not None:
            record = record | {"window_growth": list(centroids.config.window_growth)}
        record = record | {"text_sinks": centroids.config.text_sinks}
        if written:
            config, training = centroids.config.replace(budget=budget), centroids.training | {"budget": record}
            save_centroids(replace(centroids, config=config, training=training), out)
        return Tuned(record, to_json(budget), out if written else None)

    def _searched(
        self, focus: Any, calibration: dict[str, Any], targets: dict[Path, Any], centroids: Any
    ) -> tuple[Any, list[Any]]:
        """The meter and what was found for every target, by the same estimates; nothing is measured twice."""
        from focus_runtime.errors import Cancelled
        from focus_runtime.fit.budget import record
        from focus_runtime.fit.budget.meter import BudgetMeter
        from focus_runtime.fit.budget.search import Progress, search

        request, choices = self.request, self._settings(focus.config)
        path = record.resume_path(next(iter(targets)))
        identity = self._identity(focus, calibration, centroids.sha256) | {
            "settings": [asdict(one) for one in choices],
            "by_query": request.by_query,
        }
        self.progress("Measuring without a budget", 0.02)
        meter = BudgetMeter(focus, calibration)

        own = self._own_budget(meter, centroids, choices)
        results: list[Any] = []

        def on_step(done: int, total: int) -> None:
            share = (len(results) + done / max(total, 1)) / len(targets)
            latest = next(reversed(state.known.values()), None)
            loss = f", loss {latest.loss:.3f}" if latest is not None else ""
            self.progress(f"{done} of about {total} measurements{loss}", 0.05 + 0.85 * share)
            stop = self.cancelled()
            if stop or done % SAVE_EVERY == 0:
                record.save_progress(path, identity, state)
            if stop:
                raise Cancelled("stopped")

        state = Progress(on_step)
        if request.resume and path.exists():
            record.load_progress(path, identity, state)
        try:
            for target in targets.values():
                results.append(search(meter, choices, target, state, by_query=request.by_query, own=own))
            record.save_progress(path, identity, state)  # the check may be stopped, or meet no target
        except KeyboardInterrupt:
            record.save_progress(path, identity, state)
            raise
        return meter, results

    def _own_budget(self, meter: Any, centroids: Any, choices: Collection[Any]) -> tuple[Any, ...]:
        """The budget that the file has; none where the search could not give it or this model lacks its heads."""
        from focus_runtime.errors import ConfigError
        from focus_runtime.models.structure import head_counts

        file, model = centroids.config, meter.focus.model
        if (file.top_k, file.window) != (meter.usual.top_k, meter.usual.window):
            return ()
        try:
            centroids.check_budget(model, file.budget)
        except ConfigError:
            return ()
        groups = [group for layer in centroids.routers for group in file.head_groups(layer, head_counts(model))]
        given = {meter.usual, *choices}
        allowed = all(one.setting in given and (self.request.by_query or not one.by_query) for one in groups)
        return file.budget if allowed else ()

    def _settings(self, config: Any) -> tuple[Any, ...]:
        """Every combination of top-k and window that a head may get, and full attention.

        Groups beside a window of half the text are left out: little is beyond it.
        """
        from focus_runtime.budget import HeadSetting
        from focus_runtime.mask.rule import PairRule

        top_ks = dict.fromkeys([config.top_k, *self.request.top_ks])
        windows = dict.fromkeys([config.window, *self.request.windows])
        for top_k in top_ks:
            config.replace(top_k=top_k or 1)  # refuses what the centroids do not have
        for window in windows:
            config.replace(window=window)
        longest = max(self.request.seq_lens)
        near = {window: PairRule.of(config, window).near(longest - 1) for window in windows}
        settings = [HeadSetting(k, w) for k in top_ks for w in windows if k == 0 or near[w] < longest // 2]
        return (*settings, HeadSetting(0, 0, full=True))

    def _sequences(
        self, texts: dict[str, list[str]], held_out: dict[str, list[str]]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Calibration and held-out sequences by domain, or by domain and length where there are several."""
        request = self.request
        if min(request.seq_lens, default=0) < 16:
            raise InputError(f"--seq-len is {min(request.seq_lens, default=0)}", expected="at least 16")
        if request.sequences < 1 or request.held_out_sequences < FEWEST:
            raise InputError(
                f"{request.sequences} calibration and {request.held_out_sequences} held-out sequences",
                expected=f"at least 1 and {FEWEST} of each domain",
            )
        if held_out:
            check = self._at_lengths(held_out, request.held_out_sequences, FEWEST)
            return self._at_lengths(texts, request.sequences, 1), check
        length, *longer = sorted(set(request.seq_lens))
        if longer:
            raise InputError(
                f"--seq-len names {1 + len(longer)} lengths, and no text is given for the check",
                expected="text of its own for it: sequences of different lengths overlap",
                fix="give --held-out, or one length",
            )
        calibration, check = {}, {}
        for name, own in texts.items():
            every = self._cut(name, own, request.sequences + request.held_out_sequences, FEWEST + 1, length)
            used = min(request.sequences, every.shape[0] - FEWEST)
            places = [round(i * (every.shape[0] - 1) / max(1, used - 1)) for i in range(used)]
            others = [place for place in range(every.shape[0]) if place not in places]
            calibration[name], check[name] = every[places], every[others]
        return calibration, check

    def _at_lengths(self, texts: dict[str, list[str]], count: int, fewest: int) -> dict[str, Any]:
        """Sequences of every length, shortest first: `count` a domain of that one, of the others as many tokens."""
        first, *longer = sorted(set(self.request.seq_lens))
        found = {name: self._cut(name, own, count, fewest, first) for name, own in texts.items()}
        if longer:
            found = {_at(name, first): ids for name, ids in found.items()}
        for length in longer:
            fewer = max(fewest, round(count * first / length))
            found |= {_at(name, length): self._cut(name, own, fewer, fewest, length) for name, own in texts.items()}
        return found

    def _cut(self, name: str, texts: list[str], count: int, fewest: int, length: int) -> Any:
        from focus_runtime.text.sequences import encode_texts, even_sequences

        ids = encode_texts(self.loaded.tokenizer, texts, 1, self.request.special_tokens)
        if ids.numel() < fewest * length:
            raise TextError(
                f"the domain {name!r} has {ids.numel():,} tokens",
                expected=f"at least {fewest * length:,}: {fewest} sequences of {length:,}",
                fix="give more text or a shorter --seq-len",
            )
        return even_sequences(ids, count, length)

    def _identity(self, focus: Any, calibration: dict[str, Any], centroids: str) -> dict[str, Any]:
        digest = hashlib.sha256()
        for name, ids in calibration.items():
            digest.update(name.encode() + b"\0" + ids.cpu().numpy().tobytes())
        return {
            "model": self.loaded.fingerprint,
            "centroids": centroids,
            "config": focus.config.to_json(),
            "calibration": digest.hexdigest(),
            "dtype": str(focus.model.dtype),
            "device": str(focus.model.device),
        }


def _at(name: str, length: int) -> str:
    return f"{name}, {length:,} tokens"


def describe(tuned: Tuned) -> str:
    """The result as text."""
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
    """JSON-ready."""
    values = asdict(tuned)
    values["written"] = None if tuned.written is None else str(tuned.written)
    return values
