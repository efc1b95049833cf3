"""Configurations for the browser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from focus_explorer.views.payloads.runs import ConfigPayload
from focus_runtime.budget import budget_digest


def config_payload(config: Mapping[str, Any]) -> ConfigPayload:
    """A configuration as JSON has it; one with a budget says what tells that from others."""
    named = {"budget_id": budget_digest(config["budget"])} if config.get("budget") else {}
    return cast(ConfigPayload, {**config, **named})
