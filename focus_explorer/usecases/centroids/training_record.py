"""Names in what a centroid file says of its training, which may be anything: the file may be anybody's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from focus_explorer.words import counted


def domain_names(record: Any) -> list[str]:
    """Names of the domains of a training, or of what groups were balanced on; none where it names none."""
    domains = record.get("domains") if isinstance(record, Mapping) else None
    names = [one.get("name") for one in domains if isinstance(one, Mapping)] if isinstance(domains, list) else []
    return [name for name in names if isinstance(name, str)]


def balanced_on(training: Mapping[str, Any]) -> list[str]:
    """Text that the groups were balanced on after training: its domains, or how much it was; empty where none was."""
    record = training.get("balanced")
    if not isinstance(record, Mapping):
        return []
    sequences, length = record.get("sequences"), record.get("seq_len")
    if names := domain_names(record):
        return names
    if isinstance(sequences, int) and isinstance(length, int):
        return [f"{counted(sequences, 'sequence')} of {counted(length, 'token')}"]
    return []
