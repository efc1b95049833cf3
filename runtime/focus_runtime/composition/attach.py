"""Attach Focus to a frozen Hugging Face model through transformers' attention interface, take it off, save and load it.

The model's weights and code are never changed. layer.py defines what one attention module does while Focus is attached.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from torch import nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from focus_runtime.attention.clock import PassClock
from focus_runtime.composition.changes import Change, changed_budget, check_changes, layer_edits
from focus_runtime.composition.check import IMPLEMENTATION as CHECKED
from focus_runtime.composition.check import TOKENS, check_any_left, check_decoder, chosen_layers, passed, run_text
from focus_runtime.composition.documents import focus_mask
from focus_runtime.composition.heads import HeadMask, head_masks, layer_heads, memberships
from focus_runtime.composition.layer import IMPLEMENTATION, check_called, focus_forward, refuse_empty, route
from focus_runtime.composition.modes import Check, Edits, FullAttention
from focus_runtime.composition.state import STATE, Composition, FocusLayer, Mode
from focus_runtime.config import BACKENDS, FocusConfig, FocusSettings
from focus_runtime.errors import ConfigError, InputError, ModelError
from focus_runtime.models.devices import compute_devices, execution_device, input_device
from focus_runtime.models.loading import EMBEDDED, fingerprint, load_base_model
from focus_runtime.models.structure import (
    OTHER_MODEL,
    attention_implementation,
    attention_modules,
    cache_layers,
    head_counts,
    set_attention_implementation,
    sliding_window_of,
)
from focus_runtime.routing.centroid_file import load_place, save_centroids
from focus_runtime.routing.centroids import Centroids
from focus_runtime.routing.places import (
    BASE_MODEL_FOLDER,
    CENTROIDS_FILE,
    Place,
    SavedSettings,
    hub_name,
    locate_centroids,
    write_settings,
)
from focus_runtime.routing.router import Assignment, CentroidRouter

AttentionInterface.register(IMPLEMENTATION, focus_forward)
AttentionMaskInterface.register(IMPLEMENTATION, focus_mask)

Entered = TypeVar("Entered", bound=Mode)


@dataclass(eq=False, kw_only=True)
class FocusModel(Composition):
    """A model with Focus composed onto it; `detach()`, or the end of a `with` block, gives the original back."""

    routers: Mapping[int, CentroidRouter]  # by layer number
    centroids: Centroids
    _hooks: list[Any] = field(default_factory=list)
    _modules: dict[int, nn.Module] = field(default_factory=dict)
    _original: str = ""
    _sliding_layers: str = "auto"
    _disable_compile: bool | None = None

    def _layers(self) -> list[FocusLayer]:
        return [getattr(module, STATE) for module in self._modules.values()]

    def assignments(self) -> dict[int, Assignment]:
        """Groups of the tokens of this thread's last forward pass, by layer; only layers that ran Focus."""
        latest = {layer.index: layer.current_pass.assignment for layer in self._layers()}
        return {index: assignment for index, assignment in latest.items() if assignment is not None}

    @property
    def focused_layers(self) -> list[int]:
        """Layers that run Focus; the others keep their own attention."""
        return [layer.index for layer in self._layers() if layer.router is not None]

    def head_masks(self, config: FocusConfig | None = None) -> dict[int, tuple[HeadMask, ...]]:
        """The pairs that each group of heads of a focused layer used in this thread's last forward pass, or would have
        used with the same groups at other settings, `config`."""
        masks = {}
        for layer in self._layers():
            current = layer.current_pass
            if current.documents is not None:
                raise InputError(
                    "the latest pass read packed documents, and each has its own mask",
                    expected="one text a row",
                    fix="run the documents one by one",
                )
            if current.assignment is not None:
                counts = current.counts or head_counts(self.model)
                heads = layer_heads(config or self.config, layer.index, counts)
                groups = memberships(current.assignment, heads.top_ks, self.config.top_k)
                masks[layer.index] = head_masks(heads, groups, config or self.config, layer.sliding)
        return masks

    def backends(self) -> dict[int, str]:
        """Which backend ran the latest Focus call, by layer; several are joined by commas."""
        return {layer.index: layer.current_pass.backend for layer in self._layers() if layer.current_pass.backend}

    @property
    def backend_names(self) -> str:
        """Every backend of the latest Focus calls once, joined by commas."""
        return ", ".join(sorted({name for joined in self.backends().values() for name in joined.split(", ")}))

    def reset_seconds(self, *, timed: bool = True) -> None:
        """Start the stage clocks again, or stop them."""
        self.seconds = PassClock(enabled=timed, devices=compute_devices(self.model))

    @contextmanager
    def full_attention(self) -> Iterator[nn.Module]:
        """The original model, exactly: its own attention implementation, no routing."""
        before, self.paused = self.paused, True
        set_attention_implementation(self.model, self._original)
        try:
            yield self.model
        finally:
            self.paused = before
            if self._modules and not before:  # not detached in between, and not inside another such block
                set_attention_implementation(self.model, IMPLEMENTATION)

    @contextmanager
    def entered(self, mode: Entered) -> Iterator[Entered]:
        """A pass does something besides executing the settings while the block runs; see modes.py."""
        self.modes = (*self.modes, mode)
        try:
            yield mode
        finally:  # other threads may have entered and left others since
            place = max(number for number, own in enumerate(self.modes) if own is mode)
            self.modes = self.modes[:place] + self.modes[place + 1 :]

    @contextmanager
    def measured_full_attention(self) -> Iterator[nn.Module]:
        """Full attention through torch's SDPA, with the attention calls timed in `seconds`."""
        with self.entered(FullAttention()):
            yield self.model

    @contextmanager
    def with_routers(self, routers: Mapping[int, CentroidRouter]) -> Iterator[nn.Module]:
        """The same layers and settings with other routers of as many groups, on their layers' devices."""
        layers = [layer for layer in self._layers() if layer.router is not None]
        before = [layer.router for layer in layers]
        for layer in layers:
            layer.router = routers[layer.index]
        try:
            yield self.model
        finally:
            for layer, router in zip(layers, before, strict=True):
                layer.router = router

    @contextmanager
    def with_config(self, config: FocusConfig) -> Iterator[nn.Module]:
        """The same layers and routers at other settings."""
        before, self.config = self.config, config
        try:
            yield self.model
        finally:
            self.config = before

    @contextmanager
    def with_changes(self, changes: Sequence[Change], num_tokens: int) -> Iterator[nn.Module]:
        """Tokens moved, linked or silenced by hand, and heads at other settings, in one text of so many tokens."""
        counts = head_counts(self.model)
        check_changes(changes, self.config, num_tokens, self.focused_layers, counts)
        config = self.config.replace(budget=changed_budget(self.config, changes, counts))
        check_any_left(set(self.focused_layers), config, counts)
        edits = Edits(layer_edits(changes, self.focused_layers, config.num_groups))
        with self.with_config(config), self.entered(edits):
            yield self.model

    def detach(self) -> nn.Module:
        """Take Focus off. The model's logits are then the untouched model's, bit for bit. Calling it twice is fine."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        for module in self._modules.values():
            module.__dict__.pop(STATE, None)
        if self._modules:
            set_attention_implementation(self.model, self._original)
            self._allow_compile(True)
        self._modules = {}
        return self.model

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()

    @contextmanager
    def attached(self) -> Iterator[nn.Module]:
        """Put this composition on again after `detach()`; caches that it filled continue."""
        self._attach(self._sliding_layers)
        try:
            yield self.model
        finally:
            self.detach()

    def save_pretrained(
        self, folder: str | os.PathLike[str], *, base_model: str | None = None, base_weights: bool = False
    ) -> str:
        """Save the centroids, the current settings and the model's name; returns the sha256 of the centroid file.

        Args:
            base_model: name that `from_pretrained` loads the model by; what the centroids or the model say when None.
            base_weights: save the model's weights too, into a folder of their own, such as after training them.
        """
        folder = Path(folder)
        current = dataclasses.replace(self.centroids, routers=dict(self.routers), config=self.config)
        digest = save_centroids(current, folder / CENTROIDS_FILE)
        if base_weights:
            with self.full_attention():  # else the files would say that the model's attention is Focus
                self._allow_compile(True)
                try:
                    model: Any = self.model
                    model.save_pretrained(folder / BASE_MODEL_FOLDER)
                finally:
                    self._allow_compile(False)
        settings = SavedSettings(
            sha256=digest,
            base_model=base_model or current.base_model or str(getattr(self.model.config, "name_or_path", "") or ""),
            base_fingerprint=fingerprint(self.model),
            backend=self.backend,
            sliding_layers=self._sliding_layers,
        )
        write_settings(folder, settings)
        return digest

    @staticmethod
    def from_pretrained(
        source: str | os.PathLike[str],
        model: nn.Module | None = None,
        *,
        revision: str | None = None,
        sha256: str | None = None,
        dtype: str = "float32",
        device: str = "cpu",
    ) -> FocusModel:
        """Compose Focus as it was saved. Other settings: `compose(model, load_centroids(source), ...)`.

        Args:
            source: a folder of `save_pretrained`, `user/repo` or `user/repo@revision`, or what `load_centroids` takes.
            model: the base model; None loads the one that was saved or is named.
            dtype, device: of a base model that is loaded, as for `load_model`.

        Raises:
            CentroidFileError: the centroids cannot be had, or are for another model.
            ModelError: the base model cannot be loaded, or no name of it is known.
        """
        place = locate_centroids(source, revision)
        centroids = load_place(place, sha256)
        settings = place.settings or SavedSettings(
            sha256=centroids.sha256, base_model=centroids.base_model, base_fingerprint=centroids.base_fingerprint
        )
        if model is None:
            model = load_base_model(_base_model(place, settings), dtype=dtype, device=device)
            assert model is not None
        if settings.base_fingerprint and settings.base_fingerprint != fingerprint(model):
            warning = f"{place.name} was saved with other weights of {settings.base_model or 'the model'} than these"
            centroids.warnings.append(warning)
            warnings.warn(warning, stacklevel=2)
        return compose(model, centroids, backend=settings.backend, sliding_layers=settings.sliding_layers)

    def _attach(self, sliding_layers: str) -> None:
        self._sliding_layers = sliding_layers
        check_decoder(self.model)
        self._original = attention_implementation(self.model)
        modules = attention_modules(self.model)
        if any(STATE in module.__dict__ for module in modules.values()):
            raise ModelError("this model already has Focus composed onto it", fix="call detach() first")
        sliding = {index: sliding_window_of(module) for index, module in modules.items()}
        focused = chosen_layers(self.model, self.routers, sliding, sliding_layers)
        check_any_left(focused, self.config, head_counts(self.model))
        self._modules, cached = modules, cache_layers(modules)
        for index, module in modules.items():
            router = self.routers[index] if index in focused else None
            module.__dict__[STATE] = FocusLayer(index, router, self, sliding[index], cached[index])
            self._hooks.append(module.register_forward_pre_hook(route, with_kwargs=True))
            self._hooks.append(module.register_forward_hook(check_called))
        self._hooks.append(self.model.register_forward_pre_hook(refuse_empty, with_kwargs=True))
        self._allow_compile(False)
        set_attention_implementation(self.model, IMPLEMENTATION)
        if attention_implementation(self.model) != IMPLEMENTATION:
            self.detach()
            raise ModelError(
                f"{type(self.model).__name__} does not use transformers' attention interface, so Focus cannot reach it",
                fix=OTHER_MODEL,
            )

    def _check(self) -> None:
        """Compare every attention call with the model's own, in a pass with every pair kept; detach if any differs."""
        device, dtype = input_device(self.model), getattr(self.model, "dtype", None)
        what = (tuple(self.focused_layers), self._sliding_layers, self.backend, device, dtype)
        known = passed.setdefault(self.model, set())
        if what in known:
            return
        everything = {"top_k": self.config.num_groups, "window": TOKENS, "budget": (), "text_sinks": None}
        config = self.config.replace(**everything, logit_factors=False)
        before = {index: router.config for index, router in self.routers.items()}
        seconds, self.seconds = self.seconds, PassClock(enabled=False)
        try:
            set_attention_implementation(self.model, CHECKED)
            with self.with_config(config), self.entered(Check()):
                run_text(self.model)
        except BaseException:
            self.detach()
            raise
        finally:
            self.seconds = seconds
            for index, own in before.items():
                self.routers[index].config = own
        known.add(what)
        set_attention_implementation(self.model, IMPLEMENTATION)
        for module, layer in zip(self._modules.values(), self._layers(), strict=True):  # as if nothing had been read
            module.__dict__[STATE] = FocusLayer(layer.index, layer.router, self, layer.sliding, layer.cache_layer)

    def _allow_compile(self, allowed: bool) -> None:
        """`generate` compiles the model with static caches on a GPU; groups are kept by plain Python, which breaks."""
        settings = getattr(self.model, "generation_config", None)
        if settings is None:
            return
        if allowed:
            settings.disable_compile = self._disable_compile
        else:
            self._disable_compile = settings.disable_compile
            settings.disable_compile = True


def _base_model(place: Place, settings: SavedSettings) -> str:
    """The saved weights beside the file, or the name of a model; one from a hub never opens a path of this machine."""
    own = place.path.parent / BASE_MODEL_FOLDER
    if not place.origin and place.settings is not None and (own / "config.json").is_file():
        return str(own)
    name = settings.base_model
    named = hub_name(name)
    if name and (not place.origin or name == EMBEDDED or (named is not None and named.revision is None)):
        return name
    raise ModelError(
        f"{place.name} names no base model that can be loaded" + (f": {name[:80]!r}" if name else ""),
        fix="load the model yourself and pass it: FocusModel.from_pretrained(source, model)",
    )


def on_layers(model: nn.Module, routers: Mapping[int, CentroidRouter]) -> dict[int, CentroidRouter]:
    """The same routers, each moved to the device of its layer."""
    modules = attention_modules(model)
    return {index: router.to(execution_device(modules[index])) for index, router in routers.items()}


def compose(
    model: nn.Module,
    centroids: Any,
    *,
    settings: FocusSettings | None = None,
    backend: str = "auto",
    sliding_layers: str = "auto",
    check: bool = True,
    **chosen: Any,
) -> FocusModel:
    """Compose Focus onto a frozen model; returns a handle with `full_attention()` and `detach()`.

    Args:
        model: a Hugging Face causal language model.
        centroids: `Centroids` from `load_centroids` or `random_centroids`.
        settings: what is chosen in the centroid file's place, as one object.
        backend: attention backend, see `focus_attention`.
        sliding_layers: what layers with a sliding window do. "own": exactly their own attention, Focus on the global
            layers alone. "focus": Focus inside their window, a pair is allowed when both masks allow it. "auto": "own",
            but "focus" where no layer that the centroids cover is global, as in Mistral 7B v0.1.
        check: once per model and configuration of layers, whether 32 tokens are read to compare every attention call
            with the model's own; see composition/check.py.
        chosen: settings by name, before those of `settings`: top_k, window, num_sinks, window_growth, assignment,
            budget and logit_factors, as `FocusSettings` has them. A budget stays in force where top_k is given.

    Raises:
        ConfigError: a setting does not fit the centroids. ModelError: the model cannot take Focus.
        CentroidFileError: the centroids were made for another model. Later, from the model itself, InputError: a
        key-value cache that Focus cannot continue from, or `assignment="sinkhorn"` beyond a cache's first pass.
    """
    if isinstance(model, FocusModel):
        raise ModelError("this is what compose() returned, not a model", fix="call detach() first, then compose again")
    if not isinstance(centroids, Centroids):
        raise InputError(
            f"centroids is {type(centroids).__name__}", expected="Centroids", fix="use load_centroids(name or path)"
        )
    centroids.check_fits(model)
    own = centroids.config if settings is None else settings.of(centroids.config)
    config = FocusSettings(**chosen).of(own)
    if config.logit_factors and any(router.logit_factors is None for router in centroids.routers.values()):
        raise ConfigError("these centroids have no factors of the logits", fix="leave out logit_factors")
    if config.assignment == "causal" and not centroids.has_potentials:
        raise InputError(
            "these centroids carry no column potentials, which causal assignment needs",
            fix="call calibrate_potentials(model, centroids, ids) first, or use assignment='sinkhorn'",
        )
    centroids.check_budget(model, config.budget)
    if backend not in BACKENDS:
        raise InputError(f"backend is {backend!r}", expected="one of " + ", ".join(BACKENDS))
    routers = on_layers(model, centroids.routers)
    clock = PassClock(enabled=input_device(model).type == "cpu")
    focus = FocusModel(model, config, backend, clock, routers=routers, centroids=centroids)
    focus._attach(sliding_layers)
    if check:
        focus._check()
    return focus
