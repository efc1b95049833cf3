"""The page behind a real nginx with deploy/nginx.conf: below a path, with TLS, and with logins that nginx checks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from types import SimpleNamespace

import httpx
import pytest

from focus_explorer.usecases.labels import all_runs
from tests.browser.conftest import HARBOUR, serving, tiny_service
from tests.helpers import ROOT, free_port

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.long,  # tests/security has the page's own part of it, tests/test_deploy.py the options
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed (Debian's package nginx-light)"),
]

AROUND = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
{user}
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {site}
}}
"""
ADA = ("ada", "correct horse")


def _substituted(text, **values):
    for old, new in values.values():
        assert old in text, old
        text = text.replace(old, str(new))
    return text


@pytest.fixture(scope="module")
def proxied(tmp_path_factory):
    """(https address, http address, the page's own address, service, tiny model) of one page behind one nginx."""
    folder = tmp_path_factory.mktemp("nginx")
    service = tiny_service(folder)
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=focus.example"
    command = [*make.split(), "-keyout", folder / "key.pem", "-out", folder / "certificate.pem"]
    subprocess.run(command, check=True, capture_output=True)
    hashed = subprocess.run(["openssl", "passwd", "-6", ADA[1]], check=True, capture_output=True, text=True).stdout
    (folder / "users").write_text(f"{ADA[0]}:{hashed}")
    page, http, https = free_port(), free_port(), free_port()
    site = _substituted(
        (ROOT / "deploy" / "nginx.conf").read_text(),
        page=("127.0.0.1:7860", f"127.0.0.1:{page}"),
        http=("listen 80;", f"listen 127.0.0.1:{http};"),
        https=("listen 443 ", f"listen 127.0.0.1:{https} "),
        certificate=("/etc/ssl/certs/focus.example.pem", folder / "certificate.pem"),
        key=("/etc/ssl/private/focus.example.key", folder / "key.pem"),
        users=("/etc/nginx/focus-explorer.users", folder / "users"),
    )
    user = "user root;" if os.getuid() == 0 else ""
    (folder / "nginx.conf").write_text(AROUND.format(folder=folder, user=user, site=site))
    lab = ("--trusted-header", "X-Remote-User", "--root-path", "/focus", "--allow-host", "focus.example")
    flags = ("--db", service.database.path, "--model", folder / "tiny", "--centroids", "random", *lab)
    with serving(*flags, port=page) as own:
        nginx = subprocess.Popen([NGINX, "-e", folder / "error.log", "-p", folder, "-c", folder / "nginx.conf"])
        try:
            _wait_for(nginx, f"http://127.0.0.1:{http}/")
            yield SimpleNamespace(
                https=f"https://127.0.0.1:{https}",
                http=f"http://127.0.0.1:{http}",
                own=own,
                service=service,
                model=str(folder / "tiny"),
            )
        finally:
            nginx.terminate()
            nginx.wait(10)


def _wait_for(process, url):
    for _ in range(100):
        assert process.poll() is None, "nginx ended; is its configuration right?"
        try:
            return httpx.get(url)
        except httpx.ConnectError:
            time.sleep(0.05)
    return pytest.fail("nginx did not answer within five seconds")


@pytest.fixture(scope="module")
def client(proxied):
    with httpx.Client(base_url=proxied.https, verify=False, auth=ADA, timeout=60) as client:
        yield client


def test_http_leads_to_https(proxied):
    answer = httpx.get(f"{proxied.http}/focus/?run=x", headers={"host": "focus.example"})
    assert (answer.status_code, answer.headers["location"]) == (301, "https://focus.example/focus/?run=x")


def test_the_page_is_answered_below_its_path_to_its_own_names(proxied, client):
    moved = client.get("/focus?run=x")
    assert (moved.status_code, moved.headers["location"]) == (301, f"{proxied.https}/focus/?run=x")
    for host in (proxied.https.removeprefix("https://"), "focus.example"):
        config = client.get("/focus/config", headers={"host": host})
        assert config.json()["root"] == f"https://{host}/focus"
    own = {"host": "focus.example", "origin": "https://focus.example"}
    assert client.get("/focus/config", headers=own).status_code == 200
    assert client.get("/focus/config", headers=own | {"origin": "https://evil.example"}).status_code == 403
    assert client.get("/focus/ready").status_code == 404  # for the machine's own supervisor
    assert httpx.get(f"{proxied.own}ready").status_code == 200
    assert "max-age" in client.get("/focus/").headers["strict-transport-security"]


def test_users_are_whom_nginx_knows_and_nobody_a_client_names(proxied, client):
    forged = {"X-Remote-User": "bob", "x_remote_user": "bob"}
    assert httpx.get(f"{proxied.https}/focus/config", verify=False, headers=forged).status_code == 401
    wrong = httpx.get(f"{proxied.https}/focus/config", verify=False, headers=forged, auth=("ada", "wrong"))
    assert wrong.status_code == 401
    assert httpx.get(f"{proxied.own}config").status_code == 401  # past nginx
    before = {row["run_id"] for row in all_runs(proxied.service)}
    values = [HARBOUR[:300], proxied.model, "random", 1, 8, 2, "causal", 0, "auto", "auto", "auto"]
    posted = client.post("/focus/gradio_api/call/analyze", json={"data": values}, headers=forged)
    answer = client.get(f"/focus/gradio_api/call/analyze/{posted.json()['event_id']}", headers=forged).text
    assert "event: complete" in answer
    [made] = [row for row in all_runs(proxied.service) if row["run_id"] not in before]
    assert made["owner"] == "ada"


def test_events_arrive_while_the_work_goes_on(proxied, client):
    number = next(
        each["id"] for each in client.get("/focus/config").json()["dependencies"] if each["api_name"] == "analyze"
    )
    values = [HARBOUR[:4000], proxied.model, "random", 1, 8, 2, "causal", 0, "auto", "auto", "auto"]
    body = {"data": values, "fn_index": number, "session_hash": "stream"}
    assert client.post("/focus/gradio_api/queue/join", json=body).status_code == 200
    arrived = {}
    with client.stream("GET", "/focus/gradio_api/queue/data?session_hash=stream") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            if line.startswith("data:"):
                message = json.loads(line.removeprefix("data:"))
                arrived.setdefault(message["msg"], time.monotonic())
                if message["msg"] == "process_completed":
                    assert message["success"], message
                    break
    assert arrived["process_completed"] - arrived["process_starts"] > 0.2


def test_an_upload_is_larger_than_what_nginx_takes_by_itself(client):
    files = {"files": ("centroids.safetensors", b"\0" * 3 * 2**20)}
    answer = client.post("/focus/gradio_api/upload", files=files)
    assert answer.status_code == 200, answer.text


def test_in_a_browser_nothing_of_the_page_is_missing(chromium, proxied):
    problems, paths = [], set()

    def failed(request):
        ended = (
            "/queue/data?" in request.url and request.failure == "net::ERR_ABORTED"
        )  # by Gradio, after the last event
        if not ended:
            problems.append(f"{request.failure}: {request.url}")

    def answered(response):
        paths.add(response.url.removeprefix(proxied.https).split("/")[1])
        if response.status >= 400:
            problems.append(f"{response.status} {response.url}")

    credentials = {"username": ADA[0], "password": ADA[1]}
    context = chromium.new_context(ignore_https_errors=True, http_credentials=credentials)
    try:
        page = context.new_page()
        page.on("response", answered)
        page.on("requestfailed", failed)
        page.on("pageerror", lambda error: problems.append(f"script error: {error}"))
        page.on("console", lambda m: problems.append(f"console: {m.text}") if m.type == "error" else None)
        page.goto(f"{proxied.https}/focus/")
        page.wait_for_selector("[data-testid=fx-header]", timeout=90_000)
        shown = page.evaluate("new URLSearchParams(location.search).get('run')")
        page.evaluate("window.FocusForm.open()")
        page.locator("#fe-text textarea").fill("A text of my own about the harbour. " * 8)
        page.locator("#fe-run").click()
        page.wait_for_function("old => new URLSearchParams(location.search).get('run') !== old", arg=shown)
        page.get_by_role("tab", name="Sparsity", exact=True).click()
        page.locator("[data-testid=fx-mask] .main-svg").first.wait_for(timeout=60_000)  # drawn by what is loaded late
        assert problems == []
        assert paths == {"focus"}
    finally:
        context.close()
