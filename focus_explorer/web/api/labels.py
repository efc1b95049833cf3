"""Names, notes, tags and deletion of runs for programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from focus_explorer.usecases.labels import change_tags, delete_run, label_run, undelete_run
from focus_explorer.usecases.service import Service


class LabelFunctions:
    """Functions that change labels."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def rename(self, run_id: str, name: str) -> dict:
        """Give a run a name; an empty one removes it.

        Args:
            run_id: as listed by runs.
            name: at most 120 characters.
        """
        return dict(label_run(self.service, run_id, name=name))

    def note(self, run_id: str, note: str) -> dict:
        """Write a note to a run; an empty one removes it.

        Args:
            run_id: as listed by runs.
            note: at most 4000 characters.
        """
        return dict(label_run(self.service, run_id, note=note))

    def tag(self, run_id: str, add: str = "", remove: str = "") -> dict:
        """Add and remove tags of a run.

        Args:
            run_id: as listed by runs.
            add: words with commas between.
            remove: words with commas between.
        """
        return dict(change_tags(self.service, run_id, add.split(","), remove.split(",")))

    def delete(self, run_id: str) -> dict:
        """Hide a run at once; it is removed for good 30 days later, and undelete brings it back until then.

        Args:
            run_id: as listed by runs.
        """
        delete_run(self.service, run_id)
        return {"run_id": run_id, "deleted": True}

    def undelete(self, run_id: str) -> dict:
        """Bring a deleted run back.

        Args:
            run_id: the deleted run.
        """
        undelete_run(self.service, run_id)
        return {"run_id": run_id, "deleted": False}


def functions(service: Service) -> dict[str, Callable[..., Any]]:
    """Name -> function."""
    made = LabelFunctions(service)
    return {"rename": made.rename, "note": made.note, "tag": made.tag, "delete": made.delete, "undelete": made.undelete}
