"""The documents of a corpus: files of a folder, lines of a JSONL file, or rows of a Parquet file.

Every document has a number and a name that depend on the source alone. What cannot be analysed becomes a `Skipped`
with the reason; nothing a document holds ends the reading.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from focus_runtime.errors import InputError, MemoryShortError, TextError
from focus_runtime.text.tokens import check_text, decode_text

TEXT_COLUMN, GLOB = "text", "**/*.txt"
LINES, TABLES = (".jsonl", ".ndjson"), (".parquet",)
MAX_BYTES = 20 * 1024 * 1024
ROWS_AT_ONCE = 64
_KINDS = (
    ("binary", "binary"),
    ("NUL character", "binary"),
    ("is empty", "empty"),
    ("surrogate", "not UTF-8"),
    ("UTF-", "not UTF-8"),
    (" MB", "too large"),
    (" characters", "too large"),
    (" positions", "too large"),
    ("more memory", "too large"),
    (" token", "too short"),
    ("not JSON", "not JSON"),
    ("is not text", "not text"),
)


@dataclass(frozen=True, slots=True)
class Document:
    """One text; its name is a path below the folder, or a row, such as `a/b.txt` or `reviews.jsonl:12`."""

    name: str
    text: str

    @property
    def sha256(self) -> str:
        """Hash of the whole text in UTF-8."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Skipped:
    """A document that cannot be analysed: binary, empty, too short, not UTF-8, too large, unreadable, or not text."""

    name: str
    kind: str
    reason: str

    @classmethod
    def because(cls, name: str, error: InputError) -> Skipped:
        """From the error the document caused."""
        kind = next((kind for words, kind in _KINDS if words in error.problem), "other")
        fits = f"; expected {error.expected}" if isinstance(error, MemoryShortError) and error.expected else ""
        return cls(name, kind, error.problem + fits)


def is_corpus(path: str) -> bool:
    """Whether a path means a corpus rather than one text."""
    return os.path.isdir(path) or path.lower().endswith(LINES + TABLES)


@dataclass(frozen=True, slots=True)
class Source:
    """Where documents come from."""

    path: Path  # a folder, a .jsonl or a .parquet file
    glob: str = GLOB  # which files of a folder; JSONL and Parquet files among them give one document for each row
    text_column: str = TEXT_COLUMN  # key or column with the text
    leave_out: Path | None = None  # a folder below `path` that is not searched, such as the one results are written to
    max_bytes: int = MAX_BYTES  # of a document's text in UTF-8, wherever it comes from; longer ones are skipped

    def names(self) -> list[str]:
        """Names of all documents in order, also of those that will be skipped."""
        names = [name for file in self._files() for name in self._names_in(file)]
        if not names:
            raise InputError(f"{self.path} holds no documents", expected="at least one text")
        return names

    def read(self) -> Iterator[Document | Skipped]:
        """All documents in the order of `names`, one at a time."""
        for file in self._files():
            kind = _kind_of(file)
            if kind == "text":
                yield self._text_file(file)
                continue
            try:
                for name, value in self._lines(file) if kind == "lines" else self._rows(file):
                    yield value if isinstance(value, Skipped) else self._document(name, value)
            except InputError as error:
                if file == self.path:
                    raise
                yield Skipped(self._name(file), "unreadable", error.problem)

    def _files(self) -> list[Path]:
        if not self.path.exists():
            raise InputError(f"there is no {self.path}", expected="a folder, or a .jsonl or .parquet file")
        if self.path.is_file():
            return [self.path]
        try:
            matches = [path for path in self.path.glob(self.glob) if path.is_file()]
        except (ValueError, NotImplementedError, IndexError) as error:
            raise InputError(f"the pattern {self.glob!r} is none ({error})", expected="one such as **/*.txt") from error
        out = None if self.leave_out is None else self.leave_out.resolve()
        kept = [path for path in matches if out is None or out not in path.resolve().parents]
        if not kept:
            problem = f"no file of {self.path} matches {self.glob!r}"
            raise InputError(problem, expected="at least one", fix="choose others with --glob")
        return sorted(set(kept), key=self._name)

    def _name(self, file: Path) -> str:
        name = file.name if file == self.path else Path(os.path.relpath(file, self.path)).as_posix()
        return name.encode("utf-8", "backslashreplace").decode()  # file names need not be UTF-8

    def _names_in(self, file: Path) -> Iterator[str]:
        kind, name = _kind_of(file), self._name(file)
        try:
            if kind == "text":
                yield name
            elif kind == "lines":
                self._check_lines(file)
                with _opened(file) as stream:
                    yield from (f"{name}:{number}" for number, line in enumerate(stream) if line.strip())
            else:
                with self._table(file) as table:
                    yield from (f"{name}:{number}" for number in range(table.metadata.num_rows))
        except InputError:
            if file == self.path:
                raise
            yield name  # one bad file of a folder; reading it gives the reason

    def _text_file(self, file: Path) -> Document | Skipped:
        name = self._name(file)
        try:
            if (size := file.stat().st_size) > self.max_bytes:
                return self._too_large(name, size)
            return self._document(name, decode_text(file.read_bytes(), "it"))
        except TextError as error:
            return Skipped.because(name, error)
        except OSError as error:
            return Skipped(name, "unreadable", f"it cannot be read: {error.strerror}")

    def _document(self, name: str, text: Any) -> Document | Skipped:
        if text is None:
            return Skipped(name, "empty", "the text is empty")
        if not isinstance(text, str):
            return Skipped(name, "not text", f"its {self.text_column!r} is not text but {type(text).__name__}")
        if (size := len(text.encode("utf-8", "surrogatepass"))) > self.max_bytes:
            return self._too_large(name, size)
        try:
            return Document(name, check_text(text))
        except TextError as error:
            return Skipped.because(name, error)

    def _too_large(self, name: str, size: int) -> Skipped:
        return Skipped(name, "too large", f"it has {size / 2**20:.1f} MB, more than {self.max_bytes / 2**20:.0f} MB")

    def _lines(self, file: Path) -> Iterator[tuple[str, Any]]:
        name = self._name(file)
        self._check_lines(file)
        with _opened(file) as stream:
            for number, line in enumerate(stream):
                if line.strip():
                    yield f"{name}:{number}", self._value(f"{name}:{number}", line)

    def _value(self, row: str, line: bytes) -> Any:
        """What a line has under the text's key; a `Skipped` where it has none."""
        try:
            values = json.loads(line)
        except UnicodeDecodeError:
            return Skipped(row, "not UTF-8", "the line is not UTF-8 text")
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            return Skipped(row, "not JSON", "the line is no JSON object")
        return values.get(self.text_column, Skipped(row, "not text", f"the line has no {self.text_column!r}"))

    def _check_lines(self, file: Path) -> None:
        """The first object tells whether the column was named right, before any model is loaded."""
        with _opened(file) as stream:
            for line in stream:
                try:
                    values = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(values, dict) and self.text_column not in values:
                    raise self._no_column(file, list(values))
                return

    def _rows(self, file: Path) -> Iterator[tuple[str, Any]]:
        name, number = self._name(file), 0
        with self._table(file) as table:
            batches = table.iter_batches(batch_size=ROWS_AT_ONCE, columns=[self.text_column])
            while True:
                try:
                    values = next(batches).column(0).to_pylist()
                except StopIteration:
                    return
                except (OSError, ValueError, pa.ArrowException) as error:  # also text that is not UTF-8
                    raise InputError(
                        f"{file} cannot be read from row {number:,} on", expected="a whole Parquet file of UTF-8 text"
                    ) from error
                for value in values:
                    yield f"{name}:{number}", value
                    number += 1

    def _table(self, file: Path) -> pq.ParquetFile:
        try:
            table = pq.ParquetFile(file)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise InputError(f"{file} is no Parquet file that can be read", expected="a Parquet file") from error
        schema = table.schema_arrow
        if self.text_column not in schema.names:
            raise self._no_column(file, schema.names)
        kind = schema.field(self.text_column).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
            raise InputError(
                f"the column {self.text_column!r} of {file} holds {kind}", expected="text", fix="choose --text-column"
            )
        return table

    def _no_column(self, file: Path, columns: list[str]) -> InputError:
        problem, some = f"{file} has no column {self.text_column!r}", ", ".join(map(str, columns[:12])) or "none"
        return InputError(problem, expected=f"one of its columns: {some}", fix="choose one with --text-column")


def _kind_of(file: Path) -> str:
    ending = file.suffix.lower()
    return "lines" if ending in LINES else "table" if ending in TABLES else "text"


def _opened(file: Path) -> Any:
    try:
        return file.open("rb")
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}", expected="a readable file") from error
