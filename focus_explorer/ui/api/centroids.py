"""Centroid files for programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from focus_explorer.services.centroids.cards import CentroidCards
from focus_explorer.services.service import Service


class CentroidFunctions:
    """Functions about centroid files."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def centroids(self) -> list:
        """List the shipped and uploaded centroid files with how they were trained and their held-out results."""
        return self.service.part(CentroidCards).cards()

    def compare_centroids(self, first: str, second: str) -> dict:
        """What changed between two centroid files: settings, and the distance of matched groups in every layer.

        Args:
            first: sha256 of a file, as listed by centroids.
            second: sha256 of another file.
        """
        return dict(self.service.part(CentroidCards).compare(first, second))


def functions(service: Service) -> dict[str, Callable[..., Any]]:
    """Name -> function."""
    made = CentroidFunctions(service)
    return {"centroids": made.centroids, "compare_centroids": made.compare_centroids}
