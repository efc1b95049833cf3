"""What every reproduced table needs: the model, the texts, trained centroids (kept on disk) and scores.

Centroids are trained once for a setting and looked up by its hash, so that tables share them and an interrupted
reproduction resumes where it stopped. Rows of methods are kept in the same way.
"""

from __future__ import annotations

import copy
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.composition.modes import SoftGate
from focus_runtime.config import FocusConfig
from focus_runtime.errors import TextError
from focus_runtime.files import cannot_write, replacing
from focus_runtime.fit.centroids import train_centroids
from focus_runtime.fit.inputs import texts_sha256
from focus_runtime.fit.loop import NO_GROUPS, Loop
from focus_runtime.fit.objective import language_loss
from focus_runtime.fit.settings import Recipe, TrainConfig, TrainStep, recipe_named
from focus_runtime.measure.perplexity import Scores, score
from focus_runtime.measure.timing import machine
from focus_runtime.models.devices import input_device, native_dtype
from focus_runtime.models.loading import fingerprint, load_model
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from focus_runtime.routing.centroids import Centroids
from focus_runtime.run.random_baseline import random_baseline
from focus_runtime.text.sequences import encode_texts, even_sequences
from focus_runtime.version import __version__
from paper.lab.scale import Scale
from paper.output.report import Report, Row, plain_values, read_json

CALIBRATION = 16  # training sequences on which potentials of untrained centroids are balanced


@contextmanager
def composed(model: Any, centroids: Centroids, **setting: Any) -> Iterator[FocusModel]:
    """Focus on a model until the block ends; `setting` as `compose` takes it."""
    focus = compose(model, centroids, **setting)
    try:
        yield focus
    finally:
        focus.detach()


@dataclass(eq=False)
class Lab:
    """One reproduction's model, data and results.

    Attributes:
        texts, held_out: training and validation texts; `names` has their names.
        folder: where trained centroids and finished rows are kept.
        on_line: receives each line of the log.
        domains: further kinds of text by name, for the report about several.
        recipe_name: recipe that centroids are trained and used by; see `under`.
        tasks: tasks that models answered, with the answers of the model as it is; see answers.py.
    """

    scale: Scale
    model_name: str
    texts: list[str]
    held_out: list[str]
    names: dict[str, list[str]]
    folder: Path
    on_line: Callable[[str], None] = lambda message: None
    cache_dir: Path | None = None
    on: str = "cpu"
    recipe_name: str = "ours"
    domains: dict[str, list[str]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    reports: dict[tuple[str, str], Report] = field(default_factory=dict)
    tasks: dict[str, Any] = field(default_factory=dict)
    _full: dict[Any, Scores] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.started = time.perf_counter()
        self.dtype = native_dtype(self.on) if self.scale.dtype == "auto" else self.scale.dtype
        self.log(f"focus-explorer {__version__}, scale {self.scale.name}, model {self.model_name} in {self.dtype}")
        self.model, self.tokenizer = load_model(
            self.model_name, dtype=self.dtype, device=self.on, cache_dir=self.cache_dir
        )
        self.device = input_device(self.model)
        self.fingerprint = fingerprint(self.model)
        self.train_ids = encode_texts(self.tokenizer, self.texts, self.scale.seq_len + 1)
        self.val_ids = encode_texts(self.tokenizer, self.held_out, self.scale.seq_len)
        # what was kept by a version that read texts without special tokens is not taken for what is read now
        read = [] if self.train_ids.special_tokens is None else ["special tokens", self.train_ids.special_tokens]
        self.data_hash = texts_sha256([*self.texts, "held out", *self.held_out, *read])

    @property
    def recipe(self) -> Recipe:
        """Settings of groups, gate and mask."""
        return recipe_named(self.recipe_name)

    @property
    def seed(self) -> int:
        """Of what is trained once."""
        return self.scale.seeds[0]

    def under(self, recipe_name: str) -> Lab:
        """The same laboratory with another recipe: model, texts, log, answers and all that is kept are shared."""
        other = copy.copy(self)
        other.recipe_name = recipe_name
        return other

    def log(self, message: str) -> None:
        """Report a line to the user, and keep it for the log file with the seconds since the start."""
        self.lines.append(f"{time.perf_counter() - self.started:9.1f}  {message}")
        self.on_line(message)

    def sequences(self, length: int | None = None, count: int | None = None) -> Tensor:
        """(N, T) held-out sequences, evenly spread, never overlapping."""
        length = length or self.scale.seq_len
        if self.val_ids.numel() < length:
            raise TextError(
                f"the held-out text has {self.val_ids.numel():,} tokens",
                expected=f"at least {length:,}",
                fix="give a longer --val text or a smaller --scale",
            )
        return even_sequences(self.val_ids, count or self.scale.val_sequences, length).to(self.device)

    def training_sequences(self, count: int) -> Tensor:
        """(N, T) sequences of the training text, evenly spread."""
        return even_sequences(self.train_ids, count, self.scale.seq_len).to(self.device)

    def config(self, **changes: Any) -> FocusConfig:
        """The recipe's settings at this scale's window, some of them changed."""
        return self.recipe.config(**{"window": self.scale.window} | changes)

    def plan(self, seed: int = 0, **changes: Any) -> TrainConfig:
        """How centroids are trained at this scale."""
        scale = self.scale
        values: dict[str, Any] = {
            "steps": scale.steps,
            "seq_len": scale.seq_len,
            "batch": scale.batch,
            "seed": seed,
            "learning_rate": scale.learning_rate,
            "calibration_sequences": CALIBRATION,
            "steepness": self.recipe.steepness,
        }
        values |= changes
        values.setdefault("warmup", min(20, values["steps"] // 5))
        return TrainConfig(**values)

    def key(self, *parts: Any) -> str:
        """Hash of what a result depends on, with model and texts."""
        text = json.dumps([self.fingerprint, self.dtype, self.data_hash, *parts], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def trained(self, seed: int | None = None, plan: dict[str, Any] | None = None, **config: Any) -> Centroids:
        """Trained centroids of a setting, from disk when an earlier run made them."""
        seed = self.seed if seed is None else seed
        settings, focus = self.plan(seed, **(plan or {})), self.config(**config)
        key = self.key("centroids", asdict(settings), focus.to_json())
        file = self.folder / "centroids" / f"{key}.safetensors"
        if file.exists():
            self.log(f"centroids K={focus.num_groups} seed {seed}: kept from before")
            return load_centroids(file)
        what = f"training centroids K={focus.num_groups} w={focus.window} seed {seed} {plan or ''}{config or ''}"
        centroids = train_centroids(
            self.model,
            self.tokenizer,
            self.texts,
            focus,
            settings,
            model_id=self.model_name,
            on_step=self.steps(what, settings.steps),
            checkpoint=(part := file.with_suffix(".ckpt")),
            resume=part.exists(),
        )
        save_centroids(centroids, file)
        part.unlink(missing_ok=True)
        seconds = centroids.training.get("seconds")  # not known after a resume from an older version's checkpoint
        took = "" if seconds is None else f"{seconds:.0f} s, "
        self.log(f"{what}: {took}final loss {centroids.training['final_loss']}")
        return centroids

    def trained_by_seed(self, **config: Any) -> list[Centroids]:
        """Trained centroids of every seed of the scale."""
        return [self.trained(seed, **config) for seed in self.scale.seeds]

    def steps(self, what: str, total: int) -> Callable[[TrainStep], None]:
        """A callback that logs ten steps of a training."""
        every = max(1, total // 10)

        def report(step: TrainStep) -> None:
            if step.step % every == 0 or step.step == total:
                self.log(
                    f"{what}: step {step.step}/{total} loss {step.loss:.4f} dominance {step.dominance:.3f} "
                    f"(largest layer {step.dominance_max:.3f}) pairs kept {step.retained_pairs:.3f} "
                    f"{step.tokens_per_second:.0f} tokens/s"
                )

        return report

    def random(self, **config: Any) -> Centroids:
        """Untrained centroids whose groups are balanced on training text: the baseline of trained ones."""
        calibrate_on = self.training_sequences(CALIBRATION)
        return random_baseline(self.model, self.config(**config), seed=0, calibrate_on=calibrate_on)

    def full(self, length: int | None = None, count: int | None = None) -> Scores:
        """Full attention on the held-out sequences."""
        key = (length or self.scale.seq_len, count or self.scale.val_sequences)
        if key not in self._full:
            self._full[key] = score(self.model, self.sequences(length, count))
            self.log(f"full attention at {key[0]} tokens: perplexity {self._full[key].perplexity:.3f}")
        return self._full[key]

    def precise_full(self) -> Scores:
        """Full attention in fp32, which models whose weights trained are compared with."""
        if "fp32" not in self._full:
            self._full["fp32"] = score(self.fresh_model(), self.sequences())
            self.log(f"full attention in fp32: perplexity {self._full['fp32'].perplexity:.3f}")
        return self._full["fp32"]

    def focus(
        self, centroids: Centroids, length: int | None = None, count: int | None = None, **setting: Any
    ) -> Scores:
        """Focus on the held-out sequences under the hard mask; `setting` as `compose` takes it."""
        with composed(self.model, centroids, **setting) as focus:
            scores = score(focus, self.sequences(length, count))
        self.log(
            f"Focus K={centroids.config.num_groups} {setting}: perplexity {scores.perplexity:.3f}, pairs kept "
            f"{scores.retained_pairs.mean():.3f}, largest group {scores.dominance.mean():.3f}"
        )
        return scores

    def soft(self, centroids: Centroids) -> Scores:
        """The held-out sequences under the soft gate that centroids were trained with: every pair is computed."""
        gate = SoftGate(centroids.config.gate, centroids.training.get("steepness", self.recipe.steepness))
        with composed(self.model, centroids) as focus, focus.entered(gate):
            scores = score(focus, self.sequences())
        self.log(
            f"Focus K={centroids.config.num_groups}, soft gate {gate.gate}, lambda {gate.steepness:g}: perplexity "
            f"{scores.perplexity:.3f}"
        )
        return scores

    def kept(self, what: str, measure: Callable[[], Row], **depends: Any) -> Row:
        """A measured row, from disk when an earlier run on such a machine measured it.

        Args:
            measure: its cells: numbers, text, lists, dictionaries, intervals and scores.
            depends: what the row depends on beyond model, texts, precision, sequences and window.
        """
        machine_kind = {name: machine(str(self.device)).get(name) for name in ("cpu", "family", "torch")}
        scale = self.scale
        sizes = (scale.seq_len, scale.window, scale.val_sequences, scale.batch)
        file = self.folder / "rows" / f"{self.key('row', what, sizes, machine_kind, depends)}.json"
        cells = read_json(file)
        if isinstance(cells, dict):
            self.log(f"{what}: kept from before")
            return cells
        cells = measure()
        with replacing(file, explain=cannot_write("choose a writable --out folder")) as part:
            part.write_text(json.dumps(plain_values(cells)), encoding="utf-8")
        return cells

    def adapt(
        self,
        what: str,
        network: Any,
        parameters: Sequence[Any],
        rate: float,
        *,
        steps: int,
        handle: Any = None,
        settle: bool = True,
    ) -> None:
        """Train parameters of a network on the language model's own loss, on the same data order as the centroids.

        Args:
            handle: a method on the network with updates of its own after each step.
            settle: afterwards round to the precision of the frozen model it is compared with. Not where all weights
                trained: small updates of large weights would be rounded away.
        """
        settings = self.plan(steps=steps, learning_rate=rate, mixed_precision=self.precision)

        def after(step: int) -> Any:
            if handle is not None:
                handle.after_step()
            return NO_GROUPS

        loop = Loop(
            self.train_ids,
            settings,
            parameters,
            lambda batch: language_loss(network, batch),
            after_step=after,
            phase=what,
        )
        if handle is not None:
            handle.train(True)
        loop.run(self.steps(what, settings.steps))
        if handle is not None:
            handle.train(False)
        if settle:
            network.to(self.full_dtype)

    @property
    def precision(self) -> str:
        """Mixed precision in which weights train, after that of the frozen model."""
        return "bf16" if self.dtype == "bfloat16" else "no"

    @property
    def full_dtype(self) -> torch.dtype:
        """Precision in which the frozen model runs."""
        return next(self.model.parameters()).dtype

    def fresh_model(self) -> Any:
        """A copy of the model in fp32 whose weights may be changed."""
        return copy.deepcopy(self.model).float()

    def setting(self, **more: Any) -> dict[str, Any]:
        """What every table's numbers depend on; of what a report adds or changes, underscores of names are spaces."""
        scale, recipe = self.scale, self.recipe
        return {
            "scale": scale.name,
            "model": self.model_name,
            "dtype": self.dtype,
            "tokens per sequence": scale.seq_len,
            "held-out sequences": int(self.sequences().shape[0]),
            **({"special tokens": self.train_ids.special_tokens} if self.train_ids.special_tokens else {}),
            "training texts": self.names["train"],
            "held-out texts": self.names["val"],
            "recipe": self.recipe_name,
            "gate": "equation 2" if recipe.gate == "paper" else recipe.gate,
            "lambda": recipe.steepness if recipe.gate == "paper" else "none: the log gate has none",
            "window": scale.window,
            "sinks": recipe.num_sinks,
            "assignment": recipe.assignment,
            "N": recipe.sinkhorn_iterations,
            "temperature": recipe.temperature,
            "steps": scale.steps,
            "seeds": [self.seed],
            "machine": machine(str(self.device)),
            **{name.replace("_", " "): value for name, value in more.items()},
        }
