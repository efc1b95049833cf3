"""Centroid files for programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from focus_explorer.errors import InputError
from focus_explorer.usecases.centroids.cards import CentroidCards
from focus_explorer.usecases.centroids.copies import use_budget
from focus_explorer.usecases.service import Service


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

    def budgets(self, file: str) -> dict:
        """The budgets that focus-explorer tune measured for a centroid file, with the held-out results of its own one.

        Args:
            file: sha256 of the file, as listed by centroids.
        """
        detail = self.service.part(CentroidCards).detail(file)
        if detail["budgets"] is None:
            raise InputError(f"{detail['name']} holds no measured budgets")
        return dict(detail["budgets"])

    def use_budget(self, file: str, point: int) -> dict:
        """Keep a copy of a centroid file with another of its measured budgets; the same point gives the same copy.

        Args:
            file: sha256 of the file, as listed by centroids.
            point: number of the budget among the points that budgets lists, from 0.
        """
        return dict(use_budget(self.service, file, point))


def functions(service: Service) -> dict[str, Callable[..., Any]]:
    """Name -> function."""
    made = CentroidFunctions(service)
    return {
        "centroids": made.centroids,
        "compare_centroids": made.compare_centroids,
        "budgets": made.budgets,
        "use_budget": made.use_budget,
    }
