"""What deploy/ hands to others: options that exist, files that are there, our versions; and the Space, run."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time

import httpx
import pytest
import yaml

from app import space_options
from focus_explorer.cli.main import parser
from tests.helpers import ROOT, build_model, build_tokenizer, free_port

DEPLOY = ROOT / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text(encoding="utf-8")


def test_the_images_command_is_one_that_serve_allows_on_all_addresses():
    from focus_explorer.web.hosting.modes import Hosting

    words = json.loads(re.search(r"^CMD (\[.*\])$", CONTAINERFILE, re.MULTILINE)[1])
    chosen = parser().parse_args(words)
    Hosting(host=chosen.host, public=chosen.public)
    assert (chosen.host, chosen.public, chosen.insecure) == ("0.0.0.0", True, False)


def test_what_the_image_copies_is_there_and_not_ignored():
    copied = re.findall(r"^COPY (?!--from)(?:--\S+ )?(.+) \S+$", CONTAINERFILE, re.MULTILINE)
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    names = {name for line in copied for name in line.split()}
    assert names == kept
    assert all((ROOT / name).exists() for name in names)


def test_the_services_options_exist():
    unit = (DEPLOY / "focus-explorer.service").read_text(encoding="utf-8")
    words = shlex.split(re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)[1])
    assert words[-1] == "$OPTIONS"
    assert parser().parse_args(words[1:-1]).host == "127.0.0.1"


def test_nginx_names_the_options_it_is_tested_with():
    options = re.search(r"focus-explorer (serve --trusted-header .*)", (DEPLOY / "nginx.conf").read_text())[1]
    chosen = parser().parse_args(shlex.split(options))
    assert (chosen.trusted_header, chosen.root_path) == ("X-Remote-User", "/focus")


def test_a_space_is_a_public_page_of_its_own_names():
    assert space_options({}) == []
    chosen = parser().parse_args(
        ["serve", *space_options({"SPACE_ID": "me/x", "SPACE_HOST": "me-x.hf.space, x.example"})]
    )
    assert (chosen.public, chosen.host, chosen.port) == (True, "0.0.0.0", 7860)
    assert list(chosen.allow_hosts) == ["me-x.hf.space", "x.example"]
    assert list(chosen.allow_frames) == ["https://huggingface.co"]


INDEX = "https://torch.example/cpu"


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    """The folder that `make space` writes."""
    folder = tmp_path_factory.mktemp("space") / "space"
    subprocess.run([sys.executable, DEPLOY / "space" / "build.py", folder, INDEX], check=True, cwd=folder.parent)
    return folder


@pytest.mark.slow
def test_the_space_asks_for_our_versions(space):
    front = yaml.safe_load((space / "README.md").read_text(encoding="utf-8").split("---")[1])
    assert {"title", "sdk", "sdk_version", "app_file", "python_version", "license", "models"} <= set(front)
    assert len(front["short_description"]) <= 60
    assert (space / front["app_file"]).is_file()
    pins = dict(re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    assert f"--extra-index-url {INDEX}" in (space / "requirements.txt").read_text().splitlines()
    asked = dict(re.findall(r"^([\w.-]+)==(\S+)$", (space / "requirements.txt").read_text(), re.MULTILINE))
    assert asked["torch"] == f"{pins['torch']}+cpu"
    assert asked["gradio"] == pins["gradio"] == front["sdk_version"]
    assert {name for name in asked if name in pins and asked[name] != pins[name]} == {"torch"}


@pytest.mark.long
def test_the_space_serves_itself_in_public(space, tmp_path):
    build_model(vocab_size=512).save_pretrained(tmp_path / "tiny")
    build_tokenizer().save_pretrained(tmp_path / "tiny")
    port = free_port()
    given = {"SYSTEM": "spaces", "SPACE_ID": "me/x", "SPACE_HOST": "me-x.hf.space", "GRADIO_SERVER_PORT": str(port)}
    given |= {"FOCUS_EXPLORER_DB": str(tmp_path / "runs.duckdb")}
    chosen = ["--model", tmp_path / "tiny", "--centroids", "random", "--repeats", "1"]
    others = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "app.py", *chosen], cwd=space, env=others | given, stdout=log, stderr=subprocess.STDOUT
        )
    own = {"host": "me-x.hf.space", "x-forwarded-proto": "https", "x-forwarded-for": "10.9.8.7"}
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=own, timeout=60) as client:
            _wait_until_ready(client, server, tmp_path / "log")
            page = client.get("/", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"})
            assert page.status_code == 200
            assert page.headers["content-security-policy"] == "frame-ancestors 'self' https://huggingface.co"
            assert "SameSite=None; Secure; Partitioned" in page.headers["set-cookie"]
            assert client.get("/config", headers={"host": "other.hf.space"}).status_code == 421
            for origin, status in (("https://huggingface.co", 403), ("https://me-x.hf.space", 200)):
                assert client.get("/config", headers={"origin": origin}).status_code == status
            values = ["The harbour was quiet. " * 8, str(tmp_path / "tiny"), "random", 1, 8, 2, "causal", 0]
            body = {"data": [*values, "auto", "auto", "auto"]}
            posted = client.post("/gradio_api/call/analyze", json=body, headers={"x-focus-visitor": "ab" * 32})
            events = client.get(f"/gradio_api/call/analyze/{posted.json()['event_id']}").text
            assert "event: complete" in events, events
        assert "Traceback" not in (tmp_path / "log").read_text()
    finally:
        server.terminate()
        server.wait(20)


def _wait_until_ready(client, server, log):
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()
        try:
            if client.get("/ready").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    pytest.fail(f"the Space did not answer: {log.read_text()}")
