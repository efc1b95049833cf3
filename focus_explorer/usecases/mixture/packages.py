"""Packages of a Debian and a PyPI mirror, downloaded by apt and pip and unpacked into folders."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from focus_explorer.errors import InputError
from focus_explorer.usecases.mixture.documents import Files
from focus_explorer.usecases.mixture.sources import DEBIAN, PYPI

TOOLS = ("apt-cache", "apt-get", "dpkg-deb")
TIMEOUT = 300  # seconds of one download
Progress = Callable[[str, float], None]
Packages = dict[str, "Package | str"]  # name as requested -> the package, or why there is none


@dataclass(frozen=True, slots=True)
class Package:
    """An unpacked package."""

    name: str
    version: str
    folder: Path

    def files(self, patterns: Sequence[str], without: Sequence[str] = (), *, mixed: bool = False) -> Files:
        """Files by their paths in the package, in an order that only the paths decide; links are left out.

        Args:
            patterns: of paths, in which `*` also stands for `/`.
            without: patterns of paths to leave out.
            mixed: order by a hash of the path instead of the path.
        """
        found = []
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = PurePosixPath((Path(folder) / name).relative_to(self.folder).as_posix())
                if _matches(path, patterns) and not _matches(path, without) and not self._at(path).is_symlink():
                    found.append(path)
        found.sort(key=(lambda p: hashlib.sha256(str(p).encode()).hexdigest()) if mixed else str)
        return {path: self._at(path).read_bytes() for path in found}

    def _at(self, path: PurePosixPath) -> Path:
        return self.folder.joinpath(*path.parts)


def _matches(path: PurePosixPath, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(str(path), pattern) for pattern in patterns)


def fetch(requested: dict[str, Sequence[str]], folder: Path, progress: Progress) -> Packages:
    """Download and unpack packages.

    Args:
        requested: registry -> names; of PyPI with their versions.
        folder: an empty one for what is downloaded.
        progress: called with what is being done and the fraction of it.

    Raises:
        InputError: this machine has no apt, or none of the Debian packages can be had.
    """
    from_debian = fetch_debian(requested[DEBIAN], folder / "debian", progress)
    return from_debian | fetch_pypi(requested[PYPI], folder / "pypi", progress)


def fetch_debian(names: Sequence[str], folder: Path, progress: Progress) -> Packages:
    """Download and unpack packages of the Debian mirror that this machine's apt uses; no root is needed.

    Raises:
        InputError: this machine has no apt, its lists have none of the packages, or none can be downloaded.
    """
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
    """Download and unpack wheels of the PyPI mirror that this machine's pip uses; no code of theirs runs.

    Args:
        specifiers: NAME==VERSION.
        folder: to make.
        progress: as for `fetch`.
    """
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
