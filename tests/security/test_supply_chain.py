"""What is installed: by hashes, listed, looked up among known vulnerabilities; and nothing fetched at run time."""

from __future__ import annotations

import importlib.util
import json
import re
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
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


class Database(BaseHTTPRequestHandler):
    """A stand-in for OSV: what it answers has the form of https://google.github.io/osv.dev/post-v1-query/."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["package"]
        assert asked["ecosystem"] == "PyPI"
        events = [{"introduced": "0"}, {"fixed": "1.2"}, {"introduced": "2.0"}]
        affected = [{"package": {"name": "Some_Package"}, "ranges": [{"type": "ECOSYSTEM", "events": events}]}]
        one = {"id": "GHSA-1", "aliases": ["CVE-1"], "affected": affected}
        gone = {"id": "GHSA-2", "withdrawn": "2025-01-01", "affected": affected}
        odd = [
            {"package": {"name": "some-package"}, "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "?"}]}]}
        ]
        answer = {"vulns": [one, gone, {"id": "GHSA-3", "affected": odd}]} if asked["name"] == "some-package" else {}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_):
        pass


def test_the_list_is_written_again_from_the_database_with_its_answers(audit):
    server = HTTPServer(("127.0.0.1", 0), Database)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        listed = {"advisories": [{"package": "some-package", "id": "CVE-1", "ranges": [], "answer": "not used here"}]}
        address = f"http://127.0.0.1:{server.server_port}"
        new = audit.refreshed(
            {"some-package": "2.1", "other": "1"}, listed, lambda name: audit.ask_osv(name, address=address)
        )
    finally:
        server.shutdown()
    assert new["advisories"] == [
        {
            "package": "some-package",
            "id": "CVE-1",
            "ranges": [{"introduced": "0", "fixed": "1.2"}, {"introduced": "2.0"}],
            "answer": "not used here",
        }
    ]


def test_an_analysis_reaches_no_network(stored, tmp_path, monkeypatch):
    def refuse(*arguments, **named):
        raise AssertionError("the network was reached for")

    for name in ("create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    service = Service(tmp_path / "runs.duckdb")
    assert analyze(service, TEXT, stored[2])
