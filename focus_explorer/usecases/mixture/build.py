"""The mixture as a folder: texts by split and domain, and `sources.json`, which says where each is from.

The same packages and novels give the same bytes: order and selection follow from paths and contents alone.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from focus_explorer.errors import InputError, TextError
from focus_explorer.progress import Progress, silent
from focus_explorer.usecases.mixture.documents import Files, document_text
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
TOOLS = ("apt-cache", "apt-get", "dpkg-deb")
TIMEOUT = 300  # seconds of one download
Packages = dict[str, "Package | str"]  # name as requested -> the package, or why there is none
Fetch = Callable[[dict[str, Sequence[str]], Path, Progress], Packages]
LONG = 60  # characters beyond which paragraphs are compared
_BLANK_LINES = re.compile(r"(\n(?:[ \t]*\n)+)")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\u00ad\u200b\u200c\u2060\ufeff]")


def clean(text: str) -> str:
    """The text with Unix line ends, without control characters, trailing spaces and more than two blank lines."""
    text = re.sub(r"\r\n?|[\v\f\x85\u2028\u2029]", "\n", text)
    text = _CONTROL.sub("", text.replace("\u00a0", " "))
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{4,}", "\n\n\n", text).strip("\n")


def key(paragraph: str) -> bytes | None:
    """What equal paragraphs have in common, or None for a short one; white space does not count."""
    words = " ".join(paragraph.split())
    return hashlib.sha256(words.encode()).digest() if len(words) > LONG else None


def keys(text: str) -> set[bytes]:
    return {k for part in _BLANK_LINES.split(text)[::2] if (k := key(part)) is not None}


def without_known(text: str, known: Set[bytes]) -> tuple[str, int]:
    """The text without the long paragraphs whose keys are known, and how many were dropped."""
    parts = [*_BLANK_LINES.split(text), ""]  # paragraph, blank lines, paragraph, ..., ""
    kept, dropped = [], 0
    for paragraph, blank in zip(parts[::2], parts[1::2], strict=True):
        if key(paragraph) in known:
            dropped += 1
        else:
            kept += [paragraph, blank]
    return "".join(kept).strip("\n"), dropped


def first_bytes(text: str, most: int) -> str:
    """The first whole paragraphs that are at most `most` bytes of UTF-8 together; at least one."""
    if len(text.encode()) <= most:
        return text
    parts, size, end = _BLANK_LINES.split(text), 0, 0
    for i in range(0, len(parts), 2):
        size += len("".join(parts[max(0, i - 1) : i + 1]).encode())
        if size > most and i:
            break
        end = i + 1
    return "".join(parts[:end])


@dataclass(frozen=True, slots=True)
class Package:
    name: str
    version: str
    folder: Path

    def files(self, patterns: Sequence[str], without: Sequence[str] = (), *, mixed: bool = False) -> Files:
        """Files whose paths match patterns (`*` also stands for `/`), ordered by path or by a hash of it; no links."""
        real = (path for path in self.folder.rglob("*") if path.is_file() and not path.is_symlink())
        files = {PurePosixPath(path.relative_to(self.folder).as_posix()): path for path in real}
        found = [name for name in files if _matches(name, patterns) and not _matches(name, without)]
        found.sort(key=(lambda name: hashlib.sha256(str(name).encode()).hexdigest()) if mixed else str)
        return {name: files[name].read_bytes() for name in found}


def _matches(path: PurePosixPath, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(str(path), pattern) for pattern in patterns)


def fetch(requested: dict[str, Sequence[str]], folder: Path, progress: Progress) -> Packages:
    """Download and unpack packages, given by registry and name, those of PyPI with their versions."""
    from_debian = fetch_debian(requested[DEBIAN], folder / "debian", progress)
    return from_debian | fetch_pypi(requested[PYPI], folder / "pypi", progress)


def fetch_debian(names: Sequence[str], folder: Path, progress: Progress) -> Packages:
    """Download and unpack packages of the Debian mirror that this machine's apt uses; no root is needed."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise InputError(
            f"this machine has no {missing[0]}",
            expected=f"a Debian machine, with {', '.join(TOOLS)}",
            fix="run the command on one, for example in a container, and copy the folder it writes",
        )
    folder.mkdir(parents=True)
    known = set(re.findall(r"^Package: (\S+)", _run(["apt-cache", "show", *names], folder)[1], re.MULTILINE))
    available = [name for name in names if name in known]
    if not available:
        raise InputError(
            f"apt knows none of the {len(names)} packages",
            expected="package lists of a Debian mirror",
            fix="run `apt-get update` as root first",
        )
    progress("Downloading packages", 0.0)
    found: Packages = dict.fromkeys(names, "this mirror has no such package")
    reason = _download(available, folder)
    archives = {path.name.partition("_")[0]: path for path in folder.glob("*.deb")}
    if not archives:
        raise InputError(
            f"no package can be downloaded: {reason}",
            expected="a reachable Debian mirror",
            fix="check the network and apt's sources, then run `apt-get update` as root",
        )
    for done, name in enumerate(available):
        progress("Unpacking packages", done / len(available))
        found[name] = _unpack_deb(name, archives[name], folder) if name in archives else f"not downloaded: {reason}"
    return found


def _download(names: Sequence[str], folder: Path) -> str:
    """Download what can be downloaded; says why something could not."""
    failed, _, error = _run(["apt-get", "-q", "download", *names], folder)
    reason = _last_line(error)
    if failed:  # one missing package fails them all
        for name in names:
            if not list(folder.glob(f"{name}_*.deb")):
                failed, _, error = _run(["apt-get", "-q", "download", name], folder)
                reason = _last_line(error) if failed else reason
                if failed and not any(folder.glob("*.deb")):
                    break  # no mirror at all
    return reason


def _unpack_deb(name: str, archive: Path, folder: Path) -> Package | str:
    failed, version, error = _run(["dpkg-deb", "-f", str(archive), "Version"], folder)
    if not failed:
        failed, _, error = _run(["dpkg-deb", "-x", str(archive), name], folder)
    archive.unlink()
    return f"cannot be unpacked: {_last_line(error)}" if failed else Package(name, version.strip(), folder / name)


def fetch_pypi(specifiers: Sequence[str], folder: Path, progress: Progress) -> Packages:
    """Download and unpack wheels, NAME==VERSION, of the PyPI mirror that pip uses; no code of theirs runs."""
    found: Packages = {}
    for done, specifier in enumerate(specifiers):
        progress("Downloading wheels", done / len(specifiers))
        name, _, version = specifier.partition("==")
        target = folder / name
        target.mkdir(parents=True)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", "."]
        failed, _, error = _run([*pip, specifier], target)
        wheels = list(target.glob("*.whl"))
        if failed or not wheels:
            found[specifier] = f"not downloaded: {_last_line(error)}"
            continue
        try:
            with zipfile.ZipFile(wheels[0]) as wheel:
                wheel.extractall(target)
            found[specifier] = Package(name, version, target)
        except (zipfile.BadZipFile, OSError) as problem:
            found[specifier] = f"cannot be unpacked: {problem}"
    return found


def _run(command: Sequence[str], folder: Path) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a program run in a folder."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return 1, "", f"no answer within {TIMEOUT} seconds"
    return done.returncode, done.stdout, done.stderr


def _last_line(error: str) -> str:
    lines = [line.strip() for line in error.splitlines() if line.strip() and not line.startswith("WARNING")]
    return re.sub(r"^(E|ERROR):\s*", "", lines[-1])[:200] if lines else "no reason was given"


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
        return f"{self.text}\n".encode()


@dataclass(frozen=True)
class Mixture:
    """What was written; `left_out` has, by path, why a text is missing."""

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
    progress: Progress = silent,
    sources: Sequence[Source] = SOURCES,
    download: Fetch = fetch,
) -> Mixture:
    """Write the mixture to a folder, as a whole or not at all.

    `novels` is a folder of .txt files in the public domain; `held_out` names the one to validate on. None: the last by
    name.
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
            clean(read_text_file(path)),
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
        text = clean(text[max(0, text.find(source.begin)) :])
        if source.original:
            name = source.original_package or source.package
            if (name, source.original) not in english:
                edition = packages[name]  # or why there is none
                files = {} if isinstance(edition, str) else edition.files(source.original)
                english[name, source.original] = keys(clean(document_text(source.kind, files)))
            text, _ = without_known(text, english[name, source.original])
        if not text:
            left_out[str(source.path)] = f"{source.package} {package.version} has no such files"
            continue
        origin = {"registry": source.registry, "package": source.name, "version": package.version}
        most = min(source.most, MOST_TRAINING if source.split == TRAIN else MOST_HELD_OUT)
        name = source.name
        texts.append(_Text(source.split, source.domain, name, text, most, origin, source.language, source.licence))
    return texts, left_out


def _without_held_out(texts: list[_Text]) -> list[_Text]:
    """Texts cut to their sizes, in the order of their paths; all but held-out texts without paragraphs of these."""
    held_out: set[bytes] = set()
    for text in texts:
        if text.split in HELD_OUT:
            text.text = first_bytes(text.text, text.most)
            held_out |= keys(text.text)
    for text in texts:
        if text.split not in HELD_OUT:
            text.text, text.dropped = without_known(text.text, held_out)
            text.text = first_bytes(text.text, text.most)
    return sorted(texts, key=lambda t: (SPLITS.index(t.split), t.domain, t.name))
