"""Contexts around a training: gradient checkpointing, and signals that wait for the end of an update."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from focus_runtime.errors import ConfigError


@contextmanager
def checkpointing(model: Any, enabled: bool) -> Iterator[None]:
    """Gradient checkpointing while the block runs, without switching dropout on."""
    if not enabled:
        yield
        return
    if not getattr(model, "supports_gradient_checkpointing", False):
        raise ConfigError(f"{type(model).__name__} does not support gradient checkpointing", fix="leave it off")
    keep = {"use_reentrant": False}
    if hasattr(model, "activation_checkpointing_enable"):  # its name in newer transformers
        model.activation_checkpointing_enable(activation_checkpointing_kwargs=keep)
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=keep)
    layers = [m for m in model.modules() if getattr(m, "gradient_checkpointing", False)]
    before = [layer.training for layer in layers]
    for layer in layers:
        layer.training = True  # of the layer alone: its children, dropout among them, stay as they are
    try:
        yield
    finally:
        for layer, training in zip(layers, before, strict=True):
            layer.training = training
        getattr(model, "activation_checkpointing_disable", model.gradient_checkpointing_disable)()


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Dropout is off while the block runs: Focus layers know none, and neither groups nor a teacher should be noisy."""
    before = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Delay SIGINT and SIGTERM until the block ends, so that no half-finished update is kept."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[tuple[int, Any]] = []
    before = {
        one: signal.signal(one, lambda number, frame: received.append((number, frame)))
        for one in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    for number, frame in received:
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)
        elif handler is not signal.SIG_IGN:
            raise KeyboardInterrupt
