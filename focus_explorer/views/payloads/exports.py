"""The export dialog."""

from __future__ import annotations

from typing import TypedDict

from focus_explorer.views.payloads.jobs import JobPayload
from focus_explorer.views.payloads.runs import PartPayload


class ExportItemPayload(TypedDict):
    """A table or figure that can be exported."""

    name: str
    about: str
    layers: bool


class PresetPayload(TypedDict):
    """Size of a figure in millimetres."""

    name: str
    about: str
    width: float
    height: float


class MaskLayerPayload(TypedDict):
    """A layer whose masks can be exported: that of each part of its heads; `pairs` it keeps, mean over its heads."""

    layer: int
    pairs: int
    parts: list[PartPayload]


class MaskChoicesPayload(TypedDict):
    """What can be exported of masks; queries are numbered from 0 to one below `tokens`."""

    formats: list[str]
    layers: list[MaskLayerPayload]
    tokens: int


class ExportChoicesPayload(TypedDict):
    """What can be exported of a run."""

    title: str
    kinds: list[str]
    tables: list[ExportItemPayload]
    formats: list[str]
    mask: MaskChoicesPayload
    figures: list[ExportItemPayload]
    figure_formats: list[str]
    report_formats: list[str]
    presets: list[PresetPayload]


class ExportCommandPayload(TypedDict):
    """The command that writes the same file."""

    command: str


class ExportFilePayload(TypedDict):
    """A finished file and its address."""

    name: str
    bytes: int
    address: str


class ExportPayload(TypedDict):
    """An export and its job."""

    id: str
    job: JobPayload
    file: ExportFilePayload | None
