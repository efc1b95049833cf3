"""The mixture as a folder: texts by split and domain, and `sources.json`, which says where each is from.

The same packages and novels give the same bytes: order and selection follow from paths and contents alone.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus_explorer.errors import InputError, TextError
from focus_explorer.usecases.mixture import paragraphs
from focus_explorer.usecases.mixture.documents import document_text
from focus_explorer.usecases.mixture.packages import Package, Packages, Progress, fetch
from focus_explorer.usecases.mixture.sources import (
    DEBIAN,
    HELD_OUT,
    LEAST_HELD_OUT,
    LEAST_TRAINING,
    MOST_HELD_OUT,
    MOST_TRAINING,
    NOVELS,
    PYPI,
    SOURCES,
    SPLITS,
    TRAIN,
    VALIDATION,
    Source,
)
from focus_explorer.usecases.texts import read_text_file
from focus_runtime.files import replacing_folder

RECORD = "sources.json"
Fetch = Callable[[dict[str, Sequence[str]], Path, Progress], Packages]


@dataclass
class _Text:
    """A text of the mixture with what is recorded of it; `origin` is a package, or a file of the novels."""

    split: str
    domain: str
    name: str
    text: str
    most: int
    origin: dict[str, str]
    language: str
    licence: str
    dropped: int = 0

    def record(self) -> dict[str, Any]:
        """The entry of `sources.json`."""
        content = self.content()
        return {
            "path": f"{self.split}/{self.domain}/{self.name}.txt",
            "split": self.split,
            "domain": self.domain,
            "language": self.language,
            "source": self.origin,
            "licence": self.licence,
            "characters": len(self.text) + 1,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "held_out_paragraphs_dropped": self.dropped,
        }

    def content(self) -> bytes:
        """The file."""
        return f"{self.text}\n".encode()


@dataclass(frozen=True)
class Mixture:
    """What was written.

    Attributes:
        files: the entries of `sources.json`.
        left_out: path of a text that could not be had -> why.
    """

    files: list[dict[str, Any]]
    left_out: dict[str, str]

    def domains(self) -> list[tuple[str, str, int, int]]:
        """Split, domain, files and bytes, in the order of the splits."""
        rows = []
        for split in SPLITS:
            for domain in sorted({f["domain"] for f in self.files if f["split"] == split}):
                sizes = [f["bytes"] for f in self.files if (f["split"], f["domain"]) == (split, domain)]
                rows.append((split, domain, len(sizes), sum(sizes)))
        return rows

    def notes(self) -> list[str]:
        """A line for each text that could not be had, and for each domain that is smaller than it should be."""
        return [
            *(f"{path} is left out: {reason}" for path, reason in self.left_out.items()),
            *(
                f"{split}/{domain} has {size:,} bytes; {least:,} would be enough"
                for split, domain, _, size in self.domains()
                if size < (least := LEAST_TRAINING if split == TRAIN else LEAST_HELD_OUT)
            ),
        ]


def build_mixture(
    out: Path,
    novels: Path,
    *,
    held_out: str | None = None,
    progress: Progress = lambda stage, fraction: None,
    sources: Sequence[Source] = SOURCES,
    download: Fetch = fetch,
) -> Mixture:
    """Write the mixture to a folder, wholly or not at all.

    Args:
        out: the folder to make; an empty one may be there.
        novels: folder with novels in the public domain, as .txt files.
        held_out: file name of the novel to validate on; the last by name when None.
        progress: called with what is being done and the fraction of it.
        sources: what to take of which packages.
        download: fetches packages into a folder.

    Raises:
        InputError: `out` holds files or cannot be written, there are too few novels, or no mirror can be reached.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists and is not empty", expected="a new folder", fix="name another or remove it")
    texts = _novels(novels, held_out)
    requested: dict[str, Sequence[str]] = {
        registry: sorted(
            {name for s in sources if s.registry == registry for name in (s.package, s.original_package) if name}
        )
        for registry in (DEBIAN, PYPI)
    }
    with replacing_folder(out) as part, tempfile.TemporaryDirectory() as scratch:
        packages = download(requested, Path(scratch), progress)
        found, left_out = _package_texts(sources, packages, progress)
        texts = _without_held_out([*texts, *found])
        mixture = Mixture([text.record() for text in texts], left_out)
        for text, entry in zip(texts, mixture.files, strict=True):
            path = part / entry["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.content())
        record = {"format": 1, "files": mixture.files, "left_out": sorted(mixture.left_out)}
        (part / RECORD).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return mixture


def _novels(folder: Path, held_out: str | None) -> list[_Text]:
    files = sorted(folder.glob("*.txt")) if folder.is_dir() else []
    if len(files) < 2:
        raise TextError(
            f"{folder} is no folder" if not folder.is_dir() else f"{folder} holds {len(files)} .txt files",
            expected="a folder with at least two novels in the public domain as .txt files, one of them to validate on",
        )
    held_out = held_out or files[-1].name
    if held_out not in {path.name for path in files}:
        raise TextError(
            f"{folder} has no {held_out}",
            expected=f"one of {', '.join(path.name for path in files)}",
            fix="see --held-out",
        )
    return [
        _Text(
            VALIDATION if path.name == held_out else TRAIN,
            NOVELS,
            path.stem,
            paragraphs.clean(read_text_file(path)),
            MOST_TRAINING,
            {"registry": "folder", "file": path.name},
            "en",
            "public domain, by the user's word",
        )
        for path in files
    ]


def _package_texts(
    sources: Sequence[Source], packages: Packages, progress: Progress
) -> tuple[list[_Text], dict[str, str]]:
    """Texts of the packages, and for each path of a text that could not be had the reason."""
    texts, left_out = [], {}
    english: dict[tuple[str, tuple[str, ...]], set[bytes]] = {}  # keys of the originals of translations
    for done, source in enumerate(sources):
        progress("Reading texts", done / len(sources))
        package = packages[source.package]
        if isinstance(package, str):
            left_out[str(source.path)] = f"{source.package} of {source.registry}: {package}"
            continue
        text = document_text(source.kind, package.files(source.files, source.without, mixed=source.mixed))
        text = paragraphs.clean(text[max(0, text.find(source.begin)) :])
        if source.original:
            name = source.original_package or source.package
            if (name, source.original) not in english:
                english[name, source.original] = _original_keys(packages[name], source)
            text, _ = paragraphs.without_known(text, english[name, source.original])
        if not text:
            left_out[str(source.path)] = f"{source.package} {package.version} has no such files"
            continue
        origin = {"registry": source.registry, "package": source.name, "version": package.version}
        most = min(source.most, MOST_TRAINING if source.split == TRAIN else MOST_HELD_OUT)
        name = source.name
        texts.append(_Text(source.split, source.domain, name, text, most, origin, source.language, source.licence))
    return texts, left_out


def _original_keys(package: Package | str, source: Source) -> set[bytes]:
    if isinstance(package, str):
        return set()
    return paragraphs.keys(paragraphs.clean(document_text(source.kind, package.files(source.original))))


def _without_held_out(texts: list[_Text]) -> list[_Text]:
    """Texts cut to their sizes, in the order of their paths; all but held-out texts without paragraphs of these."""
    held_out: set[bytes] = set()
    for text in texts:
        if text.split in HELD_OUT:
            text.text = paragraphs.first_bytes(text.text, text.most)
            held_out |= paragraphs.keys(text.text)
    for text in texts:
        if text.split not in HELD_OUT:
            text.text, text.dropped = paragraphs.without_known(text.text, held_out)
            text.text = paragraphs.first_bytes(text.text, text.most)
    return sorted(texts, key=lambda t: (SPLITS.index(t.split), t.domain, t.name))
