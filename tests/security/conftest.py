"""The page as the server builds it, asked through a test client: what lies around it answers too, no port is opened."""

from __future__ import annotations

import json
import resource
from contextlib import contextmanager

import pytest
from starlette.testclient import TestClient

from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.service import Service
from focus_explorer.web.gradio_internals import import_gradio
from focus_explorer.web.hosting.guard import Login
from focus_explorer.web.hosting.modes import Hosting
from tests.explorer.conftest import TEXT, model_folder  # noqa: F401
from tests.security.watch import watched_files

MOST_BYTES = 2**30  # that hostile input may make a process take in addition


@pytest.fixture(autouse=True)
def bounded(request):
    """What is marked `fuzz` leaves the folders it was given, and the memory of the machine, alone."""
    if request.node.get_closest_marker("fuzz") is None:
        yield
        return
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with watched_files():
        yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MOST_BYTES, f"{grown / 2**20:.0f} MiB"


import_gradio()  # before a test imports it in twice the time
HERE = "http://127.0.0.1:7860"


class Page:
    """A page and one browser of it."""

    def __init__(self, blocks, client, metrics=None):
        self.blocks, self.client, self.metrics = blocks, client, metrics

    def other_browser(self):
        """The same page in a browser without this one's cookies."""
        client = TestClient(self.client.app, base_url=HERE)
        client.portal = (
            self.client.portal
        )  # the loop that works off the page's queue: from another one it waits for 10 s
        return Page(self.blocks, client)

    def server(self, component, function, data, **how):
        """Call a function of a component as the page's script does."""
        number = next(i for i, block in self.blocks.blocks.items() if block.elem_id == component)
        body = {"data": data, "fn_name": function, "component_id": number, "session_hash": "s"}
        return self.client.post("/gradio_api/component_server", content=json.dumps(body), **how)

    def call(self, name, *values):
        """Call a function of the API; (answer, "") or (None, its problem)."""
        posted = self.client.post(f"/gradio_api/call/{name}", json={"data": list(values)})
        if posted.status_code != 200:
            return None, f"{posted.status_code} {posted.text}"
        event = posted.json()["event_id"]
        lines = self.client.get(f"/gradio_api/call/{name}/{event}").text.splitlines()
        last = [line for line in lines if line.startswith("event:")][-1]
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")][-1]
        return (json.loads(data)[0], "") if last == "event: complete" else (None, json.dumps(json.loads(data)))


@contextmanager
def serving(database, request=None, **hosting):
    """A `Page` hosted in some way."""
    from gradio.routes import App as Application

    from focus_explorer.web.shell import build_app

    app = build_app(database=database, request=request, hosting=Hosting(**hosting))
    blocks = app.blocks.queue(max_size=16, default_concurrency_limit=8)
    if app.hosting.users is not None:
        blocks.auth = Login(app.hosting.users).check
    web = Application.create_app(blocks, app_kwargs=app.app_kwargs())
    blocks._queue.set_server_app(web)
    blocks.config["body_css"] = {}  # which `launch` takes from the theme
    blocks.local_url, blocks.has_launched = HERE + "/", True
    with TestClient(web, base_url=HERE) as client:
        assert client.get("/gradio_api/startup-events").status_code == 200
        yield Page(blocks, client, app.metrics)


@pytest.fixture(scope="session")
def stored(tmp_path_factory, model_folder):  # noqa: F811
    """(database, run, request): a run of the command line, which belongs to nobody."""
    database = tmp_path_factory.mktemp("security") / "runs.duckdb"
    request = AnalyzeRequest(model=model_folder, centroids="random", top_k=1, window=8, num_sinks=2, repeats=1)
    return database, analyze(Service(database), TEXT, request, command="focus-explorer test"), request


@pytest.fixture(scope="session")
def private(stored):
    """The page as `focus-explorer serve` serves it."""
    database, _, request = stored
    with serving(database, request) as page:
        yield page
