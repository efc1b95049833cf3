"""Use cases shared by the command line and the page; the only caller of the runtime, the store and the queries."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from focus_explorer import settings
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import ConfigError, InputError, NotFoundError, TextError
from focus_explorer.exports.tables.write import write_table
from focus_explorer.services import maps
from focus_explorer.services.run_payload import load_run
from focus_explorer.views.run import mask_payload
from focus_runtime.assets import asset_path
from focus_runtime.config import FocusConfig
from focus_runtime.routing.centroid_file import load_centroids
from focus_runtime.routing.centroids import Centroids, random_centroids
from focus_runtime.store.centroids import register_centroids
from focus_runtime.store.database import Database
from focus_runtime.store.runs import write_run
from focus_runtime.text.tokens import decode_text

Progress = Callable[[str, float], None]
CALIBRATION_TOKENS = 2048
SAMPLES = {"Novel": "novel.txt", "Source code": "code.txt", "Dialogue": "dialogue.txt", "French": "french.txt"}


@dataclass(frozen=True, kw_only=True, slots=True)
class AnalyzeRequest:
    """What a user asks for; None means the centroid file's own setting."""

    model: str = settings.SETTINGS["model"].default
    centroids: str = settings.SETTINGS["centroids"].default
    top_k: int | None = None
    window: int | None = None
    num_sinks: int | None = None
    assignment: str | None = None
    max_tokens: int | None = None
    repeats: int | None = None


@dataclass(slots=True)
class _LoadedModel:
    name: str
    model: Any
    tokenizer: Any
    fingerprint: str


def sample_text(name: str) -> str:
    """One of the texts that ship with the project."""
    return asset_path("samples", SAMPLES[name]).read_text(encoding="utf-8").strip()


def calibration_ids(tokenizer: Any) -> list[int]:
    """The tokens of the sample texts that groups are balanced on where nothing better is known."""
    text = "\n\n".join(sample_text(name) for name in SAMPLES)
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    return ids[:CALIBRATION_TOKENS]


def check_size(size: int, name: str) -> None:
    """Refuse more bytes of text than can be handled.

    Raises:
        TextError: more than `settings.MAX_TEXT_BYTES`.
    """
    if size > settings.MAX_TEXT_BYTES:
        raise TextError(
            f"{name} has {size / 2**20:.0f} MB{' or more' if size == settings.MAX_TEXT_BYTES + 1 else ''}",
            expected=f"at most {settings.MAX_TEXT_BYTES / 2**20:.0f} MB of text",
            fix="cut it, for example with `head -c 1000000`",
        )


def read_text_file(path: Path) -> str:
    """A text file's content.

    Raises:
        TextError: missing, unreadable, too large, or not text.
    """
    try:
        check_size(path.stat().st_size, path.name)
        return decode_text(path.read_bytes(), path.name)
    except OSError as error:
        raise TextError(
            f"cannot read {path}: {error.strerror}", expected="a text file, or - for standard input"
        ) from error


def read_text_stream(stream: BinaryIO, name: str) -> str:
    """The text of a stream such as standard input, of which no more is read than a text may have.

    Raises:
        TextError: too large, or not text.
    """
    data = stream.read(settings.MAX_TEXT_BYTES + 1)
    check_size(len(data), name)
    return decode_text(data, name)


class Service:
    """One database and at most one loaded model at a time; safe to call from several threads."""

    def __init__(self, database: str | Path | None = None) -> None:
        self.database = Database(database or settings.default_database())
        self._loaded: _LoadedModel | None = None
        self._model_lock = threading.RLock()
        self._projection_lock = threading.Lock()

    # models and centroids

    def load_model(self, name: str) -> _LoadedModel:
        """The named model; the one loaded last is kept."""
        from focus_runtime.models.loading import fingerprint, load_model

        with self._model_lock:
            if self._loaded is None or self._loaded.name != name:
                self._loaded = None
                model, tokenizer = load_model(name, cache_dir=settings.cache_dir())
                self._loaded = _LoadedModel(name, model, tokenizer, fingerprint(model))
            return self._loaded

    def load_centroids(self, name: str) -> Centroids | None:
        """Centroids by name: default, an uploaded file's name or hash, a path; None for random, which need a model."""
        if name == "random":
            return None
        centroids = load_centroids(self._centroid_path(name))
        uploaded = {row["sha256"]: row["name"] for row in self.centroid_files()}
        centroids.name = "default" if name == "default" else uploaded.get(centroids.sha256, centroids.name)
        return centroids

    def _fit(self, centroids: Centroids | None, loaded: _LoadedModel, request: AnalyzeRequest) -> Centroids:
        """Check centroids against a model, or draw random ones for it."""
        if centroids is None:
            asked = {"top_k": request.top_k, "window": request.window}
            config = FocusConfig().replace(**{key: value for key, value in asked.items() if value is not None})
            centroids = random_centroids(loaded.model, config)
        _check_model(centroids, loaded)
        return centroids

    def _centroid_path(self, name: str) -> str:
        """Where a named file lies: an upload by hash, a path, or the newest upload of that name."""
        path = os.path.expanduser(name)
        if name == "default":
            return name
        for row in self.centroid_files():
            if name == row["sha256"] or (name == row["name"] and not os.path.exists(path)):
                return str(row["path"])
        if os.path.exists(path) or Path(name).suffix:
            return path
        raise NotFoundError(
            f"there are no centroids {name!r}", expected="default, random, a file, or an uploaded file's name"
        )

    def _calibrate(self, loaded: _LoadedModel, centroids: Centroids) -> None:
        import torch

        from focus_runtime.training.calibrate import calibrate_potentials

        ids = calibration_ids(loaded.tokenizer)
        calibrate_potentials(
            loaded.model, centroids, torch.tensor([ids], device=next(loaded.model.parameters()).device)
        )
        note = f"group balance (column potentials) estimated on {len(ids):,} tokens of the sample texts"
        centroids.warnings[:] = [w for w in centroids.warnings if "column potentials" not in w] + [note]

    def check_centroids(self, path: str | Path, model: str | None = None) -> tuple[Centroids, list[str]]:
        """Validate a centroid file, against a model too when one is named.

        Returns:
            The centroids and a readable report.
        """
        centroids = load_centroids(path)
        if model is not None:
            _check_model(centroids, self.load_model(model))
        config = centroids.config
        report = [
            f"{len(centroids.routers)} layers, K = {config.num_groups} groups, routing size {config.routing_dim}, "
            f"hidden size {centroids.hidden_size}",
            f"made for {centroids.base_model or 'a model it does not name'}"
            + (f"; fits {model}" if model is not None else ""),
            f"trained for top-k {config.top_k}, window {config.window}, {config.num_sinks} sinks, "
            f"temperature {config.temperature:g}, {config.gate} gate",
            "column potentials present" if centroids.has_potentials else "no column potentials",
            *(f"note: {warning}" for warning in centroids.warnings),
        ]
        return centroids, report

    def add_centroids(self, path: str | Path, name: str, model: str | None) -> list[str]:
        """Validate a file, keep a copy beside the database and remember it.

        Args:
            model: check that it fits this one; None when the file was made from the model.

        Raises:
            InputError: the file is bad; nothing is kept.
        """
        centroids, report = self.check_centroids(path, model)
        centroids.name = name
        target = self.database.path.parent / "centroids" / f"{centroids.sha256}{Path(path).suffix.lower()}"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_suffix(".part")
            shutil.copyfile(path, part)
            part.replace(target)
        except OSError as error:
            raise InputError(
                f"cannot keep the file in {target.parent}: {error.strerror}", fix="free some space"
            ) from error
        register_centroids(self.database, centroids, report, str(target))
        return report

    def centroid_files(self) -> list[dict[str, Any]]:
        """Uploaded centroid files, newest first."""
        return fetch(self.database, "centroid_files").to_pylist()

    def shipped_centroids(self) -> list[dict[str, Any]]:
        """The default file in the form of a `centroid_files` row."""
        centroids = load_centroids("default")
        config = centroids.config
        return [
            {
                "name": "default",
                "sha256": centroids.sha256,
                "base_model": centroids.base_model,
                "config": config.to_json(),
                "num_groups": config.num_groups,
                "routing_dim": config.routing_dim,
                "layers": len(centroids.routers),
            }
        ]

    # runs

    def analyze(
        self,
        text: str,
        request: AnalyzeRequest,
        *,
        command: str = "",
        progress: Progress = lambda stage, fraction: None,
        cancelled: Callable[[], bool] = lambda: False,
        announce: Callable[[str], None] = lambda message: None,
    ) -> str:
        """Analyse a text and store the run.

        Returns:
            The run's id.

        Raises:
            InputError: text, model, centroids or settings cannot be used, or the database not written.
        """
        from focus_runtime.run.engine import RunOptions, analyze
        from focus_runtime.text.tokens import check_text

        check_text(text)
        if request.max_tokens is not None and request.max_tokens < 2:
            raise ConfigError(f"max_tokens is {request.max_tokens}", expected="at least 2")
        if request.repeats is not None and request.repeats < 1:
            raise ConfigError(f"repeats is {request.repeats}", expected="at least 1")
        with self.database.write():  # learn about a full disk or a foreign file before minutes of work
            pass
        with self._model_lock:
            progress("Loading the model", 0.0)
            read = self.load_centroids(request.centroids)  # before the model: a bad file is known at once
            loaded = self.load_model(request.model)
            centroids = self._fit(read, loaded, request)
            assignment = request.assignment or centroids.config.assignment
            if assignment == "causal" and not centroids.has_potentials:
                progress("Balancing the groups", 0.01)
                self._calibrate(loaded, centroids)
            options = RunOptions(
                top_k=request.top_k,
                window=request.window,
                num_sinks=request.num_sinks,
                assignment=request.assignment,
                max_tokens=request.max_tokens,
                repeats=request.repeats,
            )
            trace = analyze(
                loaded.model,
                loaded.tokenizer,
                text,
                centroids,
                options,
                model_id=loaded.name,
                model_fingerprint=loaded.fingerprint,
                progress=progress,
                cancelled=cancelled,
                announce=announce,
            )
        progress("Saving", 0.98)
        return write_run(self.database, trace, command=command)

    def runs(self) -> list[dict[str, Any]]:
        """Complete runs, newest first, with perplexities and sparsity."""
        return [_readable(row) for row in fetch(self.database, "runs").to_pylist()]

    def summary(self, run_id: str) -> dict[str, Any]:
        """The numbers of one run, as `analyze --json` prints them."""
        run = _readable(fetch_run(self.database, run_id))
        timings: dict[str, dict[str, Any]] = {}
        for row in fetch(self.database, "timings", run_id=run_id).to_pylist():
            spread = {key: row[key] for key in ("median", "low", "high", "repeats")}
            timings.setdefault(row["stage"], {})[row["mode"]] = spread
            timings[row["stage"]].setdefault("peak_memory_bytes", {})[row["mode"]] = row["peak_memory_bytes"]
        layers = fetch(self.database, "layers", run_id=run_id).to_pylist()
        far = [layer["group_only"] + layer["dropped"] for layer in layers]
        kept = [layer["group_only"] / total for layer, total in zip(layers, far, strict=True) if total]
        return {
            "run_id": run_id,
            "num_tokens": run["num_tokens"],
            "scored_tokens": run["num_tokens"] - 1,
            "perplexity": {"full": run["perplexity_full"], "focus": run["perplexity_focus"]},
            "retained_pairs": run["retained_pairs"],
            "distant_pairs_kept": float(np.mean(kept)) if kept else None,
            "dominance": run["dominance"],
            "milliseconds": timings,
            "config": run["config"],
            "model": run["model_id"],
            "centroids": run["centroids_name"],
            "device": run["device"],
            "dtype": run["dtype"],
            "backend": run["backend"],
            "notes": run["notes"],
            "db": str(self.database.path),
        }

    def run_payload(self, run_id: str) -> dict[str, Any]:
        """What the page draws a run from."""
        return load_run(self.database, run_id)

    def mask_payload(self, run_id: str, layer: int) -> dict[str, Any]:
        """Pair counts of one layer in blocks."""
        rows = fetch(self.database, "mask", run_id=run_id, layer=layer)
        if not rows.num_rows:
            raise NotFoundError(f"run {run_id!r} has no layer {layer}", fix="choose a layer of this run")
        return mask_payload(rows)

    def projection_payload(self, run_id: str, layer: int | None, *, quick: bool = False) -> dict[str, Any]:
        """A layer's 2-d map, or that of all layers for None; computed and stored when asked for the first time.

        With `quick` a map that is not stored yet is replaced by a PCA (`preliminary`).
        """
        if quick:
            return maps.quick_map(self.database, run_id, layer)
        with self._projection_lock:
            return maps.stored_map(self.database, run_id, layer)

    def export(self, run_id: str, what: str, file_format: str, out: str | Path) -> Path:
        """Write one table of a run."""
        return write_table(self.database, run_id, what, file_format, out)

    def explore_sample(self, request: AnalyzeRequest, progress: Progress) -> str:
        """Explore a sample text and draw the map it opens with, so that the page is never blank."""
        run_id = self.analyze(sample_text("Novel"), request, command="focus-explorer serve", progress=progress)
        self.projection_payload(run_id, self.summary_layer(run_id))
        return run_id

    def summary_layer(self, run_id: str) -> int:
        """The layer a run opens at: the middle one."""
        layers = [row["layer"] for row in fetch(self.database, "layers", run_id=run_id).to_pylist()]
        return layers[len(layers) // 2]


def _check_model(centroids: Centroids, loaded: _LoadedModel) -> None:
    """Refuse centroids for a model of another shape; warn when only the weights are other ones."""
    centroids.check_fits(loaded.model)
    if centroids.base_fingerprint and centroids.base_fingerprint != loaded.fingerprint:
        centroids.warnings.append(
            f"trained on {centroids.base_model or 'a model'} with other weights than {loaded.name} has"
        )


def _readable(run: dict[str, Any]) -> dict[str, Any]:
    return run | {name: json.loads(run[name]) for name in ("config", "versions", "notes")}
