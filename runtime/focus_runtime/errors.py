"""The exceptions that tell a user what to change. Everything else that is raised is our own defect."""

from __future__ import annotations


class InputError(ValueError):
    """Something a user gave cannot be used; the message says what it was, what was expected and what to do."""

    def __init__(self, problem: str, *, expected: str = "", fix: str = "") -> None:
        self.problem, self.expected, self.fix = problem, expected, fix
        parts = [problem.rstrip(".")]
        if expected:
            parts.append("expected " + expected.rstrip("."))
        if fix:
            parts.append(fix.rstrip("."))
        super().__init__("; ".join(parts))


class ConfigError(InputError):
    """A setting is unknown or out of range."""


class ModelError(InputError):
    """A model cannot be found, loaded or composed with Focus."""


class DeviceError(InputError):
    """This machine has no such device, or the device cannot compute in that precision or has no memory left."""


class CentroidFileError(InputError):
    """A centroid file is damaged, unsafe, or made for another model."""


class TextError(InputError):
    """A text cannot be analysed."""


class MemoryShortError(TextError):
    """What is read of a text at a time needs more memory than there is."""


class StoreError(InputError):
    """The database cannot be opened, read or written."""


class StoreBusyError(StoreError):
    """Another program is using the database; it may be free again in a moment."""


class TrainingError(InputError):
    """A training cannot start, continue or be resumed."""


class TrainingStopped(Exception):  # noqa: N818 - it is no error
    """The user stopped a training; `step` steps are kept in the checkpoint `path`, or nothing when it is None."""

    def __init__(self, step: int, path: object) -> None:
        self.step, self.path = step, path
        super().__init__(f"stopped after step {step}" + ("" if path is None else f"; kept in {path}"))


class Cancelled(Exception):  # noqa: N818 - it is no error
    """The user stopped a computation; nothing of it is kept."""


def first_line(error: Exception) -> str:
    """What another package's exception says, at most 200 characters; its type where it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
