"""Wheel and sdist stand alone: what they hold, and that commands and page run from the wheel outside the clone."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import urllib.request
import venv
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from focus_explorer.cli.main import COMMANDS
from focus_runtime.assets import SHIPPED_CENTROIDS
from focus_runtime.version import __version__
from tests.helpers import ROOT
from tests.test_imports import EVERY_HELP

pytestmark = pytest.mark.slow
NAME = f"focus_explorer-{__version__}"


def build(project, out, *targets):
    """Build with the project's own backend, as pip would, but in this environment."""
    words = [word for target in targets for word in ("-t", target)]
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out), *words]
    subprocess.run(command, cwd=project, check=True, capture_output=True, timeout=120)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Folder with sdist and wheel of the clone, and in `again` a wheel made from that sdist."""
    out = tmp_path_factory.mktemp("built")
    build(ROOT, out, "sdist", "wheel")
    with tarfile.open(out / f"{NAME}.tar.gz") as archive:
        archive.extractall(out / "unpacked", filter="data")
    build(out / "unpacked" / NAME, out / "again", "wheel")
    return out


def contents(wheel):
    """Check sum by name of every file in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {each.filename: each.CRC for each in archive.infolist()}


def files_below(folder, *, suffix=""):
    paths = (path for path in (ROOT / folder).rglob(f"*{suffix}") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in paths}


def test_wheel_and_sdist_hold_the_whole_project_and_nothing_else(built):
    wheel, packages = contents(built / f"{NAME}-py3-none-any.whl"), ("focus_explorer/", "focus_runtime/")
    assert contents(built / "again" / f"{NAME}-py3-none-any.whl") == wheel
    code = files_below("focus_explorer") | {
        path.removeprefix("runtime/") for path in files_below("runtime/focus_runtime")
    }
    moved = {"centroids": "focus_runtime", "css": "focus_explorer", "js": "focus_explorer", "samples": "focus_explorer"}
    assets = {f"{package}/_{path}" for folder, package in moved.items() for path in files_below(f"assets/{folder}")}
    inside = {name for name in wheel if not name.startswith(f"{NAME}.dist-info/")}
    assert inside == code | assets
    assert {f"{package}py.typed" for package in packages} < inside
    assert {f"focus_runtime/_assets/centroids/{name}" for name in SHIPPED_CENTROIDS.values()} < inside
    assert {name.split("/", 1)[1] for name in wheel.keys() - inside} == {
        "METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"
    }  # fmt: skip

    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        packed = {each.name.removeprefix(f"{NAME}/") for each in archive if each.isfile()}
    source = files_below("focus_explorer") | files_below("runtime") | files_below("assets")
    pages = {"README.md", "CHANGELOG.md", "CITATION.cff", ".github/SECURITY.md", "LICENSE"}
    assert packed == source | pages | {"pyproject.toml", "PKG-INFO", ".gitignore"}


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """The wheel in a new environment, without the clone; other packages are those of this environment.

    A line of a .pth file adds them: .pth files of theirs, such as that of the clone, are not read then.
    """
    folder, empty = tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=False, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    python, wheel = folder / "bin" / "python", built / "again" / f"{NAME}-py3-none-any.whl"
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    to_python = (
        [uv, "pip", "install", "--python", python]
        if uv
        else [sys.executable, "-m", "pip", "--python", python, "install"]
    )
    subprocess.run([*to_python, "--no-deps", "--no-index", wheel], check=True, capture_output=True, timeout=120)
    left_out = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment |= {"FOCUS_EXPLORER_DB": str(folder / "runs.duckdb"), "PYTHONUNBUFFERED": "1"}

    def run(*words):
        done = subprocess.run(words, cwd=empty, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    return SimpleNamespace(
        python=python,
        command=folder / "bin" / "focus-explorer",
        packages=packages,
        empty=empty,
        environment=environment,
        run=run,
    )


WHERE_FROM = """
from importlib import metadata
print(metadata.version("focus-explorer"))
print(*sorted({module.__file__ for name, module in sys.modules.items() if name.startswith("focus_")}), sep="\\n")
"""


@pytest.mark.long
def test_every_command_comes_from_the_wheel(installed):
    assert installed.run(installed.command, "--version") == f"focus-explorer {__version__}\n"
    code = f"import sys\n{EVERY_HELP}\n{WHERE_FROM}\nmain(['centroids', 'list'])"
    lines = installed.run(installed.python, "-c", code).splitlines()
    assert lines[: len(COMMANDS)] == [f"{name} True" for name in COMMANDS]
    version, *rest = lines[len(COMMANDS) :]
    assert version == __version__
    files, listed = rest[: -len(SHIPPED_CENTROIDS)], rest[-len(SHIPPED_CENTROIDS) :]
    assert len(files) > len(COMMANDS)
    assert [file for file in files if not file.startswith(f"{installed.packages}/focus_")] == []
    assert [line.split()[-1] for line in listed] == [*SHIPPED_CENTROIDS]
    assert list(installed.empty.iterdir()) == []


@pytest.mark.model
@pytest.mark.long
def test_a_text_is_analysed_by_the_default_model(installed, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("The harbour was quiet. The cat sat on the mat and left. " * 6)
    options = ["--window", "16", "--repeats", "1", "--json"]
    result = json.loads(installed.run(installed.command, "analyze", str(text), *options))
    assert result["num_tokens"] > 60
    assert result["perplexity"]


def read(address):
    with urllib.request.urlopen(address, timeout=30) as answer:
        assert answer.status == 200
        return answer.read()


@pytest.mark.long
def test_the_page_is_served_with_its_files_and_ends_on_sigterm(installed):
    words = [installed.command, "serve", "--port", "7991"]
    places = {"cwd": installed.empty, "env": installed.environment}
    with subprocess.Popen(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **places) as server:
        try:
            address = next(found[0] for line in server.stdout if (found := re.search(r"http://[\d.]+:\d+", line)))
            page = read(f"{address}/").decode()
            own = set(re.findall(r"[\w./=-]+/explorer-[0-9a-f]{12}\.(?:js|css)", page))
            assert {Path(name).suffix for name in own} == {".js", ".css"}
            assert all(len(read(f"{address}/{name}")) > 100_000 for name in own)
            assert read(f"{address}/health") == b'{"status":"ok"}'
            server.send_signal(signal.SIGTERM)
            assert server.wait(20) == 0
            assert "Traceback" not in server.stdout.read()
        finally:
            server.kill()
    assert list(installed.empty.iterdir()) == []
