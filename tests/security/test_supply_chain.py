"""What is installed: by hashes, listed, looked up among known vulnerabilities; and nothing fetched at run time."""

from __future__ import annotations

import importlib.util
import json
import re
import socket
import subprocess
import sys
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from focus_explorer.usecases.analyze import analyze
from focus_explorer.usecases.service import Service
from tests.explorer.conftest import TEXT
from tests.helpers import ROOT

LOCK = (ROOT / "deploy" / "requirements.lock").read_text()


@pytest.fixture(scope="module")
def audit():
    """The script of `make audit`."""
    spec = importlib.util.spec_from_file_location("audit", ROOT / ".ci" / "audit.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def entries():
    """(requirement, hashes) of every package of the lock file."""
    for block in re.split(r"\n(?=[\w])", LOCK.strip()):
        words, *hashes = re.split(r"\s*\\\n\s*", block)
        yield Requirement(words), hashes


def pins(text):
    """Version by package."""
    return {canonicalize_name(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)}


def test_every_package_is_locked_with_hashes():
    locked = list(entries())
    assert len(locked) > 150
    for requirement, hashes in locked:
        assert [one.operator for one in requirement.specifier] == ["=="], requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes), requirement
    compiler = (ROOT / "deploy" / "requirements-compiler.lock").read_text()
    assert compiler.startswith("ziglang==")
    assert "--hash=sha256:" in compiler


def test_the_lock_has_all_that_the_project_needs_as_it_is_pinned():
    locked = {canonicalize_name(requirement.name) for requirement, _ in entries()}
    project = metadata.metadata("focus-explorer").get_all("Requires-Dist")
    wanted = {Requirement(each) for each in project}
    needed = {
        canonicalize_name(each.name)
        for each in wanted
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("test", "build"))
    }
    assert needed - locked == {"torch"}
    versions = {canonicalize_name(each.name): str(each.specifier)[2:] for each, _ in entries()}
    for name, version in pins((ROOT / "constraints.txt").read_text()).items():
        if name not in ("torch", "ziglang"):
            assert versions[name] == version, name


LISTED_FOR = {"python_version": "3.11", "python_full_version": "3.11.7"}  # what sbom.cdx.json was made with


def test_what_is_installed_is_what_is_locked_and_listed():
    listed = {
        canonicalize_name(each["name"]): each["version"]
        for each in json.loads((ROOT / "deploy" / "sbom.cdx.json").read_text())["components"]
    }
    assert listed["torch"].startswith("2.")
    here = 0
    for requirement, _ in entries():
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        name, version = canonicalize_name(requirement.name), str(requirement.specifier)[2:]
        try:
            installed = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            continue  # an environment may lack what only tests need
        here += 1
        assert installed == version, f"{name}: run `make setup`"
        belongs = requirement.marker is None or requirement.marker.evaluate(LISTED_FOR)
        assert (listed.get(name) == version) == belongs, f"{name}: run `make sbom`"
    assert here > 100


def test_the_lock_is_affected_by_no_known_vulnerability_without_an_answer():
    done = subprocess.run([sys.executable, ROOT / ".ci" / "audit.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert re.search(r"\d+ packages, \d+ advisories of \d{4}-\d\d-\d\d.*: 0 affect a locked version", done.stdout)


def test_an_affected_version_is_found(audit):
    listed = json.loads((ROOT / ".ci" / "advisories.json").read_text())
    found = [(package, advisory["id"]) for package, _, advisory in audit.findings({"jinja2": "3.1.5"}, listed)]
    assert found == [("jinja2", "CVE-2025-27516")]
    assert list(audit.findings({"jinja2": "3.1.6"}, listed)) == []
    for each in listed["advisories"]:
        for bounds in each["ranges"]:
            assert {"introduced"} <= bounds.keys() <= {"introduced", "fixed"}
            assert all(Version(value) is not None for value in bounds.values())


@pytest.mark.parametrize(
    ("version", "affected"),
    [("0.9", False), ("1.0", True), ("1.4.9", True), ("1.5", False), ("1.9", False), ("2.0rc1", False), ("3", True)],
)
def test_ranges_hold_from_introduced_up_to_fixed(audit, version, affected):
    assert audit.is_affected(version, [{"introduced": "1.0", "fixed": "1.5"}, {"introduced": "2.0"}]) is affected


def test_an_analysis_reaches_no_network(stored, tmp_path, monkeypatch):
    def refuse(*arguments, **named):
        raise AssertionError("the network was reached for")

    for name in ("create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    service = Service(tmp_path / "runs.duckdb")
    assert analyze(service, TEXT, stored[2])
