"""A training as a film: what every centroid file that it kept on the way does with one short text."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.usecases.maps import evenly_spaced
from focus_explorer.usecases.run_model import device_here
from focus_explorer.usecases.service import Latest, Service
from focus_explorer.usecases.texts import SAMPLES, sample_text
from focus_explorer.usecases.training.request import snapshots_of
from focus_explorer.views.payloads.centroids import FilmPayload
from focus_explorer.views.run import encode
from focus_runtime.failures import Advice

if TYPE_CHECKING:
    from focus_runtime.config import FocusConfig

TOKENS = 512
SECONDS_OF_WORK = 2.0  # for one request; the page asks again for what is missing
MOST_FRAMES = 32  # of one film; of more files as many are taken, evenly over the training
KEPT_FRAMES = 128  # of all films; of 30 layers and 8 groups 0.4 MB each
PLACE_UNITS = 32_000  # of a place's largest coordinate, so that it fits 16 bits
SMALLER = Advice(fits="close other programs", otherwise="close other programs")


@dataclass(frozen=True, slots=True)
class Frame:
    """What one file does with the text: L layers, T tokens, K groups."""

    layers: list[int]  # numbers of the layers that ran Focus
    top: NDArray[np.uint8]  # (L, T) uint8 most probable group
    probabilities: NDArray[np.float16]  # (L, T, K) float16 of the groups, for their places
    membership: NDArray[np.int64]  # (L, T) int64 bit sets of the configuration's top-k
    config: FocusConfig  # the file's settings, which may have another window than the training had


class Films:
    """Films of trainings; frames are kept, so that a running training's film grows by its newest file. Thread-safe."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._frames: Latest[tuple[Any, ...], Frame] = Latest(KEPT_FRAMES)

    def payload(self, row: dict[str, Any], layer: int | None, text: str) -> FilmPayload:
        """The film of one layer (None: the middle one); of many files only those read within some seconds."""
        if text not in SAMPLES:
            raise NotFoundError(f"there is no sample text {text!r}", expected=", ".join(SAMPLES))
        files = kept_files(row)
        pieces, frames, sliding = self._read(row, files, text)
        layers = list(sliding)
        if layer is not None and layer not in layers:
            raise NotFoundError(
                f"the training {row['name']} has no groups in layer {layer}", expected=", ".join(map(str, layers))
            )
        chosen = layers[len(layers) // 2] if layer is None else layer
        at = layers.index(chosen)
        steps = sorted(frames)
        top = np.stack([frames[step].top[at] for step in steps])
        probabilities = np.stack([frames[step].probabilities[at] for step in steps])
        membership = np.stack([frames[step].membership[at] for step in steps])
        places, spread = common_places(probabilities)
        config = frames[steps[-1]].config
        return {
            "texts": list(SAMPLES),
            "text": text,
            "pieces": pieces,
            "layers": layers,
            "layer": chosen,
            "num_groups": probabilities.shape[-1],
            "top_k": config.top_k,
            "window": config.window,
            "window_growth": config.window_growth,
            "num_sinks": config.num_sinks,
            "has_budget": bool(config.budget),
            "sliding_window": sliding[chosen],
            "steps": steps,
            "top": encode(top),
            "membership": encode(_bytes_of(membership, probabilities.shape[-1])),
            "places": encode(np.round(places * PLACE_UNITS).astype(np.int16)),
            "spread": spread,
            "waiting": len(files) - len(frames),
        }

    def _read(
        self, row: dict[str, Any], files: list[tuple[int, Path]], text: str
    ) -> tuple[list[str], dict[int, Frame], dict[int, int | None]]:
        """Read files until the time is over, one at least: pieces, frames by step and sliding windows by layer."""
        where = {"device": device_here(row["device"]), "dtype": row["dtype"]}
        with self.service.models.lease(row["model_id"], **where, advice=SMALLER) as loaded:
            if loaded.fingerprint != row["model_fingerprint"]:
                raise InputError(
                    f"{row['model_id']} has other weights than when {row['name']} was trained",
                    fix="bring back the weights it was trained on",
                )
            from focus_runtime.models.structure import attention_modules, sliding_window_of
            from focus_runtime.text.tokens import tokenize

            choice = row["settings"].get("special_tokens", "none")  # trainings of 0.2 record none
            tokens = tokenize(loaded.tokenizer, sample_text(text), max_tokens=TOKENS, special_tokens=choice)
            frames: dict[int, Frame] = {}
            started, read = time.monotonic(), 0
            for step, path in files:
                state = path.stat()
                key = (text, str(path), state.st_mtime_ns, state.st_size)
                frame = self._frames.get(key)
                if frame is None:
                    if read and time.monotonic() - started > SECONDS_OF_WORK:
                        continue
                    frame = self._frames.keep(key, _frame(loaded.model, path, tokens.ids))
                    read += 1
                frames[step] = frame
            modules = attention_modules(loaded.model)
            layers = next(iter(frames.values())).layers
            sliding = {layer: sliding_window_of(modules[layer]) for layer in layers}
        return tokens.pieces, frames, sliding


def kept_files(row: dict[str, Any]) -> list[tuple[int, Path]]:
    """Step and path of the centroid files a training kept on this machine, `MOST_FRAMES` at most, the last one last."""
    name = row["name"]
    if row["kind"] != "centroids":
        raise InputError(f"{name} trains the model's weights too, of which none are kept on the way")
    if row["host"] != socket.gethostname():
        raise InputError(f"{name} ran on another machine ({row['host']}), where its files are")
    started = row["created_at"].timestamp()
    files = {
        step: path
        for step, path in snapshots_of(row["out"]).items()
        if step <= row["step"] and path.stat().st_mtime >= started  # not those of an earlier training of that name
    }
    if row["usable"]:
        files[row["step"]] = Path(row["out"])
    if len(files) < 2:
        waits = row["status"] in ("running", "stopping")
        raise InputError(
            f"{name} has kept {len(files)} of its files so far" if waits else f"{name} kept no files on the way",
            expected="two at least" if waits else "",
            fix="wait for more steps"
            if waits
            else "train again: trainings that start here keep some, on the command line those with --snapshots",
        )
    in_order = sorted(files.items())
    return [in_order[at] for at in evenly_spaced(len(in_order), MOST_FRAMES)]


def _frame(model: Any, path: Path, ids: list[int]) -> Frame:
    """What a file does with a text of T tokens at the settings of its use."""
    import torch

    from focus_runtime.composition.attach import compose
    from focus_runtime.models.devices import input_device
    from focus_runtime.routing.centroid_file import load_centroids

    focus = compose(model, load_centroids(path))
    try:
        with torch.no_grad():
            model.base_model(input_ids=torch.tensor([ids], device=input_device(model)), use_cache=False)
        made = focus.assignments()
        probabilities = np.stack([made[layer].probabilities[0].float().cpu().numpy() for layer in made])
        return Frame(
            list(made),
            probabilities.argmax(axis=-1).astype(np.uint8),
            probabilities.astype(np.float16),
            np.stack([made[layer].membership[0].cpu().numpy() for layer in made]),
            focus.config,
        )
    finally:
        focus.detach()  # the model is shared


def common_places(probabilities: NDArray[np.floating]) -> tuple[NDArray[np.float64], float]:
    """(F, T, 2) places from -1 to 1 of the T tokens of F frames in one plane, and the share of variance it shows.

    The plane is that of the two principal components of the square roots of the (F, T, K) probabilities. Their cosine
    is the Bhattacharyya coefficient, so places are near each other where groups are alike, also between frames.
    """
    frames, tokens, groups = probabilities.shape
    points = np.sqrt(probabilities.astype(np.float64)).reshape(-1, groups)
    points -= points.mean(axis=0)
    variances, axes = np.linalg.eigh(points.T @ points)
    plane = axes[:, ::-1][:, :2]
    plane = plane * np.sign(plane[np.abs(plane).argmax(axis=0), np.arange(plane.shape[1])])  # not by chance of signs
    places = points @ plane
    if groups < 2:
        places = np.pad(places, ((0, 0), (0, 1)))
    total = variances.sum()
    spread = float(variances[::-1][:2].sum() / total) if total > 0 else 1.0
    return (places / max(np.abs(places).max(), 1e-6)).reshape(frames, tokens, 2), spread


def _bytes_of(membership: NDArray[np.int64], num_groups: int) -> NDArray[np.uint8]:
    """(…, B) the bit sets in as few bytes as K groups need, the first eight groups in the first."""
    shifts = 8 * np.arange(-(-num_groups // 8))
    return (membership[..., None] >> shifts & 0xFF).astype(np.uint8)
