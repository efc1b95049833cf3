"""A corpus on disk: FOLDER/run=ID/document=NUMBER/{tokens,assignments,layers,document}.parquet.

A document is written to a temporary folder and renamed, so that it is complete or absent, whichever worker wrote it and
however often.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from focus_runtime.errors import InputError, StoreError
from focus_runtime.files import PART, remove_parts, replacing, replacing_folder

TABLES = ("tokens", "assignments", "layers", "document")
Tables = dict[str, pa.Table]
_LISTING, _LOCK, _TRY = "listing.parquet", ".lock", ".try-"
_NUMBERED = re.compile(r"document=([0-9]+)")


@dataclass(frozen=True, slots=True)
class CorpusFolder:
    """The folder of one corpus."""

    path: Path

    @classmethod
    def of(cls, folder: str | Path, corpus_id: str) -> CorpusFolder:
        return cls(Path(folder) / f"run={corpus_id}")

    def document(self, number: int) -> Path:
        """Where a document lies once it is done."""
        return self.path / f"document={number}"

    def numbers(self) -> list[int]:
        """Numbers of the documents that are there, in order."""
        if not self.path.is_dir():
            return []
        return sorted(int(match[1]) for name in os.listdir(self.path) if (match := _NUMBERED.fullmatch(name)))

    def files(self, table: str, numbers: list[int] | None = None) -> list[str]:
        """One table's files of some documents, or of all."""
        return [str(self.document(n) / f"{table}.parquet") for n in (self.numbers() if numbers is None else numbers)]

    def tokens_of(self, number: int, text_sha256: str) -> int | None:
        """Tokens of a document that was made from a text; None where it is not there, or was made from another."""
        try:
            rows = pq.read_table(self.document(number) / "document.parquet", columns=["text_sha256", "num_tokens"])
        except (OSError, pa.ArrowException):
            return None
        (row,) = rows.to_pylist()
        return int(row["num_tokens"]) if row["text_sha256"] == text_sha256 else None

    def write(self, number: int, tables: Tables) -> None:
        """Put a document in its place, instead of an earlier version of it."""
        with replacing_folder(
            self.document(number),
            explain=lambda _, error: _unwritable(self.path, error),
            clear=lambda: self.remove(number),  # an earlier text, or another worker's copy of this one
        ) as part:
            for name in TABLES:
                pq.write_table(tables[name], part / f"{name}.parquet", compression="zstd", use_dictionary=_DICTIONARY)

    def remove(self, number: int) -> None:
        """Take a document away."""
        discarded = self.path / f"{PART}{number}-{secrets.token_hex(4)}"
        try:
            os.rename(self.document(number), discarded)
        except FileNotFoundError:
            return
        shutil.rmtree(discarded, ignore_errors=True)

    def attempts(self, number: int) -> int:
        """Number of earlier workers that began this document without ending it; counts this worker in, byte by byte."""
        with (self.path / f"{_TRY}{number}").open("ab") as marks:
            before = marks.tell()
            marks.write(b"x")
        return before

    def ended(self, number: int) -> None:
        """Forget the attempts at a document whose worker has ended it without dying."""
        (self.path / f"{_TRY}{number}").unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what interrupted workers left half written."""
        remove_parts(self.path)
        for path in self.path.glob(f"{_TRY}*"):
            path.unlink(missing_ok=True)

    def numbering(self, names: list[str]) -> tuple[dict[str, int], list[int]]:
        """Number documents by their order, or as before; also the numbers that are no longer in the source."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            listing, before = self.path / _LISTING, {}
            if listing.is_file():
                table = pq.read_table(listing)
                before = dict(zip(table["name"].to_pylist(), table["number"].to_pylist(), strict=True))
            fresh = iter(range(max(before.values(), default=-1) + 1, 1 << 62))
            numbers = {name: before[name] if name in before else next(fresh) for name in names}
            numbered = before | numbers  # a name that comes back gets its number back
            if numbered != before:
                with replacing(listing, explain=None) as part:
                    pq.write_table(pa.table({"number": list(numbered.values()), "name": list(numbered.keys())}), part)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        current = set(numbers.values())
        return numbers, [number for number in self.numbers() if number not in current]

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Let only this process add to the corpus while the block runs; the lock ends with the process."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            stream = (self.path / _LOCK).open("w")
        except OSError as error:
            raise _unwritable(self.path, error) from error
        with stream:
            if not _locked(stream):
                raise InputError(
                    f"the corpus in {self.path} is being worked on",
                    expected="one command at a time",
                    fix="wait for the other one to end, or stop it",
                )
            yield

    def is_worked_on(self) -> bool:
        """Whether a process on this machine is adding to it."""
        try:
            with (self.path / _LOCK).open("r+") as stream:
                return not _locked(stream)
        except OSError:
            return False

    def delete(self) -> bool:
        """Remove the corpus from the disk; False where it was not there."""
        discarded = self.path.with_name(f".deleted-{self.path.name}")
        try:
            os.rename(self.path, discarded)
            shutil.rmtree(discarded)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _unwritable(self.path, error) from error
        return True


_DICTIONARY = ["piece", "pos", "dep", "layer", "top_group", "random_top_group", "membership", "random_membership"]


def _locked(stream: Any) -> bool:
    """Take the lock of an open file; False when another process has it."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return True
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _unwritable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot write to {path}: {error.strerror or error}",
        fix="free some space or choose another --out; documents that are done are kept",
    )
